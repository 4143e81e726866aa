from collections.abc import Iterator

import pytest
import torch
from emulated import Emulator, on_gpu_emulated
from emulated import emulate as emulate

from molgcn.ops import HAS_CPU_EXTENSION

if HAS_CPU_EXTENSION:
    from molgcn import _cpu

    INSTRUCTION_SETS = _cpu.instruction_sets()
else:
    INSTRUCTION_SETS = ["none: no extension"]


@pytest.fixture(params=INSTRUCTION_SETS)
def instruction_set(request: pytest.FixtureRequest) -> Iterator[str]:
    """Run a test with every instruction set of this processor, the widest first."""
    _cpu.use_instruction_set(request.param)
    yield request.param
    _cpu.use_instruction_set(INSTRUCTION_SETS[0])


@pytest.fixture
def operator_emulated(emulate: Emulator) -> Iterator[None]:
    """Run the operator of networks on the CPU by its kernels for GPUs."""
    with on_gpu_emulated():
        yield


@pytest.fixture
def poison() -> None:
    """Fill freed memory with NaN, so that memory which the allocator hands out next holds NaN."""
    blocks = [torch.full((size,), torch.nan, device="cuda") for size in (2**8, 2**12, 2**16, 2**18, 2**20, 2**24)]
    del blocks
