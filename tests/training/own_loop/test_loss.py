"""Losses of one's own are computed over the real molecules of a padded batch, and wrong ones are refused."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from loop_cases import batches_of, molecules, network, squares
from torch import Tensor
from torch.nn import functional as F

import molgcn
from molgcn.data.fitting_slots import FittingSlots
from molgcn.errors import UserError
from molgcn.training.own_loop.loss import LoopLoss

PACKED = molecules()


def relative(predictions: Tensor, targets: Tensor) -> Tensor:
    """Return a loss that is infinite where a target is 0 or NaN, as in rows of no molecule."""
    return ((predictions - targets) / (targets + 1)).abs().log1p()


def per_row(predictions: Tensor, targets: Tensor) -> Tensor:
    return (predictions - targets).abs().sum(1)


@pytest.mark.parametrize("loss", ["mse", "l1", "huber", squares, relative, per_row])
def test_padding_does_not_count(loss):
    """The loss and the gradients of a padded batch are those of the batch."""
    model = network(PACKED, "cpu", norm="layer")
    slots = FittingSlots(torch.device("cpu"), model.optional_inputs)
    slots(PACKED.batch(range(20)))  # makes room
    batch = PACKED.batch(range(7))
    placed = slots(batch)
    expected, found = LoopLoss(loss), LoopLoss(loss)
    values = []
    for one, form in ((expected, batch), (found, placed.slot.padded_to(7)), (found, placed.slot.padded)):
        model.zero_grad()
        value = one(model, form)
        value.backward()
        values.append((value.detach(), torch.cat([parameter.grad.flatten() for parameter in model.parameters()])))
    assert found.any_number
    for value, gradients in values[1:]:
        torch.testing.assert_close(value, values[0][0])
        assert (gradients - values[0][1]).norm() <= 1e-5 * values[0][1].norm()


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (lambda predictions, targets: 3.0, "returned float for predictions of shape"),
        (lambda predictions, targets: torch.zeros(3), "returned a tensor of shape [3] for predictions of shape [8, 1]"),
    ],
)
def test_what_is_no_loss_is_refused(value, message):
    model = network(PACKED, "cpu")
    with pytest.raises(UserError) as error:
        LoopLoss(value)(model, batches_of(PACKED, "cpu", "cpu", [8])[0])
    assert message in str(error.value)


@pytest.mark.parametrize("kind", ["cpu", "pyg"])
def test_a_batch_without_targets_is_refused(kind):
    model: Any = network(PACKED, "cpu")
    batch = batches_of(PACKED, kind, "cpu", [8])[0]
    if kind == "pyg":
        del batch.y
    else:
        batch.targets = torch.zeros(8, 0)
    with pytest.raises(UserError, match="The batch has no targets"):
        molgcn.capture(model, loss="mse")(batch)


READS = {
    "item": (lambda p, t: F.mse_loss(p, t) * float(t.abs().max()), "item()"),
    "booleans": (lambda p, t: F.mse_loss(p[t > 0], t[t > 0]), "an index of booleans"),
    "selected": (lambda p, t: (p - t).masked_select(t > 0).square().mean(), "masked_select()"),
    "condition": (lambda p, t: F.mse_loss(p, t) if bool((t > 0).any()) else p.sum(), "item()"),
    "unique": (lambda p, t: F.mse_loss(p, t) * len(t.unique()), "_unique2()"),
}


@pytest.mark.parametrize("name", READS)
def test_what_reads_values_back_is_found(name):
    function, operation = READS[name]
    loss = LoopLoss(function)
    loss(network(PACKED, "cpu"), batches_of(PACKED, "cpu", "cpu", [8])[0])
    assert loss.reads_back == operation


def many(predictions: Tensor, targets: Tensor) -> Tensor:
    """Return a loss of many operations, none of which reads values on the host."""
    known = ~targets.isnan()
    order = torch.arange(len(targets)).flip(0)
    terms = torch.where(known, F.huber_loss(predictions, targets, reduction="none"), 0)[order]
    return terms.sum() / known.sum().clamp(min=1) + F.cross_entropy(predictions.expand(-1, 3), targets[:, 0].long() % 3)


def test_what_reads_nothing_back_is_not_found():
    loss = LoopLoss(many)
    loss(network(PACKED, "cpu"), batches_of(PACKED, "cpu", "cpu", [8])[0])
    assert loss.reads_back is None
