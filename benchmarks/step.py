"""Forward and backward of the fused operator beside PyG's: `python benchmarks/step.py --device cpu --smiles qm9_smiles_133k.csv`."""

import argparse
import sys
from pathlib import Path

from molgcn.benchmark.candidates import CANDIDATES
from molgcn.benchmark.steps import Grid, run
from molgcn.data import PackedMolecules
from molgcn.errors import UserError


def read(smiles: Path | None, largest: int) -> PackedMolecules:
    """As many molecules as the largest batch, spread over the file; the built-in set without one."""
    if smiles is None:
        from molgcn.data.config import DatasetConfig
        from molgcn.data.load import load_molecules

        return load_molecules(DatasetConfig())[0]
    lines = [line.split(",")[0] for line in smiles.read_text().splitlines()[1:]]
    step = max(1, len(lines) * 9 // 10 // largest)  # a few do not parse
    return PackedMolecules.from_smiles(lines[::step], on_error="skip")[:largest]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument(
        "--smiles", type=Path, help="a CSV file whose first column holds SMILES, below a header (default: built-in molecules)"
    )
    parser.add_argument("--layers", type=int, nargs="+", default=[4, 12, 28])
    parser.add_argument("--batch-sizes", type=int, nargs="+", default=[128, 512, 4096])
    parser.add_argument("--hidden", type=int, default=32)
    parser.add_argument("--candidates", nargs="+", choices=CANDIDATES, default=list(CANDIDATES), help="fused is always among them")
    parser.add_argument("--repeats", type=int, default=15)
    parser.add_argument(
        "--output", type=Path, default=Path("benchmarks/results/step_cpu.csv"), help="rows that it has are not measured again"
    )
    arguments = parser.parse_args()
    candidates = ("fused", *(name for name in arguments.candidates if name != "fused"))
    grid = Grid(arguments.device, tuple(arguments.layers), tuple(arguments.batch_sizes), arguments.hidden, candidates, arguments.repeats)
    try:
        rows = run(read(arguments.smiles, max(grid.batch_sizes)), grid, arguments.output)
    except UserError as error:
        sys.exit(str(error))
    for row in rows:
        times = ", ".join(f"{name} {time:.2f}" for name, time in row.milliseconds.items())
        print(
            f"{row.work} L={row.num_layers} B={row.batch_size}: {times} ms; {row.against_pyg}x PyG, {row.against_best}x best; "
            f"{row.gflops} GFLOP/s, {row.peak:.0%} of peak"
        )


if __name__ == "__main__":
    main()
