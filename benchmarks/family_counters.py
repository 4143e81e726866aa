"""Say from counters what bounds each kernel of the family's training steps: `python benchmarks/family_counters.py --packed FOLDER`.

The networks have three layers: a first one, a last one, and one that stands for all between.
"""

import argparse
import sys
from itertools import product
from pathlib import Path

import torch

from molgcn.data import PackedMolecules
from molgcn.errors import UserError
from molgcn_benchmark.bounds import KEY, METRICS, kernel_rows, sheet
from molgcn_benchmark.family import NETWORKS, fused_step
from molgcn_benchmark.machine import machine
from molgcn_benchmark.nsight_compute import call_between_marks, profile
from molgcn_benchmark.results import Table, write_markdown

DEPTH = 3


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--packed", type=Path, required=True, help="a folder that PackedMolecules.save wrote")
    parser.add_argument("--networks", nargs="+", choices=tuple(NETWORKS), default=list(NETWORKS), metavar="NAME")
    parser.add_argument("--batch-sizes", type=int, nargs="+", default=[32, 128, 4096])
    parser.add_argument("--precision", choices=("highest", "high"), default="highest", help="float32 matmul precision")
    parser.add_argument("--profiled", action="store_true", help="runs the first network's step: what is profiled")
    parser.add_argument("--output", type=Path, default=Path("benchmarks/results/family_counters.csv"), help="its steps are not repeated")
    arguments = parser.parse_args()
    if arguments.profiled:
        torch.set_float32_matmul_precision(arguments.precision)
        molecules, device = PackedMolecules.load(arguments.packed), torch.device("cuda")
        call_between_marks(fused_step(molecules, arguments.networks[0], DEPTH, arguments.batch_sizes[0], device))
        return
    table = Table(arguments.output, KEY)
    for name, size in product(arguments.networks, arguments.batch_sizes):
        step = {"network": name, "batch_size": size, "precision": arguments.precision}
        if any(step.items() <= row.items() for row in table.rows):
            continue
        command = [sys.executable, __file__, "--packed", str(arguments.packed), "--networks", name, "--batch-sizes", str(size)]
        try:
            rows = kernel_rows(profile([*command, "--precision", arguments.precision, "--profiled"], METRICS))
        except UserError as error:
            sys.exit(str(error))
        for row in rows:
            table.add({**step, **row})
        print(*sheet([{**step, **row} for row in rows]), sep="\n", flush=True)
        write_markdown(
            arguments.output.with_suffix(".md"), "What bounds the family's kernels", machine(torch.device("cuda")), sheet(table.rows)
        )


if __name__ == "__main__":
    main()
