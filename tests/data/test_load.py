import csv
import gzip
import logging
from dataclasses import replace

import numpy as np
import pytest

from molgcn.data import load
from molgcn.data.config import DatasetConfig
from molgcn.data.load import load_dataset, write_skipped
from molgcn.data.rows import SkippedRow
from molgcn.data.sources import SOURCES
from molgcn.data.sources.csv import open_csv
from molgcn.data.splits.drawn import random_split
from molgcn.data.splits.given import save_split
from molgcn.errors import UserError

SMILES = ["C", "CC", "CCO", "CCN", "c1ccccc1", "C1CC1", "CC(=O)O", "O", "C" * 200, "CCO", "N", "CO"]
NOT_IN_TRAIN = next(seed for seed in range(99) if 9 not in random_split(10, seed=seed)["train"])


@pytest.fixture
def table(tmp_path):
    def make(smiles=SMILES, name="x.csv", header="smiles,y,z,part", bad=None):
        parts = ["train"] * (len(smiles) - 4) + ["val", "val", "test", "test"]
        rows = [
            f"{text},{i}.5,{'' if i % 2 else i},{part}" for i, (text, part) in enumerate(zip(smiles, parts[-len(smiles) :], strict=True))
        ]
        if bad is not None:
            rows[bad[0]] = bad[1]
        path = tmp_path / name
        content = "\n".join([header, *rows]) + "\n"
        path.write_bytes(gzip.compress(content.encode()) if name.endswith(".gz") else content.encode())
        return path

    return make


def config(path, tmp_path, **options):
    return DatasetConfig(**{"name": "csv", "path": str(path), "targets": ["y", "z"], "cache_dir": str(tmp_path / "cache"), **options})


@pytest.mark.parametrize("name", ["x.csv", "x.csv.gz", "my file, (v2)=new.csv"])
def test_csv_with_missing_values(table, tmp_path, name, caplog):
    caplog.set_level(logging.INFO)
    loaded = load_dataset(config(table(name=name), tmp_path))
    molecules = loaded.molecules
    assert len(molecules) == 12
    assert molecules.features == "general"
    np.testing.assert_array_equal(np.isnan(molecules.targets[:, 1]), [bool(i % 2) for i in range(12)])
    np.testing.assert_array_equal(molecules.targets[:, 0], np.arange(12) + 0.5)
    assert list(molecules.smiles) == SMILES
    assert np.diff(molecules.node_ptr).max() == 200
    assert np.diff(molecules.edge_ptr).min() == 0
    assert "12 molecules packed" in caplog.text
    assert "1 molecule repeats another one as features=general sees them (1 group); in 1 group labels disagree: y by up to 7" in caplog.text


def test_the_second_load_reads_no_molecule(table, tmp_path, monkeypatch):
    path = table()
    first = load_dataset(config(path, tmp_path))
    monkeypatch.setattr(load, "featurize_items", None)
    second = load_dataset(config(path, tmp_path))
    assert isinstance(second.molecules.neighbors, np.memmap)
    assert first.data_hash == second.data_hash
    for part in first.splits:
        np.testing.assert_array_equal(first.splits[part], second.splits[part])
    assert len(list((tmp_path / "cache" / "packed").glob("csv-*"))) == 1


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({}, "3 rows that are not in the set: 3 were left out as unreadable"),
        ({"duplicates": "first"}, "4 rows that are not in the set: 3 were left out as unreadable or unusable, 1 are outside"),
        ({"subset": 12}, "3 rows that are not in the set: 3 were left out"),
    ],
)
def test_a_split_file_may_name_any_row_of_the_file_and_none_beyond(table, tmp_path, caplog, options, said):
    """Rows are counted through the whole file, whatever becomes of them, also where the set comes from the cache."""
    path = table([*SMILES[:9], "CCO", "oops", "c1cc"], bad=(0, "C(C,0.5,0,train"))
    read = config(path, tmp_path, on_error="skip", split="file", split_file=str(tmp_path / "split.json"), **options)
    for _ in range(2):
        (tmp_path / "split.json").write_text('{"train": [0, 1, 2, 3, 4, 5, 6], "val": [9], "test": [7, 10, 11]}')
        caplog.clear()
        assert load_dataset(read).molecules.num_rows == 12
        assert said in caplog.text
        (tmp_path / "split.json").write_text('{"train": [0, 1, 2, 3, 4, 5, 6], "val": [8], "test": [7, 12]}')
        with pytest.raises(UserError, match=r"names 1 row beyond .*x\.csv, such as row 12 in test: it has 12 rows, counted from 0"):
            load_dataset(read)


