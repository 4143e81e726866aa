"""Captured steps under rough treatment: errors, threads, copies, captures around them, other precisions and devices."""

from __future__ import annotations

import copy
import gc
import pickle
import threading

import pytest
import torch
from loop_cases import (
    PACKED,
    PlainLoop,
    adam,
    assert_same_losses,
    assert_same_weights,
    batches_of,
    mean_square,
    network,
    squares,
    twins,
)
from torch import Tensor, nn

import molgcn
from molgcn.data.loader import PackedLoader
from molgcn.errors import UserError


class NotToday(RuntimeError):
    """An error in a loss."""


def test_an_error_in_the_loss_leaves_the_loop_usable(device):
    """Also while a step is captured."""
    mine, theirs = twins(PACKED, device)
    calls, failures = [], []

    def fails(predictions: Tensor, targets: Tensor) -> Tensor:
        capturing = device == "cuda" and torch.cuda.is_current_stream_capturing()
        calls.append(capturing)
        if len(calls) in (2, 4) or (capturing and sum(calls) == 1):
            failures.append(capturing)
            raise NotToday
        return squares(predictions, targets)

    step, reference = molgcn.capture(mine, adam(mine), loss=fails, accumulate_batches=2), PlainLoop(theirs, adam(theirs), squares, every=2)
    for batch in batches_of(PACKED, "cpu", device, [8] * 12):
        statistics = [buffer.clone() for buffer in mine.buffers()]
        for _ in range(3):
            try:
                step(batch)
                break
            except NotToday:
                for buffer, before in zip(mine.buffers(), statistics, strict=True):
                    buffer.copy_(before)  # the forward pass before the error has counted
        reference(batch)
    assert len(failures) >= 2 and any(failures) == (device == "cuda")
    assert_same_weights(mine, theirs)


def test_two_networks_take_turns_on_one_loader(device, replays):
    loader = PackedLoader(PACKED, 8, device=device)
    pairs = [(*twins(PACKED, device, conv=conv), conv) for conv in ("gine", "gcn")]
    steps = [molgcn.capture(mine, adam(mine), loss="mse") for mine, _, _ in pairs]
    plain = [PlainLoop(theirs, adam(theirs), mean_square) for _, theirs, _ in pairs]
    for epoch in range(2):
        loader.set_epoch(epoch)
        for batch in loader:
            kept = batch.clone()
            for step, reference in zip(steps, plain, strict=True):
                assert_same_losses([step(batch), step(batch)], [reference(kept), reference(kept)])
    assert len(replays) > 4


