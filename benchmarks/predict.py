"""Compare predictions of a SMILES file with a PyG script's: `python benchmarks/predict.py --smiles qm9_smiles.csv --output FILE.md`."""

import argparse
import tempfile
from pathlib import Path


def main() -> None:
    import torch
    from rdkit import Chem, rdBase

    from molgcn.resources import resource
    from molgcn_benchmark.machine import machine
    from molgcn_benchmark.results import write_markdown, write_text
    from molgcn_benchmark.screening import BATCH, Shape, screen

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--smiles", type=Path, help="a CSV file whose first column holds SMILES, below a header (default: built-in molecules)"
    )
    parser.add_argument("--molecules", type=int, default=20_000)
    parser.add_argument("--networks", nargs="+", default=["6x64", "28x32", "28x128", "112x32", "28x32x5"], help="layers x width x models")
    parser.add_argument("--output", type=Path, help="a Markdown file to write; to one that exists, rows are added")
    arguments = parser.parse_args()
    lines = (arguments.smiles or resource("data") / "molecules.csv").read_text().splitlines()[1:]
    step = max(1, len(lines) * 9 // 10 // arguments.molecules)
    with rdBase.BlockLogs():
        smiles = [text for text in (line.split(",")[0] for line in lines[::step]) if Chem.MolFromSmiles(text)][: arguments.molecules]
    introduction = [
        f"From CSV to CSV, {BATCH} molecules per batch, as many worker processes as cores on both sides, no norm; the times include the "
        "start of the workers. The PyG script makes `Data` objects in its DataLoader's workers, atom by atom, and runs `GCNConv` as "
        "written; several models (M) are an ensemble, of which mean and deviation are written. Stages by themselves, in microseconds a "
        "molecule: RDKit's `MolFromSmiles` and nothing else, our reading, our featurising and packing (each on one core), the models on "
        "all cores.",
        "",
        "| L | H | M | molecules | PyG, /s | ours, /s | times | RDKit | read | featurise | model | PyG's model | times | difference |",
        "|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|",
    ]
    text = arguments.output.read_text(encoding="utf-8") if arguments.output and arguments.output.exists() else ""
    text = text or write_markdown(arguments.output, "Predicting a file of SMILES", machine(torch.device("cpu")), introduction)
    print(text, end="", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        screen(smiles[:BATCH], Shape(2, 8), Path(folder))  # does the imports of both sides
        for network in arguments.networks:
            row = screen(smiles, Shape(*map(int, network.split("x"))), Path(folder))
            shape = f"{row.shape.num_layers} | {row.shape.hidden_channels} | {row.shape.members}"
            rates = f"{row.molecules:,} | {row.molecules / row.pyg:,.0f} | {row.molecules / row.ours:,.0f} | {row.pyg / row.ours:.1f}"
            parts = f"{row.rdkit:.1f} | {row.parse:.1f} | {row.featurise:.1f} | {row.model:.1f} | {row.pyg_model:.1f}"
            line = f"| {shape} | {rates} | {parts} | {row.pyg_model / row.model:.1f} | {row.difference:.0e} |"
            print(line, flush=True)
            text += f"{line}\n"
            if arguments.output:
                write_text(arguments.output, text)


if __name__ == "__main__":
    main()
