import numpy as np
import pytest

from molgcn.data.splits.ordered import ordered_split
from molgcn.data.splits.parts import PARTS
from molgcn.errors import UserError


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
    with pytest.raises(UserError, match="val empty: 10 molecules are only 4 groups"):
        ordered_split(np.arange(10), (0.7, 0.1, 0.2), np.array([0, 1, 2, 2, 2, 2, 2, 2, 2, 2]) + 3 * (np.arange(10) == 9))
