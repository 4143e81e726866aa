"""Kill trainings on two CPU processes a hundred times and resume them: `python benchmarks/kills.py`, about half an hour on two cores."""

import argparse
import sys
import tempfile
from pathlib import Path

import torch

from molgcn_benchmark.kills import BOUND, train_and_kill
from molgcn_benchmark.machine import machine
from molgcn_benchmark.results import write_markdown

HIT = ("first", "second", "both", "only one")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--epochs", type=int, default=300, help="epochs of each training")
    parser.add_argument("--output", type=Path, default=Path("benchmarks/results/kills_cpu.md"))
    arguments = parser.parse_args()
    lines = [
        "Trainings on two CPU processes (gloo) that are killed by SIGKILL at random moments, resumed, and compared with the same training "
        "that nobody killed: weights and optimiser states bit for bit, rows of metrics and of test predictions, files. "
        f"The other process has to end within {BOUND:.0f} s with one message. A quarter of the moments are before training begins.",
        "",
        "| training | steps | kills | of the first process | of the second | of both | of the only one yet | slowest end, s "
        "| processes left | messages | faults |",
        "|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---|",
    ]
    kills = faults = number = 0
    while kills < arguments.kills:
        number += 1
        with tempfile.TemporaryDirectory() as work:
            seen = train_and_kill(Path(work), number, arguments.epochs, arguments.kills - kills)
        counts = [seen.killed.get(name, 0) for name in HIT]
        kills, faults = kills + sum(counts), faults + len(seen.faults)
        cells = [
            number,
            f"{seen.steps:,}",
            sum(counts),
            *counts,
            f"{seen.slowest:.1f}",
            seen.left,
            seen.messages,
            len(seen.faults) or "none",
        ]
        lines.append(f"| {' | '.join(map(str, cells))} |")
        print(lines[-1], *seen.faults, sep="\n", flush=True)
    write_markdown(arguments.output, "Kills of training on two processes", machine(torch.device("cpu")), lines)
    sys.exit(faults > 0)


if __name__ == "__main__":
    main()
