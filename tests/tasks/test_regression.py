"""Regression learns the same network from targets of any magnitude, and shows the same numbers everywhere."""

from __future__ import annotations

import csv
import io
import json
import math
import re

import numpy as np
import pandas as pd
import pytest
import torch
from rich.console import Console

from molgcn.comparison.table import results_tables
from molgcn.config.run import parse
from molgcn.data import PackedMolecules
from molgcn.evaluate import EvaluateConfig, evaluate
from molgcn.export import ExportConfig, export
from molgcn.metrics.regression import IN_UNITS
from molgcn.predict import predict_smiles
from molgcn.resources import resource
from molgcn.screening.ensemble import Ensemble
from molgcn.tasks.regression import Regression
from molgcn.training.checkpoint_file import load_checkpoint
from molgcn.training.restore import load_module
from molgcn.training.train import train

pytestmark = pytest.mark.usefixtures("empty_figures")


def molecules(smiles, targets):
    return PackedMolecules.from_smiles(smiles, np.array(targets), features="general")


def test_labels():
    assert Regression(("gap", "logp"), ("eV", "")).labels == ["gap [eV]", "logp"]


def test_a_metric_that_does_not_exist_is_a_dash():
    console = Console(width=200, record=True, file=io.StringIO())
    values = {"all/mae/y": 1.0, "all/rmse/y": 1.0, "all/r2/y": math.nan}
    console.print(*results_tables(Regression(("y",), ("eV",)), "t", values, ["all"]))
    text = console.export_text()
    assert "nan" not in text.lower()
    assert re.search(r"│\s+1 │\s+1 │\s+- │", text)


def test_names_of_metrics_and_their_values():
    task, values = Regression(("a", "b"), ("", "eV")), np.array([[0.0, 1.0], [2.0, 5.0]])
    assert task.keys("val") == ["val/mae/a", "val/mae/b", "val/rmse/a", "val/rmse/b", "val/r2/a", "val/r2/b"]
    errors = task.measure(values + np.array([[1.0, -2.0], [1.0, 2.0]]), values)
    assert list(errors) == [f"{metric}/{name}" for name in "ab" for metric in ("mae", "rmse", "r2", "pearson", "spearman", "mape")]
    assert list(errors.values()) == pytest.approx([1.0, 1.0, 0.0, 1.0, 1.0, math.nan, 2.0, 2.0, 0.0, 1.0, 1.0, 1.2], nan_ok=True)
    assert list(task.measure(values, values, ("r2",))) == ["r2/a", "r2/b"]


def test_plain_predictions_say_nothing_of_their_spread_and_members_are_averaged():
    task, members = Regression(("a", "b"), ("", "eV")), np.arange(12.0).reshape(2, 3, 2)
    assert task.spread(members[0]) is None and task.holds_values == [True, True]
    np.testing.assert_array_equal(task.combine(members), members.mean(axis=0))


@pytest.mark.parametrize(
    ("wide", "dtype", "offset"),
    [(torch.float32, torch.float32, 0.0), (torch.float64, torch.float32, 1e8), (torch.float64, torch.float64, 1e8)],
)
def test_outputs_are_standardised_targets(wide, dtype, offset):
    """The loss compares outputs with `(target - mean) / std`, which `decode` turns back into targets."""
    task = Regression(("y",), ("",))
    targets = (offset + torch.tensor([[1.0], [2.0], [4.0]], dtype=torch.float64)).to(wide)
    mean, std = targets.mean(0), targets.std(0)
    taken = task.for_loss(targets, dtype, mean, std)
    assert {values.dtype for values in taken} == {dtype}
    shown, center, scale = (values.double() for values in taken)
    decoded = task.decode((shown - center) / scale, mean, std)
    assert decoded.dtype == torch.float64
    torch.testing.assert_close(decoded - offset, targets.double() - offset, rtol=1e-6, atol=1e-6)


