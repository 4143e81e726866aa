"""Time the search for the most similar training molecule beside RDKit: `python benchmarks/nearest.py --smiles qm9_smiles.csv`."""

import argparse
import time
from itertools import islice
from pathlib import Path

import numpy as np
import torch
from rdkit import Chem, DataStructs, rdBase

from molgcn.domain.fingerprints import NearestNeighbour, morgan_fingerprints
from molgcn_benchmark.machine import machine
from molgcn_benchmark.results import write_markdown

REPEATS = 5


def read_smiles(path: Path, number: int) -> list[str]:
    """Return SMILES drawn at random from the first column of a CSV file with a header, without those that RDKit refuses."""
    with path.open() as file:
        smiles = [line.split(",")[0].strip() for line in islice(file, 1, None)]
    with rdBase.BlockLogs():
        good = (smiles[index] for index in np.random.default_rng(0).permutation(len(smiles)) if Chem.MolFromSmiles(smiles[index]))
        return list(islice(good, number))


def times_of_both(known: np.ndarray, queries: np.ndarray) -> tuple[list[float], list[float]]:
    """Return the milliseconds a query by NearestNeighbour and by RDKit, of several repeats in turn, after comparing what they find."""
    search = NearestNeighbour(known)
    vectors = [DataStructs.CreateFromBinaryText(one.tobytes()) for one in known]
    asked = [DataStructs.CreateFromBinaryText(one.tobytes()) for one in queries]
    times: tuple[list[float], list[float]] = [], []
    for _ in range(REPEATS):
        start = time.perf_counter()
        found = search.similarity(queries)
        middle = time.perf_counter()
        expected = [max(DataStructs.BulkTanimotoSimilarity(one, vectors)) for one in asked]
        end = time.perf_counter()
        np.testing.assert_allclose(found, expected, rtol=1e-12)
        times[0].append((middle - start) * 1e3 / len(queries))
        times[1].append((end - middle) * 1e3 / len(queries))
    return times


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--smiles", type=Path, required=True, help="a CSV file whose first column holds SMILES, below a header")
    parser.add_argument("--known", type=int, default=100_000)
    parser.add_argument("--queries", type=int, default=500)
    parser.add_argument("--output", type=Path, default=Path("benchmarks/results/nearest_cpu.md"))
    arguments = parser.parse_args()
    torch.set_num_threads(1)  # neither search uses more, and the report says so
    bits = morgan_fingerprints(read_smiles(arguments.smiles, arguments.known + arguments.queries), num_workers=None)
    known, queries = bits[: arguments.known], bits[arguments.known :]
    ours, rdkit = (float(np.median(times)) for times in times_of_both(known, queries))
    lines = [
        f"{len(queries):,} molecules are compared with {len(known):,}, on one core; medians of {REPEATS} repeats in turn.",
        "",
        "| | a molecule, ms | 10,000 molecules at this rate, s |",
        "|---|---:|---:|",
        f"| `NearestNeighbour` | {ours:.2f} | {ours * 10:.1f} |",
        f"| RDKit's `BulkTanimotoSimilarity` | {rdkit:.2f} | {rdkit * 10:.1f} |",
    ]
    print(write_markdown(arguments.output, "The most similar training molecule", machine(torch.device("cpu")), lines))


if __name__ == "__main__":
    main()
