import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from molgcn.data.splits.drawn import place_groups
from molgcn.data.splits.groups import join_groups


@given(labels=st.lists(st.tuples(st.integers(-3, 9), st.integers(0, 9)), min_size=1, max_size=40))
def test_groups_that_share_a_copy_are_joined(labels):
    group, copies = np.array(labels).T
    joined = join_groups(group, copies)
    for key in (group, copies):
        assert all(len(np.unique(joined[key == value])) == 1 for value in np.unique(key))
    for name in np.unique(joined):
        assert group[joined == name].min() == name  # the smallest of the connected ones
    np.testing.assert_array_equal(join_groups(joined, copies), joined)
    np.testing.assert_array_equal(join_groups(group, None), group)


@pytest.mark.parametrize(
    ("counts", "num_large", "sizes", "otherwise", "parts"),
    [
        ([90, *[1] * 10], 1, (80, 10, 10), 0, [90, 5, 5]),
        ([90, *[1] * 10], 1, (80, 10, 10), None, [90, 5, 5]),
        ([45, 45, *[1] * 10], 2, (80, 10, 10), 0, [90, 5, 5]),
        ([91, *[1] * 9], 1, (70, 20, 10), 0, [91, 6, 3]),
        ([95, *[1] * 5], 1, (80, 20, 0), 0, [95, 5, 0]),
        ([50, 30, 20], 3, (80, 10, 10), 0, [50, 20, 30]),
        ([4] * 25, 0, (80, 10, 10), 0, [84, 8, 8]),
        ([60, *[1] * 40], 1, (50, 10, 10), 0, [28, 6, 6]),
        ([60, *[1] * 40], None, (50, 10, 10), 0, [40, 0, 0]),
    ],
)
def test_what_huge_groups_leave_is_shared_out(counts, num_large, sizes, otherwise, parts):
    groups = np.repeat(np.arange(len(counts)), counts)
    num_molecules = len(groups) if sum(sizes) == len(groups) else 200
    placed = place_groups(groups, np.arange(len(counts)), sizes, num_molecules, num_large, otherwise)
    assert [(placed == number).sum() for number in range(3)] == parts
