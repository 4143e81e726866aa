import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from molgcn.data.splits.parts import PARTS, split_sizes
from molgcn.data.splits.stratified import strata_of, stratified_split


@given(
    counts=st.lists(st.integers(1, 60), min_size=1, max_size=6),
    fractions=st.sampled_from([(0.8, 0.1, 0.1), (0.5, 0.3, 0.2), (0.7, 0.3, 0)]),
    seed=st.integers(0, 2**32),
)
def test_every_part_has_its_share_of_every_class(counts, fractions, seed):
    total = sum(counts)
    if total < 12:
        return
    strata = np.random.default_rng(seed).permutation(np.repeat(np.arange(len(counts)), counts))
    split = stratified_split(strata, fractions, seed)
    sizes = split_sizes(total, fractions)
    for part, size in zip(PARTS, sizes, strict=True):
        assert len(split[part]) == size
        for stratum, count in enumerate(counts):
            assert abs((strata[split[part]] == stratum).sum() - count * size / total) < 2


def test_a_rare_class_is_in_every_part():
    strata = np.zeros(1000, int)
    strata[::33] = 1  # 31 molecules
    split = stratified_split(strata, (0.8, 0.1, 0.1), 3)
    assert [int(strata[split[part]].sum()) for part in PARTS] == [25, 3, 3]


@pytest.mark.parametrize(
    ("values", "strata"),
    [
        ([1, 0, 1, np.nan], [1, 0, 1, -1]),
        ([2, 7, 5, 2], [0, 2, 1, 0]),
        ([0.5, 0.25, np.nan, 0.5], [5, 0, -1, 5]),
        (np.arange(40) + 0.5, np.arange(40) // 4),
        (np.arange(1000), np.arange(1000) // 100),
    ],
)
def test_classes_and_bins(values, strata):
    found = strata_of(np.array(values, float))
    known = np.array(strata) >= 0
    assert (found[~known] == -1).all()
    order = np.argsort(np.array(values)[known], kind="stable")
    np.testing.assert_array_equal(np.diff(found[known][order]) > 0, np.diff(np.array(strata)[known][order]) > 0)
