"""Compare plain and captured training loops of one's own with PyG's and the Trainer's captured step, on a new batch at every step."""

from __future__ import annotations

import gc
import itertools
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from lightning import Callback, Trainer
from torch import Tensor
from torch.nn import functional as F
from torch.optim import Optimizer

import molgcn
from molgcn.data import GraphBatch
from molgcn.errors import UserError
from molgcn.nn import MoleculeNet
from molgcn.training import ClippedAdam
from molgcn.training.build import quieten
from molgcn.training.module import MoleculeModule
from molgcn.training.trainer import build_trainer
from molgcn_benchmark.epochs import prepare
from molgcn_benchmark.family import NETWORKS, network
from molgcn_benchmark.measure import interleaved, medians
from molgcn_benchmark.results import Row, Table
from molgcn_benchmark.weights import error

CANDIDATES = ("pyg", "floor", "plain", "captured", "captured_device", "captured_cpu", "trainer")
"""PyG as written on PyG's batches that lie on the device; the least that a plain step of this project's network can take, autograd of an
operator that launches nothing with the same parameters; that network in the same plain loop, on the loader's batches; `molgcn.capture`, on
the loader's batches, on others that lie on the device, and on others on the CPU; and the Trainer's captured step."""
DEFAULT = ("GIN+ 12 x 80", "GCN+ 12 x 64", "GINE 12 x 64", "GCN 28 x 32")
_RATE = 1e-6
_MOST_KEPT = 60  # different batches of PyG, of which each step takes the next
_ROW = 100.0  # milliseconds of steps in a row
_BOUND = 1e-4  # largest relative L2 error of predictions against float64


def configuration(name: str, batch_size: int, dataset: dict[str, Any], device: str) -> dict[str, Any]:
    """Return the configuration of a run that trains a network of :data:`molgcn_benchmark.family.NETWORKS`."""
    conv, num_layers, width, options = NETWORKS[name]
    bonds = conv in ("gine", "gcn_edge")
    plain = {
        "norm": None,
        "residual": False,
        "head_layers": 0,
        "last_activation": True,
        "embed": True,
        "bonds": bonds,
        "embed_bonds": bonds,
    }
    return {
        "dataset": {**dataset, "batch_size": batch_size},
        "model": {**plain, "name": conv, "num_layers": num_layers, "hidden_channels": width, **options},
        "backend": {"name": "fused"},
        "optimizer": {"name": "adamw", "lr": _RATE},
        "scheduler": {"name": "constant"},
        "training": {"loss": "mse", "captured": "auto"},
        "trainer": {"accelerator": "gpu" if device == "cuda" else "cpu"},
    }


def measure(keys: Sequence[Row], candidates: Sequence[str], dataset: dict[str, Any], repeats: int, table: Table) -> Iterator[Row]:
    """Measure the rows that `table` lacks, add each to it and yield it.

    Args:
        keys: columns :data:`molgcn_benchmark.family.KEY` of each row.
        candidates: names in :data:`CANDIDATES`.
        dataset: the configuration of the molecules.
        repeats: number of timed calls of each candidate, in turn.
        table: table with the key columns.

    Raises:
        UserError: for a candidate whose predictions are wrong.
    """
    quieten()
    missing = [key for key in keys if table.find(**key) is None]
    for (name, device, size), group in itertools.groupby(missing, lambda key: (key["network"], key["device"], key["batch_size"])):
        rows: list[Row] = []
        works = [(key, key["work"]) for key in group]

        def compare(module: MoleculeModule, trainer: Trainer, works: list[Any] = works, rows: list[Row] = rows, name: str = name) -> None:
            loops = _Loops(name, module, trainer)
            loops.check()
            rows += [{**key, **loops.times(work, candidates, repeats)} for key, work in works]

        _within_training(configuration(name, size, dataset, device), compare)
        yield from map(table.add, rows)
        gc.collect()


