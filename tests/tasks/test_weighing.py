"""Every loss with weights of targets and molecules, and with bounds, agrees with its definition in float64."""

from __future__ import annotations

import csv
import math
from dataclasses import replace

import pandas as pd
import pytest
import torch
from run_cases import assert_same_run, train_and_copy

from molgcn.config.run import parse
from molgcn.config.training import TrainingConfig
from molgcn.data.target_config import TargetConfig
from molgcn.errors import UserError
from molgcn.evaluate import EvaluateConfig, evaluate
from molgcn.resources import resource
from molgcn.tasks.registry import build_task, learned_with
from molgcn.training.train import train

pytestmark = pytest.mark.usefixtures("empty_figures")

NAMES = ("y0", "y1", "y2")
OUTPUTS = {"mve": 2, "evidential": 4, "quantile": 3, "ce": 3}
KINDS = {"bce": "classification", "focal": "classification", "ce": "multiclass"}
BOUNDED = ("mse", "l1", "huber", "mve")
LOSSES = (*BOUNDED, "evidential", "quantile", "bce", "focal", "ce")


def learned(loss, names=NAMES, weights=None):
    kind = KINDS.get(loss, "regression")
    options = TrainingConfig(loss=loss, task_weights=weights, huber_delta=0.5)
    return learned_with(build_task(kind, names, [""] * len(names), {"classification": 2, "multiclass": 3}.get(kind, 0)), options), options


def case(loss, bounded):
    """Return outputs, targets with some missing, bounds and weights."""
    generator = torch.Generator().manual_seed(0)
    outputs = torch.randn(7, 3 * OUTPUTS.get(loss, 1), generator=generator, dtype=torch.double, requires_grad=True)
    targets = torch.randn(7, 3, generator=generator, dtype=torch.double)
    if loss in KINDS:
        targets = torch.randint(2, (7, 3), generator=generator).double()
    targets[torch.rand(7, 3, generator=generator) < 0.2] = math.nan
    bounds = torch.randint(-1, 2, (7, 3), generator=generator).double() if bounded else torch.zeros(7, 3, dtype=torch.double)
    weights = torch.rand(7, 1, generator=generator, dtype=torch.double)
    weights[2] = 0
    return outputs, targets, bounds, weights


def statistics_of(task):
    if task.num_classes:
        return (torch.full((len(task.names), task.num_classes), 1 / task.num_classes, dtype=torch.double),)
    return torch.full((len(task.names),), 0.3, dtype=torch.double), torch.full((len(task.names),), 2.0, dtype=torch.double)


