"""Molecules a second of the loaders: `python benchmarks/loader.py --packed FOLDER --output benchmarks/results/loader_MACHINE.md`."""

import argparse
import datetime
import platform
from pathlib import Path

import torch

from molgcn.benchmark.loaders import cpu_rows, cuda_rows, memory_lines, pyg_rows
from molgcn.data import PackedMolecules


def cpu_name() -> str:
    names = [line.split(":", 1)[1].strip() for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("model name")]
    return f"{names[0]}, {len(names)} cores" if names else platform.processor()


def read(arguments: argparse.Namespace) -> PackedMolecules:
    if arguments.packed:
        return PackedMolecules.load(arguments.packed)
    if arguments.smiles:
        lines = arguments.smiles.read_text().splitlines()[1:]
        return PackedMolecules.from_smiles([line.split(",")[0] for line in lines], features="qm9", on_error="skip")
    from molgcn.data.config import DatasetConfig
    from molgcn.data.load import load_dataset

    return load_dataset(DatasetConfig()).molecules


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
    gpu = torch.cuda.is_available()
    torch.set_num_threads(1)
    pyg = pyg_rows(molecules, arguments.workers)
    rows = pyg + cpu_rows(molecules) + (cuda_rows(molecules) if gpu else [])
    baseline = {row.batch_size: row.rate for row in reversed(pyg)}
    lines = [
        "# Loaders",
        "",
        f"{datetime.date.today()}, {cpu_name()}{', ' + torch.cuda.get_device_name() if gpu else ''}, "
        f"Python {platform.python_version()}, PyTorch {torch.__version__}, PyG {__import__('torch_geometric').__version__}.",
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
