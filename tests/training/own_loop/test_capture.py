"""What cannot be captured runs plainly and says why, and arguments that do not fit are refused."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from loop_cases import PlainLoop, assert_same_weights, batches_of, mean_square, molecules, network, twins
from torch import nn
from torch.nn import functional as F

import molgcn
from molgcn.errors import UserError
from molgcn.nn import MoleculeNet
from molgcn.training import ExponentialMovingAverage

PACKED = molecules()


def adam(model: nn.Module, **options: Any) -> torch.optim.Optimizer:
    return torch.optim.Adam(model.parameters(), lr=3e-3, eps=1e-2, **options)


@pytest.mark.parametrize("backend", ["fused", "pyg", "reference"])
@pytest.mark.parametrize("kind", ["cpu", "pyg"])
def test_a_cpu_runs_plainly_and_says_so_once(backend, kind, caplog):
    mine, theirs = twins(PACKED, "cpu", backend=backend)
    step, reference = molgcn.capture(mine, adam(mine), loss="mse"), PlainLoop(theirs, adam(theirs), mean_square)
    batches = batches_of(PACKED, kind, "cpu", [8] * 4)
    for batch in batches:
        step(batch)
        reference(batch)
    assert_same_weights(mine, theirs, 1e-4, 1e-5)
    assert caplog.text.count("Not captured as a CUDA graph, but run plainly with the same results: it needs a GPU.") == 1
    forward = molgcn.capture(mine.eval())
    with torch.no_grad():
        assert torch.equal(forward(batches[0]), mine(batches[0]))


class OwnNetwork(nn.Module):
    """A network of a user that holds one of ours."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = network(PACKED, "cpu")

    def forward(self, batch: Any) -> torch.Tensor:
        return self.inner(batch).exp()


class OwnForward(MoleculeNet):
    """A network with a forward pass of its own."""

    def forward(self, batch: Any) -> torch.Tensor:
        return 2 * super().forward(batch)


OWN = {
    "a module around it": (OwnNetwork, "OwnNetwork is not a network of molgcn.nn; capture the network that it holds"),
    "another forward": (lambda: OwnForward(PACKED.num_features, 8, 2, 1, conv="gin"), "OwnForward is not a network of molgcn.nn"),
}


@pytest.mark.parametrize("name", OWN)
@pytest.mark.parametrize("loss", ["mse", F.mse_loss])
def test_other_networks_run_plainly(device, name, loss, replays, caplog):
    make, reason = OWN[name]
    torch.manual_seed(0)
    mine = make()
    torch.manual_seed(0)
    theirs = make()
    step, reference = molgcn.capture(mine, adam(mine), loss=loss), PlainLoop(theirs, adam(theirs), mean_square)
    for batch in batches_of(PACKED, "cpu", "cpu", [8] * 4):
        step(batch)
        reference(batch)
    assert_same_weights(mine, theirs, 1e-4, 1e-5)
    assert not replays and reason in caplog.text


OPTIMISERS: dict[str, tuple[Any, str]] = {
    "steps on the host": (adam, "Adam steps on the host; make it with fused=True"),
    "no tensors as rates": (lambda model: torch.optim.SGD(model.parameters(), 1e-3), "SGD steps on the host; make it with fused=True"),
    "capturable": (lambda model: torch.optim.NAdam(model.parameters(), eps=1e-2), "NAdam steps on the host; make it with capturable=True"),
    "neither": (lambda model: torch.optim.Adafactor(model.parameters(), 1e-3), "Adafactor has no option capturable; leave it out of"),
}


@pytest.mark.parametrize("name", OPTIMISERS)
def test_optimisers_that_cannot_be_captured_say_why(device, name, replays, caplog):
    make, reason = OPTIMISERS[name]
    mine, theirs = twins(PACKED, device, conv="gcn", norm=None)
    step, reference = molgcn.capture(mine, make(mine), loss="mse"), PlainLoop(theirs, make(theirs), mean_square)
    for batch in batches_of(PACKED, "cpu", device, [8] * 4):
        step(batch)
        reference(batch)
    assert_same_weights(mine, theirs)
    assert not replays and reason in caplog.text


def test_float64_runs_plainly(device, replays, caplog):
    model = network(PACKED, device, backend="reference").double()
    step = molgcn.capture(model, adam(model, fused=True), loss="mse")
    for batch in batches_of(PACKED, "device", device, [8] * 3):
        assert step(batch.double()).dtype == torch.float64
    assert not replays and "the network is in float64" in caplog.text


def test_anomaly_detection_runs_plainly(device, replays, caplog):
    model = network(PACKED, device)
    step = molgcn.capture(model, adam(model, fused=True), loss="mse")
    with torch.autograd.detect_anomaly(check_nan=False):
        for batch in batches_of(PACKED, "cpu", device, [8] * 3):
            step(batch)
    assert not replays and "anomaly detection" in caplog.text


MODEL = network(PACKED, "cpu")
ADAM = adam(MODEL)
WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "no network": ({"model": "gcn"}, "takes a network of molgcn.nn, not str"),
    "no parameters": ({"model": nn.ReLU()}, "ReLU has no parameters"),
    "no loss": ({"optimizer": ADAM}, "was given an optimizer, but no loss"),
    "a sum without a loss": ({"accumulate_batches": 2}, "was given accumulate_batches, but no loss"),
    "loss": ({"optimizer": ADAM, "loss": "mae"}, "loss='mae' is unknown. Expected 'mse', 'l1', 'huber', or a function"),
    "no function": ({"optimizer": ADAM, "loss": 3}, "loss=3 is neither a name nor a function"),
    "optimizer": ({"optimizer": "adam", "loss": "mse"}, "optimizer is str. Expected an optimiser of PyTorch"),
    "norm": (
        {"optimizer": ADAM, "loss": "mse", "gradient_clip_norm": 0.0},
        "gradient_clip_norm=0.0 is not valid: expected a number above 0",
    ),
    "batches to add up": ({"optimizer": ADAM, "loss": "mse", "accumulate_batches": 0}, "accumulate_batches=0 is not valid"),
    "average": ({"optimizer": ADAM, "loss": "mse", "ema": 0.9}, "ema is float. Expected molgcn.training.ExponentialMovingAverage"),
    "average alone": ({"loss": "mse", "ema": ExponentialMovingAverage(MODEL, 0.9)}, "gradient_clip_norm and ema belong to the optimiser"),
    "no batches": ({"batches": 5}, "batches=5 is not an iterable of batches"),
    "other batches": ({"batches": ["CCO"]}, "batches holds str. Expected molgcn.data.GraphBatch or PyG's Batch"),
}


@pytest.mark.parametrize("name", WRONG)
def test_arguments_that_do_not_fit_are_refused(name):
    arguments, message = WRONG[name]
    with pytest.raises(UserError) as error:
        molgcn.capture(**{"model": MODEL, **arguments})
    assert message in str(error.value)


@pytest.mark.parametrize("batch", ["CCO", torch.zeros(3)])
def test_what_is_no_batch_is_refused(device, batch):
    model = network(PACKED, device)
    for call in (molgcn.capture(model, adam(model, fused=True), loss="mse"), molgcn.capture(model)):
        with pytest.raises(UserError, match=r"The batch is (str|Tensor)\. Expected molgcn\.data\.GraphBatch or PyG's Batch"):
            call(batch)


def test_last_needs_an_optimiser():
    step = molgcn.capture(MODEL, loss="mse")
    with pytest.raises(UserError, match="was given no optimizer"):
        step(batches_of(PACKED, "cpu", "cpu", [8])[0], last=True)
