"""Time forward, backward and the whole step of one model by every candidate, over a grid of depths and batch sizes."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from molgcn.config.run import ModelConfig
from molgcn.data import GraphBatch, PackedMolecules
from molgcn.errors import UserError
from molgcn_benchmark.batches import training_batch
from molgcn_benchmark.candidates import CAPTURED, Candidate, build
from molgcn_benchmark.measure import count_kernels, interleaved, medians
from molgcn_benchmark.results import Row, Table
from molgcn_benchmark.weights import error, exact, steady_model

# Largest relative L2 errors of outputs and gradients against float64, by torch's float32 matmul precision. Below float32 some activations
# of 28 layers fall on the other side of zero (the emulated kernels have 2e-3 and 6e-2 with TF32, 3e-2 and 3e-1 with bf16).
BOUNDS = {"highest": (1e-5, 5e-5), "high": (1e-2, 2e-1), "medium": (1e-1, 6e-1)}
BATCH_NORM_BOUNDS = 1e-3, 1e-2  # for PyG only, whose errors are larger: 3e-5 and 6e-4 in four layers on a CPU
WORKS = ("forward", "training_forward", "backward", "forward_backward", "step")
KEY = ("dataset", "device", "work", "num_layers", "batch_size", "hidden_channels", "norm")
_PARTS = ("training_forward", "forward_backward")  # backward is their difference


@dataclass(frozen=True)
class Grid:
    """The measurements to make: every combination of depth and batch size.

    Attributes:
        device: "cpu" or "cuda".
        num_layers: depths L.
        batch_sizes: numbers of molecules per batch B.
        hidden_channels: width H.
        norm: None, "batch" or "layer".
        candidates: names in :data:`molgcn_benchmark.candidates.CANDIDATES`.
        works: names in :data:`WORKS`: forward (without gradients, eval mode), training_forward (with the MSE loss, as each side trains),
            backward (forward_backward less training_forward), forward_backward, step (with Adam too).
        repeats: number of timed calls of each candidate.
        warm_up: number of calls before the timed ones.
        precision: precision of all candidates' matrix products, as `torch.set_float32_matmul_precision` takes it: "highest", "high" (TF32)
            or "medium".
    """

    device: str = "cpu"
    num_layers: tuple[int, ...] = (4, 12, 28)
    batch_sizes: tuple[int, ...] = (128, 512, 4096)
    hidden_channels: int = 32
    norm: str | None = None
    candidates: tuple[str, ...] = ("fused", "pyg", "pyg_hoisted", "pyg_compiled")
    works: tuple[str, ...] = WORKS
    repeats: int = 15
    warm_up: int = 2
    precision: str = "highest"

    def keys(self, dataset: str) -> Iterator[Row]:
        """Yield the key columns of every row, smallest sizes first."""
        for num_layers in self.num_layers:
            for batch_size in self.batch_sizes:
                for work in self.works:
                    values = (dataset, self.device, work, num_layers, batch_size, self.hidden_channels, self.norm)
                    yield dict(zip(KEY, values, strict=True))


def measure(molecules: PackedMolecules, dataset: str, grid: Grid, table: Table, peak: float = 0.0) -> Iterator[Row]:
    """Measure the rows of the grid that `table` lacks, add each to it and yield it.

    A row has these columns beside its key:

    - `<candidate>_ms`: median milliseconds.
    - `<candidate>_launches`: kernel launches, on a GPU.
    - `against_pyg`: speed-up of the fastest of our candidates over PyG as written.
    - `against_best`: speed-up of the fastest of our candidates over the fastest of PyG's.
    - `gflops`: GFLOP/s of ours. A layer counts 2 N H^2 + 2 E H operations forward and three times that with backward, where N counts all
      atoms, merged or not.
    - `peak`: `gflops` as a fraction of the multiply-add peak of the same run.

    Args:
        molecules: the set from which the batches are drawn, see :func:`~molgcn_benchmark.batches.training_batch`.
        dataset: name of the molecules.
        grid: the measurements to make.
        table: table with the key columns :data:`KEY`.
        peak: peak GFLOP/s of the machine; 0 if unknown.

    Raises:
        UserError: for a candidate whose results are wrong.
    """
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision(grid.precision)
    try:
        for num_layers in grid.num_layers:
            for batch_size in grid.batch_sizes:
                size = {"num_layers": num_layers, "batch_size": batch_size}
                missing = [key for key in grid.keys(dataset) if size.items() <= key.items() and table.find(**key) is None]
                if missing:
                    yield from _measure_size(molecules, grid, table, missing, peak)
    finally:
        torch.set_float32_matmul_precision(before)


def _measure_size(molecules: PackedMolecules, grid: Grid, table: Table, missing: list[Row], peak: float) -> Iterator[Row]:
    """Yield the rows with these keys, all of one depth and batch size."""
    bench = _Bench(molecules, grid, torch.device(grid.device), missing[0]["num_layers"], missing[0]["batch_size"])
    for key in missing:
        times, launches = bench.times(key["work"])
        yield table.add({**key, **_figures(times, bench.flops(key["work"]), peak), **launches})
    del bench
    torch.compiler.reset()
    gc.collect()


class _Bench:
    """All candidates on one batch, with checked results."""

    def __init__(self, molecules: PackedMolecules, grid: Grid, device: torch.device, num_layers: int, batch_size: int) -> None:
        self.grid, self.device, self.num_layers = grid, device, num_layers
        options = ModelConfig(hidden_channels=grid.hidden_channels, num_layers=num_layers, norm=grid.norm, residual=False)  # type: ignore[arg-type]
        given, self.batch = training_batch(molecules, batch_size, device, options)
        self.targets = torch.zeros(batch_size, 1, device=device)
        given.targets = self.batch.targets = self.targets
        model = steady_model(molecules.num_features, grid.hidden_channels, num_layers, grid.norm, self.batch)
        self.candidates = [build(name, model, device) for name in grid.candidates]
        right = exact(model, self.batch)
        batches = {one.name: given if one.name.startswith("fused") else self.batch for one in self.candidates}
        for candidate in self.candidates:
            check(candidate, right, batches[candidate.name], grid.precision)
        self.inputs = {one.name: one.convert(batches[one.name]) for one in self.candidates}
        self.measured: dict[str, tuple[dict[str, float], Row]] = {}

    def times(self, work: str) -> tuple[dict[str, float], Row]:
        """Return the milliseconds of each candidate, and the columns of their launches."""
        if work == "backward":
            forward, both = (self.times(part) for part in _PARTS)
            return {name: both[0][name] - forward[0][name] for name in both[0]}, {
                name: both[1][name] - forward[1][name] for name in both[1]
            }
        if work not in self.measured:
            self._measure(_PARTS if work in _PARTS else (work,))
        return self.measured[work]

    def _measure(self, works: Sequence[str]) -> None:
        """Measure several kinds of work in turn, so that those whose difference counts meet the same load."""
        for candidate in self.candidates:
            candidate.module.train(works != ("forward",))
        calls = {
            (work, one.name): one.prepare(_call(work, one, self.inputs[one.name], self.targets))
            for work in works
            for one in self.candidates
        }
        found = medians(interleaved(calls, self.device, self.grid.repeats, self.grid.warm_up))
        counts = {key: count_kernels(call, self.device) for key, call in calls.items()}
        for work in works:
            times = {name: time for (of, name), time in found.items() if of == work}
            launches = {f"{name}_launches": count for (of, name), count in counts.items() if of == work and count is not None}
            self.measured[work] = times, launches

    def flops(self, work: str) -> float:
        """Return the number of floating-point operations of the convolutions."""
        width = self.grid.hidden_channels
        forward = self.num_layers * (2 * self.batch.num_nodes * width**2 + 2 * self.batch.num_edges * width)
        return forward * {"forward": 1, "training_forward": 1, "backward": 2}.get(work, 3)


def _call(work: str, candidate: Candidate, inputs: Any, targets: Tensor) -> Callable[[], object]:
    one = torch.ones((), device=targets.device)  # made once, as in training, which saves every candidate a kernel

    def forward() -> Tensor:
        with torch.no_grad():
            return candidate.model(inputs)

    def training_forward() -> None:
        candidate.loss(inputs, targets)

    def forward_backward() -> None:
        candidate.module.zero_grad()
        candidate.loss(inputs, targets).backward(one)

    if work != "step":
        return {"forward": forward, "training_forward": training_forward, "forward_backward": forward_backward}[work]
    # a learning rate of zero leaves the weights as they are and does the same work
    optimizer = torch.optim.Adam(candidate.module.parameters(), lr=0.0, fused=True, capturable=targets.device.type == "cuda")

    def step() -> None:
        forward_backward()
        optimizer.step()

    return step


def _figures(times: dict[str, float], flops: float, peak: float) -> Row:
    times = {name: time for name, time in times.items() if time > 0}  # noise can make a difference negative
    ours = [time for name, time in times.items() if name in ("fused", "fused_captured")]  # fused_99kb stands for another GPU
    others = [time for name, time in times.items() if not name.startswith("fused")]
    row: Row = {"against_pyg": None, "against_best": None, "gflops": None, "peak": None}
    if ours:
        gflops = flops / min(ours) / 1e6
        row["against_pyg"] = round(times["pyg"] / min(ours), 2) if "pyg" in times else None
        row["against_best"] = round(min(others) / min(ours), 2) if others else None
        row |= {"gflops": round(gflops, 1), "peak": round(gflops / peak, 3) if peak else None}
    return row | {f"{name}_ms": round(time, 4) for name, time in times.items()}


def check(candidate: Candidate, right: tuple[Tensor, dict[str, Tensor]], batch: GraphBatch, precision: str = "highest") -> None:
    """Check outputs, loss and gradients of a candidate against those of :func:`~molgcn_benchmark.weights.exact`.

    They are compared in training mode and, where this gives the same outputs, in inference.

    A captured candidate is checked after a replay. A compiled candidate is checked as the module that it compiles.

    Args:
        candidate: the candidate.
        right: the exact outputs and gradients.
        batch: the batch that they are of.
        precision: the float32 matmul precision that was allowed.

    Raises:
        UserError: if an error exceeds :data:`BOUNDS`, or :data:`BATCH_NORM_BOUNDS` for PyG's batch norm.
    """
    targets = torch.zeros(batch.num_graphs, 1, device=batch.x.device)
    batch = GraphBatch(batch.x, batch.ptr, batch.rowptr, batch.col, targets, leaves_merged=batch.leaves_merged)
    module, inputs = candidate.module, candidate.convert(batch)

    def outputs() -> Tensor:
        with torch.no_grad():
            return module(inputs)

    def loss() -> Tensor:
        module.zero_grad()
        fused = candidate.name.startswith("fused")
        value = candidate.loss(inputs, targets) if fused else F.mse_loss(module(inputs), targets)
        value.backward()
        return value.detach()  # no part of the autograd graph may survive until a capture

    batch_norm = any(isinstance(one, nn.BatchNorm1d) for one in module.modules())
    expected, gradients = right
    module.train(batch_norm)
    output_error = error(_after_replay(candidate, outputs), expected)
    module.train()
    output_error = max(output_error, error(_after_replay(candidate, loss), expected.square().mean()))
    parameters = {name.removeprefix("model."): parameter for name, parameter in module.named_parameters()}
    gradient_error = max(error(parameters[name].grad, gradient) for name, gradient in gradients.items())
    theirs = not candidate.name.startswith("fused") and batch_norm and precision == "highest"
    output_bound, gradient_bound = BATCH_NORM_BOUNDS if theirs else BOUNDS[precision]
    if not (output_error <= output_bound and gradient_error <= gradient_bound):
        raise UserError(
            f"{candidate.name} is wrong: relative error {output_error:.1e} of outputs, {gradient_error:.1e} of gradients against float64."
        )


def _after_replay(candidate: Candidate, call: Callable[[], Tensor]) -> Tensor:
    """Return the result of a call, or of its replay for a captured candidate; gradients are left in the parameters."""
    outputs: list[Tensor] = []

    def run() -> None:
        outputs[:] = [call()]

    run()
    if candidate.name in CAPTURED:
        replay = candidate.prepare(run)
        for tensor in (outputs[0], *(parameter.grad for parameter in candidate.module.parameters())):
            if tensor is not None:
                tensor.fill_(float("nan"))
        replay()
    return outputs[0]
