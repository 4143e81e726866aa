"""Transforms of targets agree with SciPy, and every number shown is in the target's own unit."""

from __future__ import annotations

import csv
import math
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from run_cases import assert_same_run, train_and_copy
from scipy.stats import norm, rankdata

from molgcn.config.run import parse
from molgcn.config.training import TrainingConfig
from molgcn.data.target_config import TargetConfig
from molgcn.errors import UserError
from molgcn.evaluate import EvaluateConfig, evaluate
from molgcn.export import ExportConfig, export
from molgcn.resources import resource
from molgcn.tasks.registry import build_task, learned_with
from molgcn.tasks.transforms import Transforms
from molgcn.training.train import train

pytestmark = pytest.mark.usefixtures("empty_figures")


def task_of(*transforms):
    names = [f"y{number}" for number in range(len(transforms))]
    given = TargetConfig(transforms={name: one for name, one in zip(names, transforms, strict=True) if one != "standardize"})
    return build_task("regression", names, [""] * len(names), 0, given)


def test_logarithms():
    task, values = task_of("log10", "standardize"), np.array([[10.0, -1], [1000, 3], [math.nan, 1], [0.1, math.nan]])
    statistics = task.statistics_of(values)
    logs = np.array([1.0, 3, -1])
    assert statistics["target_mean"].tolist() == pytest.approx([logs.mean(), 1.0]) and statistics["target_std"][0] == pytest.approx(
        logs.std()
    )
    assert [*statistics] == ["target_mean", "target_std"]
    taken = task.for_loss(torch.from_numpy(values), torch.float64, *statistics.values())
    np.testing.assert_allclose(taken[0], np.stack([np.log10(values[:, 0]), values[:, 1]], axis=1), rtol=1e-15)
    outputs = (taken[0] - taken[1]) / taken[2]
    np.testing.assert_allclose(task.decode(outputs, *statistics.values()), values, rtol=1e-14)
    exported = task.output_layer(*(one.float() for one in statistics.values()))(outputs.float())
    assert exported.dtype == torch.float32
    np.testing.assert_allclose(exported, values, rtol=1e-6)


def test_normal_quantiles_are_those_of_the_ranks():
    """With as many values as knots the curve goes through all of them."""
    values = np.random.default_rng(0).exponential(size=129)
    curve = Transforms(("quantile_normal",)).fit(values[:, None])
    given = Transforms(("quantile_normal",)).forward(torch.from_numpy(values[:, None]), curve)[:, 0]
    np.testing.assert_allclose(given, norm.ppf((rankdata(values) - 0.5) / 129), rtol=1e-9, atol=1e-9)
    other = np.linspace(values.min(), values.max(), 1000)
    np.testing.assert_allclose(
        Transforms(("quantile_normal",)).forward(torch.from_numpy(other[:, None]), curve)[:, 0],
        np.interp(other, *curve[0].numpy()),
        rtol=1e-9,
        atol=1e-12,
    )


@given(st.lists(st.floats(-1e6, 1e6, width=32), min_size=1, max_size=300), st.booleans())
def test_normal_quantiles_keep_order_and_come_back(values, repeated):
    """Values of the training part keep their order and come back."""
    values = np.array(sorted(values * 2 if repeated else values))[:, None]
    transforms = Transforms(("quantile_normal",))
    curve = transforms.fit(values)
    learned = transforms.forward(torch.from_numpy(values), curve)
    assert torch.isfinite(learned).all() and (learned.diff(dim=0) >= 0).all()
    back = transforms.inverse(learned, curve).numpy()
    np.testing.assert_allclose(back, values, rtol=1e-6, atol=1e-6 * (np.ptp(values) + 1))
    beyond = transforms.forward(torch.tensor([[values.min() - 1], [values.max() + 1], [math.nan]]), curve)[:, 0]
    assert beyond[:2].tolist() == [learned.min(), learned.max()] and beyond[2].isnan()


def test_a_constant_target_stays_missing_where_it_is():
    task = task_of("quantile_normal")
    statistics = task.statistics_of(np.full((5, 1), 3.0))
    decoded = task.decode(torch.tensor([[0.5], [math.nan]]), *statistics.values())
    assert decoded[0] == 3 and decoded[1].isnan()


def test_a_value_without_a_logarithm_is_named():
    with pytest.raises(UserError, match=r"'y1' has the value -2 in row 7 .*has no logarithm.*dataset\.transforms"):
        task_of("standardize", "log10").check(np.array([[-1.0, 1], [0, -2]]), np.array([3, 7]))


@pytest.mark.parametrize("loss", ["mve", "evidential"])
def test_deviations_have_no_unit_under_a_transform(loss):
    with pytest.raises(UserError, match=rf"training\.loss={loss} .*Use training\.loss=quantile.* or leave one of the two out"):
        learned_with(task_of("log10"), TrainingConfig(loss=loss))