def test_the_hash_follows_content_and_options(table, tmp_path):
    path = table()
    first = load_dataset(config(path, tmp_path)).data_hash
    assert load_dataset(config(path, tmp_path, features="qm9")).data_hash != first
    assert load_dataset(config(path, tmp_path, targets=["y"])).data_hash != first
    for options in ({"split_seed": 5, "batch_size": 3}, {"group_duplicates": False}, {"duplicates": "keep"}):
        assert load_dataset(config(path, tmp_path, **options)).data_hash == first
    path.write_text(path.read_text().replace("CCN", "CCF"))
    assert load_dataset(config(path, tmp_path)).data_hash != first


def test_a_file_that_changes_while_it_is_read_is_refused(table, tmp_path, monkeypatch):
    """The cache would belong to the earlier file."""
    path = table()
    before = path.read_text()

    def opened(config):
        source = open_csv(config)
        return replace(source, read=lambda: (path.write_text(before + "CCCCO,9,9,train\n"), source.read())[1])

    monkeypatch.setitem(SOURCES, "csv", opened)
    with pytest.raises(UserError, match="has changed while it was read"):
        load_dataset(config(path, tmp_path))
    monkeypatch.undo()
    path.write_text(before)
    assert "CCCCO" not in list(load_dataset(config(path, tmp_path)).molecules.smiles)


def test_bad_rows_raise_or_are_listed_also_from_the_cache(table, tmp_path, caplog):
    path = table(bad=(3, "CC(,1,2,train"))
    with pytest.raises(UserError, match=r"Row 3 of .*x\.csv.*'CC\('"):
        load_dataset(config(path, tmp_path))
    for _ in range(2):
        caplog.clear()
        loaded = load_dataset(config(path, tmp_path, on_error="skip"))
        assert loaded.molecules.rows.tolist() == [0, 1, 2, *range(4, 12)]
        assert loaded.molecules.targets[3, 0] == 4.5
        assert "1 row is left out" in caplog.text
    write_skipped(tmp_path / "skipped.csv", loaded.molecules.skipped)
    with open(tmp_path / "skipped.csv") as file:
        (row,) = csv.DictReader(file)
    assert (row["row"], row["smiles"]) == ("3", "CC(")
    assert "syntax" in row["reason"]


def test_subset_is_drawn_by_the_seed(table, tmp_path):
    path = table()
    options = {"subset": 6, "split_fractions": [4, 1, 1]}
    first = load_dataset(config(path, tmp_path, **options)).molecules.rows
    assert len(first) == 6
    np.testing.assert_array_equal(first, load_dataset(config(path, tmp_path, **options)).molecules.rows)
    assert first.tolist() != load_dataset(config(path, tmp_path, split_seed=1, **options)).molecules.rows.tolist()
    with pytest.raises(UserError, match="subset=13 asks for more than the 12"):
        load_dataset(config(path, tmp_path, subset=13))


def test_column_and_file_splits(table, tmp_path):
    path = table(bad=(3, "CC(,1,2,train"))
    loaded = load_dataset(config(path, tmp_path, on_error="skip", split="column", split_column="part"))
    assert loaded.molecules.rows[loaded.splits["val"]].tolist() == [8, 9]
    assert loaded.molecules.rows[loaded.splits["train"]].tolist() == [0, 1, 2, 4, 5, 6, 7]
    save_split(tmp_path / "splits.json", loaded.splits, loaded.molecules.rows)
    again = load_dataset(config(path, tmp_path, on_error="skip", split="file", split_file=str(tmp_path / "splits.json")))
    for part in loaded.splits:
        np.testing.assert_array_equal(again.splits[part], loaded.splits[part])


def test_one_of_several_splits_of_a_file(table, tmp_path):
    (tmp_path / "splits.json").write_text('[{"train": [0, 2], "test": "4-6"}, {"train": "1-3", "test": [0]}]')
    read = config(table(), tmp_path, split="file", split_file=str(tmp_path / "splits.json"), repeat=1)
    assert {part: rows.tolist() for part, rows in load_dataset(read).splits.items()} == {"train": [1, 2, 3], "val": [], "test": [0]}
    with pytest.raises(UserError, match=r"Several splits in dataset\.split_file= .* as in dataset\.repeat=0"):
        load_dataset(replace(read, repeat=None))
    with pytest.raises(UserError, match=r"dataset\.repeat=2 is not valid: expected a number from 0 to 1"):
        load_dataset(replace(read, repeat=2))


