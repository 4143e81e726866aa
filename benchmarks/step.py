"""Compare steps of the fused operator with PyG's: `python benchmarks/step.py --device cpu --smiles qm9_smiles_133k.csv`."""

import argparse
import sys
from pathlib import Path

import torch

from molgcn.data import PackedMolecules
from molgcn.errors import UserError
from molgcn_benchmark.candidates import CANDIDATES, CAPTURED
from molgcn_benchmark.machine import machine
from molgcn_benchmark.results import SAME, Table, check_machine, write_json
from molgcn_benchmark.steps import BOUNDS, KEY, WORKS, Grid, measure

PRECISION = "float32_matmul_precision"  # name of a fact of the machine


def read(smiles: Path | None, largest: int) -> PackedMolecules:
    """Return as many molecules as the largest batch has, spread over the file, or the built-in set if there is no file."""
    if smiles is None:
        from molgcn.data.config import DatasetConfig
        from molgcn.data.load import load_molecules

        return load_molecules(DatasetConfig())[0]
    lines = [line.split(",")[0] for line in smiles.read_text().splitlines()[1:]]
    step = max(1, len(lines) * 9 // 10 // largest)  # leaves room for SMILES that do not parse
    return PackedMolecules.from_smiles(lines[::step], on_error="skip")[:largest]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument(
        "--smiles", type=Path, help="a CSV file whose first column holds SMILES, below a header (default: built-in molecules)"
    )
    parser.add_argument("--packed", type=Path, help="a folder that PackedMolecules.save wrote, instead of --smiles")
    parser.add_argument("--layers", type=int, nargs="+", default=[4, 12, 28])
    parser.add_argument("--batch-sizes", type=int, nargs="+", default=[128, 512, 4096])
    parser.add_argument("--hidden", type=int, default=32)
    parser.add_argument("--norm", choices=("batch", "layer"))
    parser.add_argument("--precision", choices=tuple(BOUNDS), default="highest", help="float32 matmul precision of all candidates, on CUDA")
    parser.add_argument("--candidates", nargs="+", choices=CANDIDATES, default=None, help="fused is always among them")
    parser.add_argument("--works", nargs="+", choices=WORKS, default=list(WORKS))
    parser.add_argument("--repeats", type=int, default=15)
    parser.add_argument("--output", type=Path, help="rows that it has are not measured again (default: benchmarks/results/step_DEVICE.csv)")
    arguments = parser.parse_args()
    device, precision = arguments.device, arguments.precision
    if device == "cpu" and precision != "highest":
        parser.error(f"--precision {precision} is for --device cuda: on a CPU the fused operator computes in float32 whatever is allowed")
    output = arguments.output or Path(f"benchmarks/results/step_{device}{'' if precision == 'highest' else f'_{precision}'}.csv")
    json_path = output.with_suffix(".json")
    every = [name for name in CANDIDATES if name not in CAPTURED or device == "cuda"]
    candidates = ("fused", *(name for name in arguments.candidates or every if name != "fused"))
    sizes = tuple(arguments.layers), tuple(arguments.batch_sizes), arguments.hidden, arguments.norm
    grid = Grid(device, *sizes, candidates, tuple(arguments.works), arguments.repeats, precision=precision)
    source = arguments.packed or arguments.smiles
    try:
        facts = machine(torch.device(device)) | {PRECISION: precision}
        check_machine(json_path, facts, str(output), "Give another file with --output.", same=(*SAME, PRECISION))
        table = Table(output, KEY)
        molecules = PackedMolecules.load(source) if arguments.packed else read(arguments.smiles, max(grid.batch_sizes))
        facts["molecules"] = len(molecules)
        dataset = source.stem if source else "builtin"
        for row in measure(molecules, dataset, grid, table, float(facts.get("fma_peak_gflops", 0))):
            write_json(json_path, facts, {"rows": table.rows})
            times = ", ".join(f"{name} {row[f'{name}_ms']:.2f}" for name in candidates if f"{name}_ms" in row)
            peak = f", {row['peak']:.0%} of peak" if row["peak"] else ""
            print(
                f"{row['work']} L={row['num_layers']} B={row['batch_size']}: {times} ms; {row['against_pyg']}x PyG, "
                f"{row['against_best']}x best; {row['gflops']} GFLOP/s{peak}",
                flush=True,
            )
    except UserError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
