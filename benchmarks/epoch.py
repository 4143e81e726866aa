"""Training epochs through the Trainer, both backends in one run: `python benchmarks/epoch.py --output FILE.md`."""

import argparse
from pathlib import Path

import torch

from molgcn.benchmark.epochs import compare
from molgcn.benchmark.machine import machine

PAIRS = [("fused", "packed"), ("pyg", "packed"), ("pyg", "pyg")]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--layers", type=int, nargs="+", default=[4, 12, 28])
    parser.add_argument("--batch-sizes", type=int, nargs="+", default=[128, 1024])
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--output", type=Path)
    arguments = parser.parse_args()
    plain = {"hidden_channels": 32, "norm": None, "residual": False, "last_activation": False, "head_layers": 0}
    variants = [
        {"dataset": {"name": "builtin", "targets": ["logp"], "batch_size": size}, "model": {**plain, "num_layers": layers}}
        for layers in arguments.layers
        for size in arguments.batch_sizes
    ]
    default = {"dataset": {"name": "builtin", "targets": ["logp"]}, "model": {"num_layers": 6, "last_activation": True, "head_layers": 1}}
    rows = compare([*variants, default], PAIRS, arguments.epochs, 1, arguments.rounds)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    lines = ["# Training epochs", "", *(f"- {key}: {value}" for key, value in machine(device).items()), ""]
    lines += [
        f"Built-in molecules, {rows[0].molecules:,} in training. Wall time from the start of one epoch to the start of the next inside",
        f"`Trainer.fit`, median of {arguments.epochs} epochs after 1, median of {arguments.rounds} interleaved rounds, logging every 50",
        "steps, no validation or checkpoint.",
        "",
        "| L | H | norm | B | backend | loader | ms an epoch | molecules/s | times pyg with its loader |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for start in range(0, len(rows), len(PAIRS)):
        group = rows[start : start + len(PAIRS)]
        for row in group:
            cells = (row.num_layers, row.hidden_channels, row.norm, row.batch_size, row.backend, row.loader)
            times = group[-1].seconds / row.seconds
            lines.append(f"| {' | '.join(map(str, cells))} | {1e3 * row.seconds:.0f} | {row.rate:,.0f} | {times:.1f} |")
    text = "\n".join(lines) + "\n"
    print(text)
    if arguments.output:
        arguments.output.write_text(text)


if __name__ == "__main__":
    main()
