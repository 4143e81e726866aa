"""dataset=ogb reads the benchmark's files, downloaded or in a folder, with its own parts and its evaluator's metrics."""

from __future__ import annotations

import csv
import gzip
import shutil

import numpy as np
import pytest
from local_server import serving
from sklearn.metrics import average_precision_score, roc_auc_score
from test_archive import make_zip

from molgcn.comparison.table import table_columns
from molgcn.config.run import Config, parse
from molgcn.data.benchmark_sets import OGB_SETS
from molgcn.data.config import DatasetConfig
from molgcn.data.load import load_dataset
from molgcn.data.sources import ogb
from molgcn.errors import UserError
from molgcn.training.inference import predict_molecules
from molgcn.training.restore import load_module
from molgcn.training.train import train

RINGS = ("c1ccccc1", "c1ccncc1", "C1CCCCC1", "C1CCNC1", "c1ccoc1", "c1ccsc1", "C1CC1", "C1CCOC1")
SMILES = [f"{'C' * (1 + n // 8)}{RINGS[n % 8]}" for n in range(64)]
PARTS = {"train": [*range(40, 64), *range(24)], "valid": [*range(24, 32)], "test": [*range(32, 40)]}


def write_set(folder, values, names):
    """Write the files of a set as the archive has them: values [64, T], NaN where missing."""
    lines = [[*("" if value != value else value for value in row), SMILES[n], f"mol_{n}"] for n, row in enumerate(values)]
    for path in ("mapping", "split/scaffold"):
        (folder / path).mkdir(parents=True)
    with gzip.open(folder / "mapping/mol.csv.gz", "wt", newline="") as file:
        csv.writer(file).writerows([[*names, "smiles", "mol_id"], *lines])
    for part, rows in PARTS.items():
        with gzip.open(folder / f"split/scaffold/{part}.csv.gz", "wt") as file:
            file.writelines(f"{row}\n" for row in rows)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Return a folder with molesol, and with moltox21, a third of whose values are missing."""
    folder = tmp_path_factory.mktemp("ogb")
    write_set(folder / "esol", np.arange(64)[:, None] / 8, ["measured log solubility in mols per litre"])
    rng = np.random.default_rng(0)
    labels = (np.arange(64)[:, None] // 8 + rng.integers(4, size=(64, 12)) > 5).astype(float)
    labels[rng.random(labels.shape) < 1 / 3] = np.nan
    labels[PARTS["test"], 2] = 1.0  # ROC-AUC and average precision are not defined
    write_set(folder / "ogbg_moltox21", labels, [f"NR-{n}" for n in range(12)])
    return folder


def load(path, cache, **options):
    options = {"set": "molesol", "split": "benchmark", "features": "ogb", **options}
    return load_dataset(DatasetConfig(name="ogb", path=None if path is None else str(path), cache_dir=str(cache), num_workers=0, **options))


@pytest.mark.parametrize("place", ["", "esol"])
def test_the_parts_are_the_benchmarks(folder, tmp_path, place):
    loaded = load(folder / place, tmp_path)
    assert {part: rows.tolist() for part, rows in loaded.splits.items()} == {
        "train": PARTS["train"],
        "val": PARTS["valid"],
        "test": PARTS["test"],
    }
    assert loaded.molecules.target_names == ("measured log solubility in mols per litre",)
    assert loaded.molecules.target_units == ("log mol/L",)
    assert loaded.molecules.targets[5:7, 0].tolist() == [5 / 8, 6 / 8] and loaded.molecules.smiles[40] == SMILES[40]


def test_the_download_from_a_local_server(folder, tmp_path, monkeypatch):
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    files = {f"esol/{path.relative_to(folder / 'esol')}": path.read_bytes() for path in (folder / "esol").rglob("*.gz")}
    (tmp_path / "served").mkdir()
    make_zip(tmp_path / "served" / "esol.zip", {"esol/RELEASE_v1.txt": "", "esol/raw/graph-label.csv.gz": "no", **files})
    assert all(address.endswith("://snap.stanford.edu/ogb/data/graphproppred/csv_mol_download/") for address in ogb.ADDRESSES)
    with serving(tmp_path / "served") as address:
        monkeypatch.setattr(ogb, "ADDRESSES", (address,))
        loaded = load(None, tmp_path / "cache")
        with pytest.raises(UserError, match=r"hiv\.zip could not be downloaded"):
            load(None, tmp_path / "cache", set="molhiv")
        make_zip(tmp_path / "served" / "bace.zip", {name.replace("esol", "bace"): data[:20] for name, data in files.items()})
        with pytest.raises(UserError, match=r"mol\.csv\.gz is not a whole gzip file"):
            load(None, tmp_path / "cache", set="molbace")
    assert loaded.data_hash == load(folder, tmp_path / "other").data_hash
    assert load(None, tmp_path / "cache").data_hash == loaded.data_hash  # there is no server any more


def evaluator(metric, true, predicted):
    """Return the mean over targets as `ogb.graphproppred.Evaluator` takes it."""
    found = []
    for truth, values in zip(true.T, predicted.T, strict=True):
        known = ~np.isnan(truth)
        if metric == "rmse":
            found.append(np.sqrt(((truth - values)[known] ** 2).mean()))
        elif (truth == 1).any() and (truth == 0).any():
            score = roc_auc_score if metric == "roc_auc" else average_precision_score
            found.append(score(truth[known], values[known]))
    return sum(found) / len(found)


@pytest.mark.usefixtures("one_thread", "empty_figures")
@pytest.mark.parametrize(
    ("name", "metric"), [("molesol", "rmse"), ("moltox21", "roc_auc"), pytest.param("moltox21", "pr_auc", marks=pytest.mark.slow)]
)
def test_the_first_metric_is_the_evaluators(folder, tmp_path, monkeypatch, name, metric):
    monkeypatch.setitem(OGB_SETS, name, OGB_SETS[name]._replace(metric=metric))
    values = {
        "dataset": {"name": "ogb", "set": name, "path": str(folder), "split": "benchmark", "features": "ogb", "batch_size": 16},
        "model": {"hidden_channels": 8, "num_layers": 2},
        "training": {"monitor": "auto", "baseline": "none", "bootstrap": 0},
        "logger": {"name": "csv"},
        "trainer": {"max_epochs": 2, "accelerator": "cpu", "num_sanity_val_steps": 0, "enable_model_summary": False},
    }
    result = train(parse(Config, values), tmp_path / "run")
    assert result.monitor == f"val/{metric}"
    assert table_columns(result.learned, result.metrics, ["test"], result.monitor)[0] == ("test", metric)
    data, module = load_dataset(parse(Config, values).dataset), load_module(result.folder)
    for part in ("val", "test"):
        molecules = data.part(part)
        expected = evaluator(metric, molecules.targets, predict_molecules(module, molecules, 16))
        found = result.metrics | result.comparison.means
        several = len(result.names) > 1
        assert found[f"{part}/{metric}" if several else f"{part}/{metric}/{result.names[0]}"] == pytest.approx(expected, rel=1e-6)
    assert result.comparison.counted.get(f"test/{metric}", 11) == 11  # one has a single class


def test_the_metrics_are_the_benchmarks():
    expected = {"molhiv": "roc_auc", "molpcba": "pr_auc", "molmuv": "pr_auc", "mollipo": "rmse", "moltoxcast": "roc_auc"}
    for name, metric in expected.items():
        config = parse(Config, {"dataset": {"name": "ogb", "set": name}, "training": {"monitor": "auto"}})
        assert config.training.monitor == f"val/{metric}"


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"set": None}, "needs dataset.set=<set>, one of molhiv"),
        ({"set": "hiv"}, "Did you mean 'molhiv'"),
        ({"set": "all"}, "dataset.set=all is not an option"),
        ({"name": "csv", "set": "molhiv"}, "null with dataset=csv, or dataset=tdc or dataset=ogb"),
        ({"targets": ["y"]}, "no column 'y'"),
        ({"set": "molhiv"}, r"no files of dataset.set=molhiv. Expected a folder with mapping/mol\.csv\.gz and split/scaffold/"),
        ({"set": "molsider", "path": "esol"}, "Expected those of dataset.set=molsider: 27 of targets, then smiles and mol_id"),
    ],
)
def test_mistakes_are_said(folder, tmp_path, options, match):
    options = {"name": "ogb", "set": "molesol", "split": "benchmark", "cache_dir": str(tmp_path), **options}
    with pytest.raises(UserError, match=match):
        load_dataset(DatasetConfig(**{**options, "path": str(folder / options.get("path", ""))}))


def test_a_damaged_list_of_rows_is_said(folder, tmp_path):
    shutil.copytree(folder / "esol", tmp_path / "esol")
    with gzip.open(tmp_path / "esol/split/scaffold/test.csv.gz", "wt") as file:
        file.write("1\nx\n")
    with pytest.raises(UserError, match=r"test\.csv\.gz is not a list of rows, one whole number a line"):
        load(tmp_path, tmp_path / "cache")
