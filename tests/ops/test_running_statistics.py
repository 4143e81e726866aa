"""Running statistics reach their buffers, by PyTorch, under emulation and on a GPU."""

import pytest
import torch
from architectures import EVERY_ARCHITECTURE
from emulated import Compiler

from molgcn.cuda_runtime.launch import launching_by
from molgcn.ops.running_statistics import copy_by_kernel, copy_statistics


def example(norms: int, columns: int, device: str = "cpu", dtype: torch.dtype = torch.float32) -> tuple[list, list, torch.Tensor]:
    buffers = [torch.zeros(columns, device=device, dtype=dtype) for _ in range(2 * norms)]
    return buffers, [torch.tensor(7, device=device) for _ in range(norms)], torch.randn(2, norms, columns, device=device, dtype=dtype)


def check(buffers, counts, statistics) -> None:
    assert torch.equal(torch.stack(buffers), statistics.flatten(0, 1))
    assert [count.item() for count in counts] == [8] * len(counts)
    assert all(tensor._version > 0 for tensor in (*buffers, *counts))  # as autograd has to know


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
@pytest.mark.parametrize(("norms", "columns"), [(1, 20), (24, 300), (70, 8)])
def test_copies_and_counts(norms, columns, device, dtype):
    arguments = example(norms, columns, device, dtype)
    copy_statistics(*arguments)
    check(*arguments)


def test_the_kernel_under_emulation(emulate):
    buffers, counts, statistics = example(3, 150)
    copy_by_kernel(buffers, counts, statistics.flatten(0, 1))
    check(buffers, counts, statistics)
    assert emulate.num_launches == 1


@pytest.mark.parametrize("arch", EVERY_ARCHITECTURE)
def test_compiles_for_every_architecture(arch):
    buffers, counts, statistics = example(2, 5)
    with launching_by(compiler := Compiler(arch)):
        copy_by_kernel(buffers, counts, statistics.flatten(0, 1))
    assert compiler.sources == {"running_statistics.cu"}
