"""Measure memory and time of packing a large CSV over all processes: `python benchmarks/packing.py --smiles qm9_smiles.csv`."""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from itertools import cycle, islice
from pathlib import Path

import numpy as np
import psutil

EVERY = 0.05  # seconds between two measurements


def write_csv(path: Path, source: Path, rows: int) -> None:
    """Write a CSV of `rows` rows with SMILES and a random target; the SMILES repeat the first column of `source`."""
    smiles = [line.split(",")[0] for line in source.read_text().splitlines()[1:]]
    values = np.random.default_rng(0).normal(size=rows)
    lines = (f"{text},{value:.6f}\n" for text, value in zip(islice(cycle(smiles), rows), values.tolist(), strict=True))
    with path.open("w") as file:
        file.write("smiles,y\n")
        file.writelines(lines)


def pack(path: Path, features: str, num_workers: int | None) -> None:
    from molgcn.data.config import DatasetConfig
    from molgcn.data.load import load_molecules

    config = DatasetConfig(
        name="csv", path=str(path), targets=["y"], features=features, on_error="skip", num_workers=num_workers, cache_dir=str(path.parent)
    )
    start = time.perf_counter()
    molecules, _, _ = load_molecules(config)
    seconds = time.perf_counter() - start
    size = sum(file.stat().st_size for file in path.parent.glob("packed/*/*"))
    print(json.dumps({"molecules": len(molecules), "seconds": seconds, "set_mb": size / 1e6}))


def summed_pss(root: psutil.Process) -> float:
    """Return the memory of a process and its children in MB, with shared memory counted once."""
    total = 0
    for process in [root, *root.children(recursive=True)]:
        try:
            total += process.memory_full_info().pss
        except psutil.Error:  # the process has ended
            continue
    return total / 1e6


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--smiles", type=Path, required=True, help="a CSV file whose first column holds SMILES, below a header")
    parser.add_argument("--rows", type=int, default=1_066_000)
    parser.add_argument("--features", default="qm9")
    parser.add_argument("--num-workers", type=int)
    parser.add_argument("--one", action="store_true", help="packs the file: what the watched process does")
    parser.add_argument("--output", type=Path, default=Path("benchmarks/results/packing_cpu.md"))
    arguments = parser.parse_args()
    if arguments.one:
        pack(arguments.smiles, arguments.features, arguments.num_workers)
        return
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "large.csv"
        write_csv(path, arguments.smiles, arguments.rows)
        workers = [] if arguments.num_workers is None else ["--num-workers", str(arguments.num_workers)]
        command = [sys.executable, __file__, "--smiles", str(path), "--features", arguments.features, "--one", *workers]
        peak = 0.0
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            watched = psutil.Process(process.pid)
            while process.poll() is None:
                try:
                    peak = max(peak, summed_pss(watched))
                except psutil.NoSuchProcess:
                    break
                time.sleep(EVERY)
            assert process.stdout is not None
            found = json.loads(process.stdout.read())
    say(arguments, found, peak)


def say(arguments: argparse.Namespace, found: dict[str, float], peak: float) -> None:
    import torch  # here, since worker processes import this file

    from molgcn_benchmark.machine import machine
    from molgcn_benchmark.results import write_markdown

    cells = (
        f"{arguments.rows:,} | {found['molecules']:,} | {arguments.features} | {found['set_mb']:.0f} | {peak:,.0f} | {found['seconds']:.0f}"
    )
    lines = [
        "| rows | molecules | features | set, MB | peak of all processes, MB (1e6 bytes, PSS) | seconds |",
        "|---:|---:|---|---:|---:|---:|",
        f"| {cells} |",
    ]
    print(write_markdown(arguments.output, "Packing a large CSV", machine(torch.device("cpu")), lines))


if __name__ == "__main__":
    main()
