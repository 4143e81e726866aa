import numpy as np
import pytest

from molgcn.data.splits.given import check_split
from molgcn.errors import UserError


def test_overlap_and_emptiness_are_errors():
    rows = np.arange(10, 15)
    with pytest.raises(UserError, match=r"1 row more than once, the first is row 11 \(train and test\)"):
        check_split({"train": np.array([0, 1]), "val": np.array([2]), "test": np.array([1])}, rows, "x")
    check_split({"train": np.array([0, 1]), "val": np.array([], int), "test": np.array([3])}, rows, "x")
    with pytest.raises(UserError, match="no molecule in train"):
        check_split({"train": np.array([], int), "val": np.array([2]), "test": np.array([3])}, rows, "x")
