"""Molecules a second of the loaders: `python benchmarks/loader.py --packed FOLDER --output benchmarks/results/loader_MACHINE.md`."""

import argparse
from pathlib import Path

import torch

from molgcn.benchmark.loaders import DEVICE, cpu_rows, cuda_rows, memory_lines, pyg_rows
from molgcn.benchmark.machine import machine
from molgcn.data import PackedMolecules


def read(arguments: argparse.Namespace) -> PackedMolecules:
    if arguments.packed:
        return PackedMolecules.load(arguments.packed)
    if arguments.smiles:
        lines = arguments.smiles.read_text().splitlines()[1:]
        return PackedMolecules.from_smiles([line.split(",")[0] for line in lines], features="qm9", on_error="skip")
    from molgcn.data.config import DatasetConfig
    from molgcn.data.load import load_molecules

    return load_molecules(DatasetConfig())[0]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--packed", type=Path, help="a folder written by PackedMolecules.save")
    parser.add_argument(
        "--smiles", type=Path, help="a CSV file whose first column holds SMILES, below a header (default: built-in molecules)"
    )
    parser.add_argument("--workers", type=int, nargs="*", default=[0], help="numbers of PyG's workers; 0 is the main process")
    parser.add_argument("--output", type=Path, help="a Markdown file to write")
    arguments = parser.parse_args()
    molecules = read(arguments)
    torch.set_num_threads(1)
    pyg = pyg_rows(molecules, arguments.workers)
    rows = pyg + cpu_rows(molecules) + (cuda_rows(molecules) if DEVICE.type == "cuda" else [])
    baseline = {row.batch_size: row.rate for row in reversed(pyg)}
    lines = [
        "# Loaders",
        "",
        ", ".join(f"{name} {value}" for name, value in machine(DEVICE).items()) + ".",
        "",
        f"{len(molecules):,} molecules, {molecules.num_nodes / len(molecules):.1f} atoms and "
        f"{molecules.num_edges / len(molecules):.1f} directed bonds each, {molecules.num_features} features; shuffled.",
        *memory_lines(molecules),
        "",
        f"| loader | B | us a batch | molecules/s | against PyG ({pyg[0].what.split(', ')[1]}) |",
        "| --- | ---: | ---: | ---: | ---: |",
        *(
            f"| {row.what} | {row.batch_size:,} | {row.microseconds:,.1f} | "
            + ("| |" if "added" in row.what else f"{row.rate:,.0f} | {row.rate / baseline[row.batch_size]:,.1f} |")
            for row in rows
        ),
    ]
    print("\n".join(lines))
    if arguments.output:
        arguments.output.parent.mkdir(parents=True, exist_ok=True)
        arguments.output.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