@pytest.fixture(scope="module")
def runs(small_config, tmp_path_factory):
    """Return the values, result and folder of a run for each way to shift and scale logP."""
    with open(resource("data") / "molecules.csv", newline="") as file:
        rows = [(row["smiles"], float(row["logp"])) for row in csv.DictReader(file)][:200]
    found = {}
    for name, shift, scale in (("plain", 0.0, 1.0), ("large", 1e8, 1.0), ("close", 5_000.0, 1e-3)):
        folder = tmp_path_factory.mktemp(name)
        values = [shift + scale * value for _, value in rows]
        lines = [f"{smiles},{value!r}" for (smiles, _), value in zip(rows, values, strict=True)]
        (folder / "mine.csv").write_text("\n".join(["smiles,y", *lines]) + "\n")
        dataset = {"name": "csv", "path": str(folder / "mine.csv"), "targets": ["y"], "subset": None, "cache_dir": str(folder / "cache")}
        result = train(small_config(dataset=dataset, training={"report": True}), folder / "run")
        found[name] = (shift, scale, values, result, folder)
    return found


@pytest.mark.parametrize("name", ["large", "close"])
def test_shifted_targets_are_learned_as_well(runs, name):
    shift, scale, values, result, folder = runs[name]
    _, _, _, plain, plain_folder = runs["plain"]
    for key, value in plain.metrics.items():
        metric = key.split("/")[1]
        factor = scale if metric in IN_UNITS else 1
        if metric != "mape":  # it tells errors by the distance from zero, which is shifted
            assert result.metrics[key] == pytest.approx(value * factor, rel=1e-3, abs=1e-4 * factor), key
    mine, theirs = (pd.read_csv(one / "run" / "predictions_test.csv") for one in (folder, plain_folder))
    np.testing.assert_allclose(mine["y"], [values[row] for row in mine["row"]], rtol=0, atol=1e-4 * scale)
    np.testing.assert_allclose((mine["y predicted"] - shift) / scale, theirs["y predicted"], rtol=0, atol=1e-3)


@pytest.mark.parametrize("name", ["plain", "large", "close"])
def test_every_place_tells_the_same(runs, name):
    _, scale, _, result, folder = runs[name]
    again = evaluate(parse(EvaluateConfig, {"ckpt": str(folder / "run"), "dataset": {"cache_dir": str(folder / "cache")}, "device": "cpu"}))
    result.save([])
    saved = json.loads((folder / "run" / "result.json").read_text())["metrics"]
    table = pd.read_csv(folder / "run" / "predictions_test.csv")
    of_table = Regression(("test",), ("",)).measure(table[["y predicted"]].to_numpy(), table[["y"]].to_numpy())
    for kind in ("mae", "rmse", "r2"):
        expected = result.metrics[f"test/{kind}/y"]
        assert saved[f"test/{kind}/y"] == expected
        assert again.metrics[f"test/{kind}/y"] == pytest.approx(expected, rel=1e-4)
        assert of_table[f"{kind}/test"] == pytest.approx(expected, rel=1e-3)
    text = (folder / "run" / "report.html").read_text()
    assert f"{result.metrics['test/mae/y']:.4g}" in text
    predicted = predict_smiles(Ensemble.load([folder / "run"]), ["CCO", "c1ccccc1"], num_workers=0)
    assert np.ptp(predicted.values) > 1e-3 * scale


@pytest.mark.parametrize("ending", ["pt2", pytest.param("onnx", marks=pytest.mark.slow)])
def test_exports_keep_the_digits(runs, tmp_path, ending):
    """Differences are measured relative to the distance from the mean, since relative to 1e8 any difference would be small."""
    assert export(ExportConfig(str(runs["large"][4] / "run"), str(tmp_path / f"m.{ending}"))) < 1e-5


def test_the_digits_of_the_scaling_stay(runs):
    _, _, values, _, folder = runs["large"]
    module = load_module(folder / "run")
    saved = load_checkpoint(folder / "run" / "checkpoints" / "best.ckpt")["state_dict"]["target_mean"]
    for change in (module.float, module.half, lambda: module.to(torch.bfloat16), module.double, lambda: module.to("cpu")):
        change()
        assert torch.equal(module.target_mean, saved) and saved.dtype == torch.float64
    assert abs(float(saved) - np.mean(values)) < 0.2
    assert next(module.model.parameters()).dtype == torch.float64  # the network itself is converted
    assert load_module(runs["plain"][4] / "run").target_mean.dtype == torch.float32
