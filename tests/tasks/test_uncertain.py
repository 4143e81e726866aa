"""What all regression that says how sure it is has in common: losses over known targets, columns, ensembles, and runs from end to end."""

from __future__ import annotations

import csv
import json
import math
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch
from run_cases import assert_same_run, log_of, train_and_copy
from torch._subclasses.fake_tensor import FakeTensorMode
from uncertain_cases import ENDINGS, LOSSES, M, T, case, options, task_of

from molgcn.config import parse
from molgcn.data import PackedMolecules
from molgcn.errors import UserError
from molgcn.evaluate import EvaluateConfig, evaluate
from molgcn.export import ExportConfig, export
from molgcn.predict import PredictConfig, predict, predict_smiles
from molgcn.resources import resource
from molgcn.screening.ensemble import Ensemble
from molgcn.tasks.registry import TASKS
from molgcn.training.checkpoint_reader import load_checkpoint
from molgcn.training.compatible import check_same_keys
from molgcn.training.config import TrainingConfig
from molgcn.training.monitor import Monitor
from molgcn.training.restore import load_regressor
from molgcn.training.train import train

DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]
SMILES = ["CCO", "c1ccccc1", "CC(=O)O"]


# --- losses ---
@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-12), (torch.float32, 2e-5), (torch.bfloat16, 2e-5)], ids=str)
def test_missing_targets_weigh_nothing(name, dtype, tolerance, device):
    """The loss and its gradient are those of the known targets alone, in float64."""
    outputs, targets, mean, std = case(name, dtype, device)
    task, wide = task_of(name), torch.float64 if dtype == torch.float64 else torch.float32
    value, sums = task.loss(options(name), fused=True)(outputs, targets.to(wide), mean.to(wide), std.to(wide))
    (gradient,) = torch.autograd.grad(value, outputs)
    exact = outputs.detach().double().requires_grad_()
    known = ~targets.isnan()
    terms = task.terms(exact.unflatten(1, (T, -1))[known][:, None], ((targets - mean) / std)[known][:, None], options(name))
    (right,) = torch.autograd.grad(terms.mean(), exact)
    assert value.dtype == wide and sums.dtype == torch.float64 and sums[1] == known.sum()
    torch.testing.assert_close(value.double(), terms.mean(), rtol=tolerance, atol=0)
    torch.testing.assert_close(sums[0] / sums[1], terms.mean().detach(), rtol=tolerance, atol=0)
    assert not gradient.unflatten(1, (T, -1))[~known].any()
    torch.testing.assert_close(gradient.double(), right, rtol=1e-2 if dtype == torch.bfloat16 else tolerance, atol=1e-6 * tolerance / 1e-5)


@pytest.mark.parametrize("name", LOSSES)
def test_gradients_are_those_of_the_loss(name):
    outputs, targets, mean, std = case(name)
    loss = task_of(name).loss(options(name), fused=True)
    few = outputs.detach()[:6].requires_grad_()
    assert torch.autograd.gradcheck(lambda x: loss(x, targets[:6], mean, std)[0], few, atol=1e-8, rtol=1e-6)


@pytest.mark.parametrize("name", LOSSES)
def test_float32_holds_losses_and_gradients_of_extreme_outputs(name):
    task = task_of(name)
    statistics = torch.zeros(T), torch.ones(T)
    for size in (1e2, 1e4, 1e8):
        for signs in np.ndindex(*[2] * task.outputs_per_target):
            outputs = (size * (2.0 * torch.tensor(signs) - 1)).repeat(2, T).requires_grad_()
            value, _ = task.loss(options(name), fused=True)(outputs, torch.full((2, T), 3.0), *statistics)
            (gradient,) = torch.autograd.grad(value, outputs)
            assert value.isfinite() and gradient.isfinite().all(), (size, signs)
            assert task.output_layer(*statistics)(outputs.detach()).isfinite().all()


@pytest.mark.parametrize("name", LOSSES)
def test_nothing_known_is_zero(name):
    outputs, targets, mean, std = case(name)
    value, sums = task_of(name).loss(options(name), fused=True)(outputs, torch.full_like(targets, torch.nan), mean, std)
    (gradient,) = torch.autograd.grad(value, outputs)
    assert value == 0 and sums.tolist() == [0, 0] and not gradient.any()


@pytest.mark.parametrize("name", LOSSES)
def test_nothing_depends_on_values_that_a_captured_step_would_wait_for(name):
    with FakeTensorMode():  # has shapes only
        outputs, targets = torch.empty(M, task_of(name).num_outputs, requires_grad=True), torch.empty(M, T)
        value, sums = task_of(name).loss(options(name), fused=True)(outputs, targets, torch.empty(T), torch.empty(T))
        (gradient,) = torch.autograd.grad(value, outputs)
    assert (value.shape, sums.shape, gradient.shape) == ((), (2,), outputs.shape)