def test_quantiles_are_taken_back_to_the_unit():
    """Each column is taken back by its target's transform, so that as many values lie below a quantile as before."""
    targets = np.random.default_rng(0).lognormal(size=(300, 3))
    plain, task = (task_of("log10", "standardize", "quantile_normal") for _ in range(2))
    task = learned_with(task, TrainingConfig(loss="quantile"))
    statistics = [*plain.statistics_of(targets).values()]
    outputs = torch.randn(300, 9, dtype=torch.float64)
    predictions, learned = task.decode(outputs, *statistics), task.standardised(outputs.unflatten(1, (3, 3)))
    mean, std, *_ = statistics
    standardised = (plain.transforms.forward(torch.from_numpy(targets), *statistics[2:]) - mean) / std
    for column in range(3):
        expected = plain.decode(learned[..., column], *statistics)
        torch.testing.assert_close(predictions[:, column::3], expected, rtol=1e-12, atol=1e-12)
        inner = (targets > targets.min(axis=0)) & (targets < targets.max(axis=0))  # beyond them the curve is constant
        below = (torch.from_numpy(targets) < predictions[:, column::3]).numpy()[inner]
        np.testing.assert_array_equal(below, (standardised < learned[..., column]).numpy()[inner])
    assert not task.differences(predictions, predictions, *statistics).any()
    assert task.digits(*statistics) == [digits for digits in plain.digits(*statistics) for _ in range(3)]
    torch.testing.assert_close(task.output_layer(*statistics)(outputs), predictions, rtol=1e-12, atol=1e-12)


def test_a_run_learns_quantiles_of_logarithms(small_config, tmp_path):
    lines = [f"{'C' * (n % 20 + 1)}{'NO'[n % 2]},{10 ** (n % 20 / 5):.6g}" for n in range(80)]
    (tmp_path / "a.csv").write_text("\n".join(["smiles,y", *lines]))
    dataset = {"name": "csv", "path": str(tmp_path / "a.csv"), "targets": ["y"], "subset": None, "cache_dir": str(tmp_path / "cache")}
    changes = {"dataset": {**dataset, "transforms": {"y": "log10"}}, "training": {"loss": "quantile", "report": True}}
    result = train(small_config(**changes), tmp_path / "run")
    table = pd.read_csv(tmp_path / "run" / "predictions_test.csv")
    assert ((table["y lower"] > 0) & (table["y lower"] < table["y predicted"]) & (table["y predicted"] < table["y upper"])).all()
    inside = (table["y lower"] <= table["y"]) & (table["y"] <= table["y upper"])
    assert result.metrics["test/coverage/y"] == pytest.approx(inside.mean())
    assert export(parse(ExportConfig, {"ckpt": str(tmp_path / "run"), "output": str(tmp_path / "m.pt2")})) < 1e-5


@pytest.fixture(scope="module")
def run(small_config, tmp_path_factory):
    folder = tmp_path_factory.mktemp("transforms")
    with open(resource("data") / "molecules.csv", newline="") as file:
        rows = [(row["smiles"], float(row["mr"]), float(row["tpsa"])) for row in csv.DictReader(file)]
    lines = [f"{smiles},{10 ** (mr / 10):.7g},{tpsa}" for smiles, mr, tpsa in rows[:: len(rows) // 200]]
    (folder / "mine.csv").write_text("\n".join(["smiles,a,b", *lines]) + "\n")
    dataset = {"name": "csv", "path": str(folder / "mine.csv"), "targets": ["a", "b"], "subset": None, "cache_dir": str(folder / "cache")}
    config = small_config(
        dataset={**dataset, "transforms": {"a": "log10", "b": "quantile_normal"}, "units": {"a": "nM"}},
        backend={"name": "fused"},
        training={"report": True, "checkpoint_seconds": 0},
        optimizer={"lr": 0.01},
    )
    result, copies = train_and_copy(config, folder / "run")
    return result, folder, copies, config


def test_errors_and_predictions_are_in_the_target_s_unit(run):
    result, folder, _, _ = run
    table = pd.read_csv(folder / "run" / "predictions_test.csv")
    assert [*table][2:] == ["a [nM]", "a [nM] predicted", "b", "b predicted"]
    assert result.units == ("nM", "")
    for name, column in (("a", "a [nM]"), ("b", "b")):
        error = (table[f"{column} predicted"] - table[column]).abs().mean()
        assert result.metrics[f"test/mae/{name}"] == pytest.approx(error, rel=1e-5)
    assert (table["a [nM] predicted"] > 0).all()
    again = evaluate(parse(EvaluateConfig, {"ckpt": str(folder / "run"), "dataset": {"cache_dir": str(folder / "cache")}, "device": "cpu"}))
    assert again.metrics == pytest.approx(result.metrics, rel=1e-5, nan_ok=True)


@pytest.mark.slow
def test_a_run_goes_on_and_steps_are_the_same_bit_for_bit(run, tmp_path):
    _, folder, copies, config = run
    train(replace(config, resume=str(copies[0])), copies[0])
    assert_same_run(copies[0], folder / "run")
    train(replace(config, training=replace(config.training, captured=False)), tmp_path / "plain")
    assert_same_run(tmp_path / "plain", folder / "run")


@pytest.mark.slow
@pytest.mark.parametrize("ending", ["onnx", "pt2"])
def test_exports_give_the_target_s_unit(run, tmp_path, ending):
    _, folder, _, _ = run
    assert export(parse(ExportConfig, {"ckpt": str(folder / "run"), "output": str(tmp_path / f"m.{ending}")})) < 1e-5
