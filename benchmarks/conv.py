"""Compare one layer `FusedGCNConv` with PyG's `GCNConv`: `python benchmarks/conv.py --output benchmarks/results/conv_MACHINE.md`."""

import argparse
from pathlib import Path

import torch

from molgcn.data.config import DatasetConfig
from molgcn.data.load import load_molecules
from molgcn_benchmark.convs import Case, Row, compare, molecule_case, random_case
from molgcn_benchmark.machine import machine
from molgcn_benchmark.results import write_markdown, write_text

HEADER = """\
One layer, float32, ms, median of interleaved repeats, numbers checked against float64 first. PyG is timed as written, with edges normalised
once in advance (`gcn_norm`, then `normalize=False`), and as a normalised `torch.sparse` CSR matrix. "new edges" is FusedGCNConv when it has
not seen the edges before and orders them first, once for all layers and epochs that are given the same `edge_index`.
"""


def cases() -> list[Case]:
    molecules = load_molecules(DatasetConfig())[0]
    return [
        molecule_case(molecules, 128, 32),
        molecule_case(molecules, 4096, 32),
        molecule_case(molecules, 4096, 128),
        random_case(100_000, 1_000_000, 64, 64),
        random_case(20_000, 200_000, 256, 256),
        random_case(2_708, 10_556, 1433, 16),
    ]


def title(case: Case) -> str:
    shape = f"{case.num_nodes:,} nodes, {case.edge_index.shape[1]:,} edges, {case.in_channels} to {case.out_channels} channels"
    return f"## {case.name}: {shape}"


def lines(rows: list[Row]) -> list[str]:
    text = [
        title(rows[0].case),
        "",
        "| | fused | new edges | PyG | hoisted | CSR | times PyG | times the best |",
        "|---|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for row in rows:
        times = row.milliseconds
        cells = [f"{times[name]:.2f}" if name in times else "" for name in ("fused", "new edges", "pyg", "hoisted", "csr")]
        best = min(time for name, time in times.items() if name not in ("fused", "new edges"))
        text.append(f"| {row.work} | {' | '.join(cells)} | {times['pyg'] / times['fused']:.1f} | {best / times['fused']:.1f} |")
    return text


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--output", type=Path, help="a Markdown file; graphs that it has are not measured again")
    arguments = parser.parse_args()
    done = arguments.output.read_text(encoding="utf-8") if arguments.output and arguments.output.exists() else ""
    done = done or write_markdown(None, "One layer: FusedGCNConv and GCNConv", machine(torch.device("cpu")), [HEADER])
    for case in cases():
        if title(case) not in done:
            found = "\n".join(["", *lines(compare(case, arguments.repeats)), ""])
            print(found, flush=True)
            done += found
            if arguments.output:
                write_text(arguments.output, done)


if __name__ == "__main__":
    main()