@pytest.mark.gpu
@pytest.mark.parametrize("name", LOSSES)
def test_a_cuda_graph_holds_loss_and_gradient(name):
    outputs, targets, mean, std = case(name, torch.float32, "cuda")
    taken = [values.float() for values in (targets, mean, std)]
    loss = task_of(name).loss(options(name), fused=True)

    def compute():
        value, sums = loss(outputs, *taken)
        return value, sums, *torch.autograd.grad(value, outputs)

    with torch.cuda.stream(torch.cuda.Stream()):
        compute()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = compute()
    taken[0].copy_(taken[0].roll(1, 0))
    graph.replay()
    for mine, theirs in zip(captured, compute(), strict=True):
        assert torch.equal(mine, theirs)


# --- options ---
@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize("task", ["classification", "multiclass"])
def test_classes_are_not_learned_with_these_losses(name, task):
    with pytest.raises(UserError, match=f"training.loss={name} does not go with task={task}"):
        TASKS[task].settled(options(name))


@pytest.mark.parametrize(
    ("key", "value"),
    [("quantile_alpha", 0.0), ("quantile_alpha", 1.0), ("quantile_alpha", -0.1), ("evidential_regularization", -1e-9)],
)
def test_options_out_of_range(key, value):
    with pytest.raises(UserError, match=rf"training\.{key}={value} is not valid: expected a number"):
        parse(TrainingConfig, {key: value}, "training")


def test_a_share_that_is_best_at_no_end_is_not_monitored():
    task = task_of("quantile")
    assert Monitor.of("val/pinball", task).mode == "min"
    with pytest.raises(UserError, match=r"monitor=val/coverage is no value .*val/pinball"):
        Monitor.of("val/coverage", task)


# --- columns ---
@pytest.mark.parametrize("name", LOSSES)
def test_columns_are_in_the_targets_units(name, tmp_path):
    """The first column shifts and scales with the target, standard deviations scale alone."""
    task, (outputs, targets, mean, std) = task_of(name), case(name)
    labels = ["a [eV]", "b", "c [kJ/mol]"]
    assert task.columns == [[f"{label} {ending}" for ending in ENDINGS[name]] for label in labels]
    assert task.num_predictions == sum(map(len, task.columns)) == len(task.digits(mean, std)) == len(task.holds_values)
    decoded = task.decode(outputs.detach().float(), mean, std)
    plain = task.decode(outputs.detach().float(), torch.zeros(T), torch.ones(T))
    assert decoded.dtype == torch.float64
    count = len(ENDINGS[name])
    shift = np.where(task.holds_values, np.repeat(mean.numpy(), count), 0)
    np.testing.assert_allclose(decoded.numpy() - shift, plain.numpy() * np.repeat(std.numpy(), count), rtol=1e-10, atol=1e-12)
    torch.testing.assert_close(
        task.output_layer(mean.float(), std.float())(outputs.detach().float()).double(), decoded, rtol=1e-4, atol=1e-4
    )
    assert task.differences(decoded, decoded, mean, std).shape == decoded.shape
    packed = PackedMolecules.from_smiles(["C" * (1 + number % 9) for number in range(M)], targets.numpy(), num_workers=0)
    task.write_predictions(tmp_path / "p.csv", packed, decoded.numpy())
    table = pd.read_csv(tmp_path / "p.csv")
    expected = [name for label, columns in zip(["a", "b", "c"], task.columns, strict=True) for name in (label, *columns)]
    assert [column.split(" ")[0] for column in table][2:] == [column.split(" ")[0] for column in expected]
    np.testing.assert_allclose(table[[name for names in task.columns for name in names]], decoded, rtol=1e-5)


@pytest.mark.parametrize("name", LOSSES)
def test_metrics_are_those_of_the_point(name):
    task, (outputs, targets, mean, std) = task_of(name), case(name)
    predictions = task.decode(outputs.detach(), mean, std)
    found = task.measure(predictions, targets)
    point = TASKS["regression"](task.names, task.units).measure(task.points(predictions), targets)
    assert list(found) == [f"{metric}/{one}" for one in task.names for metric in task.metrics]
    assert {key: found[key] for key in point} == point
    assert found == task.measure(predictions.numpy(), targets.numpy())
    missing = task.measure(predictions, torch.full_like(targets, torch.nan))
    assert all(math.isnan(value) for value in missing.values())


