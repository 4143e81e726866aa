"""NumPy files that grow equal those that NumPy itself writes."""

import io

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from molgcn.errors import UserError
from molgcn.screening.output import open_array


@given(st.lists(st.integers(0, 5), max_size=6), st.integers(1, 4))
def test_a_growing_file_is_numpys_own(tmp_path_factory, sizes, width):
    folder = tmp_path_factory.mktemp("arrays")
    rng = np.random.default_rng(0)
    parts = [rng.random((size, width), np.float32) for size in sizes]
    whole = np.concatenate([np.empty((0, width), np.float32), *parts])
    rows = np.arange(len(whole)) * 3
    for name in ("a.npy", "a.npz"):
        with open_array(folder / name, width, "values") as write_rows:
            start = 0
            for part in parts:
                write_rows(part, rows[start : start + len(part)])
                start += len(part)
    expected = io.BytesIO()
    np.save(expected, whole)
    assert (folder / "a.npy").read_bytes() == expected.getvalue()
    with np.load(folder / "a.npz") as loaded:
        np.testing.assert_array_equal(loaded["values"], whole)
        np.testing.assert_array_equal(loaded["rows"], rows)
        assert loaded["rows"].dtype == np.int64
    assert sorted(path.name for path in folder.iterdir()) == ["a.npy", "a.npz"]


def write(path, rows):
    with open_array(path, 2, "values") as write_rows:
        write_rows(np.zeros((rows, 2), np.float32), np.arange(rows))
        assert rows < 100_000


@pytest.mark.parametrize("name", ["a.npy", "a.npz"])
def test_a_failure_leaves_what_was_there(tmp_path, name, full_disk):
    (tmp_path / name).write_text("mine")
    with pytest.raises(AssertionError):
        write(tmp_path / name, 100_000)
    with pytest.raises(UserError, match="cannot be written"), full_disk(100_000):
        write(tmp_path / name, 50_000)
    assert (tmp_path / name).read_text() == "mine"
    assert len(list(tmp_path.iterdir())) == 1
