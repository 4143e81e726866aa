"""Values read from RDKit's binary form are those of RDKit's functions of atoms and bonds."""

import csv
import sys

import pytest
from compiler import needs_extension
from hypothesis import given, settings
from hypothesis import strategies as st
from rdkit import Chem, rdBase

from molgcn.data.featurizers.fields import CIP_LABELS, AtomFields, BondFields
from molgcn.data.mol_bytes import CHECKED, mol_bytes_reader, plain_mol_bytes, read_atom, read_bond, reader_by, with_labels
from molgcn.resources import resource

UNKNOWN = ("*C", "[CH3:1]O", "[CH3:200]O")  # dummies and atom maps are left to RDKit's functions
ODD = (
    *CHECKED, *UNKNOWN, "C[C@@H](O)[C@H](N)C(=O)O", r"C/C=C\C(/F)=N/O", "C1CCCCC1" * 45, "[Pt@SP1](F)(Cl)(Br)I", "[Og]", "[C-]#[O+]",
    "C12C3C4C1C5C4C3C25", "C12CC1C2", "[O-][n+]1ccccc1", "CC=[N+]=[N-]", "[Fe]<-[NH3]", "O=Cl(=O)(=O)O", "[C]",
    "[U](F)(F)(F)(F)(F)F", "[te]1cccc1", "[2H]C([2H])[2H]", "[H-].[Na+]", "[238U]", "F[C@H]C", "C" * 255, "C" * 256,
)  # fmt: skip


def stored(smiles):
    return Chem.MolFromSmiles(smiles).ToBinary(int(Chem.PropertyPickleOptions.NoConformers))


@needs_extension
def test_the_quick_way_is_taken():
    from molgcn._cpu import read_rdkit_binary

    assert mol_bytes_reader() is not plain_mol_bytes
    for smiles in set(ODD) - set(UNKNOWN):
        assert read_rdkit_binary(stored(smiles)) == plain_mol_bytes(Chem.MolFromSmiles(smiles)), smiles
    for smiles in UNKNOWN:
        assert read_rdkit_binary(stored(smiles)) is None


@pytest.mark.parametrize("kekulized", [False, True])
def test_every_molecule_reads_the_same(kekulized):
    with open(resource("data") / "molecules.csv", newline="") as file:
        smiles = [row["smiles"] for row in csv.DictReader(file)][::63]
    for mol in map(Chem.MolFromSmiles, [*ODD, *smiles]):
        if kekulized:
            Chem.Kekulize(mol, clearAromaticFlags=True)
        for one in (mol, Chem.AddHs(mol), Chem.MolFromMolBlock(Chem.MolToMolBlock(mol), sanitize=True) or mol):
            assert mol_bytes_reader()(one) == plain_mol_bytes(one)


@settings(max_examples=200)
@given(st.text(alphabet=r"CNOFHSBcnops()=#123[]+-@/\.*$:", max_size=16))
def test_any_molecule_reads_the_same(smiles):
    with rdBase.BlockLogs():
        mol = Chem.MolFromSmiles(smiles)
    if mol is not None:
        assert mol_bytes_reader()(mol) == plain_mol_bytes(mol)


def test_fields_are_rdkits():
    mol = Chem.AddHs(Chem.MolFromSmiles("C[NH+]1C=CC=C1[N-]"), onlyOnAtoms=[0])
    for atom in mol.GetAtoms():
        fields = read_atom(atom)
        assert fields == AtomFields.unpacked(fields.packed())
        assert fields.num_hs - fields.hidden_hs == sum(neighbor.GetAtomicNum() == 1 for neighbor in atom.GetNeighbors())
        assert (fields.charge, fields.aromatic, fields.in_ring) == (atom.GetFormalCharge(), atom.GetIsAromatic(), atom.IsInRing())
        assert fields.hybridization_name == str(atom.GetHybridization())
    for bond in mol.GetBonds():
        fields = read_bond(bond)
        assert fields == BondFields.unpacked(fields.packed())
        assert (fields.type_name, fields.stereo_name) == (str(bond.GetBondType()), str(bond.GetStereo()))
        assert (fields.conjugated, fields.in_ring) == (bond.GetIsConjugated(), bond.IsInRing())


def test_the_smallest_of_several_rings_counts():
    atoms, ends, bonds = mol_bytes_reader()(Chem.MolFromSmiles("C1CC2CC12C"))
    sizes = [AtomFields.unpacked(number).ring_size for number in memoryview(atoms).cast("Q")]
    assert sizes == [4, 4, 3, 3, 3, 0]
    sizes = [BondFields.unpacked(number).ring_size for number in memoryview(bonds).cast("I")]
    pairs = zip(memoryview(ends).cast("H")[::2], memoryview(ends).cast("H")[1::2], strict=True)
    assert {frozenset(pair): size for pair, size in zip(pairs, sizes, strict=True)} == {
        frozenset(pair): size for pair, size in {(0, 1): 4, (1, 2): 4, (2, 3): 3, (3, 4): 3, (4, 0): 4, (2, 4): 3, (4, 5): 0}.items()
    }