@pytest.mark.parametrize(("loss", "bounded"), [*((loss, False) for loss in LOSSES), *((loss, True) for loss in BOUNDED)])
def test_terms_are_weighed_and_those_on_the_right_side_are_free(loss, bounded):
    task, options = learned(loss, weights={"y1": 4})
    outputs, targets, bounds, weights = case(loss, bounded)
    given = statistics_of(task)
    mean, sums = task.loss(options, fused=True)(outputs, *task.for_loss(torch.cat([targets, bounds, weights], dim=1), torch.double, *given))
    alone, width = learned(loss, ["y"])[0], OUTPUTS.get(loss, 1)
    total, count = outputs.new_zeros(()), 0
    for row in range(7):
        for column in range(3):
            target = targets[row, column]
            if target.isnan():
                continue
            count += 1
            own = outputs[row : row + 1, column * width : (column + 1) * width]
            value = None if task.num_classes else own[0, 0] * 2 + 0.3
            bound = bounds[row, column]
            if bound and ((value < target) if bound < 0 else (value > target)):
                continue
            term, _ = alone.loss(options, fused=False)(own, *alone.for_loss(target.reshape(1, 1), torch.double, *statistics_of(alone)))
            total = total + term * weights[row, 0] * (0.5, 2.0, 0.5)[column]  # 1, 4 and 1, divided by their mean
    torch.testing.assert_close(mean, total / count, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(sums, torch.stack([total.detach(), torch.tensor(float(count), dtype=torch.double)]), rtol=1e-12, atol=1e-12)
    mine, exact = (torch.autograd.grad(one, outputs)[0] for one in (mean, total / count))
    torch.testing.assert_close(mine, exact, rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize("loss", LOSSES)
def test_padding_is_without_effect(loss):
    """Rows beyond a batch are NaN in all columns, as slots fill them."""
    task, options = learned(loss, weights={"y1": 4})
    outputs, targets, bounds, weights = case(loss, bounded=False)
    given, labels = statistics_of(task), torch.cat([targets, bounds, weights], dim=1)
    results = []
    for padding in (0, 5):
        padded = torch.cat([labels, torch.full((padding, 7), math.nan)])
        more = torch.cat([outputs, outputs.new_ones(padding, outputs.shape[1])])
        mean, _ = task.loss(options, fused=True)(more, *task.for_loss(padded, torch.double, *given))
        results.append((mean, *torch.autograd.grad(mean, outputs)))
    torch.testing.assert_close(results[0], results[1], rtol=1e-13, atol=1e-13)


def test_weights_of_one_change_nothing():
    task, options = learned("huber")
    outputs, targets, bounds, weights = case("huber", bounded=False)
    loss, given = task.loss(options, fused=True), statistics_of(task)
    plain = loss(outputs, *task.for_loss(targets, torch.double, *given))
    weighed = loss(outputs, *task.for_loss(torch.cat([targets, bounds, torch.ones_like(weights)], dim=1), torch.double, *given))
    torch.testing.assert_close(plain, weighed, rtol=0, atol=0)


def test_mixed_tasks_share_weights_and_bounds():
    given = TargetConfig(tasks={"y0": "regression", "y1": "classification", "y2": "regression"})
    options = TrainingConfig(loss="mse", task_weights={"y0": 0})
    task = learned_with(build_task("mixed", NAMES, [""] * 3, 2, given), options)
    assert [part.target_weights for part in task.parts] == [(0, 1.5), (1.5,)]
    labels = torch.tensor([[9.0, 1, 1, 0, 0, -1, 2]], dtype=torch.double)  # three targets, their bounds, a weight
    statistics = (torch.zeros(2, dtype=torch.double), torch.ones(2, dtype=torch.double), torch.full((1, 2), 0.5, dtype=torch.double))
    outputs = torch.tensor([[0.0, 3.0, 0.0]], dtype=torch.double)
    mean, _ = task.loss(options, fused=True)(outputs, *task.for_loss(labels, torch.double, *statistics))
    assert mean.item() == pytest.approx((0 + 2 * 1.5 * (3 - 1) ** 2 + 2 * 1.5 * math.log(2)) / 3)


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        ({"z": 1.0}, r"training\.task_weights names 'z', which is not a target\."),
        (dict.fromkeys(NAMES, 0.0), "gives every target the weight 0"),
    ],
)
def test_weights_that_make_no_sense(weights, message):
    with pytest.raises(UserError, match=message):
        learned("mse", weights=weights)


def test_negative_weights_are_refused():
    with pytest.raises(UserError, match=r"training\.task_weights=\{y\}=-1 is not valid: expected a number of at least 0"):
        TrainingConfig(task_weights={"y": -1})