class _Then(Callback):
    """A callback that calls a function after the second epoch, when steps are captured, and ends the training."""

    def __init__(self, then: Callable[[MoleculeModule, Trainer], None]) -> None:
        self.then = then

    def on_train_epoch_end(self, trainer: Trainer, pl_module: Any) -> None:
        if trainer.current_epoch == 1:
            self.then(pl_module, trainer)
            trainer.should_stop = True


def _within_training(values: dict[str, Any], then: Callable[[MoleculeModule, Trainer], None]) -> None:
    """Call a function within a run, where the Trainer's captured step exists."""
    options = {"max_epochs": 3, "log_every_n_steps": 1000, "limit_val_batches": 0, "limit_train_batches": 10}
    config, data, build = prepare(values, options)
    with tempfile.TemporaryDirectory() as folder:
        trainer = build_trainer(config.trainer, [_Then(then)], [], Path(folder))
        trainer.fit(build(), datamodule=data)


class _Loops:
    """All loops over the batches of a run, with the same network."""

    def __init__(self, name: str, module: MoleculeModule, trainer: Trainer) -> None:
        self.module = module
        self.device = module.device
        data: Any = trainer.datamodule  # type: ignore[attr-defined]
        self.data, self.trainers_loader = data, data.train_loader  # in whose slots the Trainer's graphs read
        self.base = network(name, data.dataset.molecules).to(self.device)
        kept, molecules = [batch.clone() for batch in itertools.islice(data.train_dataloader(), _MOST_KEPT)], data.part("train")
        whole = [molecules.batch(batch.indices.cpu().numpy()) for batch in kept]  # equal leaves may be one row in the loader's
        self.kept = {
            "pyg": [batch.to(self.device).to_pyg() for batch in whole],
            "captured_device": kept,
            "captured_cpu": [batch.to("cpu") for batch in kept],
        }

    def check(self) -> None:
        """Check the predictions of both networks and of a captured one against float64.

        Raises:
            UserError: if they are wrong.
        """
        ours, theirs = self.base.on_backend("fused").eval(), self.base.on_backend("pyg").eval()
        batch = self.kept["pyg"][0].clone()
        forward = molgcn.capture(ours)
        with torch.no_grad():
            found = {"pyg": theirs(batch), "plain": ours(self.kept["captured_device"][0])}
            for _ in range(3):
                found["captured"] = forward(self.kept["captured_cpu"][0])
            batch.x = batch.x.double()
            right = self.base.on_backend("pyg").double().eval()(batch)
        for name, values in found.items():
            if not error(values, right) < _BOUND:
                raise UserError(f"{name}: predictions are off by {error(values, right):.1e} of float64's; expected less than {_BOUND:.0e}.")

    def times(self, work: str, candidates: Sequence[str], repeats: int) -> Row:
        """Return the microseconds of a step of each candidate, as its loop runs on and on.

        The first steps after another candidate's find the device idle and the processor's caches full of other work. A plain step of the
        fused network, which the host bounds, then takes up to 1.6 times as long. So each candidate makes steps for :data:`_ROW` ms. The
        plain loop has been through an epoch by then, since the first batch of a size takes 30 ms.
        """
        calls = {name: call for name in candidates if (call := self._call(name, work)) is not None}
        for _ in range(len(self.data.train_dataloader()) if "plain" in calls else 0):
            calls["plain"]()
        times = medians(interleaved(calls, self.device, repeats, warm_up=8, row=_ROW))
        return {f"{name}_us": round(1e3 * time, 1) for name, time in times.items()}

    def _call(self, name: str, work: str) -> Callable[[], object] | None:
        """Return a function that takes the next step of a loop; None for one that there is not."""
        if name == "trainer":
            return self._trainers_step() if work == "step" else None
        if name == "floor":
            return self._floor() if work == "forward_backward" else None
        model = self.base.on_backend("pyg" if name == "pyg" else "fused").train(work != "forward")
        batches = itertools.cycle(self.kept[name]) if name in self.kept else _endless(self.data.train_dataloader())
        fused = name != "pyg" and self.device.type == "cuda"
        optimizer: Optimizer | None = None
        if work == "step" and fused and name != "plain":
            optimizer = ClippedAdam(model.parameters(), None, decoupled_weight_decay=True, lr=_RATE)
        elif work == "step":
            optimizer = torch.optim.AdamW(model.parameters(), lr=_RATE, fused=True)
        if name in ("pyg", "plain"):
            return _plain(model, optimizer, batches, work)
        if work == "forward":
            forward = molgcn.capture(model)
            return lambda: forward(next(batches))
        step, parameters = molgcn.capture(model, optimizer, loss="mse"), list(model.parameters())

        def call() -> Tensor:
            if optimizer is None:
                _drop(parameters)
            return step(next(batches))

        return call

    def _floor(self) -> Callable[[], object]:
        """Return a step whose operator launches nothing, but leaves a gradient for each parameter."""
        parameters: list[Tensor] = list(self.base.on_backend("fused").parameters())
        targets = self.kept["captured_device"][0].targets

        def step() -> None:
            _drop(parameters)
            F.mse_loss(_Nothing.apply(targets, parameters, *parameters), targets).backward()

        return step

    def _trainers_step(self) -> Callable[[], object] | None:
        prepared, batches = self.module.steps.prepared, _endless(self.trainers_loader)
        return None if prepared is None else lambda: prepared(next(batches), True, True)


