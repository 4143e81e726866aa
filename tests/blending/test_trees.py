"""Boosted trees learn numbers and classes and are the same from their text."""

from __future__ import annotations

import sys

import numpy as np
import pytest
import torch

from molgcn.blending.trees import SMALL, Trees
from molgcn.errors import UserError

RNG = np.random.default_rng(0)
X = RNG.normal(size=(200, 6)).astype(np.float32)
X[::7, 3] = np.nan
SETTINGS = SMALL | {"num_trees": 60, "learning_rate": 0.1}


def test_numbers_are_learned_alike_with_any_number_of_threads():
    y = X[:, 0] + X[:, 1] ** 2
    one = Trees.fit(X, y, 0, None, 3, SETTINGS)
    threads = torch.get_num_threads()
    torch.set_num_threads(threads + 1)
    try:
        other = Trees.fit(X, y, 0, np.ones(200), 3, SETTINGS)
    finally:
        torch.set_num_threads(threads)
    np.testing.assert_array_equal(one.predict(X), other.predict(X))
    assert (one.predict(X) != Trees.fit(X, y, 0, None, 4, SETTINGS).predict(X)).any()
    assert np.corrcoef(one.predict(X), y)[0, 1] > 0.9
    np.testing.assert_array_equal(Trees(one.text).predict(X), one.predict(X))
    assert one.num_features == 6


@pytest.mark.parametrize("num_classes", [2, 3])
def test_classes_have_probabilities(num_classes):
    labels = np.digitize(X[:, 0], [0.0, 0.8][: num_classes - 1]).astype(float)
    found = Trees.fit(X, labels, num_classes, None, 0, SETTINGS).predict(X)
    assert found.shape == (200, num_classes)
    np.testing.assert_allclose(found.sum(axis=1), 1)
    assert (found.argmax(axis=1) == labels).mean() > 0.95
    only = Trees.fit(X, np.ones(200), num_classes, None, 0, SETTINGS).predict(X)
    assert (only[:, 1] > 0.99).all()  # one of the classes has no label


def test_weights_count():
    y = np.where(np.arange(200) < 100, 0.0, 1.0)
    weights = np.where(y == 1, 9.0, 1.0)
    found = Trees.fit(np.zeros((200, 1), np.float32), y, 0, weights, 0, SETTINGS)
    np.testing.assert_allclose(found.predict(np.zeros((1, 1), np.float32)), 0.9, rtol=1e-3)


def test_what_is_wrong_is_said(monkeypatch):
    with pytest.raises(UserError, match="cannot be used: it is not LightGBM's text"):
        Trees("no trees").predict(X)
    monkeypatch.setitem(sys.modules, "lightgbm", None)
    with pytest.raises(UserError, match=r"pip install lightgbm"):
        Trees.fit(X, X[:, 0], 0, None, 0)
