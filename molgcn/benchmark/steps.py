"""Forward, and forward with backward, of the same model by every candidate over a grid of depths and batch sizes."""

from __future__ import annotations

import csv
import gc
import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from molgcn.benchmark.candidates import Model, build
from molgcn.benchmark.machine import machine
from molgcn.benchmark.measure import interleaved, medians
from molgcn.data import GraphBatch, PackedMolecules
from molgcn.errors import UserError
from molgcn.nn import GCN

OUTPUT_BOUND, GRADIENT_BOUND = 1e-5, 5e-5  # relative L2 against float64
PASSES = ("forward", "forward_backward")


@dataclass(frozen=True)
class Grid:
    """What is measured: every combination of depth and batch size.

    Attributes:
        device: cpu or cuda.
        num_layers: depths L.
        batch_sizes: molecules a batch B.
        hidden_channels: width H.
        candidates: names of :data:`molgcn.benchmark.candidates.CANDIDATES`, fused first.
        repeats: timed calls of each candidate.
    """

    device: str = "cpu"
    num_layers: tuple[int, ...] = (4, 12, 28)
    batch_sizes: tuple[int, ...] = (128, 512, 4096)
    hidden_channels: int = 32
    candidates: tuple[str, ...] = ("fused", "pyg", "pyg_hoisted", "pyg_compiled")
    repeats: int = 15


@dataclass(frozen=True)
class Row:
    """One line of the table: medians in milliseconds, and what they mean.

    Attributes:
        device: cpu or cuda.
        work: forward (without gradients) or forward_backward (loss included).
        num_layers: L.
        batch_size: B.
        hidden_channels: H.
        milliseconds: by candidate.
        against_pyg: how many times faster fused is than PyG as written.
        against_best: than the fastest of PyG's variants.
        gflops: of fused, counting 2 N H^2 + 2 E H a layer forward and three times that with backward.
        peak: `gflops` as a fraction of the multiply-add peak measured in the same run; 0 where that is not measured.
    """

    device: str
    work: str
    num_layers: int
    batch_size: int
    hidden_channels: int
    milliseconds: dict[str, float] = field(default_factory=dict)
    against_pyg: float = 0.0
    against_best: float = 0.0
    gflops: float = 0.0
    peak: float = 0.0

    @property
    def key(self) -> tuple[str, ...]:
        """What distinguishes one row from another."""
        return tuple(str(value) for value in (self.device, self.work, self.num_layers, self.batch_size, self.hidden_channels))


def run(molecules: PackedMolecules, grid: Grid, output: Path) -> list[Row]:
    """Measures the grid; each row is appended to `output` (CSV) when it is there, rows that are there already are not measured again.

    Beside it, `output` with the suffix .json holds the machine and all rows of this call.

    Raises:
        UserError: when a candidate's numbers are wrong.
    """
    device = torch.device(grid.device)
    facts = machine(device) | {"molecules": len(molecules)}
    done, rows = _keys(output), []
    output.parent.mkdir(parents=True, exist_ok=True)
    for row in measure(molecules, grid, device, float(facts.get("fma_peak_gflops", 0)), done):
        _append(output, row, grid.candidates)
        rows.append(row)
        output.with_suffix(".json").write_text(json.dumps({"machine": facts, "rows": [asdict(each) for each in rows]}, indent=1) + "\n")
    return rows


