"""features=ogb gives the features of the package, where it is installed, and rows that are written down."""

import importlib.util
from pathlib import Path

import numpy as np
import pytest
from rdkit import Chem

from molgcn.data import PackedMolecules
from molgcn.data.featurizers.ogb import OGB

SMILES = [
    r"Cl[C@H](/C=C/C)Br", "N[C@@H](C)C(=O)O", "c1ccc2[nH]ccc2c1", "[Na+].[Cl-]", "C[N+](=O)[O-]", "[CH3]", "[O][O]", "F[P-](F)(F)(F)(F)F",
    "[Pt@SP1](F)(Cl)(Br)I", "[NH3]->[Cu+2]", "CC#N", r"F/C=C\F", "FC=CF", "*C", "[Fe+6]", "[U](F)(F)(F)(F)(F)F", "C[S@](=O)CC", "[13CH4]",
    "C1CC1", "O=C=O", "C[Si](C)(C)C",
]  # fmt: skip


def theirs():
    """Return the module ogb.utils.features without the package, whose import asks the network for a newer version."""
    package = importlib.util.find_spec("ogb")
    if package is None:
        pytest.skip("ogb is not installed")
    spec = importlib.util.spec_from_file_location("ogb_features", Path(package.submodule_search_locations[0], "utils", "features.py"))
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def one_hots(indices, sizes):
    return np.concatenate([np.eye(size, dtype=np.float32)[index] for index, size in zip(indices, sizes, strict=True)])


@pytest.mark.parametrize("smiles", SMILES)
def test_rows_are_ogbs_categories_side_by_side(smiles):
    ogb, mol = theirs(), Chem.MolFromSmiles(smiles)
    data = PackedMolecules.from_smiles([smiles], features="ogb").to_pyg()[0]
    atoms = [one_hots(ogb.atom_to_feature_vector(atom), ogb.get_atom_feature_dims()) for atom in mol.GetAtoms()]
    np.testing.assert_array_equal(data.x, atoms)
    for (source, target), row in zip(data.edge_index.T.tolist(), data.edge_attr.numpy(), strict=True):
        bond = mol.GetBondBetweenAtoms(source, target)
        np.testing.assert_array_equal(row, one_hots(ogb.bond_to_feature_vector(bond), ogb.get_bond_feature_dims()))


def test_rows_are_those_written_down():
    """OGB's comments have an example, whose chiral carbon is [5, 2, 4, 5, 1, 0, 2, 0, 0] and whose double bond is [1, 2, 0]."""
    data = PackedMolecules.from_smiles([r"Cl[C@H](/C=C/C)Br"], features="ogb").to_pyg()[0]
    np.testing.assert_array_equal(data.x[1], one_hots([5, 2, 4, 5, 1, 0, 2, 0, 0], [119, 5, 12, 12, 10, 6, 6, 2, 2]))
    ends = data.edge_index.T.tolist().index([2, 3])
    np.testing.assert_array_equal(data.edge_attr[ends], one_hots([1, 2, 0], [5, 6, 2]))
    assert [OGB.names[place] for place in data.x[1].nonzero().flatten()] == [
        *("element_6", "chi_tetrahedral_ccw", "degree_4", "charge_+0", "num_hs_1", "radicals_0", "sp3", "not_aromatic", "not_in_ring"),
    ]
    assert [OGB.bond_names[place] for place in data.edge_attr[ends].nonzero().flatten()] == ["double", "stereoe", "not_conjugated"]


def test_what_ogb_has_no_category_for():
    x = PackedMolecules.from_smiles(["*C", "[Fe+6]"], features="ogb").node_features()
    assert x[0, OGB.names.index("other_element")] == x[2, OGB.names.index("other_charge")] == 1
