import pytest

from molgcn.data.splits.given import column_split
from molgcn.data.splits.parts import PARTS
from molgcn.errors import UserError


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
