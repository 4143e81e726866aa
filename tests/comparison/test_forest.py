"""The random forest on Morgan fingerprints."""

from __future__ import annotations

import csv
import math

import numpy as np
import pytest
from rdkit import Chem
from rdkit.Chem.rdFingerprintGenerator import GetMorganGenerator
from sklearn.ensemble import RandomForestRegressor

from molgcn.comparison.baselines import MOST, check_forest, fingerprints, forest_predictions
from molgcn.data import PackedMolecules
from molgcn.errors import UserError
from molgcn.resources import resource


@pytest.fixture(scope="module")
def logp():
    """SMILES and Crippen logP of 150 molecules."""
    with open(resource("data") / "molecules.csv", newline="") as file:
        rows = [(row["smiles"], float(row["logp"])) for row in csv.DictReader(file)]
    rows = rows[:: len(rows) // 150]
    return [smiles for smiles, _ in rows], np.array([[value] for _, value in rows])


def test_fingerprints_count_environments():
    found = fingerprints(["CCO", "no molecule", "C" * 400])
    expected = GetMorganGenerator(radius=2, fpSize=2048).GetCountFingerprintAsNumPy(Chem.MolFromSmiles("CCO"))
    np.testing.assert_array_equal(found[0], expected)
    assert found.shape == (3, 2048) and not found[1].any() and found[2].max() == 255


def test_numbers_are_those_of_scikit_learn(logp):
    smiles, values = logp
    found = forest_predictions(smiles[:100], values[:100], smiles[100:], 0, seed=3)
    forest = RandomForestRegressor(100, max_features=1 / 3, random_state=3).fit(fingerprints(smiles[:100]), values[:100, 0])
    np.testing.assert_allclose(found[:, 0], forest.predict(fingerprints(smiles[100:])), rtol=1e-12)
    np.testing.assert_array_equal(found, forest_predictions(smiles[:100], values[:100], smiles[100:], 0, seed=3))
    assert np.corrcoef(found[:, 0], values[100:, 0])[0, 1] > 0.5


def test_each_target_learns_from_its_own_labels(logp):
    smiles, values = logp
    labels = np.digitize(values, [0.0, 2.0]).astype(float)
    targets = np.concatenate([labels, np.where(labels == 1, math.nan, labels), np.full_like(labels, math.nan)], axis=1)
    found = forest_predictions(smiles, targets, smiles[:9], 3, seed=0)
    assert found.shape == (9, 3, 3)
    np.testing.assert_allclose(found[:, :2].sum(axis=2), 1)
    assert not found[:, 1, 1].any()  # a class without a training label
    assert np.isnan(found[:, 2]).all()


def test_sets_that_it_cannot_be_fitted_to_are_refused():
    molecules = PackedMolecules.from_smiles(["C", "CC"], num_workers=0)
    check_forest(molecules)
    with pytest.raises(UserError, match=r"training\.baseline=rf needs SMILES"):
        check_forest(PackedMolecules.from_pyg(molecules.to_pyg()))
    many = molecules[np.zeros(MOST + 1, int)]
    with pytest.raises(UserError, match=r"training\.baseline=rf is for at most 50,000 training molecules, and there are 50,001"):
        check_forest(many)
