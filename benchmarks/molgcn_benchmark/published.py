"""The protocol of the SmallGraphGCN study, and the speed-ups that it reports.

There are 20 warm-up iterations and 50 timed ones, and the median of three repeats counts. Every iteration starts with the batch in the
host's memory, so that moving it is timed too. Here every repeat times both sides in turn.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator

import torch

from molgcn.data import GraphBatch, PackedMolecules
from molgcn_benchmark.batches import random_batch
from molgcn_benchmark.candidates import Candidate, build
from molgcn_benchmark.measure import synchronize
from molgcn_benchmark.results import Row, Table
from molgcn_benchmark.steps import Grid, check
from molgcn_benchmark.weights import exact, steady_model

KEY = ("dataset", "device", "num_layers", "batch_size", "hidden_channels", "norm")
WORKS = ("forward", "backward", "training")
# Reported speed-ups over PyG on an RTX 4070: lowest and highest of the nine configurations, and the one at B = 4,096, L = 28.
STUDY = {
    "qm9": {"forward": (2.36, 3.13, 3.13), "backward": (0.65, 0.71, 0.69), "training": (1.06, 1.30, 1.30)},
    "zinc": {"forward": (2.31, 2.73, 2.73), "backward": (0.65, 0.68, 0.67), "training": (1.05, 1.17, 1.17)},
}
_CANDIDATES = ("fused", "pyg")


def study_factor(dataset: str, work: str, num_layers: int, batch_size: int) -> str:
    """Return the speed-up that the study reports: a number if it is known for this configuration, else the range over its grid.

    The text is empty outside of the grid. Molecules that are not ZINC's are compared with QM9's.

    Args:
        dataset: the name of the set.
        work: the kind of work.
        num_layers: the number of layers.
        batch_size: the number of molecules in a batch.
    """
    low, high, best = STUDY["zinc" if "zinc" in dataset.lower() else "qm9"][work]
    if num_layers not in (12, 20, 28) or batch_size not in (4096, 8192, 16384):
        return ""
    return f"{best:.2f}" if (num_layers, batch_size) == (28, 4096) else f"{low:.2f}-{high:.2f}"


def measure(
    molecules: PackedMolecules, dataset: str, grid: Grid, table: Table, warm_up: int = 20, iterations: int = 50, repeats: int = 3
) -> Iterator[Row]:
    """Measure the rows of the grid that `table` lacks, add each to it and yield it.

    A row has `<work>_fused_ms`, `<work>_pyg_ms` and `<work>_factor` for forward, backward and training, which is both.

    Args:
        molecules: the set from which the batches are drawn, see :func:`~molgcn_benchmark.batches.random_batch`.
        dataset: name of the molecules.
        grid: depths, batch sizes, width and norm.
        table: table with the key columns :data:`KEY`.
        warm_up: number of iterations before the timed ones.
        iterations: number of timed iterations of a repeat, whose mean is the repeat's time.
        repeats: number of repeats, whose median counts.

    Raises:
        UserError: for a side whose results are wrong.
    """
    device = torch.device(grid.device)
    for num_layers in grid.num_layers:
        for batch_size in grid.batch_sizes:
            key = dict(zip(KEY, (dataset, grid.device, num_layers, batch_size, grid.hidden_channels, grid.norm), strict=True))
            if table.find(**key) is not None:
                continue
            checked = random_batch(molecules, min(batch_size, 128), device)
            model = steady_model(molecules.num_features, grid.hidden_channels, num_layers, grid.norm, checked)
            candidates = [build(name, model, device) for name in _CANDIDATES]
            batch = random_batch(molecules, batch_size)
            sides, right = [], exact(model, checked)
            for candidate in candidates:
                check(candidate, right, checked)
                sides.append(_Side(candidate, batch, device))
            times: dict[str, list[tuple[float, float]]] = {name: [] for name in _CANDIDATES}
            for _ in range(repeats):
                for side in sides:
                    times[side.candidate.name].append(side.repeat(warm_up, iterations))
            yield table.add({**key, **_figures(times)})


class _Side:
    """A candidate, with its batch in the host's memory."""

    def __init__(self, candidate: Candidate, batch: GraphBatch, device: torch.device) -> None:
        self.candidate, self.device = candidate, device
        self.inputs = candidate.convert(batch)
        self.optimized = list(candidate.module.parameters())

    def repeat(self, warm_up: int, iterations: int) -> tuple[float, float]:
        """Return the mean milliseconds of the forward pass, data movement included, and of the backward pass."""
        forward = backward = 0.0
        for iteration in range(warm_up + iterations):
            for parameter in self.optimized:
                parameter.grad = None
            synchronize(self.device)
            start = time.perf_counter()
            loss = self.candidate.model(self.inputs.to(self.device)).square().mean()
            synchronize(self.device)
            middle = time.perf_counter()
            loss.backward()
            synchronize(self.device)
            if iteration >= warm_up:
                forward += middle - start
                backward += time.perf_counter() - middle
        return forward / iterations * 1e3, backward / iterations * 1e3


def _figures(times: dict[str, list[tuple[float, float]]]) -> Row:
    row: Row = {}
    for index, work in enumerate(WORKS):
        found = {name: statistics.median(sum(one) if work == "training" else one[index] for one in both) for name, both in times.items()}
        row |= {f"{work}_{name}_ms": round(value, 4) for name, value in found.items()}
        row[f"{work}_factor"] = round(found["pyg"] / found["fused"], 4)
    return row
