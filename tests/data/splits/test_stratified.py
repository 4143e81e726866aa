import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from molgcn.data.splits.given import check_split
from molgcn.data.splits.parts import PARTS, split_sizes
from molgcn.data.splits.stratified import deal, fold_split, strata_of, stratified_split
from molgcn.errors import UserError


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


def split(groups, folds, fold, validation=1 / 9, seed=0, strata=None):
    groups = np.asarray(groups)
    return fold_split(groups, np.zeros(len(groups), np.int64) if strata is None else strata, folds, fold, validation, seed)


@given(
    groups=st.lists(st.integers(0, 30), min_size=12, max_size=120).filter(lambda groups: len(set(groups)) >= 9),
    folds=st.integers(2, 4),
    seed=st.integers(0, 5),
)
def test_every_group_is_held_out_once_and_as_a_whole(groups, folds, seed):
    splits = [split(groups, folds, fold, validation=0.5, seed=seed) for fold in range(folds)]
    assert np.sort(np.concatenate([one["test"] for one in splits])).tolist() == list(range(len(groups)))
    for one in splits:
        check_split(one, np.arange(len(groups)), "a fold")
        assert sum(len(one[part]) for part in PARTS) == len(groups)
        places = {
            group: {part for part in PARTS if np.isin(one[part], np.flatnonzero(np.array(groups) == group)).any()} for group in groups
        }
        assert all(len(found) == 1 for found in places.values())


@pytest.mark.parametrize("folds", [2, 3, 5, 10])
def test_folds_of_single_molecules_differ_by_one_at_most(folds):
    sizes = [{part: len(found) for part, found in split(range(103), folds, fold).items()} for fold in range(folds)]
    assert max(size["test"] for size in sizes) - min(size["test"] for size in sizes) <= 1
    assert all(abs(size["val"] - (103 - size["test"]) / 9) <= 1 for size in sizes)


def test_large_groups_are_shared_out():
    groups = np.repeat(np.arange(6), [40, 30, 20, 4, 3, 3])
    assert [len(split(groups, 3, fold, validation=0.3)["test"]) for fold in range(3)] == [40, 30, 30]


def test_strata_have_their_share_everywhere():
    strata = (np.arange(200) % 10 == 0).astype(np.int64)  # a class of ten percent
    for fold in range(5):
        found = split(range(200), 5, fold, strata=strata)
        assert strata[found["test"]].sum() == 4
        assert strata[found["val"]].sum() in (1, 2)


def test_rare_strata_leave_no_fold_empty():
    assert sorted(deal(np.arange(5), np.arange(5), [0.2] * 5, np.random.default_rng(0)).tolist()) == [0, 1, 2, 3, 4]


def test_the_seed_decides():
    first, same, other = (split(range(50), 5, 0, seed=seed) for seed in (1, 1, 2))
    assert all((first[part] == same[part]).all() for part in PARTS)
    assert first["test"].tolist() != other["test"].tolist()


def test_no_validation_where_it_has_no_share():
    assert len(split(range(20), 2, 0, validation=0.0)["val"]) == 0


@pytest.mark.parametrize(
    ("groups", "folds", "message"),
    [
        (range(4), 5, "dataset.folds=5 is more than the set has: 4 molecules"),
        ([0, 0, 1, 1], 3, "4 molecules, which are 2 groups that stay together"),
        ([0, 0, 1, 1], 2, "Fold 0 of dataset.folds=2 leaves 'val' empty"),
    ],
)
def test_too_few_for_so_many_folds(groups, folds, message):
    with pytest.raises(UserError, match=message):
        split(groups, folds, 0)
