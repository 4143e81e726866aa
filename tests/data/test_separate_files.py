"""Training, validation and test may be in separate files (`dataset.val_path`, `dataset.test_path`)."""

import csv
import json
import shutil

import numpy as np
import pytest

from molgcn.data.config import DatasetConfig
from molgcn.data.load import load_dataset
from molgcn.data.splits.parts import PARTS
from molgcn.errors import UserError
from molgcn.evaluate import EvaluateConfig, evaluate
from molgcn.training.train import train

TRAIN = ["CCO", "CCC", "CCN", "c1ccccc1", "C1CC1", "CC(=O)O", "CCCl", "CCBr", "N", "O", "CCCC", "CCF"]


@pytest.fixture
def files(tmp_path):
    """Return a function that writes files of SMILES and returns the configuration that reads them."""

    def make(rows=TRAIN, val=None, test=None, **options):
        paths = {}
        for key, smiles in (("path", rows), ("val_path", val), ("test_path", test)):
            if smiles is not None:
                paths[key] = str(tmp_path / f"{key}.csv")
                cells = [text if "," in text else f"{text},{place}.5" for place, text in enumerate(smiles)]
                lines = [f"{line},{2000 + place},{place % 3}\n" for place, line in enumerate(cells)]
                (tmp_path / f"{key}.csv").write_text("smiles,y,year,batch\n" + "".join(lines))
        return DatasetConfig(**{"name": "csv", "targets": ["y"], "cache_dir": str(tmp_path / "cache"), **paths, **options})

    return make


def rows_of(loaded):
    return {part: loaded.molecules.rows[loaded.splits[part]].tolist() for part in PARTS}


def test_each_file_is_a_part(files, tmp_path):
    for _ in range(2):  # the second time from the cache
        loaded = load_dataset(files(val=["CCCCC", "CCCCCC"], test=["CCS"]))
        assert rows_of(loaded) == {"train": [*range(12)], "val": [12, 13], "test": [14]}
        assert list(loaded.part("val").smiles) == ["CCCCC", "CCCCCC"]
        assert loaded.molecules.targets[:, 0].tolist() == [*(np.arange(12) + 0.5), 0.5, 1.5, 0.5]
    assert len(list((tmp_path / "cache" / "packed").glob("csv-*"))) == 1


def test_all_rows_of_all_files_are_counted(files):
    loaded = load_dataset(files(val=["CCCCC", "oops"], test=["CCS", "C(C"], on_error="skip"))
    assert rows_of(loaded) == {"train": [*range(12)], "val": [12], "test": [14]}
    assert loaded.molecules.num_rows == 16


def test_the_hash_follows_every_file_and_no_name(files, tmp_path):
    first = load_dataset(files(val=["CCCCC"], test=["CCS"]))
    hashes = {
        load_dataset(files(val=val, test=test)).data_hash for val, test in ((["CCCCS"], ["CCS"]), (["CCCCC"], ["CCSC"]), (["CCCCC"], None))
    }
    assert len(hashes | {first.data_hash}) == 4
    config = files(test=["CCCCC"], val=["CCS"])
    swapped = DatasetConfig(**{**vars(config), "val_path": config.test_path, "test_path": config.val_path})
    again = load_dataset(swapped)
    assert again.data_hash == first.data_hash
    assert again.molecules.files[1] == (config.test_path, 12)


@pytest.mark.parametrize(
    ("options", "sizes"),
    [
        ({"val": ["CCCCC", "CCS"]}, (11, 2, 1)),
        ({"test": ["CCCCC", "CCS"]}, (11, 1, 2)),
        ({"test": ["CCCCC"], "split_fractions": (0.75, 0.25, 0)}, (9, 3, 1)),
        ({"test": ["CCCCC"], "split_fractions": (0.6, 0.2, 0.2)}, (9, 3, 1)),
        ({"test": ["CCCCC"], "split_fractions": (1, 0, 0)}, (12, 0, 1)),
        ({"val": ["CCCCC"], "split_fractions": (8, 2, 3)}, (8, 1, 3)),
        ({"test": ["CCCCC"], "split": "time", "split_column": "year"}, (11, 1, 1)),
        ({"test": ["CCCCC"], "split": "group", "split_column": "batch", "split_fractions": (0.6, 0.3, 0.1)}, (8, 4, 1)),
    ],
    ids=str,
)
def test_a_part_without_a_file_is_drawn_from_training(files, options, sizes):
    loaded = load_dataset(files(**options))
    assert tuple(len(loaded.splits[part]) for part in PARTS) == sizes
    given = {part for part in ("val", "test") if part in options}
    assert all(set(loaded.molecules.rows[loaded.splits[part]]) <= set(range(12)) for part in {*PARTS} - given)
    if options.get("split") == "time":
        assert rows_of(loaded)["val"] == [11]


