"""Time the first step of a new width, compilation included, and that of a later process: `python benchmarks/first_use.py`."""

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import torch

from molgcn_benchmark.machine import machine
from molgcn_benchmark.results import write_markdown

SMALL, LARGE = 18, 150  # atoms of the largest molecule; molecules larger than a tile need other code
WORK = [(hidden, None, precision, 1024, SMALL) for hidden in (32, 64, 128, 256) for precision in ("highest", "high", "medium")]
WORK += [(hidden, "batch", "highest", 1024, SMALL) for hidden in (32, 128, 172, 512)]
WORK += [(hidden, norm, "highest", 4096, SMALL) for hidden in (32, 64, 96) for norm in (None, "layer")]  # fewer warps per tile
WORK += [(hidden, None, "highest", 4096, LARGE) for hidden in (32, 64, 96)]

STEP = """
import sys, time
import numpy as np, torch
from molgcn_benchmark.candidates import fused_loss
from molgcn.data import PackedMolecules
from molgcn.nn import GCN
hidden, molecules, largest = (int(sys.argv[place]) for place in (1, 4, 5))
norm, precision, merged, device = (sys.argv[place] for place in (2, 3, 6, 7))
torch.set_float32_matmul_precision(precision)
def ring(atoms):
    here = np.arange(atoms)
    there = (here + 1) % atoms
    return np.array([[*here, *there], [*there, *here]])
sizes = np.array([largest] + [18] * (molecules - 1))
x = np.random.default_rng(0).normal(size=(sizes.sum(), 11)).astype(np.float32)
bonds = np.concatenate([ring(largest), *[ring(18)] * (molecules - 1)], axis=1)
packed = PackedMolecules.from_arrays(sizes, 2 * sizes, bonds, x=x)
batch = packed.batch(slice(None), device=device)
assert batch.large_molecules == (largest > 128)
batch.tile_ptr
batch.leaves_merged = merged == "True"  # no two atoms are alike, but that is for the kernels to see
model = GCN(11, hidden, 12, 1, backend="fused", norm=None if norm == "None" else norm).to(device)
loss, targets = fused_loss(model), torch.zeros(molecules, 1, device=device)
plain = torch.nn.Linear(11, 1).to(device)
for _ in range(2):  # CUDA, cuBLAS, autograd's thread and PyTorch's own kernels are there
    plain(batch.x).sum().backward()
    plain.bias.grad.sum().item()
times = []
for _ in range(2):
    begin = time.perf_counter()
    loss(batch, targets).backward()
    model.head.bias.grad.sum().item()
    times.append(time.perf_counter() - begin)
print(*times)
"""


def step(cache: str, *work: object) -> tuple[float, float]:
    """Return the seconds of the first and the second step of a process."""
    command = [sys.executable, "-c", STEP, *map(str, work)]
    caches = {"XDG_CACHE_HOME": cache, "CUDA_CACHE_PATH": cache}  # ours, and NVRTC's own
    done = subprocess.run(command, env={**os.environ, **caches}, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise SystemExit(done.stderr)
    first, second = map(float, done.stdout.split())
    return first, second


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--merged-leaves", action="store_true", help="only kernels for merged leaves, which large batches have")
    parser.add_argument("--output", type=Path, help="default benchmarks/results/first_use.md, or first_use_merged_leaves.md")
    parser.add_argument("--widths", type=int, nargs="+", default=sorted({work[0] for work in WORK}), help="of those that are measured")
    arguments = parser.parse_args()
    output = arguments.output or Path(f"benchmarks/results/first_use{'_merged_leaves' if arguments.merged_leaves else ''}.md")
    works = [work for work in WORK if work[0] in arguments.widths and (work[3:] == (4096, SMALL) or not arguments.merged_leaves)]
    lines = [
        "Seconds of a process's first step (forward, loss and backward, L = 12), CUDA's context and PyTorch's own kernels being there.",
        "",
        "| hidden | norm | float32 matmul precision | molecules | atoms of the largest | nothing compiled | from the cache, another process"
        " | its second step |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for work in works:
        given = (*work, arguments.merged_leaves, arguments.device)
        with tempfile.TemporaryDirectory() as cache:
            first, (later, again) = step(cache, *given)[0], step(cache, *given)
        lines.append(f"| {' | '.join(map(str, work))} | {first:.2f} | {later:.3f} | {again:.4f} |")
        print(lines[-1], flush=True)
        write_markdown(output, "First use", machine(torch.device(arguments.device)), lines)


if __name__ == "__main__":
    main()
