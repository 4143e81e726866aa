import numpy as np
import pytest
from split_sets import set_of

from molgcn.data.rows import SkippedRow
from molgcn.data.splits.given import rows_to_split
from molgcn.errors import UserError

WANTED = {"train": np.array([0, 1, 2]), "val": np.array([3]), "test": np.array([4])}


@pytest.mark.parametrize(
    ("skipped", "said"),
    [
        ([1], "1 row that are not in the set: 1 were left out"),
        ([1, 2], "2 rows that are not in the set: 2 were left out as unreadable or unusable"),
        ([1, 9], "2 rows that are not in the set: 1 were left out as unreadable or unusable, 1 are outside dataset.subset"),
        ([], "2 rows that are not in the set: 2 are outside dataset.subset or were merged into an equal molecule"),
    ],
)
def test_rows_that_are_not_in_the_set_are_counted_by_their_reason(caplog, skipped, said):
    absent = int(said[0])
    rows = [0, 2, 3, 4] if absent == 1 else [0, 3, 4]
    split = rows_to_split(WANTED, set_of(rows, skipped=[SkippedRow(row, "", "") for row in skipped], num_rows=10), "a file", "x.csv")
    assert split["train"].tolist() == list(range(3 - absent))
    assert f"The split from a file names {said}" in caplog.text


@pytest.mark.parametrize(
    ("test", "num_rows", "what"),
    [
        ([4, 9999], 60, r"splits\.json names 1 row beyond x\.csv, such as row 9999 in test: it has 60 rows, counted from 0"),
        ([5, 6, 7], 5, r"names 3 rows beyond x\.csv, such as row 5 in test: it has 5 rows"),
        ([-1], 60, r"names 1 row beyond x\.csv, such as row -1 in test"),
        ([8], None, r"such as row 8 in test: it has 5 rows"),
    ],
)
def test_rows_beyond_the_file_are_refused(test, num_rows, what):
    with pytest.raises(UserError, match=what):
        rows_to_split({**WANTED, "test": np.array(test)}, set_of(range(5), num_rows=num_rows), "splits.json", "x.csv")


@pytest.mark.parametrize(
    ("test", "what"), [([12, 13], r"1 row more than once, the first is row 12 \(train and test\)"), ([14, 14], r"row 14 \(test\)")]
)
def test_rows_that_are_named_twice_are_refused(test, what):
    wanted = {"train": np.array([11, 12]), "val": np.array([], int), "test": np.array(test)}
    with pytest.raises(UserError, match=what):
        rows_to_split(wanted, set_of(range(10, 15)), "splits.json", "x.csv")
