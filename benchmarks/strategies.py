"""Compare the fused operator's strategies on a GPU: `python benchmarks/strategies.py --qm9 FOLDER --zinc FOLDER`.

The folders hold packed sets.
"""

import argparse
from pathlib import Path

import torch

from molgcn.data import PackedMolecules
from molgcn_benchmark.machine import machine
from molgcn_benchmark.results import write_markdown
from molgcn_benchmark.strategies import Work, measure, table

ZINC12K = {"norm": "batch", "residual": True, "last_activation": True, "add_self_loops": False}
WORK = (
    Work("ZINC", 128, 172, 16, ZINC12K, pyg=True),
    Work("ZINC", 4096, 172, 16, ZINC12K),
    Work("QM9", 4096, 32, 12, {"norm": "batch"}, pyg=True),
    Work("QM9", 128, 32, 12, {"norm": "batch"}),
    Work("QM9", 4096, 32, 12),
    Work("QM9", 4096, 32, 28),
    Work("QM9", 128, 32, 28),
    Work("ZINC", 128, 172, 16),
    Work("ZINC", 1024, 512, 8, {"norm": "layer"}),
    Work("ZINC", 1024, 640, 8, {"norm": "layer"}),
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--qm9", type=Path, help="a packed set (default: built-in molecules)")
    parser.add_argument("--zinc", type=Path, help="a packed set (default: built-in molecules)")
    parser.add_argument("--repeats", type=int, default=30)
    parser.add_argument("--output", type=Path, default=Path("benchmarks/results/strategies.md"))
    arguments = parser.parse_args()
    device = torch.device("cuda")
    rows = []
    for work in WORK:
        rows.append(measure(work, read(arguments.zinc if work.name == "ZINC" else arguments.qm9), device, arguments.repeats))
        about = f"Forward and backward, microseconds, medians of {arguments.repeats} interleaved repeats."
        text = write_markdown(arguments.output, "Strategies", machine(device), [about, "", *table(rows)])
        torch.compiler.reset()
    print(text)


def read(folder: Path | None) -> PackedMolecules:
    """Return the packed set of a folder, or the built-in molecules if there is no folder."""
    if folder is not None:
        return PackedMolecules.load(folder)
    from molgcn.data.config import DatasetConfig
    from molgcn.data.load import load_molecules

    return load_molecules(DatasetConfig())[0]


if __name__ == "__main__":
    main()
