"""Time training epochs through the Trainer, with both backends in one run: `python benchmarks/epoch.py --output FILE.md`."""

import argparse
from pathlib import Path

import torch

from molgcn_benchmark.epochs import KEY, PAIRS, measure
from molgcn_benchmark.machine import machine
from molgcn_benchmark.report import epochs_sheet, markdown
from molgcn_benchmark.results import Table, write_markdown


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--layers", type=int, nargs="+", default=[4, 12, 28])
    parser.add_argument("--batch-sizes", type=int, nargs="+", default=[128, 1024])
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--output", type=Path, help="a Markdown file; rows in the CSV file beside it are not measured again")
    arguments = parser.parse_args()
    plain = {"hidden_channels": 32, "norm": None, "residual": False, "last_activation": False, "head_layers": 0}
    variants = [
        {"dataset": {"name": "builtin", "targets": ["logp"], "batch_size": size}, "model": {**plain, "num_layers": layers}}
        for layers in arguments.layers
        for size in arguments.batch_sizes
    ]
    usual = {"hidden_channels": 64, "num_layers": 6, "norm": "batch", "last_activation": True, "head_layers": 1}
    default = {"dataset": {"name": "builtin", "targets": ["logp"], "batch_size": 128}, "model": usual}
    table = Table(arguments.output and arguments.output.with_suffix(".csv"), KEY)
    for row in measure([*variants, default], PAIRS, "builtin", table, arguments.epochs, 1, arguments.rounds):
        print(f"{row['backend']} with loader={row['loader']} L={row['num_layers']} B={row['batch_size']}: {row['epoch_ms']} ms", flush=True)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    lines = [
        f"{table.rows[0]['molecules']:,} of the built-in molecules in training, no validation or checkpoint; median of {arguments.rounds} "
        f"interleaved rounds, each the median of {arguments.epochs} epochs after 1. The network with batch norm is the default one.",
        "",
        *markdown(epochs_sheet(table.rows)),
    ]
    print(write_markdown(arguments.output, "Training epochs", machine(device), lines))


if __name__ == "__main__":
    main()
