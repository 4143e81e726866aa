"""Time training epochs with and without `trainer.deterministic=true`, in turn: `python benchmarks/deterministic.py`."""

import argparse
import statistics
from pathlib import Path

import torch

from molgcn_benchmark.epochs import KEY, measure
from molgcn_benchmark.machine import machine
from molgcn_benchmark.results import Table, write_markdown

PLAIN = {"hidden_channels": 32, "num_layers": 28, "norm": None, "residual": False, "last_activation": False, "head_layers": 0}
DEFAULT = {"hidden_channels": 64, "num_layers": 6, "norm": "batch", "last_activation": True, "head_layers": 1}
WORK = [("L = 28, H = 32", PLAIN, 1024), ("L = 28, H = 32", PLAIN, 128), ("L = 6, H = 64, batch norm", DEFAULT, 128)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--output", type=Path, help="default benchmarks/results/deterministic_DEVICE.md")
    arguments = parser.parse_args()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    output = arguments.output or Path(f"benchmarks/results/deterministic_{device.type}.md")
    lines = [
        f"Epochs of the built-in molecules through the Trainer, backend=fused; medians of {arguments.rounds} rounds by turns, each the "
        f"median of {arguments.epochs} epochs after 1.",
        "",
        "| network | B | epoch, ms | with trainer.deterministic=true | times | kernels per step | with it |",
        "|---|---:|---:|---:|---:|---:|---:|",
    ]
    for title, model, batch_size in WORK:
        dataset = {"name": "builtin", "targets": ["logp"], "batch_size": batch_size}
        times: dict[bool, list[float]] = {False: [], True: []}
        kernels = {}
        for _ in range(arguments.rounds):
            for deterministic in times:
                variant = {"dataset": dataset, "model": model, "trainer": {"deterministic": deterministic}}
                (row,) = measure([variant], [("fused", "packed")], "builtin", Table(None, KEY), arguments.epochs)
                times[deterministic].append(row["epoch_ms"])
                kernels[deterministic] = row["kernel_launches"] or ""
        free, same = (statistics.median(values) for values in times.values())
        lines.append(f"| {title} | {batch_size:,} | {free:.1f} | {same:.1f} | {same / free:.2f} | {kernels[False]} | {kernels[True]} |")
        print(lines[-1], flush=True)
    write_markdown(output, "Deterministic training", machine(device), lines)


if __name__ == "__main__":
    main()
