"""Measure time, accuracy and storage of the random-walk encodings: `python benchmarks/encodings.py --packed FOLDER ...`."""

import argparse
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from torch_geometric.data import Data
from torch_geometric.transforms import AddRandomWalkPE

from molgcn.data import PackedMolecules
from molgcn.data.encodings import batch_encodings
from molgcn.data.layout import set_encodings, with_encodings
from molgcn.data.loader import PackedLoader
from molgcn_benchmark.machine import machine
from molgcn_benchmark.results import write_markdown

STEPS = (20, 32)
COMPARED = 1000  # number of molecules that are encoded by PyG and in float64
BATCH_SIZE = 512
REPEATS = 7


def cpu_microseconds(call: Callable[[], object], molecules: int) -> float:
    """Return the microseconds of all cores together per molecule, the least of several repeats, since other work only adds time."""
    spent = []
    for _ in range(REPEATS):
        start = time.process_time()
        call()
        spent.append(time.process_time() - start)
    return min(spent) * 1e6 / molecules


def encoding_times(molecules: PackedMolecules, steps: int) -> list[float]:
    """Return the microseconds per molecule of four ways to encode.

    They are both encodings, the atoms' encoding, the atoms' encoding without the extension, and the atoms' encoding by PyG.
    """
    few = molecules[:COMPARED]
    data = [Data(num_nodes=item.num_nodes, edge_index=item.edge_index) for item in few.to_pyg()]
    transform = AddRandomWalkPE(steps)
    return [
        cpu_microseconds(lambda: set_encodings(molecules, steps, steps), len(molecules)),
        cpu_microseconds(lambda: set_encodings(molecules, steps, 0), len(molecules)),
        cpu_microseconds(lambda: set_encodings(few, steps, steps, use_extension=False), len(few)),
        cpu_microseconds(lambda: [transform(item.clone()) for item in data], len(few)),
    ]


def distinct(rows: np.ndarray) -> float:
    """Return the distinct rows as a share of all."""
    return len(np.unique(rows.view(np.dtype((np.void, rows.shape[1] * rows.itemsize))))) / len(rows)


def storage(molecules: PackedMolecules, steps: int) -> list[str]:
    """Return the share of distinct rows, the bytes per molecule in each form, and the largest errors of float32 and float16."""
    atoms, bonds = set_encodings(molecules, steps, steps)
    shares = [distinct(rows) for rows in (atoms, bonds)]
    halves = [distinct(rows.astype(np.float16)) for rows in (atoms, bonds)]
    plain = (atoms.nbytes + bonds.nbytes) / len(molecules)
    coded = sum(len(rows) * (4 + share * 4 * steps) for rows, share in zip((atoms, bonds), shares, strict=True)) / len(molecules)
    few = molecules[:COMPARED].batch(slice(None))
    pairs = [*zip(batch_encodings(few, steps, steps), batch_encodings(few.double(), steps, steps), strict=True)]
    error = max(float((single.double() - double).abs().max()) for single, double in pairs)
    rounding = max(float(np.abs(rows - rows.astype(np.float16)).max()) for rows in (atoms, bonds))
    shown = [f"{shares[0]:.0%}", f"{shares[1]:.0%}", f"{halves[0]:.0%}", f"{halves[1]:.0%}"]
    return [*shown, f"{plain:,.0f}", f"{plain / 2:,.0f}", f"{coded:,.0f}", f"{error:.1e}", f"{rounding:.1e}"]


def gathering_times(molecules: PackedMolecules) -> list[float]:
    """Return the microseconds per molecule that the loader's thread takes without encodings, and with them."""
    times = []
    for steps in (0, *STEPS):
        loader = PackedLoader(with_encodings(molecules, steps, steps), BATCH_SIZE)
        times.append(cpu_microseconds(lambda loader=loader: sum(batch.num_graphs for batch in loader), len(molecules)))  # type: ignore[misc]
    return times


def report(sets: dict[str, PackedMolecules]) -> list[str]:
    """Return the lines of the report, which :func:`main` heads."""
    lines = []
    for name, molecules in sets.items():
        sizes = f"{molecules.num_nodes / len(molecules):.1f} atoms and {molecules.num_edges / len(molecules):.1f} directed bonds"
        lines.append(f"- {name}: {len(molecules):,} molecules of {sizes}")
    lines += ["", "Microseconds of one core for a molecule.", ""]
    lines += ["| set | steps | both | rwse | both, without the extension | rwse, PyG |", "|---|---:|---:|---:|---:|---:|"]
    for name, molecules in sets.items():
        for steps in STEPS:
            lines.append(f"| {name} | {steps} | {' | '.join(f'{spent:.1f}' for spent in encoding_times(molecules, steps))} |")
            print(lines[-1], flush=True)
    lines += ["", "Distinct rows as a share of all, bytes per molecule, largest absolute errors.", ""]
    columns = [
        "distinct, atoms",
        "bonds",
        "in float16, atoms",
        "bonds",
        "float32",
        "float16",
        "codes and table",
        "float32's error",
        "float16's",
    ]
    lines += [f"| set | steps | {' | '.join(columns)} |", f"|---|---:|{'---:|' * len(columns)}"]
    for name, molecules in sets.items():
        for steps in STEPS:
            lines.append(f"| {name} | {steps} | {' | '.join(storage(molecules, steps))} |")
            print(lines[-1], flush=True)
    lines += ["", f"Microseconds of one core to plan and gather a molecule, batches of {BATCH_SIZE}, float32.", ""]
    lines += [f"| set | without | {' | '.join(f'{steps} steps' for steps in STEPS)} |", "|---|---:|---:|---:|"]
    for name, molecules in sets.items():
        lines.append(f"| {name} | {' | '.join(f'{spent:.2f}' for spent in gathering_times(molecules))} |")
        print(lines[-1], flush=True)
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--packed", type=Path, nargs="*", default=[], help="folders that PackedMolecules.save wrote; default: built-in")
    parser.add_argument("--output", type=Path, default=Path("benchmarks/results/encodings.md"))
    arguments = parser.parse_args()
    sets = {path.name: PackedMolecules.load(path) for path in arguments.packed}
    if not sets:
        from molgcn.data.config import DatasetConfig
        from molgcn.data.load import load_molecules

        sets = {"built-in": load_molecules(DatasetConfig())[0]}
    torch.set_num_threads(1)
    write_markdown(arguments.output, "Encodings of random walks", machine(torch.device("cpu")), report(sets))


if __name__ == "__main__":
    main()
