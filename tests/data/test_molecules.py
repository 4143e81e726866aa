import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rdkit import Chem, rdBase

from molgcn.data.molecules import InvalidMoleculeError, read_mol_block, smiles_reader

GLYCINE_WITHOUT_CHARGES = Chem.MolToMolBlock(Chem.AddHs(Chem.MolFromSmiles("[NH3+]CC(=O)[O-]"))).replace("M  CHG  2   1   1   5  -1\n", "")


def symbols(mol):
    return "".join(atom.GetSymbol() for atom in mol.GetAtoms())


@pytest.mark.parametrize(("text", "counted", "implicit"), [("CO", "CO", "CO"), ("[H][H]", "HH", "HH"), (" [2H]OC\n", "OC", "HOC")])
def test_hydrogens(text, counted, implicit):
    assert symbols(smiles_reader("counted")(text)) == counted
    assert symbols(smiles_reader("implicit")(text)) == implicit


@pytest.mark.parametrize(
    ("text", "reason"), [("C1CC", "syntax"), ("CC name", "syntax"), ("F=F", "valence for atom # 0 F"), ("", "empty"), (3, "empty")]
)
def test_reasons(text, reason):
    with rdBase.BlockLogs(), pytest.raises(InvalidMoleculeError, match=reason):
        smiles_reader("counted")(text)


NOTATIONS = [
    ("InChI=1S/CH4/h1H4", "an InChI: convert it with RDKit"),
    ("VNWKTOKETHGBQD-UHFFFAOYSA-N", "an InChIKey"),
    ("CCO>>CC=O", "a reaction"),
    ("CCO.[O]>[Pd]>CC=O", "a reaction"),
    ("[NH3]->[Cu+2]>>N", "a reaction"),
    ("CCO |$R1;;$|", "a CXSMILES: leave out what stands behind the blank"),
    ("C[C@H](F)O\t|&1:1|", "a CXSMILES"),
    (GLYCINE_WITHOUT_CHARGES, "a mol block"),
]


@pytest.mark.parametrize("hydrogens", ["counted", "implicit"])
@pytest.mark.parametrize(("text", "what"), NOTATIONS, ids=[text[:20] for text, _ in NOTATIONS])
def test_other_notations_are_named(text, what, hydrogens):
    with rdBase.BlockLogs(), pytest.raises(InvalidMoleculeError, match=f"is not a SMILES .* looks like {what}"):
        smiles_reader(hydrogens)(text)


@settings(max_examples=50)
@given(st.lists(st.sampled_from(["CCO", "c1ccccc1", "[Na+].[Cl-]", "F/C=C/F", "C[C@H](F)O"]), min_size=2, max_size=3))
def test_what_is_made_of_molecules_is_named_or_read(smiles):
    """Errors name InChIs and reactions; several molecules in one SMILES are read."""
    read = smiles_reader("counted")
    with rdBase.BlockLogs():
        assert read(".".join(smiles)).GetNumAtoms() > 3
        for text, what in ((f"{smiles[0]}>>{smiles[1]}", "reaction"), (Chem.MolToInchi(read(smiles[0])), "InChI")):
            with pytest.raises(InvalidMoleculeError, match=what):
                read(text)


@pytest.mark.parametrize("text", ["C1CC", "CC name", "C>C", "C|", "what is this", "InChI"])
def test_what_looks_like_nothing_is_said_to_be_no_smiles(text):
    with rdBase.BlockLogs(), pytest.raises(InvalidMoleculeError, match=r"^it is not a SMILES \(syntax\)$"):
        smiles_reader("counted")(text)


def test_hydrogens_that_brackets_state_at_no_centre_are_let_go():
    """RDKit's perception of stereochemistry sets the hydrogens of such an atom, and must run where a centre is marked."""
    for text in ("F[C@H]C", "C[C@H](C)O", "C[P@H]F", "[C@H](F)(Cl)Br"):
        mine, theirs = smiles_reader("implicit")(text), Chem.MolFromSmiles(text)
        for count in ("GetTotalNumHs", "GetNumExplicitHs"):
            assert [getattr(a, count)() for a in mine.GetAtoms()] == [getattr(a, count)() for a in theirs.GetAtoms()]
    assert smiles_reader("implicit")("C[C@H](C)O").GetAtomWithIdx(1).GetNumExplicitHs() == 0
    assert smiles_reader("implicit")("C[C@H](F)O").GetAtomWithIdx(1).GetNumExplicitHs() == 1


def test_a_mol_block_is_taken_as_it_is():
    assert "CHG" not in GLYCINE_WITHOUT_CHARGES
    with rdBase.BlockLogs():
        mol = read_mol_block(GLYCINE_WITHOUT_CHARGES, "explicit")
    assert symbols(mol) == "NCCOOHHHHH"
    assert mol.GetNumBonds() == 9
    assert mol.GetAtomWithIdx(0).GetTotalNumHs(True) == 3
    assert str(mol.GetAtomWithIdx(2).GetHybridization()) == "SP2"
    with rdBase.BlockLogs():
        assert symbols(read_mol_block(GLYCINE_WITHOUT_CHARGES, "implicit")) == "NCCOO"


def test_a_mol_block_is_made_aromatic():
    block = Chem.MolToMolBlock(Chem.AddHs(Chem.MolFromSmiles("c1ccncc1")))
    assert sum(atom.GetIsAromatic() for atom in read_mol_block(block, "explicit").GetAtoms()) == 6


@pytest.mark.parametrize("block", ["", "no block", None, "\n\n\n  0  0  0  0  0  0  0  0  0  0999 V2000\nM  END\n"])
def test_what_is_not_a_mol_block_is_refused(block):
    with rdBase.BlockLogs(), pytest.raises(InvalidMoleculeError):
        read_mol_block(block, "explicit")


def test_a_smiles_of_a_million_characters_is_not_parsed():
    """RDKit would take 300 bytes for each."""
    with pytest.raises(InvalidMoleculeError, match="has 1,000,001 characters, at most 1,000,000"):
        smiles_reader("counted")("C" * 1_000_001)
