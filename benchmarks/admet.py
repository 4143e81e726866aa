"""Cross-validate the recipe of `dataset=csv` inside TDC's ADMET training parts: `python benchmarks/admet.py <folder>`."""

import argparse
from pathlib import Path

import torch

from molgcn.data.benchmark_sets import TDC_SETS
from molgcn_benchmark.admet import KEY, gpu_seconds, measure, sheet
from molgcn_benchmark.machine import machine
from molgcn_benchmark.results import Table, write_markdown

ABOUT = """\
Five folds of whole scaffolds inside the training part of each set; the benchmark's test parts are not read. The
benchmark's metric, mean and standard deviation over the folds: MAE is better lower, the others higher. Network, trees
and both are columns of one run. Seconds are those of the features, once, and of five trainings with their trees. CPU:
processor seconds of one core. GPU: on the clock, one H200 and 16 cores, of which each of 14 processes side by side had
one; the mean over the folds of `admet_gpu.csv`, each with `training.ensemble=5`. A set without a fold there has none."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", type=Path, help="folder with <set>_train_val.csv")
    parser.add_argument("--sets", nargs="*", default=list(TDC_SETS), choices=list(TDC_SETS))
    parser.add_argument("--overrides", default="", help="overrides of all runs, as 'training.ensemble=5'")
    parser.add_argument("--folder", type=Path, default=Path("runs/admet"), help="where the runs are")
    parser.add_argument(
        "--output", type=Path, default=Path("benchmarks/results/admet.md"), help="sets in the CSV file beside it are not trained again"
    )
    arguments = parser.parse_args()
    table = Table(arguments.output.with_suffix(".csv"), KEY)
    gpu = gpu_seconds(arguments.output.with_name(f"{arguments.output.stem}_gpu.csv"))
    for row in measure(arguments.data, arguments.sets, arguments.overrides.split(), arguments.folder, table):
        print(f"{row['set']}: {row['metric']} {row['blend']}, network {row['network']}, trees {row['trees']}", flush=True)
        device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        write_markdown(arguments.output, "The recipe on TDC's ADMET training parts", machine(device), [ABOUT, "", *sheet(table.rows, gpu)])


if __name__ == "__main__":
    main()