def test_two_threads(device):
    twins_of = [twins(PACKED, device, conv=conv, dropout=0.0) for conv in ("gine", "gcn")]
    batches = batches_of(PACKED, "cpu", device, [8] * 5) * 4
    losses: list[list[Tensor]] = [[], []]

    def train(number: int) -> None:
        mine = twins_of[number][0]
        step = molgcn.capture(mine, adam(mine), loss="mse")
        losses[number] += [step(batch) for batch in batches]

    threads = [threading.Thread(target=train, args=[number]) for number in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for (mine, theirs), found in zip(twins_of, losses, strict=True):
        reference = PlainLoop(theirs, adam(theirs), mean_square)
        assert_same_losses(found, [reference(batch) for batch in batches])
        assert_same_weights(mine, theirs)


def test_the_network_can_be_copied_and_saved_and_the_step_cannot(device):
    mine = network(PACKED, device)
    step = molgcn.capture(mine, adam(mine), loss="mse", accumulate_batches=2)
    for batch in batches_of(PACKED, "cpu", device, [8] * 5):
        step(batch)
    for other in (copy.deepcopy(mine), pickle.loads(pickle.dumps(mine))):
        assert_same_weights(mine, other, 0, 0)
    for call in (copy.deepcopy, pickle.dumps):
        with pytest.raises(UserError, match=r"cannot be copied or saved.*call molgcn\.capture for the copy"):
            call(step)


@pytest.mark.gpu
@pytest.mark.parametrize("device", ["cuda"], indirect=True)
def test_within_another_capture(device):
    mine = network(PACKED, device)
    step, forward = molgcn.capture(mine, adam(mine), loss="mse"), molgcn.capture(mine)
    batch = batches_of(PACKED, "device", device, [8])[0]
    for _ in range(3):
        step(batch), forward(batch)
    for call in (step, forward):
        with pytest.raises(UserError, match="cannot be called while another one is captured"), torch.cuda.graph(torch.cuda.CUDAGraph()):
            call(batch)
    step(batch), forward(batch)
    torch.cuda.synchronize()


@pytest.mark.gpu
@pytest.mark.parametrize("device", ["cuda"], indirect=True)
@pytest.mark.parametrize("long", [True, False], ids=["around the loop", "around each step"])
def test_autocast(device, long, replays):
    mine, theirs = twins(PACKED, device, backend="reference")
    step, reference = molgcn.capture(mine, adam(mine), loss=squares), PlainLoop(theirs, adam(theirs), squares)
    batches, losses = batches_of(PACKED, "cpu", device, [8] * 6), ([], [])
    with torch.autocast("cuda", torch.bfloat16, enabled=long):
        for batch in batches:
            with torch.autocast("cuda", torch.bfloat16, cache_enabled=False):
                losses[1].append(reference(batch))
            if long:
                losses[0].append(step(batch))
                continue
            with torch.autocast("cuda", torch.bfloat16):
                losses[0].append(step(batch))
    assert_same_losses(*losses, rtol=3e-2)
    assert len(replays) >= 3
    for batch in batches[:4]:  # without autocast, another graph
        step(batch)
    assert len(replays) >= 5


@pytest.mark.gpu
@pytest.mark.parametrize("device", ["cuda"], indirect=True)
def test_the_network_moves(device, replays):
    mine, theirs = twins(PACKED, device, backend="reference", norm="layer")
    step, reference = molgcn.capture(mine, adam(mine), loss="mse"), PlainLoop(theirs, adam(theirs), mean_square)
    batches, losses = batches_of(PACKED, "cpu", device, [8] * 4), ([], [])
    for place in ("cuda", "cpu", "cuda"):
        for model, loop in ((mine, step), (theirs, reference)):
            model.to(place)
            for state in loop.optimizer.state.values():
                state.update({name: tensor.to(place) for name, tensor in state.items()})
        for batch in batches:
            losses[0].append(step(batch))
            losses[1].append(reference(batch))
        if place == "cuda":
            assert len(replays) >= 2
            replays.clear()
        else:
            assert not replays
    torch.testing.assert_close([loss.cpu() for loss in losses[0]], [loss.cpu() for loss in losses[1]], rtol=1e-4, atol=1e-6)


@pytest.mark.gpu
@pytest.mark.parametrize("device", ["cuda"], indirect=True)
def test_dropout_draws_anew_at_every_replay(device, replays):
    torch.manual_seed(0)
    model = network(PACKED, device, dropout=0.5, norm=None)
    step = molgcn.capture(model, torch.optim.SGD(model.parameters(), lr=0.0, fused=True), loss="mse")
    batch = batches_of(PACKED, "cpu", device, [8])[0]
    losses = torch.stack([step(batch) for _ in range(10)])
    assert len(replays) >= 7 and len(losses.unique()) == 10


def test_a_loss_with_tensors_of_its_own(device):
    """A loss may be a module, whose tensors are watched."""

    class Weighted(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("weight", torch.tensor(2.0, device=device))

        def forward(self, predictions: Tensor, targets: Tensor) -> Tensor:
            return self.weight * (predictions - targets).square()

    ours = Weighted()
    mine, theirs = twins(PACKED, device)
    step = molgcn.capture(mine, adam(mine), loss=ours)
    reference = PlainLoop(theirs, adam(theirs), lambda predictions, targets: factor * (predictions - targets).square())
    factor = 2.0
    for number, batch in enumerate(batches_of(PACKED, "cpu", device, [8] * 8)):
        if number == 4:
            ours.weight, factor = torch.tensor(0.5, device=device), 0.5
        assert_same_losses([step(batch)], [reference(batch)])


@pytest.mark.gpu
def test_a_graph_that_becomes_garbage_while_another_is_captured_stays_until_later():
    """CUDA ends a capture in which a graph is destroyed, and Python may collect garbage at any time."""
    batches, kept = batches_of(PACKED, "cpu", "cuda", [8] * 4), []

    def drops(predictions: Tensor, targets: Tensor) -> Tensor:
        if torch.cuda.is_current_stream_capturing():
            kept.clear()
        return squares(predictions, targets)

    thresholds = gc.get_threshold()
    gc.set_threshold(1)
    try:
        for loss in (squares, drops):
            model, _ = twins(PACKED, "cuda")
            step = molgcn.capture(model, adam(model), loss=loss)
            assert all(torch.isfinite(step(batch)) for batch in batches)
            if loss is squares:
                kept.append(cycle := [step])
                cycle.append(cycle)
            del step, model
            cycle = None
        assert not kept
    finally:
        gc.set_threshold(*thresholds)
