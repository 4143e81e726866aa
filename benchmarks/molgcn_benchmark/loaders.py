"""Time how batches are made by PyG's DataLoader and by the packed loader, on the CPU and on a GPU from its own and the host's memory."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any

import torch

from molgcn.data import PackedMolecules
from molgcn.data.loader import PackedLoader
from molgcn.data.packed_arrays import ARRAYS
from molgcn_benchmark.measure import interleaved, medians
from molgcn_benchmark.results import Row, Table

BATCH_SIZES = (4096, 128)
KEY = ("dataset", "device", "loader", "batch_size")
Case = tuple[str, int, Callable[[], float]]  # name, batch size, and the function that measures microseconds per batch


def measure(
    molecules: PackedMolecules,
    dataset: str,
    device: torch.device,
    table: Table,
    workers: Iterable[int] = (0,),
    batch_sizes: Sequence[int] = BATCH_SIZES,
    epochs: int = 9,
) -> Iterator[Row]:
    """Measure the rows that `table` lacks, add each to it and yield it.

    A row has `microseconds` (per batch) and `molecules_per_second`.

    Args:
        molecules: the set; PyG's loader reads its first 32,768 molecules.
        dataset: name of the molecules.
        device: cpu, or cuda to measure the GPU's rows too.
        table: table with the key columns :data:`KEY`.
        workers: numbers of PyG's worker processes; 0 is the main process.
        batch_sizes: numbers of molecules per batch.
        epochs: number of epochs that the packed loaders read, whose median counts. PyG's loader reads one after a warm-up epoch.
    """
    kinds = [_pyg_cases(molecules, workers, batch_sizes), _cpu_cases(molecules, batch_sizes, epochs)]
    if device.type == "cuda":
        kinds.append(_cuda_cases(molecules, batch_sizes, epochs))
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        for what, size, microseconds in (case for kind in kinds for case in kind):
            key = dict(zip(KEY, (dataset, device.type, what, size), strict=True))
            if table.find(**key) is None:
                spent = microseconds()
                rate = None if "added" in what else round(size / spent * 1e6)
                yield table.add({**key, "microseconds": round(spent, 1), "molecules_per_second": rate})
    finally:
        torch.set_num_threads(threads)


def read_microseconds(batches: Iterable[Any], batch_size: int, epochs: int) -> float:
    """Return the microseconds of reading `batch_size` molecules and nothing else, the median over epochs after a warm-up epoch."""
    counts = []
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    times = interleaved({"read": lambda: counts.append(sum(batch.num_graphs for batch in batches))}, device, epochs, warm_up=1)
    return medians(times)["read"] * 1e3 / counts[0] * batch_size


def _pyg_cases(molecules: PackedMolecules, workers: Iterable[int], batch_sizes: Iterable[int]) -> Iterator[Case]:
    """Yield the cases of PyG's DataLoader over a list of `Data`."""
    from torch_geometric.loader import DataLoader

    data: list[Any] = []

    def read(size: int, number: int) -> float:
        if not data:
            data.extend(molecules[:32_768].to_pyg())
        loader = DataLoader(data, batch_size=size, shuffle=True, num_workers=number, persistent_workers=number > 0)
        return read_microseconds(loader, size, 1)

    for size in batch_sizes:
        for number in workers:
            where = f"{number} workers" if number else "main process"
            yield f"PyG DataLoader, {where}", size, partial(read, size, number)


def _cpu_cases(molecules: PackedMolecules, batch_sizes: Iterable[int], epochs: int) -> Iterator[Case]:
    """Yield the cases of the packed loader on the CPU, with one thread that gathers."""
    for size in batch_sizes:
        yield "packed, CPU, 1 thread", size, partial(_read_packed, molecules, size, epochs)


def _cuda_cases(molecules: PackedMolecules, batch_sizes: Iterable[int], epochs: int, num_threads: int = 8) -> Iterator[Case]:
    """Yield the cases of the packed loader on the current GPU: one fill, whole epochs, and the time that a batch adds to a step."""
    for size in batch_sizes:
        resident = PackedLoader(molecules, size, device="cuda", resident=True)
        yield "packed, GPU resident, one fill", size, partial(_fill_microseconds, resident)
        yield "packed, GPU resident, reading alone", size, partial(read_microseconds, resident, size, epochs)
        yield "packed, GPU resident, added to a step of 0.2 ms", size, partial(_added_microseconds, resident)
        host = {"device": "cuda", "resident": False, "num_threads": num_threads}
        yield f"packed, host memory, {num_threads} threads", size, partial(_read_packed, molecules, size, epochs, **host)


def _read_packed(molecules: PackedMolecules, size: int, epochs: int, **options: Any) -> float:
    return read_microseconds(PackedLoader(molecules, size, **options), size, epochs)


def _fill_microseconds(loader: PackedLoader, repeats: int = 20) -> float:
    """Return the device time of one fill in microseconds, from events around fills of different batches back to back."""
    feed: Any = loader._feed
    for _ in loader:  # uploads a plan
        pass
    full, times = max(len(loader) - 1, 1), []
    for _ in range(repeats):
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        torch.cuda._sleep(2_000_000)  # the host enqueues all launches while the device waits
        start.record()
        for i in range(16):
            feed.fill(i % full)
        end.record()
        end.synchronize()
        times.append(start.elapsed_time(end) / 16 * 1e3)
    return statistics.median(times)


def _added_microseconds(loader: PackedLoader, repeats: int = 15) -> float:
    """Return the microseconds that a fresh batch adds to a captured step, which keeps every multiprocessor busy for 0.2 ms."""
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

    times = medians(interleaved({"fresh": fresh, "same": same}, work.device, repeats))
    return (times["fresh"] - times["same"]) / len(loader) * 1e3


def _products(work: torch.Tensor) -> int:
    """Return the number of matrix products that take 0.2 ms together."""
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    start.record()
    for _ in range(20):
        work @ work
    end.record()
    end.synchronize()
    return max(1, round(0.2 * 20 / start.elapsed_time(end)))


def memory_lines(molecules: PackedMolecules) -> list[str]:
    """Return lines with the bytes per molecule of the packed set and of a pair of slots."""
    arrays = (getattr(molecules, array.name) for array in ARRAYS if array.seen)
    packed = sum(array.nbytes for array in arrays if array is not None) / len(molecules)
    lines = [f"The packed set takes {packed:.0f} bytes per molecule."]
    for size in BATCH_SIZES:
        feed: Any = PackedLoader(molecules, size)._feed
        pair = sum(slot.nbytes for slot in feed.slots)
        lines.append(
            f"A pair of slots for {size:,} molecules takes {pair / 2**20:.1f} MiB, {pair / 2 / size:.0f} bytes per molecule and slot."
        )
    return lines
