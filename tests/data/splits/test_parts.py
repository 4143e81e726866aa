import pytest

from molgcn.data.splits.parts import split_sizes
from molgcn.errors import UserError


@pytest.mark.parametrize(
    ("n", "fractions", "what"),
    [
        (1, (0.8, 0.1, 0.1), r"1 molecule cannot be split.* leave validation or test out by a 0, as in \[0\.9,0\.1,0\]"),
        (4, (0.8, 0.1, 0.1), "cannot be split"),
        (100, (0.0, 0.9, 0.1), "Every part"),
        (100, (0, 90, 9), "Every part"),
        (4, (0.9, 0.1, 0.0), "Every part"),
        (100, (90, 10, 10), "cannot be split"),
        (100, (0.8, 0.1), "three numbers"),
        (500, (80, 10, 10), r"sum to 100, but the set has 500 .*fractions: \[0.8,0.1,0.1\].*dataset.subset=100 "),
        (500, (8, 1, 1), r"sum to 10, but the set has 500 .*fractions: \[0.8,0.1,0.1\].*dataset.subset=10 "),
        (500, (79.5, 10.5, 10), "sum to 100. Give three fractions"),
        (500, (80.5, 10, 10), "whole numbers"),
        (100, (0.8, 0.1, 0.2), "sum to 1.1"),
        (100, (-0.1, 0.6, 0.5), "three numbers"),
        (100, (float("nan"), 0.6, 0.5), "three numbers"),
    ],
)
def test_impossible_sizes_are_errors(n, fractions, what):
    with pytest.raises(UserError, match=what):
        split_sizes(n, fractions)


@pytest.mark.parametrize(
    ("fractions", "sizes"),
    [
        ((0.9, 0.1, 0), (90, 10, 0)),
        ((1, 0, 0), (100, 0, 0)),
        ((0.9, 0, 0.1), (90, 0, 10)),
        ((50, 20, 0), (50, 20, 0)),
        ((2, 0, 0), (2, 0, 0)),
    ],
)
def test_validation_or_test_may_be_left_out(fractions, sizes):
    assert split_sizes(100, fractions) == sizes
