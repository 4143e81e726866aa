"""Distances of molecules from a training set equal RDKit's and those computed by hand."""

import numpy as np
import pytest
from rdkit import Chem, DataStructs
from rdkit.Chem.rdFingerprintGenerator import GetMorganGenerator

from molgcn.data import PackedMolecules
from molgcn.domain.distance import NAMES, distance_to_all
from molgcn.domain.index import DomainIndex

TRAINING = ["CCO", "CCCN", "CC(=O)C", "C1CC1"]
SMILES = ["OCC", "CCCl", "CC#N", "C", "CCCCCC", "Br"]


def packed(smiles, features="general"):
    return PackedMolecules.from_smiles(smiles, features=features, num_workers=0)


@pytest.fixture
def index(tmp_path):
    def make(smiles, features="general"):
        path = tmp_path / f"{len(list(tmp_path.iterdir()))}.npz"
        DomainIndex.of(packed(smiles, features)).save(path)
        return path

    return make


def tanimoto(smiles, training):
    generator = GetMorganGenerator(radius=2, fpSize=2048)
    known, given = ([generator.GetFingerprint(Chem.MolFromSmiles(text)) for text in some] for some in (training, smiles))
    return [max(DataStructs.BulkTanimotoSimilarity(one, known)) for one in given]


def test_numbers_of_each_molecule(index):
    found = distance_to_all([index(TRAINING)], packed(SMILES), SMILES)
    assert found.shape == (len(SMILES), len(NAMES)) and found.dtype == np.float64
    np.testing.assert_allclose(found[:, 0], tanimoto(SMILES, TRAINING), rtol=1e-12)
    assert found[0].tolist() == [1, 0, 0, 0]
    known = {row.tobytes() for row in packed(TRAINING).node_features()}
    bonds = {row.tobytes() for row in packed(TRAINING).edge_features()}
    for place, text in enumerate(SMILES):
        molecule = packed([text])
        assert found[place, 1] == np.mean([row.tobytes() not in known for row in molecule.node_features()])
        rows = [row.tobytes() not in bonds for row in molecule.edge_features()]
        assert found[place, 2] == (np.mean(rows) if rows else 0)
    assert found[:, 3].tolist() == [0, 0, 0, 1, 1, 1]


def test_what_training_held_is_not_far(index):
    assert distance_to_all([index(TRAINING)], packed(TRAINING), TRAINING).tolist() == [[1, 0, 0, 0]] * 4


def test_of_several_trainings_the_farthest_counts(index):
    paths = [index(TRAINING), index(SMILES)]
    molecules = packed([*TRAINING, *SMILES])
    both = distance_to_all(paths, molecules, [*TRAINING, *SMILES])
    each = [distance_to_all([path], molecules, [*TRAINING, *SMILES]) for path in paths]
    np.testing.assert_array_equal(both[:, 0], np.minimum(each[0][:, 0], each[1][:, 0]))
    np.testing.assert_array_equal(both[:, 1:], np.maximum(each[0][:, 1:], each[1][:, 1:]))


@pytest.mark.parametrize("features", ["qm9", "zinc", "ogb", "chemprop"])
def test_with_other_features(index, features):
    found = distance_to_all([index(["CCO", "CCN"], features)], packed(["CCO", "CCF", "C"], features), ["CCO", "CCF", "C"])
    assert found[0].tolist() == [1, 0, 0, 0]
    assert found[1, 1] > 0 and found[2, 3] == 1
