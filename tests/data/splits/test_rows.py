import numpy as np

from molgcn.data.splits.rows import rows_to_split


def test_rows_that_were_skipped_are_left_out_and_counted(caplog):
    wanted = {"train": np.array([0, 1, 2]), "val": np.array([3]), "test": np.array([4])}
    split = rows_to_split(wanted, np.array([0, 2, 3, 4]), "a file")
    assert split["train"].tolist() == [0, 1]
    assert "1 rows that are not in the set" in caplog.text
