"""dataset=tdc reads the benchmark's files, downloaded or in a folder, with its own parts."""

from __future__ import annotations

import numpy as np
import pytest
from local_server import serving
from test_archive import make_zip

from molgcn.config.run import Config, parse
from molgcn.data.benchmark_sets import TDC_SETS
from molgcn.data.config import DatasetConfig
from molgcn.data.load import load_dataset
from molgcn.data.sources import tdc
from molgcn.data.sources.tdc import scaffold_split
from molgcn.errors import UserError

RINGS = ("c1ccccc1", "c1ccncc1", "C1CCCCC1", "C1CCNC1", "c1ccoc1", "c1ccsc1", "C1CC1", "C1CCOC1")
SMILES = [f"{'C' * (1 + n // 8)}{RINGS[n % 8]}" for n in range(64)]


def table(smiles):
    return "Drug_ID,Drug,Y\n" + "".join(f"{n},{text},{n % 5 / 2}\n" for n, text in enumerate(smiles))


@pytest.fixture
def folder(tmp_path):
    """Return a folder with the two files of one set."""
    (tmp_path / "half_life_obach_train_val.csv").write_text(table(SMILES[:48]))
    (tmp_path / "half_life_obach_test.csv").write_text(table(SMILES[48:]))
    return tmp_path


def load(path, cache, **options):
    options = {"set": "half_life_obach", "split": "benchmark", "split_seed": 1, **options}
    return load_dataset(DatasetConfig(name="tdc", path=None if path is None else str(path), cache_dir=str(cache), num_workers=0, **options))


def test_the_parts_are_the_benchmarks(folder):
    loaded = load(folder, folder / "cache")
    training, validation = scaffold_split(SMILES[:48], seed=1)
    assert loaded.splits["train"].tolist() == training.tolist() and loaded.splits["val"].tolist() == validation.tolist()
    assert loaded.splits["test"].tolist() == [*range(48, 64)] and loaded.molecules.smiles[48] == SMILES[48]
    assert (loaded.molecules.target_names, loaded.molecules.target_units) == (("half_life_obach",), ("h",))
    assert loaded.molecules.targets[48:51, 0].tolist() == [0, 0.5, 1]
    assert loaded.data_hash == load(folder, folder / "cache", split_seed=2).data_hash
    unpacked = folder / "pytdc" / "admet_group" / "half_life_obach"
    unpacked.mkdir(parents=True)
    for part in ("train_val", "test"):
        (unpacked / f"{part}.csv").write_bytes((folder / f"half_life_obach_{part}.csv").read_bytes())
    assert load(folder / "pytdc", folder / "cache").data_hash == loaded.data_hash


def test_scaffolds_stay_together_and_training_takes_seven_eighths():
    """These parts are what PyTDC 1.1's create_scaffold_split returns for the same molecules and seeds."""
    drawn = {seed: scaffold_split([*SMILES[:48], "no molecule"], seed) for seed in (1, 2)}
    scaffolds = np.arange(48) % 8
    for training, validation in drawn.values():
        assert sorted([*training, *validation]) == [*range(48)] and len(training) == 42
        assert not set(scaffolds[training]) & set(scaffolds[validation])
    assert {seed: {RINGS[one] for one in scaffolds[validation]} for seed, (_, validation) in drawn.items()} == EXPECTED


EXPECTED = {1: {"C1CCCCC1"}, 2: {"c1ccccc1"}}


def test_the_download_from_a_local_server(folder, tmp_path, monkeypatch):
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    files = {"train_val": table(SMILES[:48]), "test": table(SMILES[48:])}
    members = {f"admet_group/{name}/{part}.csv": text for name in TDC_SETS for part, text in files.items()}
    (tmp_path / "served").mkdir()
    make_zip(tmp_path / "served" / "4426004", {"__MACOSX/admet_group/ames/test.csv": "no", **members})

    assert tdc.ARCHIVE.urls[0].endswith("dataverse.harvard.edu/api/access/datafile/4426004")
    with serving(tmp_path / "served") as address:
        monkeypatch.setattr(tdc, "ARCHIVE", tdc.RemoteFile("admet_group.zip", (f"{address}4426004",)))
        loaded = load(None, tmp_path / "cache")
    assert loaded.data_hash == load(folder, tmp_path / "other").data_hash
    assert load(None, tmp_path / "cache", set="ames").molecules.target_names == ("ames",)  # there is no server any more


def test_the_metric_is_monitored():
    chosen = {"caco2_wang": "val/mae", "half_life_obach": "val/spearman", "ames": "val/roc_auc", "cyp2c9_veith": "val/pr_auc"}
    for name, monitor in chosen.items():
        config = parse(Config, {"dataset": {"name": "tdc", "set": name}, "training": {"monitor": "auto"}})
        assert config.training.monitor == monitor
    assert parse(Config, {"dataset": {"name": "builtin"}, "training": {"monitor": "auto"}}).training.monitor == "val/loss"


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"set": None}, "needs dataset.set=<set>, one of caco2_wang"),
        ({"set": "all"}, "is a --multirun"),
        ({"set": "caco_wang"}, "Did you mean 'caco2_wang'"),
        ({"name": "builtin", "set": "ames"}, "null with dataset=builtin"),
        ({"targets": ["Y"]}, "one target, half_life_obach"),
        ({"set": "ames"}, r"no files of dataset.set=ames. Expected a folder with ames_train_val\.csv and ames_test\.csv"),
    ],
)
def test_mistakes_are_said(folder, options, match):
    with pytest.raises(UserError, match=match):
        load_dataset(DatasetConfig(**{"name": "tdc", "set": "half_life_obach", "path": str(folder), "split": "benchmark", **options}))
