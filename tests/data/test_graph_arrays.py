"""The fast way from molecules to arrays agrees with the plain one, which asks for every atom and bond by itself."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rdkit import Chem, rdBase
from rdkit.Chem import rdCIPLabeler

from molgcn.data.featurizers import FEATURIZERS, get_featurizer
from molgcn.data.featurizers.general import ELEMENTS as GENERAL_ELEMENTS
from molgcn.data.featurizers.qm9 import ELEMENTS as QM9_ELEMENTS
from molgcn.data.featurizers.zinc import TYPES
from molgcn.data.graph_arrays import GraphArrays
from molgcn.data.mol_bytes import read_atom, read_bond
from molgcn.data.molecules import InvalidMoleculeError, smiles_reader
from molgcn.data.plain_molecule import count_hydrogens, drop_brackets, without_labels

SMILES = [
    "C", "CCO", "c1ccccc1", "C#N", "[NH4+]", "CC(=O)[O-]", "FC(F)F", "O=c1cc[nH]cc1", "[2H]OC", "[H][H]", "C.O", "[CH3]", "[CH2]C",
    "N[C@@H](C)C(=O)O", "[H]C([H])([H])F", "C[N+](=O)[O-]", "c1cc[nH]c1", "O=C=O", "C1=CC=CN1", "[O-][n+]1ccccc1",
    "OC(F)=N", "FC#CF", "[NH3+]CC(=O)[O-]", "F[C@H]C", "C[C@H](C)O", "F/C=C/F", "[H]/N=C/F", "*C", "[CH3:1]O", "[13CH4]", "[nH+]1cc[nH]c1",
    r"C/C=C/[C@H](O)/C=C\C", "C[C@H]1CC[C@@H](C)CC1", "C1CC1C1CCCCCCCCC1", "N#N",
    "C[P@H]F", "[cH-]1cccc1", "c1cc[pH]c1", "F[P-](F)(F)(F)(F)F", "[NH3]->[Cu+2]", "C12C3C4C1C5C4C3C25", "N(=O)(=O)C", "C" * 260,
]  # fmt: skip


def qm9_row(atom):
    hybrids = [str(atom.GetHybridization()) == name for name in ("SP", "SP2", "SP3")]
    elements = [atom.GetAtomicNum() == number for number in QM9_ELEMENTS]
    return any(elements) and [*elements, atom.GetAtomicNum(), atom.GetIsAromatic(), *hybrids, atom.GetTotalNumHs(True)]


def zinc_row(atom):
    one_hot = [(atom.GetSymbol(), atom.GetNumExplicitHs(), atom.GetFormalCharge()) == atom_type for atom_type in TYPES]
    return any(one_hot) and one_hot


def zinc12k_row(atom):
    row = zinc_row(atom)
    return row and any(row[:21]) and row[:21]


def label(item, labels):
    found = item.GetProp("_CIPCode") if item.HasProp("_CIPCode") else ""
    return [found == one for one in labels]


def ring_size(size):
    return [min(size, 8) == one for one in range(3, 9)]


def general_row(atom):
    size = atom.GetOwningMol().GetRingInfo().MinAtomRingSize(atom.GetIdx())
    return [*old_general_row(atom), *label(atom, "RSrs"), *ring_size(size)]


def old_general_row(atom):
    hybrid = str(atom.GetHybridization())
    row = []
    for value, choices in (
        (atom.GetAtomicNum(), GENERAL_ELEMENTS),
        (atom.GetDegree(), range(6)),
        (atom.GetFormalCharge(), range(-2, 3)),
        (atom.GetTotalNumHs(True), range(5)),
        (hybrid, ("S", "SP", "SP2", "SP3", "SP3D", "SP3D2")),
    ):
        row += [*(value == choice for choice in choices), value not in choices]
    mass = Chem.GetPeriodicTable().GetAtomicWeight(atom.GetAtomicNum())
    return [*row, atom.GetIsAromatic(), atom.IsInRing(), mass / 100]


def qm9_charge_row(atom):
    row = qm9_row(atom)
    return row and [*row, atom.GetFormalCharge()]


def zinc_bond_row(bond):
    types = [str(bond.GetBondType()) == name for name in ("SINGLE", "DOUBLE", "TRIPLE")]
    return [not any(types), *types]


def general_bond_row(bond):
    kinds = [str(bond.GetBondType()) == name for name in ("SINGLE", "DOUBLE", "TRIPLE", "AROMATIC", "DATIVE")]
    size = bond.GetOwningMol().GetRingInfo().MinBondRingSize(bond.GetIdx())
    return [*kinds, not any(kinds), bond.GetIsConjugated(), bond.IsInRing(), *label(bond, "EZ"), *ring_size(size)]


ROWS = {
    "qm9": qm9_row,
    "qm9_charge": qm9_charge_row,
    "zinc": zinc_row,
    "zinc12k": zinc12k_row,
    "general": general_row,
    "ogb": lambda atom: FEATURIZERS["ogb"].encode(read_atom(atom)),  # compared with their own in test_ogb.py and test_chemprop.py
    "chemprop": lambda atom: FEATURIZERS["chemprop"].encode(read_atom(atom)),
}
BOND_ROWS = {
    "qm9": lambda bond: [str(bond.GetBondType()) == name for name in ("SINGLE", "DOUBLE", "TRIPLE", "AROMATIC")],
    "zinc": zinc_bond_row,
    "general": general_bond_row,
    "ogb": lambda bond: FEATURIZERS["ogb"].encode_bond(read_bond(bond)),
    "chemprop": lambda bond: FEATURIZERS["chemprop"].encode_bond(read_bond(bond)),
}
BOND_ROWS |= {"qm9_charge": BOND_ROWS["qm9"], "zinc12k": zinc_bond_row}


def plain(smiles, name):
    """Return rows of atoms and directed bonds of a molecule with explicit hydrogens, by one call each; None for an unknown row."""
    parameters = Chem.SmilesParserParams()
    parameters.parseName = parameters.allowCXSMILES = False
    parameters.removeHs = False
    bare = without_labels(smiles.strip())
    mol = Chem.MolFromSmiles(bare, parameters)
    if mol is None or mol.GetNumAtoms() == 0:
        return None
    mol = count_hydrogens(mol)
    if bare != smiles.strip():
        drop_brackets(mol)
    if get_featurizer(name).hydrogens == "explicit":
        mol = Chem.AddHs(mol)
    if name == "general":
        rdCIPLabeler.AssignCIPLabels(mol)
    if name in ("zinc", "zinc12k"):
        Chem.Kekulize(mol, clearAromaticFlags=True)
    rows = [ROWS[name](atom) for atom in mol.GetAtoms()]
    bonds = {(b.GetBeginAtomIdx(), b.GetEndAtomIdx()): np.array(BOND_ROWS[name](b), np.float32).tolist() for b in mol.GetBonds()}
    both = bonds | {(j, i): row for (i, j), row in bonds.items()}
    return (np.array(rows, np.float32), both) if all(row is not False for row in rows) else None


def check(smiles, name):
    featurizer = get_featurizer(name)
    read = smiles_reader("counted", featurizer.stereo != "none")
    graphs, expected = GraphArrays(featurizer), []
    with rdBase.BlockLogs():
        for text in smiles:
            try:
                graphs.add(read(text))
            except InvalidMoleculeError:
                assert plain(text, name) is None
            else:
                expected.append(plain(text, name))
    arrays, refused = graphs.finish()
    assert sorted(refused) == [number for number, one in enumerate(expected) if one is None]
    expected = [one for one in expected if one is not None]
    atom = bond = 0
    for (rows, bonds), num_nodes, num_edges in zip(expected, arrays["num_nodes"], arrays["num_edges"], strict=True):
        np.testing.assert_array_equal(arrays["table"][arrays["codes"][atom : atom + num_nodes]], rows)
        edges = arrays["edge_index"][:, bond : bond + num_edges].T.tolist()
        codes = arrays["edge_codes"][bond : bond + num_edges] if "edge_codes" in arrays else []
        assert len(edges) == len(bonds)
        assert {tuple(edge) for edge in edges} == bonds.keys()
        for edge, row in zip(edges, arrays["edge_table"][codes].tolist() if len(codes) else [], strict=len(codes) > 0):
            assert row == bonds[tuple(edge)]
        atom, bond = atom + num_nodes, bond + num_edges
    assert len(arrays["codes"]) == atom
    for table in ("table", "edge_table") if featurizer.bond_names else ("table",):
        assert len(np.unique(arrays[table], axis=0)) == len(arrays[table])
    return len(expected)


@pytest.mark.parametrize("name", ROWS)
def test_every_atom_and_bond(name):
    assert check(SMILES, name) > 15


@settings(max_examples=100)
@given(st.lists(st.text(alphabet="CNOFHScnop()=#12[]+-@/\\\\.*", max_size=14), max_size=12), st.sampled_from(sorted(ROWS)))
def test_any_molecules(smiles, name):
    check(smiles, name)


def test_long_chains():
    assert check(["C" * 300, "C" * 256, "C"], "general") == 3


def test_a_refused_molecule_leaves_nothing_behind():
    graphs, read = GraphArrays(FEATURIZERS["qm9"]), smiles_reader("counted")
    for text in ("CO", "CSCl", "[Fe]", "C"):
        graphs.add(read(text))
    arrays, refused = graphs.finish()
    assert list(refused) == [1, 2]
    assert refused[1].startswith("S is not one of")
    assert refused[2].startswith("Fe is not one of")
    assert arrays["num_nodes"].tolist() == [6, 5]
    assert arrays["edge_index"].shape == (2, 18)
    assert len(arrays["table"]) == 4


def test_rows_are_in_the_order_of_their_first_atoms():
    graphs, read = GraphArrays(FEATURIZERS["qm9"]), smiles_reader("counted")
    for text in ("O", "C#N", "C"):
        graphs.add(read(text))
    arrays, _ = graphs.finish()
    np.testing.assert_array_equal(arrays["table"][:, [5, 10]], [[8, 2], [1, 0], [6, 1], [7, 0], [6, 4]])
    np.testing.assert_array_equal(arrays["codes"], [0, 1, 1, 2, 3, 1, 4, 1, 1, 1, 1])
    np.testing.assert_array_equal(arrays["edge_table"], [[1, 0, 0, 0], [0, 0, 1, 0]])  # single and triple
    np.testing.assert_array_equal(arrays["edge_codes"], [0, 0, 0, 0, 1, 1, *[0] * 10])


def test_hydrogens_count_as_atoms():
    with pytest.raises(InvalidMoleculeError, match="66,002 atoms, at most 65,535"):
        GraphArrays(FEATURIZERS["qm9"]).add(smiles_reader("counted")("C" * 22_000))
    with pytest.raises(InvalidMoleculeError, match="66,000 atoms, at most 65,535"):
        GraphArrays(FEATURIZERS["general"]).add(smiles_reader("implicit")("C" * 66_000))


@pytest.mark.parametrize("texts", [[], ["[Fe]"]])
def test_none_at_all(texts):
    graphs = GraphArrays(FEATURIZERS["qm9"])
    for text in texts:
        graphs.add(smiles_reader("counted")(text))
    arrays, refused = graphs.finish()
    assert len(refused) == len(texts)
    assert arrays["edge_index"].shape == (2, 0)
    assert arrays["table"].shape == (0, 11)
    assert arrays["edge_table"].shape == (0, 4)
    assert arrays["codes"].shape == arrays["num_nodes"].shape == (0,)


@pytest.mark.parametrize("name", ["zinc", "general"])
def test_a_model_without_bonds_does_not_pay_for_them(name):
    graphs = GraphArrays(FEATURIZERS[name], bonds=False)
    graphs.add(smiles_reader("counted")("c1ccccc1O"))
    arrays, _ = graphs.finish()
    assert "edge_codes" not in arrays
    assert arrays["edge_index"].shape == (2, 14)
