"""features=general depends on no order of the atoms, and sees bonds, rings and stereochemistry."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rdkit import Chem

from molgcn.data import PackedMolecules
from molgcn.data.featurizers.general import GENERAL
from molgcn.data.pyg import unpack_pyg

SMILES = [
    "C[C@H](F)O", "N[C@@H](C)C(=O)O", r"C/C=C/[C@H](O)/C=C\C", r"F/C=C/C=C\Cl", "C[C@H]1CC[C@@H](C)CC1",
    "O[C@H]1[C@H](O)[C@@H](O)[C@H](O)C1", "C[S@](=O)CC", "C1CC2CCC1C2", "c1ccc2[nH]ccc2c1", "CC(=O)Oc1ccccc1C(=O)O",
    "CN1C=NC2=C1C(=O)N(C(=O)N2C)C", "[O-][n+]1ccccc1C#N",
    "C[C@]12CC[C@H]3[C@H]([C@@H]1CC[C@@H]2O)CCC4=CC(=O)CC[C@]34C", "C1CCCCCCCCC1", "C12C3C4C1C5C4C3C25", "[NH3]->[Cu+2]",
    "OC1C2OC3C(O)C2C13",
    "CC(C)C[C@H](NC(=O)[C@H](C)N)C(=O)O", "C[C@@H]1C[C@H]1/C=C/c1ccncc1", "F[P@](Cl)Br",
]  # fmt: skip


def multisets(molecules):
    """Return the rows of atoms, and the rows of bonds with those of both ends, independent of their order."""
    data = unpack_pyg(molecules)[0]
    atoms, bonds = [tuple(row) for row in data.x.tolist()], [tuple(row) for row in data.edge_attr.tolist()]
    ends = [(atoms[source], atoms[target]) for source, target in data.edge_index.T.tolist()]
    return Counter(atoms), Counter(zip(bonds, ends, strict=True))


@settings(max_examples=80)
@given(st.sampled_from(SMILES), st.randoms(use_true_random=False))
def test_renumbered_atoms_have_the_same_rows(smiles, random):
    mol = Chem.MolFromSmiles(smiles)
    order = list(range(mol.GetNumAtoms()))
    random.shuffle(order)
    shuffled = Chem.RenumberAtoms(mol, order)
    written = Chem.MolToSmiles(shuffled, canonical=False, rootedAtAtom=order[0])
    expected = multisets(PackedMolecules.from_smiles([smiles], features="general"))
    assert multisets(PackedMolecules.from_smiles([written], features="general")) == expected


def columns(row, names):
    return {name for name, value in zip(names, row, strict=True) if value and name != "mass"}


def test_what_an_atom_has():
    x = PackedMolecules.from_smiles(["N[C@@H](C)C(=O)O", "C[C@H]1CC[C@@H](F)CC1", "C1CC2CC12", "C1CCCCCCCCC1"], features="general").to_pyg()
    assert columns(x[0].x[1].tolist(), GENERAL.names) == {"C", "degree_3", "charge_+0", "num_hs_1", "sp3", "cip_S"}
    assert columns(x[1].x[1].tolist(), GENERAL.names) == {"C", "degree_3", "charge_+0", "num_hs_1", "sp3", "in_ring", "cip_s", "ring_6"}
    assert {"ring_3"} == columns(x[2].x[2].tolist(), GENERAL.names) & {"ring_3", "ring_4", "ring_5"}
    assert "ring_8_or_more" in columns(x[3].x[2].tolist(), GENERAL.names)
    old = PackedMolecules.from_smiles(["N[C@@H](C)C(=O)O"], features="general:1").node_features()
    np.testing.assert_array_equal(x[0].x[:, : old.shape[1]], old)


@pytest.mark.parametrize(
    ("smiles", "ends", "expected"),
    [
        ("CC", (0, 1), {"single"}),
        ("C#N", (0, 1), {"triple"}),
        ("C=CC=C", (1, 2), {"single", "conjugated"}),
        ("c1ccccc1", (0, 1), {"aromatic", "conjugated", "in_ring", "ring_6"}),
        ("C/C=C/C", (1, 2), {"double", "e"}),
        (r"C/C=C\C", (1, 2), {"double", "z"}),
        ("CC=CC", (1, 2), {"double"}),
        ("[NH3]->[Cu+2]", (0, 1), {"dative"}),
        ("[Re]$[Re]", (0, 1), {"other_bond"}),
        ("C1CCCCCCCCC1C", (0, 1), {"single", "in_ring", "ring_8_or_more"}),
        ("C1CC2CC12", (2, 4), {"single", "in_ring", "ring_3"}),
    ],
)
def test_what_a_bond_has(smiles, ends, expected):
    data = PackedMolecules.from_smiles([smiles], features="general").to_pyg()[0]
    rows = {
        tuple(pair): columns(row, GENERAL.bond_names) for pair, row in zip(data.edge_index.T.tolist(), data.edge_attr.tolist(), strict=True)
    }
    assert rows[ends] == rows[ends[::-1]] == expected


def test_a_structure_in_space_has_the_labels_of_its_smiles():
    from rdkit.Chem import AllChem

    mol = Chem.AddHs(Chem.MolFromSmiles(r"C[C@H](F)/C=C\Cl"))
    AllChem.EmbedMolecule(mol, randomSeed=1)
    from molgcn.data.featurize import featurize_items

    expected = multisets(PackedMolecules.from_smiles([r"C[C@H](F)/C=C\Cl"], features="general"))
    for kind in ("molblock", "sdf"):
        assert multisets(featurize_items([Chem.MolToMolBlock(mol)], features="general", kind=kind).packed) == expected
