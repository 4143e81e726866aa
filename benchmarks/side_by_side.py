"""Time trainings that share one GPU: `python benchmarks/side_by_side.py --path zinc.smi`, and once more with `--mps`.

Each process trains `experiment=zinc12k_gin_plus` from another seed.
"""

import argparse
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path

import torch

from molgcn.training.gpus_of_job import MPS, mps_runs
from molgcn_benchmark.machine import machine
from molgcn_benchmark.report import markdown
from molgcn_benchmark.results import Table, write_markdown
from molgcn_benchmark.side_by_side import KEY, measure, sheet


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--path", type=Path, required=True, help="dataset.path of ZINC: a folder, or one list of SMILES")
    parser.add_argument("--processes", type=int, nargs="+", default=[1, 2, 4, 8])
    parser.add_argument("--epochs", type=int, default=12, help="epochs that are timed, after 2")
    parser.add_argument("--mps", action="store_true", help="start NVIDIA's Multi-Process Service for the measurement, where none runs")
    parser.add_argument("--overrides", default="", help="further overrides, as 'dataset.cache_dir=/tmp/packed'")
    parser.add_argument("--output", type=Path, default=Path("benchmarks/results/side_by_side.md"), help="a CSV file beside it has the rows")
    arguments = parser.parse_args()
    if arguments.mps and shutil.which(MPS) is None:
        parser.error(f"--mps needs {MPS}, which comes with NVIDIA's driver.")
    overrides = ["experiment=zinc12k_gin_plus", f"dataset.path={arguments.path.resolve()}", *arguments.overrides.split()]
    table = Table(arguments.output.with_suffix(".csv"), KEY)
    with daemon() if arguments.mps and not mps_runs() else nullcontext():
        mps = "on" if mps_runs() else "off"
        for processes in arguments.processes:
            row = table.add({"mps": mps, **measure(overrides, processes, arguments.epochs, warm_up=2)})
            print(f"{processes} with MPS {mps}: {row['epoch_s']} s an epoch, {row['molecules_per_second']:,} molecules/s", flush=True)
    about = (
        "Each process trains `experiment=zinc12k_gin_plus`, all at the same time; epochs with validation, after two. "
        "Medians of the epochs; the slowest is the process that took longest."
    )
    lines = [about, "", *markdown(sheet(table.rows))]
    print(write_markdown(arguments.output, "Trainings side by side", machine(torch.device(row["device"])), lines))


@contextmanager
def daemon() -> Iterator[None]:
    """Run the Multi-Process Service."""
    subprocess.run([MPS, "-d"], check=True)
    time.sleep(1)  # until it answers
    try:
        yield
    finally:
        subprocess.run([MPS], input="quit\n", text=True, timeout=60)


if __name__ == "__main__":
    main()
