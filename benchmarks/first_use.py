"""How long the first step of a new width takes, compilation included, and that of a later process: `python benchmarks/first_use.py`."""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import torch

from molgcn.benchmark.machine import machine

WORK = [(hidden, None, precision, 1024) for hidden in (32, 64, 128, 256) for precision in ("highest", "high", "medium")]
WORK += [(hidden, "batch", "highest", 1024) for hidden in (32, 128, 172, 512)]
WORK += [(hidden, norm, "highest", 4096) for hidden in (32, 64, 96) for norm in (None, "layer")]  # other kernels: fewer warps a tile

STEP = """
import sys, time
import numpy as np, torch
from molgcn.data import PackedMolecules
from molgcn.nn import GCN
hidden, norm, precision, molecules, folded, device = int(sys.argv[1]), sys.argv[2], sys.argv[3], int(sys.argv[4]), sys.argv[5], sys.argv[6]
torch.set_float32_matmul_precision(precision)
ring = np.arange(18)
bonds = np.array([[*ring, *(ring + 1) % 18], [*(ring + 1) % 18, *ring]])
x = np.random.default_rng(0).normal(size=(18 * molecules, 11)).astype(np.float32)
packed = PackedMolecules.from_arrays(np.full(molecules, 18), np.full(molecules, 36), np.tile(bonds, molecules), x=x)
batch = packed.batch(slice(None), device=device)
batch.tile_ptr
batch.folded = folded == "True"  # no two atoms are alike, but that is for the kernels to see
model = GCN(11, hidden, 12, 1, backend="fused", norm=None if norm == "None" else norm).to(device)
plain = torch.nn.Linear(11, 1).to(device)
for _ in range(2):  # CUDA, cuBLAS, autograd's thread and PyTorch's own kernels are there
    plain(batch.x).sum().backward()
    plain.bias.grad.sum().item()
times = []
for _ in range(2):
    begin = time.perf_counter()
    model(batch).sum().backward()
    model.head.bias.grad.sum().item()
    times.append(time.perf_counter() - begin)
print(*times)
"""


def step(cache: str, *work: object) -> tuple[float, float]:
    """Seconds of the first and the second step of a process."""
    command = [sys.executable, "-c", STEP, *map(str, work)]
    caches = {"XDG_CACHE_HOME": cache, "CUDA_CACHE_PATH": cache}  # ours, and the one that NVRTC has by itself
    done = subprocess.run(command, env={**os.environ, **caches}, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise SystemExit(done.stderr)
    first, second = map(float, done.stdout.split())
    return first, second


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--folded", action="store_true", help="only the kernels for folded batches, which large ones are")
    parser.add_argument("--output", type=Path, help="default benchmarks/results/first_use.md, or first_use_folded.md")
    parser.add_argument("--widths", type=int, nargs="+", default=sorted({work[0] for work in WORK}), help="of those that are measured")
    arguments = parser.parse_args()
    output = arguments.output or Path(f"benchmarks/results/first_use{'_folded' if arguments.folded else ''}.md")
    works = [work for work in WORK if work[0] in arguments.widths and (work[3] == 4096 or not arguments.folded)]
    facts = json.dumps(machine(torch.device(arguments.device)))
    lines = [
        f"Seconds of a process's first step (forward and backward, L = 12), CUDA's context and PyTorch's own kernels being there. {facts}",
        "",
        "| hidden | norm | float32 matmul precision | molecules | nothing compiled | from the cache, another process | its second step |",
        "|---|---|---|---|---|---|---|",
    ]
    for work in works:
        given = (*work, arguments.folded, arguments.device)
        with tempfile.TemporaryDirectory() as cache:
            first, (later, again) = step(cache, *given)[0], step(cache, *given)
        lines.append(f"| {' | '.join(map(str, work))} | {first:.2f} | {later:.3f} | {again:.4f} |")
        print(lines[-1], flush=True)
        output.parent.mkdir(parents=True, exist_ok=True)
        output.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