@needs_extension
@settings(max_examples=300)
@given(st.sampled_from(ODD[:12]), st.data())
def test_damaged_bytes_are_refused_or_read_as_a_molecule(smiles, data):
    """The reader never reads beyond the end, and never gives an atom that does not exist."""
    from molgcn._cpu import read_rdkit_binary

    binary = bytearray(stored(smiles))
    for _ in range(data.draw(st.integers(0, 3))):
        binary[data.draw(st.integers(0, len(binary) - 1))] = data.draw(st.integers(0, 255))
    binary = bytes(binary[: data.draw(st.integers(0, len(binary)))]) if data.draw(st.booleans()) else bytes(binary)
    result = read_rdkit_binary(binary)
    if result is not None:
        atoms, ends, bonds = result
        assert len(atoms) % 8 == len(bonds) % 4 == 0
        assert len(ends) == len(bonds)
        assert all(end < len(atoms) // 8 for end in memoryview(ends).cast("H"))


@needs_extension
def test_other_versions_and_other_content_are_refused():
    from molgcn._cpu import read_rdkit_binary

    binary = stored("CCO")
    assert read_rdkit_binary(binary) is not None
    assert read_rdkit_binary(binary[:8] + b"\x11" + binary[9:]) is None  # version 17
    for other in (b"", binary[:-1], binary + b"\0", bytes(len(binary)), Chem.MolFromSmiles("CCO").ToBinary()):
        assert read_rdkit_binary(other) is None
    assert read_rdkit_binary(Chem.MolFromSmarts("[C,N]").ToBinary(int(Chem.PropertyPickleOptions.NoConformers))) is None
    unsanitised = Chem.MolFromSmiles("C1CC1", sanitize=False)
    assert read_rdkit_binary(unsanitised.ToBinary(int(Chem.PropertyPickleOptions.NoConformers))) is None  # its rings are unknown


@pytest.fixture
def unread():
    """Have the reader chosen again, in the test and after it."""
    mol_bytes_reader.cache_clear()
    yield
    mol_bytes_reader.cache_clear()


@needs_extension
def test_a_form_that_is_not_known_is_said_and_not_used(caplog):
    from molgcn._cpu import read_rdkit_binary

    for wrong in (lambda binary: None, lambda binary: (*read_rdkit_binary(binary)[:2], b"")):
        assert reader_by(wrong) is plain_mol_bytes
        assert "stores molecules in a form that is not known here" in caplog.text
        caplog.clear()


def test_without_the_extension(unread, monkeypatch, caplog):
    monkeypatch.setitem(sys.modules, "molgcn._cpu", None)
    assert mol_bytes_reader() is plain_mol_bytes
    assert not caplog.text


def labelled(mol):
    """Return the labels of atoms and the stereo of bonds, where there are any, after asserting that tags are gone."""
    atoms, _, bonds = mol_bytes_reader()(mol)
    atoms, bonds = with_labels(mol, atoms, bonds)
    atoms = [AtomFields.unpacked(number) for number in memoryview(atoms).cast("Q")]
    assert not any(atom.chiral_tag for atom in atoms)
    stereos = [BondFields.unpacked(number).stereo_name for number in memoryview(bonds).cast("I")]
    return "".join(CIP_LABELS[atom.cip] for atom in atoms), [name for name in stereos if name != "STEREONONE"]


@pytest.mark.parametrize(
    ("smiles", "atoms", "bonds"),
    [
        ("C[C@H](F)O", "S", []),
        ("C[C@@H](F)O", "R", []),
        ("C[C@H]1CC[C@@H](C)CC1", "ss", []),
        (r"C/C=C/[C@H](O)/C=C\C", "S", ["STEREOE", "STEREOZ"]),
        ("[Pt@SP1](F)(Cl)(Br)I", "", []),  # has a tag, but no label of these
        ("CC(F)=C", "", []),
    ],
)
def test_labels(smiles, atoms, bonds):
    assert labelled(Chem.MolFromSmiles(smiles)) == (atoms, bonds)


def test_a_label_of_before_is_not_taken():
    mol = Chem.MolFromSmiles("C[C@H](F)O")
    mol.GetAtomWithIdx(1).SetProp("_CIPCode", "R")
    assert labelled(mol) == ("S", [])


def test_without_tags_nothing_is_asked():
    mol = Chem.MolFromSmiles("CC(F)O")
    atoms, _, bonds = mol_bytes_reader()(mol)
    assert with_labels(mol, atoms, bonds) == (atoms, bonds)
    assert not mol.GetAtomWithIdx(1).HasProp("_CIPCode")
