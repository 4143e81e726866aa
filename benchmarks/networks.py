"""Compare errors of networks: `python benchmarks/networks.py --data ZINC "dataset=zinc" --common trainer.max_epochs=10`."""

import argparse
from pathlib import Path

import torch

from molgcn_benchmark.machine import machine
from molgcn_benchmark.networks import KEY, measure, networks, sheet
from molgcn_benchmark.results import Table, write_markdown


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--data", nargs=2, action="append", metavar=("NAME", "OVERRIDES"), help="a set (default: the built-in molecules); may be repeated"
    )
    parser.add_argument(
        "--networks", nargs="*", default=networks(), help="overrides of each, as 'model=gine model.num_layers=4' (default: all)"
    )
    parser.add_argument("--seeds", type=int, nargs="*", default=[0])
    parser.add_argument("--common", default="", help="overrides of all runs, as 'trainer.max_epochs=10'")
    parser.add_argument("--metric", choices=("mae", "rmse"), default="mae")
    parser.add_argument("--folder", type=Path, default=Path("runs/networks"), help="where the runs are")
    parser.add_argument(
        "--output", type=Path, default=Path("benchmarks/results/networks.md"), help="runs in the CSV file beside it are not made again"
    )
    arguments = parser.parse_args()
    sets = {name: overrides.split() for name, overrides in arguments.data or [("built-in", "dataset=builtin")]}
    table = Table(arguments.output.with_suffix(".csv"), KEY)
    common = arguments.common.split()
    for row in measure(sets, arguments.networks, arguments.seeds, common, arguments.metric, arguments.folder, table):
        print(f"{row['data']}, {row['network']}, seed {row['seed']}: {row['test']:.4g}, {row['seconds']} s", flush=True)
        write(arguments.output, table)


ABOUT = """\
A run is `python train.py` with the words in the column of networks, those below the table and a seed. Errors are those
of the weights of the best validation epoch; of several seeds the mean and the standard deviation. Networks are sorted
by validation error: after few epochs that is how fast they learn, not how well they could. Seconds are those that a
run's threads spent on processors, without loading; Chemprop's are the whole command's."""


def write(path: Path, table: Table) -> None:
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    write_markdown(path, "The family's networks, trained alike", machine(device), [ABOUT, "", *sheet(table.rows)])


if __name__ == "__main__":
    main()
