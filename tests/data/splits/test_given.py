import os

import numpy as np
import pytest
from split_sets import as_sets, set_of

from molgcn.data.rows import SkippedRow
from molgcn.data.splits.drawn import random_split
from molgcn.data.splits.given import check_split, column_split, load_split, load_splits, rows_to_split, save_split
from molgcn.data.splits.parts import PARTS
from molgcn.errors import UserError


def test_a_saved_split_is_found_again_by_rows(tmp_path):
    rows = np.array([2, 3, 5, 8, 13, 21, 34, 55, 89, 144])
    split = random_split(10)
    save_split(tmp_path / "splits.json", split, rows)
    assert as_sets(rows_to_split(load_split(tmp_path / "splits.json"), set_of(rows), "x", "x.csv")) == as_sets(split)
    assert os.listdir(tmp_path) == ["splits.json"]
    shuffled = np.random.default_rng(0).permutation(10)
    found = rows_to_split(load_split(tmp_path / "splits.json"), set_of(rows[shuffled]), "x", "x.csv")
    assert {part: set(rows[shuffled][found[part]].tolist()) for part in PARTS} == {part: set(rows[split[part]].tolist()) for part in PARTS}


@pytest.mark.parametrize(
    ("content", "what"),
    [("{", "not JSON"), ("[]", "does not name"), ('{"val": [1], "test": [2]}', "does not name"),
     ('{"train": [1], "valid": [2]}', "does not name"),
     ('{"train": [[1], 2]}', "whole numbers"), ('{"train": [1], "val": null}', "whole numbers"),
     ('{"train": ["a"], "val": [2], "test": [3]}', "whole numbers"), ('{"train": [1.5], "val": [2], "test": [3]}', "whole numbers"),
     ('{"train": 1, "val": [2], "test": [3]}', "whole numbers")],
)  # fmt: skip
def test_bad_split_files_are_named(tmp_path, content, what):
    path = tmp_path / "split.json"
    path.write_text(content)
    with pytest.raises(UserError, match=what) as error:
        load_split(path)
    assert str(path) in str(error.value)


def test_a_file_of_several_splits_as_chemprop_writes_it(tmp_path):
    path = tmp_path / "splits.json"
    path.write_text('[{"train": "0-3,7", "val": [4], "test": "5, 6"}, {"train": [5, 6], "test": "0"}]')
    (first, one), (second, other) = load_splits([path])
    assert {part: rows.tolist() for part, rows in one.items()} == {"train": [0, 1, 2, 3, 7], "val": [4], "test": [5, 6]}
    assert {part: rows.tolist() for part, rows in other.items()} == {"train": [5, 6], "val": [], "test": [0]}
    assert (first, second) == (f"{path}, split 0", f"{path}, split 1")
    with pytest.raises(UserError, match=r"splits\.json has 2 splits\. Give a file with one of them"):
        load_split(path)
    path.write_text('[{"train": "0-3"}]')
    assert load_split(path)["train"].tolist() == [0, 1, 2, 3]
    path.write_text('[{"train": [0]}, {"train": "0-x"}]')
    with pytest.raises(UserError, match=r"splits\.json, split 1: 'train' is not a list of whole numbers"):
        load_splits([path])


def test_a_missing_split_file_is_named(tmp_path):
    with pytest.raises(UserError, match="cannot be read"):
        load_split(tmp_path / "none.json")


def test_a_part_that_is_not_named_is_empty(tmp_path):
    path = tmp_path / "split.json"
    path.write_text('{"train": [1, 2], "test": [0]}')
    split = load_split(path)
    assert {part: rows.tolist() for part, rows in split.items()} == {"train": [1, 2], "val": [], "test": [0]}
    save_split(path, rows_to_split(split, set_of(range(3)), "x", "x.csv"), np.arange(3))
    assert as_sets(load_split(path)) == as_sets(split)


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


def test_column_split_understands_the_usual_words():
    split = column_split(["train", "Valid", "test", "", "TRAIN ", "validation", None, float("nan"), "val", "training"])
    assert {part: split[part].tolist() for part in PARTS} == {"train": [0, 4, 9], "val": [1, 5, 8], "test": [2]}
    with pytest.raises(UserError, match=r"row 1 .* says 'holdout'.*another column with dataset.split_column="):
        column_split(["train", "holdout", "test"])
    skipped = ["train", "?", "val", "holdout", "test"]
    assert {part: one.tolist() for part, one in column_split(skipped, rows=[0, 2, 4]).items()} == {"train": [0], "val": [1], "test": [2]}
    with pytest.raises(UserError, match=r"row 3 .* says 'holdout'"):
        column_split(skipped, rows=[0, 2, 3, 4])
    without = column_split(["train", "val", "train"])
    assert {part: without[part].tolist() for part in PARTS} == {"train": [0, 2], "val": [1], "test": []}
    with pytest.raises(UserError, match="no molecule in train"):
        column_split(["test", "val"])


def test_overlap_and_emptiness_are_errors():
    rows = np.arange(10, 15)
    with pytest.raises(UserError, match=r"1 row more than once, the first is row 11 \(train and test\)"):
        check_split({"train": np.array([0, 1]), "val": np.array([2]), "test": np.array([1])}, rows, "x")
    check_split({"train": np.array([0, 1]), "val": np.array([], int), "test": np.array([3])}, rows, "x")
    with pytest.raises(UserError, match="no molecule in train"):
        check_split({"train": np.array([], int), "val": np.array([2]), "test": np.array([3])}, rows, "x")
