"""`python -m molgcn.fingerprint` writes the learned fingerprints of a file of molecules."""

import csv
import tracemalloc

import numpy as np
import pytest
from predictions import SMILES, rows_of

import molgcn
from molgcn.config.run import Config, parse
from molgcn.errors import UserError
from molgcn.fingerprint import FingerprintConfig, fingerprint
from molgcn.replicates.run import train_all


def config(**values):
    return parse(FingerprintConfig, {"device": "cpu", **values})


@pytest.fixture
def library(tmp_path):
    """Return a file of six molecules, with an invalid one in row 2."""
    smiles = [*SMILES[:2], "C1CC", *SMILES[2:]]
    (tmp_path / "new.csv").write_text("id,smiles\n" + "".join(f"m{row},{text}\n" for row, text in enumerate(smiles)))
    return tmp_path / "new.csv"


@pytest.mark.parametrize("name", ["f.csv", "f.tsv.gz", "f.npy", "f.npz"])
@pytest.mark.parametrize("on_error", ["skip", "nan"])
def test_every_kind_of_file_holds_the_same(trained_run, library, tmp_path, name, on_error):
    output = tmp_path / name
    files = {"ckpt": str(trained_run.folder), "input": str(library), "output": str(output)}
    summary = fingerprint(config(**files, on_error=on_error, batch_size=3))
    assert (summary.rows, summary.predicted) == (7, 6)
    rows = [0, 1, 3, 4, 5, 6] if on_error == "skip" else list(range(7))
    good = [place for place, row in enumerate(rows) if row != 2]
    if name == "f.npy":
        values = np.load(output)
    elif name == "f.npz":
        with np.load(output) as loaded:
            values = loaded["fingerprints"]
            assert loaded["rows"].tolist() == rows
    else:
        table = read(output)
        assert list(table[0]) == ["id", "smiles", *(f"fp_{number}" for number in range(8)), *(["error"] if on_error == "nan" else [])]
        assert [row["id"] for row in table] == [f"m{row}" for row in rows]
        values = np.array([[float(row[f"fp_{number}"]) for number in range(8)] for row in table], np.float32)
    expected = molgcn.load(trained_run.folder, device="cpu").fingerprint(SMILES)
    np.testing.assert_allclose(values[good], expected, rtol=1e-5, atol=1e-6)
    assert np.isnan(values).any(axis=1).sum() == (on_error == "nan")
    skipped = {path for path in tmp_path.iterdir() if "_skipped" in path.name}
    assert len(skipped) == (on_error == "skip")
    assert all(read(path)[0]["row"] == "2" for path in skipped)


def read(path):
    if path.suffix == ".csv":
        return rows_of(path)
    import gzip

    with gzip.open(path, "rt", newline="") as file:
        return list(csv.DictReader(file, delimiter="\t"))


def test_text_reads_back_as_the_same_numbers(trained_run, tmp_path):
    (tmp_path / "new.smi").write_text("\n".join(SMILES))
    for name in ("f.csv", "f.npy"):
        fingerprint(config(ckpt=str(trained_run.folder), input=str(tmp_path / "new.smi"), output=str(tmp_path / name)))
    written = [[float(row[f"fp_{number}"]) for number in range(8)] for row in rows_of(tmp_path / "f.csv")]
    np.testing.assert_array_equal(np.array(written, np.float32), np.load(tmp_path / "f.npy"))


def test_one_molecule_is_printed(trained_run, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    fingerprint(config(ckpt=str(trained_run.folder), molecule="C(=O)O"))
    printed = capsys.readouterr().out
    assert "C(=O)O" in printed
    assert "fp_7" in printed
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("options", "what"),
    [
        ({"output": "f.parquet"}, r"ends in .csv, .tsv, .csv.gz, .tsv.gz, .npy, .npz"),
        ({"layer": 1}, "layer=1 does not exist: the head has 0 hidden layers"),
        ({"input": None}, "No molecules are named"),
        ({"molecule": "C"}, "both given"),
        ({"ckpt": None}, "No checkpoint is named"),
        ({}, r"Row 2 of new.csv .*'C1CC' cannot be fingerprinted"),
        ({"output": "no/where.npy/f.npy"}, "Row 2"),
    ],
)
def test_mistakes_are_one_paragraph(trained_run, library, tmp_path, monkeypatch, options, what):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError, match=what):
        fingerprint(config(**{"ckpt": str(trained_run.folder), "input": "new.csv", **options}))
    assert [path.name for path in tmp_path.rglob("*") if path.is_file()] == ["new.csv"]


@pytest.mark.slow
def test_memory_does_not_grow_with_the_file(trained_run, tmp_path):
    def peak(count):
        (tmp_path / "new.smi").write_text("CCO\n" * count)
        files = {"input": str(tmp_path / "new.smi"), "output": str(tmp_path / "f.npz")}
        tracemalloc.start()
        fingerprint(config(ckpt=str(trained_run.folder), **files, batch_size=256, num_workers=0))
        used = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return used

    peak(512)
    short, long = peak(1_000), peak(12_000)
    assert long < short + 200_000, (short, long)  # the fingerprints themselves take 384 kB


def test_a_run_of_several_trainings_is_all_of_them(trained_config, tmp_path):
    config_of_run = parse(Config, {**trained_config, "training": {"ensemble": 2, "report": False}})
    train_all(config_of_run, tmp_path / "run")
    (tmp_path / "new.smi").write_text("\n".join(SMILES))
    fingerprint(config(ckpt=str(tmp_path / "run"), input=str(tmp_path / "new.smi"), output=str(tmp_path / "f.npy")))
    values = np.load(tmp_path / "f.npy")
    assert values.shape == (len(SMILES), 16)
    np.testing.assert_allclose(molgcn.load(tmp_path / "run", device="cpu").fingerprint(SMILES), values, rtol=1e-6)
