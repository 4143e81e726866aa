"""Captured steps in a loop of one's own learn what a plain loop learns, from batches of any kind."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from loop_cases import (
    PACKED,
    PlainLoop,
    adam,
    assert_same_losses,
    assert_same_weights,
    batches_of,
    compare,
    mean_square,
    squares,
    twins,
)
from torch import Tensor, nn
from torch.nn import functional as F
from torch.optim.lr_scheduler import ExponentialLR, OneCycleLR

import molgcn
from molgcn.data.loader import PackedLoader
from molgcn.training import ClippedAdam, ExponentialMovingAverage

LOSSES = {"name": ("mse", mean_square), "one number": (F.l1_loss, F.l1_loss), "a term per molecule": (squares, squares)}


@pytest.mark.parametrize("kind", ["pyg", "cpu", "device"])
@pytest.mark.parametrize("loss", LOSSES)
def test_batches_of_any_kind_and_loss(device, kind, loss, replays):
    given, plain = LOSSES[loss]
    compare(device, batches_of(PACKED, kind, device), given, plain)
    forms = {form for form, _, _ in replays}
    assert len(replays) >= 5
    assert len(forms) == (2 if loss == "one number" else 1)  # the numbers of molecules are 8 and 5


def test_a_loaders_batches_are_not_copied(device, replays):
    loader = PackedLoader(PACKED, 8, device=device)
    mine, theirs = twins(PACKED, device)
    step = molgcn.capture(mine, adam(mine), loss="mse", batches=loader)
    reference, losses, forms = PlainLoop(theirs, adam(theirs), mean_square), ([], []), set()
    for epoch in range(3):
        loader.set_epoch(epoch)
        for batch in loader:
            forms.add(batch.padded)
            losses[1].append(reference(batch.clone()))
            losses[0].append(step(batch))
    assert_same_losses(*losses)
    assert len(replays) >= 3 * len(loader) - 3
    assert {form for form, _, _ in replays} == forms


def test_a_loaders_batch_that_was_changed_is_taken_as_it_is(device, replays):
    loader = PackedLoader(PACKED, 8, device=device, drop_last=True)
    mine, theirs = twins(PACKED, device)
    step = molgcn.capture(mine, adam(mine), loss="mse", batches=loader)
    reference, losses = PlainLoop(theirs, adam(theirs), mean_square), ([], [])
    for epoch in range(4):
        loader.set_epoch(epoch)
        for batch in loader:
            if epoch == 1:
                batch.x = 2 * batch.x
            elif epoch == 2:
                batch.targets.sub_(0.5)
            elif epoch == 3:
                batch.targets = batch.targets + 1
            losses[1].append(reference(batch.clone()))
            losses[0].append(step(batch))
    assert_same_losses(*losses)
    assert len(replays) >= 8


OPTIONS: dict[str, dict[str, Any]] = {
    "clipping": {"gradient_clip_norm": 0.05},
    "accumulation": {"every": 2},
    "all of them": {"every": 3, "gradient_clip_norm": 0.05},
    "dropout-free layer norm": {"model": {"norm": "layer"}},
    "gcn": {"model": {"conv": "gcn", "norm": None}},
    "sgd": {"make": lambda model: torch.optim.SGD(model.parameters(), 3e-3, momentum=0.9, nesterov=True, fused=True)},
    "adamw": {"make": lambda model: torch.optim.AdamW(model.parameters(), 3e-3, eps=1e-2, weight_decay=0.1, fused=True)},
    "our update": {"make": lambda model: ClippedAdam(model.parameters(), 0.1, decoupled_weight_decay=True, lr=3e-3, eps=1e-2)},
    "groups": {"make": lambda model: adam_of_groups(model)},
}


def adam_of_groups(model: Any) -> torch.optim.Optimizer:
    head = list(model.head.parameters())
    rest = [parameter for parameter in model.parameters() if all(parameter is not one for one in head)]
    return torch.optim.Adam([{"params": head, "lr": 3e-3}, {"params": rest}], lr=3e-3, eps=1e-2, fused=True)


@pytest.mark.parametrize("name", OPTIONS)
def test_options(device, name, replays):
    compare(device, batches_of(PACKED, "cpu", device, [8] * 6), **OPTIONS[name])
    assert len(replays) >= 8


CAPTURABLE = ["Adadelta", "Adam", "AdamW", "Adamax", "ASGD", "NAdam", "RAdam", "RMSprop", "Rprop"]


@pytest.mark.gpu
@pytest.mark.parametrize("name", CAPTURABLE)
@pytest.mark.parametrize("tensor", [False, True], ids=["number", "tensor"])
@pytest.mark.parametrize("device", ["cuda"], indirect=True)
def test_every_capturable_optimiser(device, name, tensor, replays, caplog):
    """Most read the learning rate on the device; the others are captured anew where it changes."""
    losses: list[list[Tensor]] = [[], []]
    for model, found in zip(twins(PACKED, device, conv="gcn", norm=None), losses, strict=True):
        rate: Any = torch.tensor(1e-3, device=device) if tensor else 1e-3
        optimizer = getattr(torch.optim, name)(model.parameters(), lr=rate, capturable=True)
        loop = PlainLoop(model, optimizer, mean_square) if losses[0] else molgcn.capture(model, optimizer, loss="mse")
        for number, batch in enumerate(batches_of(PACKED, "cpu", device, [8] * 6) * 2):
            if number == 6:
                group = optimizer.param_groups[0]
                group["lr"] = group["lr"].mul_(0.5) if tensor else 0.5 * group["lr"]
            found.append(loop(batch))
    assert_same_losses(*losses, rtol=1e-2)  # those that divide by small gradients enlarge roundings
    said = f"{name} reads its learning rate on the host" in caplog.text
    assert said == (len(replays) == 0)
    assert len(replays) >= 6 or (said and tensor)
    if name in ("Adam", "AdamW", "NAdam"):
        assert len(replays) >= 9  # a new rate is read by the same graph


def test_an_average_follows(device):
    mine, theirs = twins(PACKED, device)
    averages = [ExponentialMovingAverage(model, 0.8) for model in (mine, theirs)]
    step = molgcn.capture(mine, adam(mine), loss="mse", ema=averages[0])
    reference = PlainLoop(theirs, adam(theirs), mean_square)
    for batch in batches_of(PACKED, "cpu", device, [8] * 6):
        step(batch)
        reference(batch)
        averages[1].update(theirs)
    assert_same_weights(averages[0].module, averages[1].module)


def test_a_sum_of_gradients_may_end_early(device):
    mine, theirs = twins(PACKED, device)
    step, reference = (
        molgcn.capture(mine, adam(mine), loss="mse", accumulate_batches=3),
        PlainLoop(theirs, adam(theirs), mean_square, every=3),
    )
    batches = batches_of(PACKED, "cpu", device, [8] * 5)
    for _ in range(3):
        for number, batch in enumerate(batches):
            step(batch, last=True if number == 4 else None)
            reference(batch)
        reference.optimizer.step()  # after five batches: those after the third
        reference.optimizer.zero_grad()
        reference.count = 0
    assert_same_weights(mine, theirs)


def test_without_an_optimiser_gradients_are_left(device, replays):
    """They are added to what is there, as `backward` adds them."""
    mine, theirs = twins(PACKED, device)
    step = molgcn.capture(mine, loss="mse")
    for number, batch in enumerate(batches_of(PACKED, "cpu", device, [8] * 9)):
        loss = step(batch)
        on_device = batch.to(device)
        expected = mean_square(theirs(on_device), on_device.targets)
        expected.backward()
        assert_same_losses([loss], [expected.detach()])
        one, other = (torch.cat([parameter.grad.flatten() for parameter in model.parameters()]) for model in (mine, theirs))
        assert (one - other).norm() <= 1e-4 * other.norm()
        if number % 3 == 2:
            mine.zero_grad(set_to_none=number % 2 == 0)
            theirs.zero_grad()
    assert len(replays) >= 7


@pytest.mark.parametrize("every", [1, 2])
def test_schedules_are_followed(device, every, replays):
    schedules: dict[int, Any] = {}

    def advance(model: nn.Module, optimizer: torch.optim.Optimizer, number: int) -> None:
        if number == 0:
            schedules[id(optimizer)] = ExponentialLR(optimizer, 0.7)
        elif number % every == 0:
            schedules[id(optimizer)].step()

    compare(device, batches_of(PACKED, "cpu", device, [8] * 6), every=every, between=advance)
    assert len(replays) >= 9 - every


def test_one_cycle_is_followed_by_our_update(device, replays, caplog):
    schedules: dict[int, Any] = {}

    def advance(model: nn.Module, optimizer: torch.optim.Optimizer, number: int) -> None:
        if number == 0:
            schedules[id(optimizer)] = OneCycleLR(optimizer, 1e-2, total_steps=20)
        else:
            schedules[id(optimizer)].step()

    batches = batches_of(PACKED, "cpu", device, [8] * 6)
    ours = {"make": lambda model: ClippedAdam(model.parameters(), None, decoupled_weight_decay=False, lr=3e-3, eps=1e-2)}
    compare(device, batches, between=advance, **ours)
    if device == "cuda":  # the kernels read the momentum there
        assert len(replays) >= 9
    replays.clear()
    compare(device, batches, between=advance)
    assert not replays
    assert "an option of the optimiser changes from step to step; with OneCycleLR give it cycle_momentum=False" in caplog.text