class _Nothing(torch.autograd.Function):
    """An operator of the parameters that computes nothing, whose gradients are views of one tensor."""

    @staticmethod
    def forward(ctx: Any, like: Tensor, learnt: Sequence[Tensor], *parameters: Tensor) -> Tensor:
        ctx.learnt = learnt
        return torch.empty_like(like)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        flat = gradient.new_empty(sum(map(torch.numel, ctx.learnt)))
        return None, None, *torch._C._nn.unflatten_dense_tensors(flat, ctx.learnt)  # held by nobody else, so that none is copied


def _endless(loader: Any) -> Iterator[Any]:
    """Yield the batches of epoch after epoch."""
    for epoch in itertools.count(100):
        loader.sampler.set_epoch(epoch)
        yield from loader


def _drop(parameters: Sequence[Tensor]) -> None:
    """Drop the gradients; `model.zero_grad()` looks for the parameters anew, which takes longer."""
    for parameter in parameters:
        parameter.grad = None


def _plain(model: MoleculeNet, optimizer: Optimizer | None, batches: Iterator[Any], work: str) -> Callable[[], object]:
    """Return the step of a loop as its users write it."""
    if work == "forward":
        return torch.no_grad()(lambda: model(next(batches)))

    parameters = list(model.parameters())

    def step() -> None:
        batch = next(batches)
        targets = batch.targets if isinstance(batch, GraphBatch) else batch.y
        _drop(parameters)
        F.mse_loss(model(batch), targets).backward()
        if optimizer is not None:
            optimizer.step()

    return step


def sheet(rows: Sequence[Row]) -> list[str]:
    """Return a Markdown table of the rows: microseconds, and how many times as fast as PyG as written `molgcn.capture` is."""
    names = [name for name in CANDIDATES if any(row.get(f"{name}_us") for row in rows)]
    titles = [f"{name.replace('_', ', ')}, us" for name in names]
    lines = [f"| network | B | work | {' | '.join(titles)} | times PyG |", f"|---|---:|---|{'---:|' * (len(names) + 1)}"]
    for row in rows:
        cells = [f"{row[f'{name}_us']:,.0f}" if row.get(f"{name}_us") else "" for name in names]
        times = f"{row['pyg_us'] / row['captured_us']:.1f}" if row.get("pyg_us") and row.get("captured_us") else ""
        lines.append(f"| {row['network']} | {row['batch_size']:,} | {row['work'].replace('_', ' and ')} | {' | '.join(cells)} | {times} |")
    return lines
