"""Repeats that test on the same molecules are warned of, and what they share is said."""

import logging

import numpy as np
import pytest

from molgcn.data.splits.given import save_split
from molgcn.replicates.combine import report_overlap


@pytest.mark.parametrize(
    ("tests", "level", "said"),
    [
        ([[0, 1], [2, 3], [1, 2]], "INFO", "The test parts of two repeats share 33% of their molecules on average"),
        ([[0, 1], [2, 3]], "INFO", "share 0% of"),
        ([[0, 1], [1, 0], [1, 2]], "WARNING", r"1 of the 3 repeats have the test part of another one (two share 67% on average)"),
        ([[0, 1], [1, 0], [0, 1]], "WARNING", r"2 of the 3 repeats have the test part of another one (two share 100% on average)"),
    ],
)
def test_what_test_parts_share(tmp_path, caplog, tests, level, said):
    caplog.set_level(logging.INFO)
    folders = [tmp_path / f"repeat_{number}" for number in range(len(tests))]
    for folder, test in zip(folders, tests, strict=True):
        folder.mkdir()
        split = {"train": np.array([8, 9]), "val": np.array([7]), "test": np.array(test)}
        save_split(folder / "splits.json", split, np.arange(10) * 3)
    report_overlap(folders, "test")
    (record,) = caplog.records
    assert record.levelname == level and said in record.getMessage()
