"""Targets of any magnitude: the same network is learned, and every place tells the same numbers, with all digits that they differ in."""

from __future__ import annotations

import csv
import json

import numpy as np
import pandas as pd
import pytest
import torch

from molgcn.config import parse
from molgcn.evaluate import EvaluateConfig, evaluate
from molgcn.export import ExportConfig, export
from molgcn.metrics import named_errors
from molgcn.predict import predict_smiles
from molgcn.resources import resource
from molgcn.screening.ensemble import Ensemble
from molgcn.training.checkpoint import load_checkpoint
from molgcn.training.restore import load_regressor
from molgcn.training.train import train


@pytest.fixture(scope="module")
def runs(small_config, tmp_path_factory):
    """By how logP was shifted and scaled: its values, and the result and folder of a run on them."""
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
        assert result.metrics[key] == pytest.approx(value * (1 if "/r2/" in key else scale), rel=1e-3, abs=1e-4 * scale), key
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
    of_table = named_errors(table[["y predicted"]].to_numpy(), table[["y"]].to_numpy(), ["test"])
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
    """Relative to a value of 1e8 any difference would be small: it is counted by the distance from the mean."""
    assert export(ExportConfig(str(runs["large"][4] / "run"), str(tmp_path / f"m.{ending}"))) < 1e-5


def test_the_digits_of_the_scaling_stay(runs):
    _, _, values, _, folder = runs["large"]
    module = load_regressor(folder / "run")
    saved = load_checkpoint(folder / "run" / "checkpoints" / "best.ckpt")["state_dict"]["target_mean"]
    for change in (module.float, module.half, lambda: module.to(torch.bfloat16), module.double, lambda: module.to("cpu")):
        change()
        assert torch.equal(module.target_mean, saved) and saved.dtype == torch.float64
    assert abs(float(saved) - np.mean(values)) < 0.2
    assert next(module.model.parameters()).dtype == torch.float64  # the network itself is converted
    assert load_regressor(runs["plain"][4] / "run").target_mean.dtype == torch.float32
