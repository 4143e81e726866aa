"""Runs that learn an uncertainty work in every command."""

from __future__ import annotations

import csv
import io
import json
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch
from rich.console import Console
from run_cases import assert_same_run, log_of, train_and_copy
from uncertain_cases import ENDINGS

from molgcn.calibration.assessment import assess
from molgcn.config.run import parse
from molgcn.errors import UserError
from molgcn.evaluate import EvaluateConfig, evaluate
from molgcn.export import ExportConfig, export
from molgcn.predict import PredictConfig, predict, predict_smiles
from molgcn.resources import resource
from molgcn.screening.ensemble import Ensemble
from molgcn.training.checkpoint_file import load_checkpoint, write
from molgcn.training.compatible import check_same_keys
from molgcn.training.restore import load_module
from molgcn.training.train import train

pytestmark = pytest.mark.usefixtures("empty_figures")
SMILES = ["CCO", "c1ccccc1", "CC(=O)O"]


@pytest.fixture(scope="module", params=["evidential", *(pytest.param(name, marks=pytest.mark.slow) for name in ("mve", "quantile"))])
def run(request, small_config, tmp_path_factory):
    """Return a loss, the result and folder of a run with it, copies of the run at its checkpoints, and the configuration."""
    folder = tmp_path_factory.mktemp(request.param)
    with open(resource("data") / "molecules.csv", newline="") as file:
        rows = [(row["smiles"], row["logp"], row["tpsa"]) for row in csv.DictReader(file)]
    lines = [f"{smiles},{a},{'' if number % 5 == 0 else b}" for number, (smiles, a, b) in enumerate(rows[:: len(rows) // 200])]
    (folder / "mine.csv").write_text("\n".join(["smiles,a,b", *lines]) + "\n")
    dataset = {"name": "csv", "path": str(folder / "mine.csv"), "targets": ["a", "b"], "subset": None, "cache_dir": str(folder / "cache")}
    training = {"loss": request.param, "quantile_alpha": 0.2, "report": True, "checkpoint_seconds": 0}
    config = small_config(dataset=dataset, model={"dropout": 0.1}, backend={"name": "fused"}, training=training, optimizer={"lr": 0.01})
    result, copies = train_and_copy(config, folder / "run")
    return request.param, result, folder, copies, config


def columns_of(name):
    return [f"{target} {ending}" for target in "ab" for ending in ENDINGS[name]]


def test_a_run_says_what_its_outputs_mean(run):
    name, result, folder, _, _ = run
    module = load_module(folder / "run")
    assert (result.task, module.task.name) == ("regression", "regression")
    assert module.model.out_channels == module.task.num_outputs > 2
    assert [column for columns in module.task.columns for column in columns] == columns_of(name)
    assert getattr(module.task, "alpha", 0.2) == 0.2
    assert {f"val/{metric}/{one}" for metric in module.task.logged for one in "ab"} < log_of(folder / "run")[0].keys()
    assert f"{name} loss" in (folder / "run" / "report.html").read_text()
    console = Console(width=200, record=True, file=io.StringIO())
    result.print(console)
    assert f"test {'COVERAGE' if name == 'quantile' else 'NLL'}" in console.export_text()


def test_every_place_tells_the_same(run):
    name, result, folder, _, _ = run
    again = evaluate(parse(EvaluateConfig, {"ckpt": str(folder / "run"), "dataset": {"cache_dir": str(folder / "cache")}, "device": "cpu"}))
    assert again.metrics == pytest.approx(result.metrics, rel=1e-4, abs=1e-5, nan_ok=True)
    for path in (folder / "run" / "predictions_test.csv", again.folder / "predictions_test.csv"):
        table = pd.read_csv(path)
        assert [*table] == ["row", "smiles", *(one for target in "ab" for one in (target, *[f"{target} {end}" for end in ENDINGS[name]]))]
        task = load_module(folder / "run").task
        given, true = table[columns_of(name)].to_numpy(), table[["a", "b"]].to_numpy(float)
        of_table = task.measure(given, true) | assess(task, None, given, true)
        assert {f"test/{key}": value for key, value in of_table.items()} == pytest.approx(
            {key: value for key, value in result.metrics.items() if key.startswith("test/")}, rel=1e-4, abs=1e-5, nan_ok=True
        )


def test_predictions_and_ensembles(run, tmp_path):
    name, _, folder, copies, _ = run
    first, last = copies[0] / "checkpoints" / "last.ckpt", folder / "run" / "checkpoints" / "last.ckpt"
    each = np.stack([predict_smiles(Ensemble.load([path]), SMILES, num_workers=0).values for path in (first, last)])
    both = predict_smiles(Ensemble.load([first, last]), SMILES, num_workers=0)
    task = load_module(last).task
    np.testing.assert_allclose(both.values, task.combine(each), rtol=1e-6)
    np.testing.assert_allclose(both.deviation, each.std(axis=0, ddof=1), rtol=1e-4, atol=1e-6)
    (tmp_path / "in.smi").write_text("\n".join(SMILES))
    for several, ckpt in ((False, [last]), (True, [first, last])):
        output = tmp_path / f"{several}.csv"
        values = {"ckpt": [*map(str, ckpt)], "input": str(tmp_path / "in.smi"), "output": str(output), "device": "cpu"}
        predict(parse(PredictConfig, values))
        table = pd.read_csv(output)
        shown = [(column, end) for column in columns_of(name) for end in ["", " std"][: 1 + (several and not column.endswith("std"))]]
        assert [*table][-len(shown) :] == [column + end for column, end in shown]
        np.testing.assert_allclose(table[columns_of(name)], both.values if several else each[1], rtol=1e-5, atol=1e-6)


def test_members_of_an_ensemble_mean_the_same(run, tmp_path):
    name, _, folder, _, config = run
    other = "evidential" if name == "mve" else "mve"
    train(replace(config, training=replace(config.training, loss=other, report=False)), tmp_path / "other")
    with pytest.raises(UserError, match=r"differ in their predictions: a, b, .* and a, b, "):
        Ensemble.load([folder / "run", tmp_path / "other"])


@pytest.mark.parametrize("ending", ["pt2", pytest.param("onnx", marks=pytest.mark.slow)])
def test_exports_have_the_same_columns(run, tmp_path, ending):
    name, _, folder, _, _ = run
    path = tmp_path / f"m.{ending}"
    assert export(ExportConfig(str(folder / "run"), str(path))) < 1e-5
    if ending == "pt2":
        extra = {"molgcn.json": ""}
        torch.export.load(str(path), extra_files=extra)
        assert json.loads(json.loads(extra["molgcn.json"])["outputs"]) == columns_of(name)


def test_a_checkpoint_whose_loss_has_other_outputs_is_refused(run, tmp_path):
    saved = load_checkpoint(run[2] / "run" / "checkpoints" / "best.ckpt")
    config = saved["molgcn"]["config"]
    changed = {**config, "training": {**config["training"], "loss": "l1"}}
    write({**saved, "molgcn": {**saved["molgcn"], "config": changed}}, tmp_path / "x.ckpt")
    with pytest.raises(UserError, match=r"weights in .*x\.ckpt do not belong to the architecture"):
        load_module(tmp_path / "x.ckpt")


def test_checkpoints_lead_to_the_same_end(run):
    """A run resumed in the middle ends bit for bit the same."""
    _, finished, folder, copies, config = run
    copy = copies[len(copies) // 2]
    resumed = train(replace(config, resume=str(copy)), copy)
    assert_same_run(copy, folder / "run")
    assert resumed.metrics == pytest.approx(finished.metrics, abs=0, rel=0, nan_ok=True)


def test_the_loss_and_its_options_stay(run):
    _, _, folder, _, config = run
    for key, value in (("loss", "l1"), ("quantile_alpha", 0.3), ("evidential_regularization", 0.5)):
        with pytest.raises(UserError, match=rf"training\.{key}=\S+, which cannot become {value}"):
            check_same_keys(replace(config, training=replace(config.training, **{key: value})), folder / "run")


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("quantile", {"trainer": {"max_epochs": 1, "precision": "64-true"}, "backend": {"name": "reference"}}),
        pytest.param("mve", {"backend": {"name": "pyg"}}, marks=pytest.mark.slow),
        pytest.param("evidential", {"backend": {"name": "reference"}}, marks=pytest.mark.slow),
        pytest.param("evidential", {"trainer": {"max_epochs": 1, "precision": "bf16-mixed"}}, marks=pytest.mark.slow),
    ],
    ids=str,
)
def test_backends_and_precisions_learn_the_same(name, changes, tmp_path, small_config):
    """Runs without batch norm, of whose layers the biases have gradients that are rounding, of which Adam makes whole steps."""
    one = {"dataset": {"subset": 100}, "model": {"norm": "layer"}, "trainer": {"max_epochs": 1}, "training": {"loss": name}}
    fused = train(small_config(**one, backend={"name": "fused"}), tmp_path / "fused")
    other = train(small_config(**(one | changes)), tmp_path / "other")
    tolerance = 2e-2 if "bf16" in str(changes) else 1e-6
    assert other.best_loss == pytest.approx(fused.best_loss, rel=tolerance, abs=tolerance)
    weights = load_checkpoint(tmp_path / "other" / "checkpoints" / "best.ckpt")["state_dict"]["model.head.weight"]
    assert weights.dtype == (torch.float64 if "64-true" in str(changes) else torch.float32)