@pytest.fixture(scope="module")
def run(small_config, tmp_path_factory):
    """Return a run with bounds and weights."""
    folder = tmp_path_factory.mktemp("weighing")
    with open(resource("data") / "molecules.csv", newline="") as file:
        rows = [(row["smiles"], float(row["logp"]), float(row["tpsa"])) for row in csv.DictReader(file)]
    lines = [
        f"{smiles},{'>=1' if logp > 1 else logp},{'<20' if tpsa < 20 else tpsa},{1 + number % 3}"
        for number, (smiles, logp, tpsa) in enumerate(rows[:: len(rows) // 200])
    ]
    (folder / "mine.csv").write_text("\n".join(["smiles,a,b,w", *lines]) + "\n")
    dataset = {"name": "csv", "path": str(folder / "mine.csv"), "targets": ["a", "b"], "subset": None, "cache_dir": str(folder / "cache")}
    config = small_config(
        dataset={**dataset, "bounded": True, "weights": "w"},
        backend={"name": "fused"},
        training={"report": True, "checkpoint_seconds": 0, "task_weights": {"a": 3}},
        optimizer={"lr": 0.01},
    )
    result, copies = train_and_copy(config, folder / "run")
    return result, folder, copies, config


def test_metrics_count_exact_values_alone(run):
    result, folder, _, _ = run
    table = pd.read_csv(folder / "run" / "predictions_test.csv")
    for name in "ab":
        exact = pd.to_numeric(table[name], errors="coerce")
        assert 0 < exact.notna().sum() < len(table)
        assert result.metrics[f"test/mae/{name}"] == pytest.approx((table[f"{name} predicted"] - exact).abs().mean(), rel=1e-5)
    assert set(table["a"][pd.to_numeric(table["a"], errors="coerce").isna()]) == {">1"}


@pytest.mark.slow
@pytest.mark.parametrize(("loader", "captured"), [("pyg", "auto"), ("packed", False)])
def test_every_way_to_batch_and_step_learns_the_same(run, tmp_path, loader, captured):
    result, _, _, config = run
    training = replace(config.training, captured=captured, report=False)
    other = replace(config, training=training, loader=replace(config.loader, name=loader))
    assert train(other, tmp_path).metrics == pytest.approx(result.metrics, rel=1e-5)


@pytest.mark.slow
def test_a_killed_run_goes_on_bit_for_bit(run):
    _, folder, copies, config = run
    train(replace(config, resume=str(copies[0])), copies[0])
    assert_same_run(copies[0], folder / "run")


def test_another_file_may_have_bounds_too(run, tmp_path):
    result, folder, _, _ = run
    (tmp_path / "other.csv").write_text((folder / "mine.csv").read_text().replace("a,b,w", "a,b,v"))  # weights are for training
    dataset = {"path": str(tmp_path / "other.csv"), "cache_dir": str(folder / "cache")}
    given = {"ckpt": str(folder / "run"), "dataset": {**dataset, "split_file": str(folder / "run" / "splits.json")}, "device": "cpu"}
    found = evaluate(parse(EvaluateConfig, {**given, "output": str(tmp_path / "out")}))
    assert found.metrics == pytest.approx(result.metrics, rel=1e-5)


def test_what_has_no_bounds_says_so(run, tmp_path):
    config = run[-1]
    with pytest.raises(UserError, match=r"training\.loss=quantile does not go with bounds\. Use l1, mse, huber or mve"):
        train(replace(config, training=replace(config.training, loss="quantile")), tmp_path)


@pytest.mark.parametrize(
    ("kind", "loss"),
    [
        ("regression", "l1"),
        pytest.param("classification", "bce", marks=pytest.mark.slow),
        pytest.param("multiclass", "ce", marks=pytest.mark.slow),
        ("mixed", "bce"),
    ],
)
def test_weights_of_targets_count_whether_or_not_the_loss_is_named(kind, loss, tmp_path, small_config):
    second = {"classification": (1, 0, 0, 1, 0), "multiclass": (0, 1, 2)}.get(kind, range(7))
    rows = [f"{'C' * (n % 9 + 1)}{'ONF'[n % 3]},{n % 2},{second[n % len(second)]}" for n in range(60)]
    (tmp_path / "x.csv").write_text("\n".join(["smiles,a,b", *rows]))
    dataset = {"name": "csv", "path": str(tmp_path / "x.csv"), "targets": ["a", "b"], "subset": None}
    if kind == "mixed":
        dataset["tasks"] = {"a": "classification", "b": "regression"}

    def losses(**training):
        folder = tmp_path / str(len(list(tmp_path.iterdir())))
        train(small_config(dataset=dataset, task=kind, training=training, trainer={"max_epochs": 1}), folder)
        with open(folder / "metrics.csv", newline="") as file:
            return [(row["train/loss"], row["val/loss"]) for row in csv.DictReader(file)]

    weighed = losses(task_weights={"a": 0.25})
    assert weighed == losses(task_weights={"a": 0.25}, loss=loss)
    assert weighed != losses()
