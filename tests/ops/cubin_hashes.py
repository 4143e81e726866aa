"""Hashes of the machine code that a GCN's training step launches; `python tests/ops/cubin_hashes.py` rewrites them on purpose.

A change of the kernels that should not affect a network must not change its hashes. NVRTC needs no GPU for this.
"""

from __future__ import annotations

import hashlib
import json
from importlib.metadata import version
from pathlib import Path

from emulated import run_emulated
from stack_cases import A100, H100, changed, random_batch, random_inputs

from molgcn.cuda_runtime.launch import Gpu, Launcher, launching_by
from molgcn.cuda_runtime.nvrtc import compile_source

TABLE = Path(__file__).with_suffix(".json")
GPUS = {"sm_80": Gpu(108, A100), "sm_90": Gpu(132, H100, True), "sm_100": Gpu(148, H100, True)}
NETWORKS = {  # molecules of 20 atoms in a batch, features, options
    "32 features": (16, 32, {"strategy": "stack"}),
    "64 features, layer norm": (16, 64, {"strategy": "stack", "norm": "layer", "residual": True}),
    "128 features": (16, 128, {"strategy": "vertex"}),
    "172 features, batch norm": (16, 172, {"strategy": "vertex", "norm": "batch", "training": True, "residual": True}),
    "172 features, batch norm, large batch": (2000, 172, {"strategy": "vertex", "norm": "batch", "training": True, "residual": True}),
}


def launched(network: str, arch: str) -> list[tuple[str, dict[str, int]]]:
    """Return sources and macros of the kernels of a forward and a backward pass, each once, in the order of their launches."""
    molecules, hidden, options = NETWORKS[network]
    inputs = random_inputs(random_batch([20] * molecules, 11), hidden, 3, **options)
    inputs, found = changed(inputs, x=inputs.graph.x.detach()), []

    class Recorded(Launcher):
        def gpu(self, device: object) -> Gpu:
            return GPUS[arch]

        def kernel(self, source: str, name: str, defines: dict[str, int], device: object, prefetch: object = None) -> Recorded:
            if (source, defines) not in found:
                found.append((source, defines))
            return self

        def launch(self, *args: object, **options: object) -> None:
            pass

        def resident_blocks(self, *args: int) -> int:
            return GPUS[arch].num_multiprocessors

    with launching_by(Recorded()):
        run_emulated(inputs)
    return found


def hashes(network: str, arch: str) -> list[str]:
    """Return a line for each kernel, with its source and the SHA-256 of its machine code."""
    return [f"{source} {hashlib.sha256(compile_source(source, defines, arch)).hexdigest()}" for source, defines in launched(network, arch)]


def main() -> None:
    cubins = {network: {arch: hashes(network, arch) for arch in GPUS} for network in NETWORKS}
    TABLE.write_text(json.dumps({"nvrtc": version("nvidia-cuda-nvrtc"), "cubins": cubins}, indent=1) + "\n")


if __name__ == "__main__":
    main()
