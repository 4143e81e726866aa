"""Read the GPU's counters of the fused kernels with Nsight Compute: `python benchmarks/counters.py --packed FOLDER`."""

import argparse
import csv
import io
import json
import sys
from pathlib import Path

import torch

from molgcn.config.run import ModelConfig
from molgcn.data import PackedMolecules
from molgcn.errors import UserError
from molgcn_benchmark.batches import training_batch
from molgcn_benchmark.candidates import build
from molgcn_benchmark.machine import machine
from molgcn_benchmark.nsight_compute import STALLS, Launch, Metric, call_between_marks, percentage, profile
from molgcn_benchmark.results import write_text
from molgcn_benchmark.weights import steady_model

METRICS = {
    "time, us": Metric(("gpu__time_duration.sum",), 1e-3),
    "blocks": Metric(("launch__grid_size",)),
    "threads per block": Metric(("launch__block_size",)),
    "registers per thread": Metric(("launch__registers_per_thread",)),
    "warps a scheduler": Metric(("smsp__warps_active.avg.per_cycle_active",)),
    "instructions, millions": Metric(("smsp__inst_executed.sum",), 1e-6),
    "issue slots busy, %": percentage("smsp__issue_active", "active"),
    "data pipe of shared memory and L1 busy, %": percentage("l1tex__data_pipe_lsu_wavefronts", "active"),
    "tensor cores busy, %": percentage("sm__pipe_tensor_cycles_active", "active"),
    "multiply-add pipe busy, %": percentage("sm__pipe_fma_cycles_active", "active"),
    "device memory busy, %": percentage("dram__throughput"),
    "read from device memory, MB": Metric(("dram__bytes_read.sum",), 1e-6),
    "written to device memory, MB": Metric(("dram__bytes_write.sum",), 1e-6),
    **{f"cycles a warp waits an instruction: {title}": metric for title, metric in STALLS.items()},
}
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

    call_between_marks(both)


def checked(launches: list[Launch]) -> list[Launch]:
    """Return the launches if they are those of :data:`KERNELS`.

    Raises:
        UserError: if they are not.
    """
    found = [launch.kernel for launch in launches]
    if found != KERNELS:
        raise UserError(f"expected the kernels {KERNELS}, found {found}.")
    return launches


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
    command = [sys.executable, __file__, "--packed", str(arguments.packed)]
    for name, size in zip(("--batch-size", "--hidden", "--layers"), sizes, strict=True):
        command += [name, str(size)]
    columns = {}
    for precision, name in PRECISIONS.items():
        try:
            launches = checked(profile([*command, "--one", precision], METRICS, "^(gcn|linear)_"))
        except UserError as error:
            sys.exit(str(error))
        columns |= {f"{name}: {title}": launch.values for title, launch in zip(TITLES, launches, strict=True)}
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
