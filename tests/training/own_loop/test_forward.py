"""Captured predictions in a loop of one's own are those of the network."""

from __future__ import annotations

import threading
from typing import Any

import pytest
import torch
from loop_cases import batches_of, molecules, network
from torch import Tensor, nn

import molgcn
from molgcn.data.loader import PackedLoader

PACKED = molecules()


def assert_predicts(forward: Any, model: nn.Module, batch: Any, rtol: float = 1e-4) -> None:
    found = forward(batch)
    assert not found.requires_grad
    with torch.no_grad():
        expected = model(batch.to(next(model.parameters()).device))
    torch.testing.assert_close(found, expected, rtol=rtol, atol=1e-5)


@pytest.mark.parametrize("kind", ["pyg", "cpu", "device"])
@pytest.mark.parametrize("options", [{}, {"conv": "gcn", "norm": None}, {"rwse": 3, "rwse_dim": 4}], ids=["gine", "gcn", "encodings"])
def test_batches_of_any_kind(device, kind, options, replays):
    model = network(PACKED, device, **options).eval()
    forward = molgcn.capture(model)
    batches = batches_of(PACKED, kind, device, (8, 5, 8, 1, 8, 8))
    for batch in batches:
        assert_predicts(forward, model, batch)
    assert len(replays) == len(batches) - 1  # the first is computed plainly


def test_results_may_be_kept(device):
    model = network(PACKED, device).eval()
    forward = molgcn.capture(model)
    batches = batches_of(PACKED, "cpu", device, (8, 8, 8, 8))
    kept = [forward(batch) for batch in batches]
    for found, batch in zip(kept, batches, strict=True):
        torch.testing.assert_close(found, forward(batch))


def test_a_loaders_batches_between_training_steps(device, replays):
    """Modes may change, and weights, between one epoch and the next."""
    loader = PackedLoader(PACKED, 8, device=device, shuffle=False)
    model = network(PACKED, device)
    step = molgcn.capture(model, torch.optim.SGD(model.parameters(), 1e-2, fused=True), loss="mse", batches=loader)
    forward = molgcn.capture(model, batches=loader)
    for _ in range(3):
        model.train()
        for batch in loader:
            step(batch)
        model.eval()
        for batch in loader:
            assert_predicts(forward, model, batch.clone() if device == "cpu" else batch, rtol=1e-4)
    assert len(replays) > 3 * len(loader)


def put_elsewhere(model: Any) -> None:
    for tensor in (*model.parameters(), *model.buffers()):
        tensor.data = 0.5 * tensor.data if tensor.is_floating_point() else tensor.data


def another_head(model: Any) -> None:
    model.head = nn.Linear(16, 1).to(next(model.parameters()).device)


CHANGES = [put_elsewhere, another_head, lambda model: setattr(model, "pool", "max"), lambda model: model.train()]


@pytest.mark.parametrize("change", CHANGES)
def test_changes_are_seen(device, change, replays):
    model = network(PACKED, device, norm="layer").eval()
    forward = molgcn.capture(model)
    for _ in range(2):
        for batch in batches_of(PACKED, "cpu", device, (8, 8, 8)):
            assert_predicts(forward, model, batch)
        change(model)
    assert len(replays) == 4


def test_hooks_are_called(device, replays, caplog):
    model = network(PACKED, device).eval()
    forward, heard = molgcn.capture(model), []
    model.register_forward_hook(lambda *_: heard.append(1))
    for batch in batches_of(PACKED, "cpu", device, (8, 8, 8)):
        forward(batch)
    assert len(heard) == 3 and not replays
    assert caplog.text.count("there are hooks") == 1


def test_many_threads(device):
    model = network(PACKED, device).eval()
    forward, batches = molgcn.capture(model), batches_of(PACKED, "cpu", device, (8, 5, 3, 8))
    with torch.no_grad():
        expected = [model(batch.to(device)) for batch in batches]
    wrong: list[int] = []

    def predict(number: int) -> None:
        for _ in range(5):
            with torch.cuda.stream(torch.cuda.Stream()) if device == "cuda" else torch.no_grad():
                found: Tensor = forward(batches[number])
                if not torch.allclose(found, expected[number], rtol=1e-4, atol=1e-5):
                    wrong.append(number)

    threads = [threading.Thread(target=predict, args=[number]) for number in range(len(batches))]
    if device == "cuda":
        torch.cuda.synchronize()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_an_empty_batch_and_one_atom(device):
    model = network(PACKED, device, norm="layer").eval()
    forward = molgcn.capture(model)
    for indices in ([], [0], [0, 1]):
        assert_predicts(forward, model, PACKED.batch(indices))
