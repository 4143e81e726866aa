import numpy as np
import pytest

from molgcn.data.descriptors.given import read_descriptors
from molgcn.errors import UserError


def test_a_matrix_and_names(tmp_path):
    np.savez(tmp_path / "a.npz", np.arange(6).reshape(3, 2))
    names, values = read_descriptors(tmp_path / "a.npz")
    assert names == ("arr_0_0", "arr_0_1") and values.tolist() == [[0, 1], [2, 3], [4, 5]] and values.dtype == np.float32
    np.savez_compressed(tmp_path / "b.npz", x=np.ones((2, 2), np.float16), names=["ph", "t"])
    assert read_descriptors(tmp_path / "b.npz")[0] == ("ph", "t")


@pytest.mark.parametrize(
    ("arrays", "match"),
    [
        ({"x": np.zeros(3)}, "shape"),
        ({"x": np.array([["a"]])}, "type"),
        ({"x": np.array([[None]])}, "cannot be read"),
        ({"x": np.zeros((2, 1)), "y": np.zeros((2, 1))}, r"2 arrays \(x, y\)"),
        ({"x": np.zeros((2, 2)), "names": ["a"]}, "2 different names"),
        ({"x": np.zeros((2, 2)), "names": ["a", "a"]}, "2 different names"),
    ],
)
def test_other_files_are_refused_by_name(tmp_path, arrays, match):
    np.savez(tmp_path / "a.npz", **arrays)
    with pytest.raises(UserError, match=match) as raised:
        read_descriptors(tmp_path / "a.npz")
    assert "a.npz" in str(raised.value)


@pytest.mark.parametrize("content", [b"", b"smiles,y\nC,1\n", b"PK\x03\x04 cut off"])
def test_what_is_no_npz(tmp_path, content):
    (tmp_path / "a.npz").write_bytes(content)
    with pytest.raises(UserError, match=r"dataset.descriptors_path=.*a\.npz cannot be read"):
        read_descriptors(tmp_path / "a.npz")
    np.save(tmp_path / "b.npy", np.zeros((2, 2)))
    with pytest.raises(UserError, match="one matrix"):
        read_descriptors(tmp_path / "b.npy")
