import json

import numpy as np
import pytest

from molgcn.data.splits.parts import check_split
from molgcn.data.splits.rows import rows_to_split
from molgcn.data.splits.saved import load_split
from molgcn.errors import UserError


def test_overlap_emptiness_and_range_are_errors(tmp_path):
    with pytest.raises(UserError, match=r"more than once.*train and test"):
        check_split({"train": np.array([0, 1]), "val": np.array([2]), "test": np.array([1])}, 5, "x")
    check_split({"train": np.array([0, 1]), "val": np.array([], int), "test": np.array([3])}, 5, "x")
    with pytest.raises(UserError, match="no molecule in train"):
        check_split({"train": np.array([], int), "val": np.array([2]), "test": np.array([3])}, 5, "x")
    with pytest.raises(UserError, match="beyond the 3"):
        check_split({"train": np.array([0, 1]), "val": np.array([2]), "test": np.array([3])}, 3, "x")
    path = tmp_path / "overlap.json"
    path.write_text(json.dumps({"train": [0, 1], "val": [1], "test": [2]}))
    with pytest.raises(UserError, match="more than once"):
        rows_to_split(load_split(path), np.arange(4), "x")
