"""Captured steps follow what changes between them: the network, the optimiser, hooks, and what a batch holds."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from loop_cases import (
    PACKED,
    PlainLoop,
    adam,
    assert_same_losses,
    batches_of,
    compare,
    mean_square,
    molecules,
    network,
    squares,
    twins,
)
from torch import Tensor, nn
from torch.nn import functional as F

import molgcn


def freeze(model: Any) -> None:
    model.convs[0].requires_grad_(False)


def replace_layer(model: Any) -> None:
    torch.manual_seed(3)
    model.head = nn.Linear(16, 1).to(next(model.parameters()).device)


def replace_parameter(model: Any) -> None:
    model.head.weight = nn.Parameter(model.head.weight.detach() * 2)


def move_data(model: Any) -> None:
    for tensor in (*model.parameters(), *model.buffers()):
        tensor.data = tensor.data.clone()


def convert(model: Any) -> None:
    """Give a network new buffers and perhaps new memory, as it gets when it is moved to a CPU and back."""
    model.double().float()


def tie(model: Any) -> None:
    model.convs[1].nn[0].weight = model.convs[0].nn[0].weight


def load(model: Any) -> None:
    model.load_state_dict({name: value * 0.5 for name, value in model.state_dict().items()})


CHANGES: dict[str, Callable[[Any], Any]] = {
    "frozen": freeze,
    "layer replaced": replace_layer,
    "parameter replaced": replace_parameter,
    "p.data": move_data,
    "converted": convert,
    "tied": tie,
    "weights loaded": load,
    "pool": lambda model: setattr(model, "pool", "sum"),
    "evaluation mode": lambda model: model.eval(),
    "momentum": lambda model: [setattr(norm, "momentum", 0.3) for norm in model.modules() if isinstance(norm, nn.BatchNorm1d)],
}


@pytest.mark.parametrize("name", CHANGES)
def test_changes_of_the_network_are_taken(device, name, replays):
    def change(model: nn.Module, optimizer: torch.optim.Optimizer, number: int) -> None:
        if number == 5:
            replays.append(None)
            CHANGES[name](model)

    compare(device, batches_of(PACKED, "cpu", device, [8] * 5), between=change)
    marks = [place for place, key in enumerate(replays) if key is None]
    assert marks[0] >= 2 and len(replays) - marks[1] > 3  # replayed before and after


def set_decay(optimizer: torch.optim.Optimizer) -> None:
    optimizer.param_groups[0]["weight_decay"] = 0.3


def load_state(optimizer: torch.optim.Optimizer) -> None:
    state = copy.deepcopy(optimizer.state_dict())
    for moments in state["state"].values():
        moments["exp_avg"].zero_()
    optimizer.load_state_dict(state)


@pytest.mark.parametrize("change", [set_decay, load_state])
def test_changes_of_the_optimiser_are_taken(device, change, replays):
    def between(model: nn.Module, optimizer: torch.optim.Optimizer, number: int) -> None:
        if number == 5:
            change(optimizer)

    compare(device, batches_of(PACKED, "cpu", device, [8] * 5), between=between)
    assert len(replays) >= 5


def test_parameters_join_and_leave_the_optimiser(device):
    """As in gradual unfreezing."""

    def make(model: Any) -> torch.optim.Optimizer:
        return torch.optim.Adam(model.head.parameters(), lr=3e-3, eps=1e-2, fused=True)

    def between(model: Any, optimizer: torch.optim.Optimizer, number: int) -> None:
        if number == 5:
            optimizer.add_param_group({"params": list(model.convs[1].parameters()), "lr": 1e-3})

    compare(device, batches_of(PACKED, "cpu", device, [8] * 5), make=make, between=between)


def test_hooks_are_called(device, replays, caplog):
    heard: list[int] = []

    def between(model: nn.Module, optimizer: torch.optim.Optimizer, number: int) -> None:
        if number == 5:
            model.register_forward_hook(lambda *_: heard.append(number))

    compare(device, batches_of(PACKED, "cpu", device, [8] * 5), between=between)
    assert len(heard) == 10  # of both twins
    assert 2 <= len(replays) <= 4
    assert caplog.text.count("there are hooks") == 1


def test_a_larger_batch_is_captured_anew_and_said_once(device, replays, caplog):
    compare(device, batches_of(PACKED, "cpu", device, [4, 4, 4, 12, 12, 28, 4]))
    assert len(replays) >= 4
    assert caplog.text.count("is larger than any before") == 1
    assert caplog.text.count("Not captured") == 0


def test_many_numbers_of_molecules_need_a_term_each(device, replays, caplog):
    batches = batches_of(PACKED, "cpu", device, range(3, 15))
    compare(device, batches, F.mse_loss, mean_square)
    assert "let the loss function return one term per molecule" in caplog.text
    assert len({form for form, _, _ in replays}) <= 8
    replays.clear()
    compare(device, batches, squares, mean_square)
    assert len({form for form, _, _ in replays if form is not None}) <= 4 and len(replays) > 12


def test_missing_targets(device, replays):
    packed = molecules(missing=True)
    mine, theirs = twins(packed, device)
    step, reference = molgcn.capture(mine, adam(mine), loss="mse"), PlainLoop(theirs, adam(theirs), mean_square)
    batches = batches_of(packed, "cpu", device, [8] * 5)
    assert_same_losses([step(batch) for batch in batches], [reference(batch) for batch in batches])
    assert len(replays) >= 2


def test_an_index_of_booleans_is_noticed(device, replays, caplog):
    def of_known(predictions: Tensor, targets: Tensor) -> Tensor:
        known = ~targets.isnan()
        return F.mse_loss(predictions[known], targets[known])

    compare(device, batches_of(PACKED, "cpu", device, [8] * 3), of_known)
    assert not replays
    assert caplog.text.count("the loss function reads values of tensors by an index of booleans") == 1


def test_features_that_want_a_gradient(device, replays, caplog):
    mine = network(PACKED, device)
    step = molgcn.capture(mine, adam(mine), loss="mse")
    batches = batches_of(PACKED, "device", device, [8] * 6)
    for batch in batches[:4]:
        step(batch)
    before = len(replays)
    batches[4].x.requires_grad_()
    step(batches[4])
    assert batches[4].x.grad is not None and len(replays) == before
    assert "want a gradient" in caplog.text
    step(batches[5])
    assert len(replays) == before + 1