def measure(molecules: PackedMolecules, grid: Grid, device: torch.device, peak: float, done: set[tuple[str, ...]]) -> Iterator[Row]:
    """Rows of the grid, smallest first."""
    for num_layers in grid.num_layers:
        for batch_size in grid.batch_sizes:
            keys = [Row(grid.device, work, num_layers, batch_size, grid.hidden_channels) for work in PASSES]
            if all(key.key in done for key in keys):
                continue
            batch = molecules.batch(torch.arange(batch_size).numpy() % len(molecules), device)
            batch.targets = torch.zeros(batch_size, 1, device=device)
            torch.manual_seed(0)
            model = GCN(molecules.num_features, grid.hidden_channels, num_layers, 1, backend="pyg").to(device)
            built = {name: build(name, model) for name in grid.candidates}
            check(built, model, molecules.batch(slice(0, min(batch_size, 128)), device))
            inputs = {name: convert(batch) for name, (_, convert, _) in built.items()}
            flops = num_layers * (2 * batch.num_nodes * grid.hidden_channels**2 + 2 * batch.num_edges * grid.hidden_channels)
            for key in keys:
                if key.key in done:
                    continue
                calls = {
                    name: _call(key.work, module.to(device), model, inputs[name], batch.targets)
                    for name, (module, _, model) in built.items()
                }
                times = medians(interleaved(calls, device, grid.repeats))
                yield _row(key, times, flops * (3 if key.work == "forward_backward" else 1), peak)
            torch.compiler.reset()
            gc.collect()


def _call(work: str, module: nn.Module, model: Model, batch: Any, targets: Tensor) -> Callable[[], object]:
    def forward() -> Tensor:
        with torch.no_grad():
            return model(batch)

    def forward_backward() -> None:
        module.zero_grad()
        F.mse_loss(model(batch), targets).backward()

    return forward if work == "forward" else forward_backward


def _row(key: Row, times: dict[str, float], flops: float, peak: float) -> Row:
    fused = times["fused"]
    others = [time for name, time in times.items() if name != "fused"]
    gflops = flops / fused / 1e6
    return replace(
        key,
        milliseconds={name: round(time, 4) for name, time in times.items()},
        against_pyg=round(times["pyg"] / fused, 2) if "pyg" in times else 0.0,
        against_best=round(min(others) / fused, 2) if others else 0.0,
        gflops=round(gflops, 1),
        peak=round(gflops / peak, 3) if peak else 0.0,
    )


def check(built: dict[str, tuple[nn.Module, Callable, Model]], model: GCN, batch: GraphBatch) -> None:
    """Outputs and gradients of every candidate against PyG in float64.

    Raises:
        UserError: naming the candidate whose error is beyond float32 accuracy.
    """
    double = GCN(model.in_channels, model.hidden_channels, model.num_layers, model.out_channels, backend="pyg").double().to(batch.x.device)
    double.load_state_dict(model.state_dict())
    batch = GraphBatch(batch.x, batch.ptr, batch.rowptr, batch.col, torch.zeros(batch.num_graphs, 1, device=batch.x.device))
    exact = GraphBatch(batch.x.double(), batch.ptr, batch.rowptr, batch.col, batch.targets)
    expected = double(exact)
    expected.sum().backward()
    for name, (module, convert, _) in built.items():
        actual = module.to(batch.x.device)(convert(batch))  # a compiled candidate is checked as the module that it compiles
        module.zero_grad()
        actual.sum().backward()
        errors = [_error(actual, expected)]
        errors += [_error(p.grad, q.grad) for p, q in zip(module.parameters(), double.parameters(), strict=True)]
        if errors[0] > OUTPUT_BOUND or max(errors[1:]) > GRADIENT_BOUND:
            raise UserError(
                f"{name} is wrong: relative error {errors[0]:.1e} of outputs, {max(errors[1:]):.1e} of gradients against float64."
            )


def _error(actual: Tensor | None, expected: Tensor | None) -> float:
    assert actual is not None and expected is not None
    return ((actual.double() - expected).norm() / expected.norm()).item()


def _keys(output: Path) -> set[tuple[str, ...]]:
    if not output.exists():
        return set()
    with output.open(newline="") as file:
        return {
            tuple(row[name] for name in ("device", "work", "num_layers", "batch_size", "hidden_channels")) for row in csv.DictReader(file)
        }


def _append(output: Path, row: Row, candidates: Iterable[str]) -> None:
    values = asdict(row)
    times = values.pop("milliseconds")
    flat = values | {f"{name}_ms": times.get(name, "") for name in candidates}
    new = not output.exists()
    with output.open("a", newline="") as file:
        writer = csv.DictWriter(file, flat)
        if new:
            writer.writeheader()
        writer.writerow(flat)