@pytest.mark.parametrize("name", LOSSES)
def test_members_combine_by_the_law_of_total_variance(name):
    """The variance of the mixture is its mean square less the square of its mean."""
    task, (_, _, mean, std) = task_of(name), case(name)
    outputs = torch.randn(5, M, task.num_outputs, dtype=torch.float64)
    members = np.stack([task.decode(one, mean, std).numpy() for one in outputs])
    both = task.combine(members)
    np.testing.assert_allclose(task.points(both), task.points(members.mean(axis=0)), rtol=1e-12)
    spreads = [task.spread(one) for one in members]
    if name == "quantile":
        assert task.spread(both) is None and spreads[0] is None
        np.testing.assert_allclose(both, members.mean(axis=0), rtol=1e-12)
    else:
        points = np.stack([task.points(one) for one in members])
        center = points.mean(axis=0)
        variance = (np.square(spreads) + np.square(points - center)).mean(axis=0)
        np.testing.assert_allclose(task.spread(both) ** 2, variance, rtol=1e-10)
    np.testing.assert_allclose(task.combine(members[:1]), members[0], rtol=1e-14)


# --- runs ---
@pytest.fixture(scope="module", params=["evidential", *(pytest.param(name, marks=pytest.mark.slow) for name in ("mve", "quantile"))])
def run(request, small_config, tmp_path_factory):
    """A loss, the result and folder of a run with it, copies of the run at its checkpoints, and the configuration."""
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
    module = load_regressor(folder / "run")
    assert (result.task, module.task.name) == ("regression", "regression")
    assert module.model.out_channels == module.task.num_outputs > 2
    assert [column for columns in module.task.columns for column in columns] == columns_of(name)
    assert getattr(module.task, "alpha", 0.2) == 0.2
    assert {f"val/{metric}/{one}" for metric in module.task.metrics for one in "ab"} < log_of(folder / "run")[0].keys()
    assert f"{name} loss" in (folder / "run" / "report.html").read_text()


def test_every_place_tells_the_same(run):
    name, result, folder, _, _ = run
    again = evaluate(parse(EvaluateConfig, {"ckpt": str(folder / "run"), "dataset": {"cache_dir": str(folder / "cache")}, "device": "cpu"}))
    assert again.metrics == pytest.approx(result.metrics, rel=1e-4, abs=1e-5)
    for path in (folder / "run" / "predictions_test.csv", again.folder / "predictions_test.csv"):
        table = pd.read_csv(path)
        assert [*table] == ["row", "smiles", *(one for target in "ab" for one in (target, *[f"{target} {end}" for end in ENDINGS[name]]))]
        task = load_regressor(folder / "run").task
        of_table = task.measure(table[columns_of(name)].to_numpy(), table[["a", "b"]].to_numpy(float))
        assert {f"test/{key}": value for key, value in of_table.items()} == pytest.approx(
            {key: value for key, value in result.metrics.items() if key.startswith("test/")}, rel=1e-4, abs=1e-5
        )


def test_predictions_and_ensembles(run, tmp_path):
    name, _, folder, copies, _ = run
    first, last = copies[0] / "checkpoints" / "last.ckpt", folder / "run" / "checkpoints" / "last.ckpt"
    each = np.stack([predict_smiles(Ensemble.load([path]), SMILES, num_workers=0).values for path in (first, last)])
    both = predict_smiles(Ensemble.load([first, last]), SMILES, num_workers=0)
    task = load_regressor(last).task
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


def test_checkpoints_lead_to_the_same_end(run):
    """Bit for bit, from one in the middle."""
    _, finished, folder, copies, config = run
    copy = copies[len(copies) // 2]
    resumed = train(replace(config, resume=str(copy)), copy)
    assert_same_run(copy, folder / "run")
    assert resumed.metrics == pytest.approx(finished.metrics, abs=0, rel=0)


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
    one = {"dataset": {"subset": 100}, "trainer": {"max_epochs": 1}, "training": {"loss": name}}
    fused = train(small_config(**one, backend={"name": "fused"}), tmp_path / "fused")
    other = train(small_config(**(one | changes)), tmp_path / "other")
    tolerance = 2e-2 if "bf16" in str(changes) else 1e-4
    assert other.best_loss == pytest.approx(fused.best_loss, rel=tolerance, abs=tolerance)
    weights = load_checkpoint(tmp_path / "other" / "checkpoints" / "best.ckpt")["state_dict"]["model.head.weight"]
    assert weights.dtype == (torch.float64 if "64-true" in str(changes) else torch.float32)
