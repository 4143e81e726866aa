"""Hashes of the machine code that a GCN's training step launches; `python tests/ops/cubin_hashes.py` rewrites them on purpose.

A change of the kernels that should not affect a network must not change its hashes. NVRTC needs no GPU for this.
"""

from __future__ import annotations

import hashlib
import json
import struct
from importlib.metadata import version
from pathlib import Path

from emulated import run_emulated
from stack_cases import A100, H100, changed, random_batch, random_inputs

from molgcn.cuda_runtime.launch import Gpu, Launcher, launching_by
from molgcn.cuda_runtime.nvrtc import compile_source
from molgcn.ops.gcn_tile_plan import next_fit

TABLE = Path(__file__).with_suffix(".json")
GPUS = {"sm_80": Gpu(108, A100), "sm_90": Gpu(132, H100, True), "sm_100": Gpu(148, H100, True)}
NETWORKS = {  # molecules of 20 atoms in a batch, features, options
    "32 features": (16, 32, {"strategy": "tile"}),
    "64 features, layer norm": (16, 64, {"strategy": "tile", "norm": "layer", "residual": True}),
    "128 features": (16, 128, {"strategy": "layer"}),
    "128 features, large batch": (2000, 128, {"strategy": "layer"}),
    "172 features, batch norm": (16, 172, {"strategy": "layer", "norm": "batch", "training": True, "residual": True}),
    "172 features, batch norm, large batch": (2000, 172, {"strategy": "layer", "norm": "batch", "training": True, "residual": True}),
}


def launched(network: str, arch: str) -> list[tuple[str, dict[str, int]]]:
    """Return sources and macros of the kernels of a forward and a backward pass, each once, in the order of their launches."""
    molecules, hidden, options = NETWORKS[network]
    inputs = random_inputs(random_batch([20] * molecules, 11), hidden, 3, **options)
    inputs, found = changed(inputs, x=inputs.graph.x.detach(), tile_ptr=next_fit(inputs.graph.ptr)), []

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


def machine_code(cubin: bytes) -> bytes:
    """Return the instructions and constants in a cubin, which is an ELF file, and what the driver reads of registers and memory.

    The rest are the names of symbols, those of constants in the source among them.
    """
    table, count, of_names = (struct.unpack_from(form, cubin, place)[0] for form, place in (("<Q", 40), ("<H", 60), ("<H", 62)))
    headers = [struct.unpack_from("<IIQQQQ", cubin, table + 64 * i) for i in range(count)]  # name, kind, flags, address, offset, size
    names = headers[of_names][4]
    sections = {cubin[names + name : cubin.index(b"\0", names + name)]: cubin[at : at + size] for name, _, _, _, at, size in headers}
    return b"".join(code for name, code in sorted(sections.items()) if name.startswith((b".text.", b".nv.constant", b".nv.info")))


def hashes(network: str, arch: str) -> list[str]:
    """Return a line for each kernel, with its source and the SHA-256 of its machine code."""
    kernels = ((source, compile_source(source, defines, arch)) for source, defines in launched(network, arch))
    return [f"{source} {hashlib.sha256(machine_code(cubin)).hexdigest()}" for source, cubin in kernels]


def main() -> None:
    cubins = {network: {arch: hashes(network, arch) for arch in GPUS} for network in NETWORKS}
    TABLE.write_text(json.dumps({"nvrtc": version("nvidia-cuda-nvrtc"), "cubins": cubins}, indent=1) + "\n")


if __name__ == "__main__":
    main()
