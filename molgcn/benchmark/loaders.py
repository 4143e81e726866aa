"""How fast batches are made: PyG's DataLoader, the packed loader on the CPU, on a GPU from its own and from the host's memory."""

from __future__ import annotations

import statistics
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch

from molgcn.benchmark.measure import interleaved, medians
from molgcn.data import PackedMolecules
from molgcn.data.loader import PackedLoader

BATCH_SIZES = (4096, 128)
DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")


@dataclass(frozen=True)
class Row:
    """One line of the table.

    Attributes:
        what: was measured.
        batch_size: molecules a batch.
        microseconds: a batch, median over epochs.
    """

    what: str
    batch_size: int
    microseconds: float

    @property
    def rate(self) -> float:
        """Molecules a second."""
        return self.batch_size / self.microseconds * 1e6


def microseconds(batches: Iterable[Any], batch_size: int, epochs: int) -> float:
    """Of reading alone, for `batch_size` molecules; median over epochs after one to warm up."""
    counts = []
    times = interleaved({"read": lambda: counts.append(sum(batch.num_graphs for batch in batches))}, DEVICE, epochs, warm_up=1)
    return medians(times)["read"] * 1e3 / counts[0] * batch_size


def pyg_rows(molecules: PackedMolecules, workers: Iterable[int]) -> list[Row]:
    """PyG's DataLoader over a list of `Data`, with these numbers of workers; 0 is the main process."""
    from torch_geometric.loader import DataLoader

    data, rows = molecules[: 8 * BATCH_SIZES[0]].to_pyg(), []
    for batch_size in BATCH_SIZES:
        for number in workers:
            loader = DataLoader(data, batch_size=batch_size, shuffle=True, num_workers=number, persistent_workers=number > 0)
            where = f"{number} workers" if number else "main process"
            rows.append(Row(f"PyG DataLoader, {where}", batch_size, microseconds(loader, batch_size, 1)))
    return rows


def cpu_rows(molecules: PackedMolecules, epochs: int = 9) -> list[Row]:
    """The packed loader on the CPU, one thread gathering."""
    return [Row("packed, CPU, 1 thread", size, microseconds(PackedLoader(molecules, size), size, epochs)) for size in BATCH_SIZES]


def cuda_rows(molecules: PackedMolecules, num_threads: int = 8, epochs: int = 9) -> list[Row]:
    """The packed loader on the current GPU: one fill, whole epochs, and what a step pays for its batch."""
    rows = []
    for size in BATCH_SIZES:
        resident = PackedLoader(molecules, size, device="cuda", resident=True)
        rows.append(Row("packed, GPU resident, one fill", size, _fill_microseconds(resident)))
        rows.append(Row("packed, GPU resident, reading alone", size, microseconds(resident, size, epochs)))
        rows.append(Row("packed, GPU resident, added to a step of 0.2 ms", size, _added_microseconds(resident)))
        host = PackedLoader(molecules, size, device="cuda", resident=False, num_threads=num_threads)
        rows.append(Row(f"packed, host memory, {num_threads} threads", size, microseconds(host, size, epochs)))
    return rows


def _fill_microseconds(loader: PackedLoader, repeats: int = 20) -> float:
    """Device time of one fill: fills of different batches back to back, timed by events."""
    feed: Any = loader._feed
    for _ in loader:  # uploads a plan
        pass
    plan, times = loader.plan(loader.sampler.epoch), []
    full = max(len(plan) - 1, 1)
    with torch.cuda.stream(feed.stream):
        for _ in range(repeats):
            start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            torch.cuda._sleep(2_000_000)  # the host enqueues all launches while the device waits
            start.record()
            for i in range(16):
                feed.fill(plan, i % full, feed.slots[i % full % 2])
            end.record()
            end.synchronize()
            times.append(start.elapsed_time(end) / 16 * 1e3)
    return statistics.median(times)


def _added_microseconds(loader: PackedLoader, repeats: int = 15) -> float:
    """How much longer a captured step of 0.2 ms on every multiprocessor takes when each has a fresh batch."""
    work = torch.randn(1536, 1536, device="cuda")
    graph = torch.cuda.CUDAGraph()
    products = _products(work)
    with torch.cuda.graph(graph):
        for _ in range(products):
            work @ work

    def fresh() -> None:
        for _ in loader:
            graph.replay()

    def same() -> None:
        for _ in range(len(loader)):
            graph.replay()

    times = medians(interleaved({"fresh": fresh, "same": same}, DEVICE, repeats))
    return (times["fresh"] - times["same"]) / len(loader) * 1e3


def _products(work: torch.Tensor) -> int:
    """Matrix products that take 0.2 ms."""
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    start.record()
    for _ in range(20):
        work @ work
    end.record()
    end.synchronize()
    return max(1, round(0.2 * 20 / start.elapsed_time(end)))


def memory_lines(molecules: PackedMolecules) -> list[str]:
    """Bytes a molecule of the packed set, and of a pair of slots."""
    arrays = (
        molecules.node_ptr,
        molecules.edge_ptr,
        molecules.degree,
        molecules.neighbors,
        molecules.x,
        molecules.table,
        molecules.targets,
    )
    packed = sum(array.nbytes for array in arrays if array is not None) / len(molecules)
    lines = [f"The packed set takes {packed:.0f} bytes a molecule."]
    for size in BATCH_SIZES:
        feed: Any = PackedLoader(molecules, size)._feed
        pair = sum(slot.nbytes for slot in feed.slots)
        lines.append(
            f"A pair of slots for {size:,} molecules takes {pair / 2**20:.1f} MiB, {pair / 2 / size:.0f} bytes a molecule and slot."
        )
    return lines