def test_scaffold_split(tmp_path):
    rings = ["c1ccccc1", "C1CCCCC1", "C1CCCC1", "c1ccncc1", "c1ccoc1", "C1CCOC1", "C1CCNC1", "C1CC1", "C1CCC1", "c1cc[nH]c1"]
    path = tmp_path / "rings.csv"
    path.write_text("smiles,y\n" + "".join(f"{ring}C,{i}\n{ring},{i}\n" for i, ring in enumerate(rings)))
    loaded = load_dataset(config(path, tmp_path, targets=["y"], split="scaffold"))
    rows = {part: set((loaded.molecules.rows[indices] // 2).tolist()) for part, indices in loaded.splits.items()}
    assert not rows["train"] & rows["test"]
    assert not rows["train"] & rows["val"]


@pytest.mark.parametrize(
    ("content", "options", "what"),
    [
        (None, {}, "cannot be read: No such file"),
        ("", {}, "is empty"),
        ("smiles,y,z\n", {}, "no rows"),
        ("SMILES,y,z\nC,1,2\n", {}, r"no column 'smiles' \(dataset.smiles\).*Did you mean 'SMILES'"),
        ("smiles,y,zz\nC,1,2\n", {}, "Did you mean 'zz'"),
        ("smiles,y,z\nC,1,tall\n", {}, "'tall' is not a number"),
        ("smiles,y,z\nC,1,\nCC,2,\n", {}, "all 2 values of column 'z' are missing"),
        ("smiles,y,z\nC,1,2\n", {}, r"1 molecule cannot be split.* leave validation or test out by a 0, as in \[0\.9,0\.1,0\]"),
        ("smiles,y,z\nC,a,b\n", {"targets": None}, "has the columns: y, z"),
        ("smiles,y,z\n(,1,2\n", {"on_error": "skip"}, "None of the 1 molecule "),
        ("smiles,y,z\nC,1,2\n", {"split": "column"}, "split_column is not set"),
        ("smiles,y,z\nC,1,2\n", {"split": "column", "split_column": "fold"}, r"no column 'fold' \(dataset.split_column\)"),
        ("smiles,y,z\nC,1,2\n", {"split": "file"}, "needs dataset.split_file"),
        ("smiles,y,z\nC,1,2\n", {"split": "benchmark"}, "no benchmark split"),
        (
            "smiles,y,z\n" + "".join(f"{'C' * n},1,\n" for n in range(1, 10)) + "O,1,5\n",
            {"split_seed": NOT_IN_TRAIN},
            "'z' has no value in the training part",
        ),
        (
            "smiles,y,z,part\n" + "C,1,2,train\n" * 3 + "C,,,val\n" + "C,1,2,test\n",
            {"split": "column", "split_column": "part"},
            "No molecule of the validation part has a target's value",
        ),
    ],
)
def test_mistakes_are_one_paragraph_that_names_the_place(tmp_path, content, options, what):
    path = tmp_path / "data.csv"
    if content is not None:
        path.write_text(content)
    with pytest.raises(UserError, match=what) as error:
        load_dataset(config(path, tmp_path, **options))
    assert "\n" not in str(error.value)


def test_unusual_molecules_of_the_training_part_are_counted(table, tmp_path, caplog):
    path = table(["CC", "*CC", "[Na+].[Cl-]", "CC.O", "CO", "C1.C1", "C.C", "*", "C", "C"])
    load_dataset(config(path, tmp_path, split="column", split_column="part"))
    found = [record.message for record in caplog.records if "training part" in record.message]
    assert found == [
        f"{path}: the training part has unusual molecules: 1 with dummy atoms (*), 2 of several fragments (salts, mixtures); they are "
        "trained on as they are"
    ]


def test_csv_without_a_path(tmp_path):
    with pytest.raises(UserError, match=r"dataset.path=<file.csv>"):
        load_dataset(DatasetConfig(name="csv", cache_dir=str(tmp_path)))


def test_skipped_file_quotes_what_needs_it(tmp_path):
    write_skipped(tmp_path / "skipped.csv", [SkippedRow(1, 'C,"x"', "a, b")])
    with open(tmp_path / "skipped.csv") as file:
        assert list(csv.reader(file))[1] == ["1", 'C,"x"', "a, b"]
