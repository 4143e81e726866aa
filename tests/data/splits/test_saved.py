import os

import numpy as np
import pytest
from split_sets import as_sets, set_of

from molgcn.data.splits.drawn import random_split
from molgcn.data.splits.given import load_split, rows_to_split, save_split
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
