import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from molgcn.metrics import errors_of
from molgcn.report.analysis import MAX_BINS, Errors, size_edges

TRUE = np.array([1.0, 2.0, np.nan, 4.0, 8.0])
PREDICTED = np.array([1.5, 2.0, 3.0, 3.0, np.inf])


def test_missing_and_infinite_are_left_out():
    errors = Errors.of("gap", "eV", TRUE, PREDICTED)
    assert errors.index.tolist() == [0, 1, 3]
    assert errors.unpredicted == 1
    np.testing.assert_allclose(errors.error, [0.5, 0.0, -1.0])
    assert errors.mae == pytest.approx(0.5)
    assert errors.bias == pytest.approx(-1 / 6)
    assert errors.guess == pytest.approx((4 / 3 + 1 / 3 + 5 / 3) / 3)
    assert errors.quantile(0.5) == pytest.approx(0.5)
    assert errors.index[errors.worst(2)].tolist() == [3, 0]


def test_the_figures_are_those_of_the_table():
    rng = np.random.default_rng(1)
    true, predicted = 1e8 + rng.normal(size=(2, 500))
    errors = Errors.of("x", "", true, predicted)
    assert errors.mae == errors_of(predicted[:, None], true[:, None])["mae"][0]
    assert errors.guess == pytest.approx(np.abs(true - true.mean()).mean(), rel=1e-12)
    assert errors.digits == 10


def test_groups_hold_every_molecule_once():
    rng = np.random.default_rng(0)
    true, predicted = rng.normal(size=(2, 300))
    true[::7] = np.nan
    errors = Errors.of("x", "", true, predicted)
    scaffolds, rare = errors.by_scaffold([f"s{i % 5}" if i % 9 else f"own{i}" for i in range(300)])
    assert rare is not None
    for groups in (errors.by_size(rng.integers(3, 40, 300)), [*scaffolds, rare]):
        assert sum(group.count for group in groups) == len(errors.index)
        assert sum(group.count * group.mae for group in groups) / len(errors.index) == pytest.approx(errors.mae)
        assert sum(group.count * group.bias for group in groups) / len(errors.index) == pytest.approx(errors.bias)


def test_scaffolds_of_at_least_five_molecules_come_most_common_first():
    names, errors = ["a"] * 6 + [""] * 5 + ["b"] * 4 + ["c"], np.arange(16.0)
    groups, rare = Errors.of("x", "", np.zeros(16), errors).by_scaffold(names)
    assert [(group.name, group.count, group.mae, group.bias) for group in groups] == [("a", 6, 2.5, 2.5), ("", 5, 8.0, 8.0)]
    assert (rare.count, rare.mae, rare.bias) == (5, 13.0, 13.0)


@given(st.lists(st.integers(1, 500), min_size=2, max_size=200))
def test_every_range_of_sizes_holds_two_molecules(sizes):
    sizes = np.array(sizes)
    edges = size_edges(sizes)
    counts, _ = np.histogram(sizes, edges)
    assert counts.sum() == len(sizes)
    assert counts.min() > 1
    assert len(edges) <= MAX_BINS + 1


def test_nothing_known():
    errors = Errors.of("x", "", np.full(3, np.nan), np.zeros(3))
    assert all(np.isnan([errors.mae, errors.bias, errors.guess, errors.quantile(0.5)]))
    assert errors.by_size(np.ones(3, int)) == []
    assert errors.by_scaffold(["", "", ""]) == ([], None)
    assert errors.worst(3).tolist() == []
