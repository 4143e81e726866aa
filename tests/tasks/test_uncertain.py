"""All regression tasks with uncertainty have the same rules for losses over known targets, columns and ensembles."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from uncertain_cases import ENDINGS, LOSSES, M, T, case, options, task_of

from molgcn.calibration.columns import prediction_columns, write_predictions
from molgcn.config.run import parse
from molgcn.config.training import TrainingConfig
from molgcn.data import PackedMolecules
from molgcn.errors import UserError
from molgcn.tasks.registry import build_task
from molgcn.training.monitor import Monitor

DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]


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
        build_task(task, ["y"], [""], 2).settled(options(name))


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
    with pytest.raises(UserError, match=r"monitor=val/coverage is not a value .*val/pinball"):
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
    columns, _ = prediction_columns(task, decoded.numpy(), None, None, task.digits(mean, std))
    write_predictions(tmp_path / "p.csv", task, packed, columns)
    table = pd.read_csv(tmp_path / "p.csv")
    expected = [name for label, columns in zip(["a", "b", "c"], task.columns, strict=True) for name in (label, *columns)]
    assert [column.split(" ")[0] for column in table][2:] == [column.split(" ")[0] for column in expected]
    np.testing.assert_allclose(table[[name for names in task.columns for name in names]], decoded, rtol=1e-5)


@pytest.mark.parametrize("name", LOSSES)
def test_metrics_are_those_of_the_point(name):
    task, (outputs, targets, mean, std) = task_of(name), case(name)
    predictions = task.decode(outputs.detach(), mean, std)
    found = task.measure(predictions, targets)
    point = build_task("regression", task.names, task.units, 0).measure(task.points(predictions), targets)
    assert list(found) == [f"{metric}/{one}" for one in task.names for metric in task.metrics]
    assert {key: found[key] for key in point} == point
    assert found == task.measure(predictions.numpy(), targets.numpy())
    missing = task.measure(predictions, torch.full_like(targets, torch.nan))
    assert all(math.isnan(value) for value in missing.values())


@pytest.mark.parametrize("name", LOSSES)
def test_weights_count_as_copies_of_molecules(name):
    task, (outputs, targets, mean, std) = task_of(name), case(name)
    predictions, targets = task.decode(outputs.detach(), mean, std).numpy(), targets.numpy()
    weights = np.random.default_rng(0).integers(3, size=(2, M))
    found = task.values(predictions, targets, task.metrics, weights.astype(float))
    for row, counts in enumerate(weights):
        copies = task.measure(np.repeat(predictions, counts, axis=0), np.repeat(targets, counts, axis=0))
        assert {key: values[row] for key, values in found.items()} == pytest.approx(copies, rel=1e-9)


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
