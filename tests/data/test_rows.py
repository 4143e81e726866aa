import numpy as np

from molgcn.data.rows import RowNames, file_and_row


def test_rows_are_named_by_their_files():
    files = (("a.csv", 0), ("b.csv", 3), ("c.csv", 4))
    assert [file_and_row(files, row) for row in (0, 2, 3, 4, 9)] == [("a.csv", 0), ("a.csv", 2), ("b.csv", 0), ("c.csv", 0), ("c.csv", 5)]
    names = RowNames(np.array([2, 9]), files)
    assert list(names) == ["2 of a.csv", "5 of c.csv"]
    assert names[:1] == ["2 of a.csv"]
    assert list(RowNames(np.array([2, 9]), ())) == ["2", "9"]
