"""Molecules, networks and a plain training loop, with which loops that use `molgcn.capture` are compared."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils import clip_grad_norm_

import molgcn
from molgcn.data import GraphBatch, PackedMolecules
from molgcn.nn import MoleculeNet

SMILES = ["C" * (1 + number % 7) + ("O", "C1CCCC1", "c1ccccc1N")[number % 3] for number in range(30)]


def molecules(missing: bool = False) -> PackedMolecules:
    """Return molecules with features of bonds and one target, which some lack if wanted."""
    targets = torch.arange(len(SMILES))[:, None] % 5 / 4.0
    if missing:
        targets[::4] = torch.nan
    return PackedMolecules.from_smiles(SMILES, targets=targets.numpy(), features="general", num_workers=0)


def network(packed: PackedMolecules, device: str, **options: Any) -> MoleculeNet:
    """Return a small network that sees bonds; on a CPU it is plain PyTorch, which takes padded batches there."""
    torch.manual_seed(0)
    options = {"norm": "batch", "residual": True, "embed": True, "conv": "gine", **options}
    backend: Any = options.pop("backend", "reference" if device == "cpu" else "fused")
    bonds = packed.num_edge_features if options["conv"] == "gine" else None
    return MoleculeNet(packed.num_features, 16, 2, 1, edge_channels=bonds, backend=backend, **options).to(device)


class PlainLoop:
    """A training loop as its users write it."""

    def __init__(
        self,
        model: nn.Module,
        optimizer: torch.optim.Optimizer,
        loss: Callable[[Tensor, Tensor], Tensor],
        clip: float | None = None,
        every: int = 1,
    ) -> None:
        self.model, self.optimizer, self.loss, self.clip, self.every = model, optimizer, loss, clip, every
        self.count = 0

    def __call__(self, batch: Any) -> Tensor:
        device = next(self.model.parameters()).device
        batch = (batch if isinstance(batch, GraphBatch) else GraphBatch.from_pyg(batch)).to(device)
        loss = self.loss(self.model(batch), batch.targets.to(device)).mean()
        (loss / self.every).backward()
        self.count += 1
        if self.count % self.every == 0:
            if self.clip is not None:
                clip_grad_norm_(self.model.parameters(), self.clip)
            self.optimizer.step()
            self.model.zero_grad()
        return loss.detach()


def mean_square(predictions: Tensor, targets: Tensor) -> Tensor:
    """Return the mean squared error over the targets that are not missing."""
    known = ~targets.isnan()
    terms = torch.where(known, (predictions - torch.where(known, targets, predictions.detach())).square(), 0)
    return terms.sum() / known.sum()


def squares(predictions: Tensor, targets: Tensor) -> Tensor:
    """Return the squared error of each molecule."""
    return F.mse_loss(predictions, targets, reduction="none")


def batches_of(packed: PackedMolecules, kind: str, device: str, sizes: Sequence[int] = (8, 8, 8, 5, 8)) -> list[Any]:
    """Return batches with these numbers of molecules, as PyG's batches, or as this project's on the CPU or on the device."""
    generator, found = torch.Generator().manual_seed(0), []
    for size in sizes:
        batch = packed.batch(torch.randperm(len(packed), generator=generator)[:size].numpy())
        found.append(batch.to_pyg() if kind == "pyg" else batch.to(device) if kind == "device" else batch)
    return found


def twins(packed: PackedMolecules, device: str, **options: Any) -> tuple[MoleculeNet, MoleculeNet]:
    """Return two networks with the same weights."""
    model = network(packed, device, **options)
    return model, copy.deepcopy(model)


def assert_same_weights(one: nn.Module, other: nn.Module, rtol: float = 1e-3, atol: float = 1e-4) -> None:
    """Assert that two networks have the same weights and statistics up to rounding."""
    theirs = other.state_dict()
    for name, value in one.state_dict().items():
        torch.testing.assert_close(value, theirs[name], rtol=rtol, atol=atol, msg=lambda text, name=name: f"{name}: {text}")


def assert_same_losses(ours: Iterable[Tensor], theirs: Iterable[Tensor], rtol: float = 1e-3) -> None:
    """Assert that losses agree up to rounding."""
    torch.testing.assert_close(torch.stack(list(ours)), torch.stack(list(theirs)), rtol=rtol, atol=1e-6)


PACKED = molecules()


def adam(model: nn.Module, **options: Any) -> torch.optim.Optimizer:
    return torch.optim.Adam(model.parameters(), fused=True, **{"lr": 3e-3, "eps": 1e-2, **options})


def compare(
    device: str,
    batches: list[Any],
    loss: Any = "mse",
    plain: Callable[[Tensor, Tensor], Tensor] = mean_square,
    make: Callable[..., torch.optim.Optimizer] = adam,
    every: int = 1,
    between: Callable[[nn.Module, torch.optim.Optimizer, int], Any] = lambda *_: None,
    model: dict[str, Any] | None = None,
    **options: Any,
) -> tuple[nn.Module, Any]:
    """Train twins for two epochs by captured and by plain steps, assert that they learn the same, and return the first and its step."""
    mine, theirs = twins(PACKED, device, **(model or {}))
    ours, other = make(mine), make(theirs)
    step = molgcn.capture(mine, ours, loss=loss, accumulate_batches=every, **options)
    reference = PlainLoop(theirs, other, plain, options.get("gradient_clip_norm"), every)
    losses: tuple[list[Tensor], list[Tensor]] = ([], [])
    for number, batch in enumerate(batches * 2):
        between(mine, ours, number)
        between(theirs, other, number)
        losses[0].append(step(batch))
        losses[1].append(reference(batch))
    assert_same_losses(*losses)
    assert_same_weights(mine, theirs)
    return mine, step
