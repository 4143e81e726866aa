import logging
import sys
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from molgcn.data.fingerprints import morgan_fingerprints, tanimoto_distances
from molgcn.data.splits.ordered import column_times, kennard_stone_ranks, ordered_split, report_times
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


@pytest.mark.parametrize(
    ("cells", "order"),
    [
        (["2021", " 1999.5", "3e3", "-4"], [3, 1, 0, 2]),
        (["2021-03-04", "2021-03", "1999-12-31", "2021-03-04T12:30Z"], [2, 1, 0, 3]),
        (["2021-03-04 12:00:00+02:00", "2021-03-04 11:00:00", "2021-03-04T09:59:59Z", "0999-01-01"], [3, 2, 0, 1]),
    ],
)
def test_numbers_and_dates_sort(cells, order):
    assert np.argsort(column_times(cells, "when", range(4)), kind="stable").tolist() == order


@pytest.mark.parametrize(
    ("cells", "what"),
    [
        (["2020", ""], "row 8 .*says ''; expected a number, as the first one is"),
        (["2020", "2021-01-01"], "row 8 .*says '2021-01-01'; expected a number"),
        (["2021-01-01", "soon"], "row 8 .*says 'soon'; expected an ISO date, as the first one is"),
        (["2021-01-01", "2020"], "row 8 .*says '2020'; expected an ISO date"),
        (["04.03.2021", "2020"], "row 5 .*says '04.03.2021'; expected a number or an ISO date"),
        (["nan", "2020"], "row 5 .*says 'nan'"),
        (["inf", "2020"], "row 5 .*says 'inf'"),
    ],
)
def test_what_is_no_time_is_named(cells, what):
    with pytest.raises(UserError, match=f"Column 'when', {what}"):
        column_times(cells, "when", np.array([5, 8]))


@pytest.mark.parametrize(
    ("cells", "split", "said"),
    [
        (
            ["2017", " 2018", "2015", "2019"],
            {"train": [0, 2], "val": [1], "test": [3]},
            "Column 'when': training 2015 to 2017, validation 2018, test 2019",
        ),
        (
            ["2021-03-04", "2021-03", "2022-01-01", "2022-05"],
            {"train": [0, 1, 3], "val": [], "test": [2]},
            "Column 'when': training 2021-03 to 2022-05, test 2022-01-01; 1 molecule with an older copy, by which both are placed",
        ),
    ],
)
def test_the_times_of_each_part_are_said(cells, split, said, caplog):
    caplog.set_level(logging.INFO)
    positions = {part: np.array(places, int) for part, places in split.items()}
    report_times(positions, column_times(cells, "when", range(len(cells))), cells, "when")
    assert caplog.messages == [said]


SMILES = ["CCO", "CCCO", "CCCCO", "c1ccccc1", "c1ccccc1C", "C1CC1N", "OC(=O)C", "CC(C)(C)C", "N#CC", "CCCCCCCCO"]


def test_the_next_one_is_the_farthest_from_those_before():
    (_, distances), *_ = tanimoto_distances(morgan_fingerprints(SMILES))
    order = np.argsort(kennard_stone_ranks(SMILES))
    assert sorted(order.tolist()) == list(range(len(SMILES)))
    assert distances[order[0], order[1]] == distances.max()
    for place in range(2, len(SMILES)):
        to_chosen = distances[np.ix_(order[place:], order[:place])].min(axis=1)
        assert to_chosen[0] == pytest.approx(to_chosen.max(), abs=1e-6)


@pytest.mark.parametrize("smiles", [["C"], ["C", "CC"]])
def test_as_few_as_there_are(smiles):
    assert sorted(kennard_stone_ranks(smiles).tolist()) == list(range(len(smiles)))


def test_without_astartes_its_installation_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "astartes.utils.fast_kennard_stone", None)
    with pytest.raises(UserError, match=r"pip install molgcn\[splits\]"):
        kennard_stone_ranks(SMILES)
