from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from molgcn.data.splits.ordered import ordered_split
from molgcn.data.splits.parts import PARTS, split_sizes
from molgcn.errors import UserError

YEARS = np.repeat([2015, 2016, 2017, 2018, 2019], [20, 20, 20, 10, 30])


def listed(split):
    return [split[part].tolist() for part in PARTS]


def test_a_cut_in_order():
    ranks = np.array([5, 1, 4, 1, 3, 9, 2, 6, 8, 7])
    assert listed(ordered_split(ranks, (0.6, 0.2, 0.2))) == [[0, 1, 2, 3, 4, 6], [7, 9], [5, 8]]
    assert listed(ordered_split(ranks, (0.8, 0, 0.2))) == [[0, 1, 2, 3, 4, 6, 7, 9], [], [5, 8]]
    assert listed(ordered_split(ranks, (3, 2, 1))) == [[1, 3, 6], [2, 4], [0]]
    assert listed(ordered_split(ranks, (3, 2, 1), newest=True)) == [[0, 2, 7], [8, 9], [5]]


def test_copies_go_where_the_first_of_them_stands():
    groups = np.array([0, 1, 2, 3, 4, 5, 6, 7, 8, 0])
    assert listed(ordered_split(np.arange(10), (0.8, 0.1, 0.1), groups)) == [[0, 1, 2, 3, 4, 5, 6, 9], [7], [8]]


@pytest.mark.parametrize(
    ("fractions", "parts"),
    [
        ((0.8, 0.1, 0.1), [{2015, 2016, 2017}, {2018}, {2019}]),  # 2019 alone is more than validation and test
        ((0.6, 0.1, 0.3), [{2015, 2016, 2017}, {2018}, {2019}]),
        ((0.8, 0, 0.2), [{2015, 2016, 2017, 2018}, set(), {2019}]),
        ((0.2, 0.3, 0.5), [{2015}, {2016, 2017}, {2018, 2019}]),  # a cut in the middle of 2017 is moved to its end
        ((0.1, 0.1, 0.8), [{2015}, {2016}, {2017, 2018, 2019}]),
        ((45, 15, 39), [{2016, 2017}, {2018}, {2019}]),
    ],
)
def test_equal_ranks_stay_together(fractions, parts):
    order = np.random.default_rng(0).permutation(100)
    split = ordered_split(YEARS[order], fractions, newest=True)
    assert [{*YEARS[order][split[part]].tolist()} for part in PARTS] == parts
    assert sum(map(len, split.values())) == (100 if sum(fractions) < 2 else 80)


@given(
    ranks=st.lists(st.integers(0, 9), min_size=12, max_size=60),
    fractions=st.sampled_from([(0.8, 0.1, 0.1), (0.5, 0, 0.5), (0.3, 0.3, 0.4), (1, 0, 0), (5, 4, 3)]),
    newest=st.booleans(),
)
def test_parts_are_whole_ranks_in_order(ranks, fractions, newest):
    ranks = np.array(ranks)
    blocks, counts = np.unique(ranks, return_counts=True)
    sizes = split_sizes(len(ranks), fractions)
    wanted = [part for part, size in zip(PARTS, sizes, strict=True) if size]
    try:
        split = ordered_split(ranks, fractions, newest=newest)
    except UserError:
        assert len(blocks) < len(wanted) or (sum(sizes) < len(ranks) and counts.max() > min(filter(None, sizes)))
        return
    spans = [ranks[split[part]] for part in wanted]
    assert all(len(span) for span in spans)
    assert all(before.max() < after.min() for before, after in pairwise(spans))
    if sum(sizes) == len(ranks):
        assert sum(map(len, spans)) == len(ranks)
    else:
        assert all(len(split[part]) <= size for part, size in zip(PARTS, sizes, strict=True))
        assert (spans[-1].max() == blocks[-1]) if newest else (spans[0].min() == blocks[0])


@pytest.mark.parametrize(
    ("ranks", "fractions", "what"),
    [
        (
            YEARS[60:],
            (0.8, 0.1, 0.1),
            r"leaves train empty: 40 molecules are 2 groups of equal times that stay together, the largest of 30",
        ),
        (YEARS[70:], (0.8, 0.1, 0.1), r"empty: 30 molecules are 1 group of equal times"),
        (YEARS, (50, 5, 5), r"leaves val and test empty: 100 molecules are 5 groups .*Use other dataset\.split_fractions"),
    ],
)
def test_parts_for_which_there_are_no_ranks_are_refused(ranks, fractions, what):
    with pytest.raises(UserError, match=what):
        ordered_split(ranks, fractions, newest=True, kind="times")
