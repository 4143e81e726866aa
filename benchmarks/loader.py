"""Time the loaders: `python benchmarks/loader.py --packed FOLDER --output benchmarks/results/loader_MACHINE.md`."""

import argparse
from pathlib import Path

import torch

from molgcn.data import PackedMolecules
from molgcn_benchmark.loaders import KEY, measure, memory_lines
from molgcn_benchmark.machine import machine
from molgcn_benchmark.report import loaders_sheet, markdown
from molgcn_benchmark.results import Table, write_markdown


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
    parser.add_argument("--output", type=Path, help="a Markdown file; rows in the CSV file beside it are not measured again")
    arguments = parser.parse_args()
    molecules = read(arguments)
    dataset = next((path.stem for path in (arguments.packed, arguments.smiles) if path), "builtin")
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    table = Table(arguments.output and arguments.output.with_suffix(".csv"), KEY)
    for row in measure(molecules, dataset, device, table, arguments.workers):
        print(f"{row['loader']}, B={row['batch_size']}: {row['microseconds']} us per batch", flush=True)
    lines = [
        f"{len(molecules):,} molecules, {molecules.num_nodes / len(molecules):.1f} atoms and "
        f"{molecules.num_edges / len(molecules):.1f} directed bonds each, {molecules.num_features} features; shuffled.",
        *memory_lines(molecules),
        "",
        *markdown(loaders_sheet(table.rows)),
    ]
    print(write_markdown(arguments.output, "Loaders", machine(device), lines))


if __name__ == "__main__":
    main()
