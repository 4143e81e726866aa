"""Read the GPU's counters of the fused kernels with Nsight Compute: `python benchmarks/counters.py --packed FOLDER`."""

import argparse
import csv
import io
import json
import subprocess
import sys
from pathlib import Path

import torch

from molgcn.benchmark.batches import training_batch
from molgcn.benchmark.candidates import build
from molgcn.benchmark.machine import machine
from molgcn.benchmark.results import write_text
from molgcn.benchmark.weights import steady_model
from molgcn.config import ModelConfig
from molgcn.data import PackedMolecules

STALL = "smsp__average_warps_issue_stalled_{}_per_issue_active.ratio"
METRICS = {
    "time, us": ("gpu__time_duration.sum",),
    "blocks": ("launch__grid_size",),
    "threads per block": ("launch__block_size",),
    "registers per thread": ("launch__registers_per_thread",),
    "warps a scheduler": ("smsp__warps_active.avg.per_cycle_active",),
    "instructions, millions": ("smsp__inst_executed.sum",),
    "issue slots busy, %": ("smsp__issue_active.avg.pct_of_peak_sustained_active",),
    "data pipe of shared memory and L1 busy, %": ("l1tex__data_pipe_lsu_wavefronts.avg.pct_of_peak_sustained_active",),
    "tensor cores busy, %": ("sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_active",),
    "multiply-add pipe busy, %": ("sm__pipe_fma_cycles_active.avg.pct_of_peak_sustained_active",),
    "device memory busy, %": ("dram__throughput.avg.pct_of_peak_sustained_elapsed",),
    "read from device memory, MB": ("dram__bytes_read.sum",),
    "written to device memory, MB": ("dram__bytes_write.sum",),
    "cycles a warp waits an instruction: fixed latencies": (STALL.format("wait"),),
    "global or local memory": (STALL.format("long_scoreboard"), STALL.format("lg_throttle")),
    "shared memory": (STALL.format("short_scoreboard"), STALL.format("mio_throttle")),
    "tensor cores, dispatch": (STALL.format("math_pipe_throttle"), STALL.format("dispatch_stall")),
    "its turn, another warp being issued": (STALL.format("not_selected"),),
    "another warp of its tile": (STALL.format("barrier"), STALL.format("membar"), STALL.format("sleeping")),
    "the next instruction, a branch": (STALL.format("no_instruction"), STALL.format("branch_resolving")),
}
SCALES = {"time, us": 1e-3, "instructions, millions": 1e-6, "read from device memory, MB": 1e-6, "written to device memory, MB": 1e-6}
PRECISIONS = {"highest": "float32", "high": "TF32", "medium": "bf16"}  # by the values of torch.set_float32_matmul_precision
KERNELS = ["gcn_tile_forward", "gcn_tile_forward", "linear_loss_ends", "gcn_tile_backward"]
TITLES = ["inference", "training forward", "loss, what is left of it", "backward"]


def run(packed: Path, batch_size: int, hidden: int, layers: int) -> None:
    """Run inference and one training step between the profiler's marks, compiled and warmed up before."""
    device, molecules = torch.device("cuda"), PackedMolecules.load(packed)
    options = ModelConfig(hidden_channels=hidden, num_layers=layers, norm=None, residual=False)
    batch, atoms = training_batch(molecules, batch_size, device, options)
    fused = build("fused", steady_model(molecules.num_features, hidden, layers, None, atoms), device)
    targets = torch.zeros(batch_size, 1, device=device)

    def both() -> None:
        with torch.no_grad():
            fused.model(fused.convert(batch))
        fused.loss(batch, targets).backward()

    for _ in range(3):
        both()
    torch.cuda.synchronize()
    torch.cuda.profiler.start()
    both()
    torch.cuda.synchronize()
    torch.cuda.profiler.stop()


def counters(report: str) -> list[dict[str, float]]:
    """Return the metrics of every kernel of a report, which `ncu --csv --page raw --print-units base` prints.

    Args:
        report: CSV with names, units and then a row for each kernel. Lines before it are output of the program and the profiler.

    Raises:
        SystemExit: if the kernels are not those of :data:`KERNELS` or a metric is missing.
    """
    lines = report.splitlines()
    begin = next((number for number, line in enumerate(lines) if line.startswith('"ID"')), len(lines))
    rows = list(csv.DictReader(lines[begin:]))[1:]
    if [row["Kernel Name"].split("(")[0] for row in rows] != KERNELS:
        raise SystemExit(f"expected the kernels {KERNELS}, found {[row['Kernel Name'] for row in rows]}:\n{report[:2000]}")
    if missing := {metric for metrics in METRICS.values() for metric in metrics} - rows[0].keys():
        raise SystemExit(f"this version of ncu has no {', '.join(sorted(missing))}")
    found = [{metric: float(row[metric].replace(",", "")) for metrics in METRICS.values() for metric in metrics} for row in rows]
    return [{title: SCALES.get(title, 1.0) * sum(map(row.get, metrics)) for title, metrics in METRICS.items()} for row in found]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--packed", type=Path, required=True, help="a folder that PackedMolecules.save wrote")
    parser.add_argument("--batch-size", type=int, default=4096)
    parser.add_argument("--hidden", type=int, default=32)
    parser.add_argument("--layers", type=int, default=28)
    parser.add_argument("--one", choices=tuple(PRECISIONS), help="runs the kernels with this precision: what is profiled")
    parser.add_argument("--output", type=Path, default=Path("benchmarks/results/counters.csv"))
    arguments = parser.parse_args()
    sizes = arguments.batch_size, arguments.hidden, arguments.layers
    if arguments.one:
        torch.set_float32_matmul_precision(arguments.one)
        run(arguments.packed, *sizes)
        return
    profiler = ["ncu", "--csv", "--page=raw", "--print-units=base", "--profile-from-start=off", "--kernel-name=regex:^(gcn|linear)_"]
    profiler += ["--cache-control=none", "--clock-control=none"]  # keep the cache's contents from kernel to kernel
    profiler += ["--metrics", ",".join(metric for metrics in METRICS.values() for metric in metrics)]
    command = [sys.executable, __file__, "--packed", str(arguments.packed)]
    for name, size in zip(("--batch-size", "--hidden", "--layers"), sizes, strict=True):
        command += [name, str(size)]
    columns = {}
    for precision, name in PRECISIONS.items():
        done = subprocess.run([*profiler, *command, "--one", precision], capture_output=True, text=True, check=False)
        if done.returncode != 0:
            sys.exit(done.stdout + done.stderr)
        columns |= {f"{name}: {title}": found for title, found in zip(TITLES, counters(done.stdout), strict=True)}
    text = io.StringIO()
    table = csv.writer(text, lineterminator="\n")
    table.writerow(["counter", *columns])
    table.writerows([title, *(f"{column[title]:.4g}" for column in columns.values())] for title in METRICS)
    write_text(arguments.output, text.getvalue())
    facts = machine(torch.device("cuda")) | {"molecules": arguments.packed.name}
    facts |= dict(zip(("batch_size", "hidden_channels", "num_layers"), sizes, strict=True))
    write_text(arguments.output.with_suffix(".json"), json.dumps(facts, indent=1) + "\n")


if __name__ == "__main__":
    main()
