import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from split_sets import as_sets

from molgcn.data.splits.drawn import random_split
from molgcn.data.splits.parts import PARTS, split_sizes
from molgcn.errors import UserError


@given(n=st.integers(10, 500), seed=st.integers(0, 2**31), val=st.floats(0.1, 0.4), test=st.floats(0.1, 0.4))
def test_random_split_covers_everything_once(n, seed, val, test):
    split = random_split(n, (1 - val - test, val, test), seed)
    assert sorted(np.concatenate([split[part] for part in PARTS]).tolist()) == list(range(n))
    assert [len(split[part]) for part in PARTS] == list(split_sizes(n, (1 - val - test, val, test)))
    assert all(np.all(np.diff(split[part]) > 0) for part in PARTS)


def test_random_split_is_the_seeds():
    first, again, other = random_split(100, seed=1), random_split(100, seed=1), random_split(100, seed=2)
    assert as_sets(first) == as_sets(again) != as_sets(other)
    assert random_split(20, seed=0)["test"].tolist() == [1, 15]  # equal on every machine


@pytest.mark.parametrize(("n", "counts"), [(100, (50, 10, 5)), (100, (80, 10, 10)), (10, (8, 1, 1)), (2000, (800, 100, 100))])
def test_counts_may_leave_molecules_out(n, counts):
    split = random_split(n, counts)
    assert [len(split[part]) for part in PARTS] == [*counts]


@pytest.mark.parametrize(("n", "fractions"), [(10, (0.8, 0.1, 0.1)), (457, (0.5, 0.3, 0.2)), (457, (300, 50, 7)), (12, (1, 1, 1))])
def test_without_repeats_a_split_is_a_cut_of_the_shuffle(n, fractions):
    order, ends = np.random.default_rng(7).permutation(n), np.cumsum(split_sizes(n, fractions))
    for groups in (None, np.arange(n), np.random.default_rng(0).permutation(n)):
        split = random_split(n, fractions, 7, groups)
        for part, indices in zip(PARTS, np.split(order, ends), strict=False):
            assert split[part].tolist() == sorted(indices.tolist())


@given(seed=st.integers(0, 2**31), largest=st.integers(1, 9), num_groups=st.integers(30, 90))
def test_groups_stay_together_and_sizes_follow(seed, largest, num_groups):
    rng = np.random.default_rng(seed)
    counts = rng.integers(1, largest + 1, num_groups)
    groups = rng.permutation(np.repeat(np.arange(num_groups), counts))
    split = random_split(len(groups), (0.6, 0.2, 0.2), seed, groups)
    assert sorted(np.concatenate([split[part] for part in PARTS]).tolist()) == list(range(len(groups)))
    assert sum(len(np.unique(groups[split[part]])) for part in PARTS) == num_groups
    wanted = split_sizes(len(groups), (0.6, 0.2, 0.2))
    assert max(abs(len(split[part]) - size) for part, size in zip(PARTS, wanted, strict=True)) < 2 * largest


@pytest.mark.parametrize(("counts", "sizes"), [((4, 4, 4), [4, 4, 4]), ((20,) * 5, [60, 20, 20]), ((97, 2, 1), [97, 2, 1])])
def test_a_few_large_groups_leave_no_part_empty(counts, sizes):
    split = random_split(sum(counts), (0.8, 0.1, 0.1), 0, np.repeat(np.arange(len(counts)), counts))
    assert sorted((len(split[part]) for part in PARTS), reverse=True) == sizes


@pytest.mark.parametrize("counts", [(12,), (6, 6)])
def test_fewer_groups_than_parts_are_an_error(counts):
    with pytest.raises(UserError, match=f"empty: 12 molecules are only {len(counts)} groups of copies"):
        random_split(12, (0.8, 0.1, 0.1), 0, np.repeat(np.arange(len(counts)), counts))


def test_a_group_that_fills_the_set_goes_to_training():
    groups = np.array([0] * 70 + [*range(1, 31)])
    split = random_split(100, (0.8, 0.1, 0.1), 0, groups)
    assert [len(split[part]) for part in PARTS] == [80, 10, 10]
    assert set(range(70)) <= set(split["train"].tolist())
