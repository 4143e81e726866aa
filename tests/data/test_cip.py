"""CIP labels replace RDKit's tags."""

import pytest
from rdkit import Chem

from molgcn.data.featurizers.fields import CIP_LABELS, AtomFields, BondFields
from molgcn.data.mol_bytes import mol_bytes_reader, with_labels


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
