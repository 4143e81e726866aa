"""Descriptors of columns and files get from the configuration into the packed set."""

import numpy as np
import pytest

from molgcn.data.config import DatasetConfig
from molgcn.data.descriptors.given import read_descriptors
from molgcn.data.load import load_dataset, load_molecules
from molgcn.errors import UserError

ROWS = [("C" * (1 + n % 5) + "O" * (1 + n // 5), n / 2, 290 + n, 7 - n) for n in range(12)]


def config(tmp_path, rows=ROWS, **options):
    (tmp_path / "a.csv").write_text("smiles,y,temperature,ph\n" + "".join(",".join(map(str, row)) + "\n" for row in rows))
    values = {"name": "csv", "path": str(tmp_path / "a.csv"), "targets": ["y"], "cache_dir": str(tmp_path / "cache")}
    return DatasetConfig(**{**values, "split_fractions": (8, 2, 2), **options})


@pytest.fixture
def npz(tmp_path):
    np.savez(tmp_path / "x.npz", x=np.arange(24.0).reshape(12, 2))
    return str(tmp_path / "x.npz")


def test_columns_then_files_then_generators_row_by_row(tmp_path, npz):
    given = {"descriptors": ["ph", "temperature"], "descriptors_path": npz, "descriptor_generators": ["maccs"]}
    molecules, _, data_hash = load_molecules(config(tmp_path, **given))
    assert molecules.descriptor_names[:5] == ("ph", "temperature", "x_0", "x_1", "maccs_1")
    assert molecules.descriptors[:, :4].tolist() == [[7 - n, 290 + n, 2 * n, 2 * n + 1] for n in range(12)]
    cached, _, same = load_molecules(config(tmp_path, **given))
    assert np.array_equal(cached.descriptors, molecules.descriptors) and same == data_hash
    np.savez(npz, x=np.zeros((12, 2)))
    changed, _, other = load_molecules(config(tmp_path, **given))
    assert other != data_hash and not changed.descriptors[:, 2:4].any()
    assert load_molecules(config(tmp_path))[0].descriptors is None


def test_a_subset_and_parts_keep_them(tmp_path, npz):
    loaded = load_dataset(config(tmp_path, subset=10, descriptors=["ph"], descriptors_path=npz, split_fractions=(6, 2, 2)))
    for part in ("train", "val", "test"):
        molecules = loaded.part(part)
        assert np.array_equal(molecules.descriptors, np.stack([7 - molecules.rows, 2 * molecules.rows, 2 * molecules.rows + 1], 1))


@pytest.mark.parametrize(("value", "what"), [("", "missing"), ("nan", "missing")])
def test_a_row_without_one_is_named_or_left_out(tmp_path, value, what):
    rows = [*ROWS[:3], (*ROWS[3][:3], value), *ROWS[4:]]
    with pytest.raises(UserError, match=rf"Row 3 of .*a\.csv.*'ph' is {what}"):
        load_molecules(config(tmp_path, rows, descriptors=["temperature", "ph"]))
    molecules, *_ = load_molecules(config(tmp_path, rows, descriptors=["temperature", "ph"], on_error="skip"))
    assert molecules.rows.tolist() == [0, 1, 2, *range(4, 12)]
    assert [(row.row, row.smiles) for row in molecules.skipped] == [(3, ROWS[3][0])] and "'ph' is missing" in molecules.skipped[0].reason


def test_files_and_keys_that_do_not_fit(tmp_path, npz):
    with pytest.raises(UserError, match=r"12 rows, but .*a\.csv has 11\. Give a row of descriptors for each row"):
        load_molecules(config(tmp_path, ROWS[:-1], descriptors_path=npz))
    with pytest.raises(UserError, match=r"no column 'pH' \(dataset.descriptors\). Did you mean 'ph'"):
        load_molecules(config(tmp_path, descriptors=["pH"]))
    with pytest.raises(UserError, match=r"'y'.* is a target too"):
        config(tmp_path, descriptors=["y"])
    with pytest.raises(UserError, match="Did you mean 'rdkit2d'"):
        config(tmp_path, descriptor_generators=["rdkit_2d"])
    with pytest.raises(UserError, match=r"row 2 .*'abc' is not a number"):
        load_molecules(config(tmp_path, [*ROWS[:2], (*ROWS[2][:3], "abc")], descriptors=["ph"]))


def test_measurements_under_other_conditions_are_no_repeats(tmp_path):
    rows = [("CCO", 1, 300, 7), ("OCC", 3, 300, 7), ("CCO", 5, 350, 7), *ROWS[4:]]
    options = {"duplicates": "mean", "descriptors": ["temperature"]}
    molecules, *_ = load_molecules(config(tmp_path, rows, **options))
    assert molecules.rows[:3].tolist() == [0, 2, 3] and molecules.targets[:2, 0].tolist() == [2, 5]
    assert molecules.hashes[0] == molecules.hashes[1]  # so that a split keeps them together


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
    with pytest.raises(UserError, match=r"dataset.descriptors_path=.*a\.npz is not a \.npz file, or is damaged"):
        read_descriptors(tmp_path / "a.npz")
    np.save(tmp_path / "b.npy", np.zeros((2, 2)))
    with pytest.raises(UserError, match="one matrix"):
        read_descriptors(tmp_path / "b.npy")