def test_copies_in_several_files_are_counted(files, caplog):
    load_dataset(files(val=["OCC", "CCCCC"], test=["CCS", "C(C)O", "CCCCC"]))
    assert "1 of 2 validation and 1 of 3 test molecules have a copy in the training part" in caplog.text
    assert "2 of 3 test molecules have a copy in the validation part" in caplog.text
    assert "dataset.split=random" not in caplog.text
    caplog.clear()
    load_dataset(files(val=["CCCCC"], test=["CCS"]))  # rows of the same label, year and batch, which are other molecules
    assert "copy" not in caplog.text
    merged = load_dataset(files(val=["OCC", "CCCCC"], test=["CCS", "C(C)O", "CCCCC"], duplicates="first"))
    assert rows_of(merged) == {"train": [*range(12)], "val": [13], "test": [14]}


@pytest.mark.parametrize(
    ("options", "what"),
    [
        ({"val": ["C", "C(("]}, r"Row 1 of .*/val_path\.csv \(counted from 0.*'C\(\('"),
        ({"test": ["C", "CC,tall"]}, r"/test_path\.csv, column 'y', row 1 .*'tall' is not a number"),
        ({"val": ["OCC"], "duplicates": "error"}, r"row 0 of .*/val_path\.csv \('OCC'\) repeats row 0 of .*/path\.csv \('CCO'\)"),
        ({"val": ["C(("], "on_error": "skip"}, r"No molecule of .*/val_path\.csv, the file of the part val, is in the set"),
        ({"test_path": "none.csv"}, r"dataset\.test_path=none\.csv is not a file"),
        (
            {"test": ["C"], "split": "column", "split_column": "batch"},
            r"dataset\.test_path=.*is a part of its own, but dataset\.split=column",
        ),
        ({"test": ["C"], "name": "zinc"}, r"dataset\.test_path=.* goes with a file of your own"),
        ({"rows": None, "test": ["C"]}, r"dataset\.test_path=.* goes with a file of your own"),
    ],
    ids=str,
)
def test_mistakes_name_the_file(files, options, what):
    with pytest.raises(UserError, match=what):
        load_dataset(files(**options))


def test_a_class_that_is_none_is_named_by_its_file(files, tmp_path, small_config):
    config = files(rows=[f"{text},{place % 2}" for place, text in enumerate(TRAIN)], val=["C,1", "S,3"])
    dataset = {**vars(config), "features": "general", "batch_size": 4}
    with pytest.raises(UserError, match=r"the value 3 in row 1 of .*/val_path\.csv \(counted from 0"):
        train(small_config(dataset=dataset, task="classification"), tmp_path / "run")


@pytest.mark.usefixtures("blank_figures")
def test_a_run_is_resumed_and_evaluated_with_its_files(files, tmp_path, small_config):
    folder = tmp_path / "run"
    dataset = vars(files(val=["CCCCC", "C((", "CCS"], test=["CCCS"], on_error="skip")) | {"subset": None, "batch_size": 4}
    config = small_config(dataset=dataset, trainer={"max_epochs": 2})
    result = train(config, folder)
    assert json.loads((folder / "splits.json").read_text()) == {"train": [*range(12)], "val": [12, 14], "test": [15]}
    with open(folder / "skipped.csv", newline="") as file:
        (row,) = csv.DictReader(file)
    assert (row["file"], row["row"], row["smiles"]) == (dataset["val_path"], "1", "C((")
    assert evaluate(EvaluateConfig(ckpt=str(folder))).metrics == pytest.approx(result.metrics, rel=1e-5, nan_ok=True)
    moved = shutil.move(dataset["val_path"], tmp_path / "moved.csv")
    resumed = train(small_config(dataset=dataset | {"val_path": str(moved)}, trainer={"max_epochs": 3}, resume=str(folder)), folder)
    assert resumed.epochs == 3
