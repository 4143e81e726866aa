"""Measure the memory of forward and backward for each backend in its own process: `python benchmarks/memory.py --packed FOLDER`."""

import argparse
import subprocess
import sys
from pathlib import Path

import torch

from molgcn.data import PackedMolecules
from molgcn.nn import GCN
from molgcn.process.memory import peak_resident_mb, resident_mb, restart_peak
from molgcn_benchmark.batches import random_batch
from molgcn_benchmark.machine import machine
from molgcn_benchmark.results import write_markdown

WORK = [(hidden, layers, norm) for hidden, layers, norm in ((32, 28, None), (32, 12, None), (64, 6, "batch"))]
BACKENDS = ("fused", "pyg")


def growth(backend: str, molecules: PackedMolecules, size: int, hidden: int, layers: int, norm: str | None) -> float:
    """Return the largest growth of this process's memory in MB. A small batch loads libraries and starts threads before."""
    model = GCN(molecules.num_features, hidden, layers, 1, backend=backend, norm=norm)  # type: ignore[arg-type]

    def both(batch: object) -> None:
        model.zero_grad()
        model(batch).square().mean().backward()

    for count in (16, 16):
        small = random_batch(molecules, count)
        both(small.to_pyg() if backend == "pyg" else small)
    batch = random_batch(molecules, size)
    inputs = batch.to_pyg() if backend == "pyg" else batch
    before = resident_mb()
    restart_peak()
    both(inputs)
    return peak_resident_mb() - before


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--packed", type=Path, required=True, help="a folder that PackedMolecules.save wrote")
    parser.add_argument("--batch-size", type=int, default=4096)
    parser.add_argument("--one", nargs=4, metavar=("BACKEND", "HIDDEN", "LAYERS", "NORM"), help="prints one number: what each process does")
    parser.add_argument("--output", type=Path, default=Path("benchmarks/results/memory_cpu.md"))
    arguments = parser.parse_args()
    if arguments.one:
        backend, hidden, layers, norm = arguments.one
        molecules = PackedMolecules.load(arguments.packed)
        print(growth(backend, molecules, arguments.batch_size, int(hidden), int(layers), None if norm == "None" else norm))
        return
    lines = ["Growth of a process's resident set, MB (1e6 bytes).", "", "| H | L | norm | fused | PyG | fused / PyG |"]
    lines += ["|---:|---:|---|---:|---:|---:|"]
    command = [sys.executable, __file__, "--packed", str(arguments.packed), "--batch-size", str(arguments.batch_size), "--one"]
    for work in WORK:
        found = []
        for backend in BACKENDS:
            done = subprocess.run([*command, backend, *map(str, work)], capture_output=True, text=True, check=False)
            if done.returncode != 0:
                sys.exit(done.stderr)
            found.append(float(done.stdout))
        lines.append(f"| {' | '.join(map(str, work))} | {found[0]:,.0f} | {found[1]:,.0f} | {found[0] / found[1]:.3f} |")
        print(lines[-1], flush=True)
    facts = machine(torch.device("cpu")) | {"batch": f"{arguments.batch_size:,} molecules of {arguments.packed.name}"}
    write_markdown(arguments.output, "Memory of forward and backward", facts, lines)


if __name__ == "__main__":
    main()
