"""Parts of sums are added up in order, in emulation, and the kernel compiles for every architecture."""

import pytest
import torch
from architectures import EVERY_ARCHITECTURE
from emulated import Compiler

from molgcn.cuda_runtime.launch import launching_by
from molgcn.ops.part_sums import PartSums, Sum


def sum_of(out, parts, add=None):
    return Sum(out.data_ptr(), out.numel(), parts.data_ptr(), len(parts), parts.stride(0), 0 if add is None else add.data_ptr())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("num_parts", [0, 1, 8, 9, 47, 530])
@pytest.mark.parametrize(("wide", "narrow"), [(250, 33), (252, 36), (1028, 4)])
def test_parts_are_added_up(emulate, num_parts, wide, narrow, dtype):
    step = wide + narrow + 12
    parts, add = torch.randn(num_parts, step, dtype=dtype), torch.randn(narrow, dtype=dtype)
    first, second = torch.full((wide,), torch.nan, dtype=dtype), add.clone()
    sums = PartSums(parts)
    sums.add(sum_of(first, parts[:, :wide]))
    sums.add(sum_of(second, parts[:, -narrow:], second))  # in the place of what is added
    sums.launch()
    size, exact = parts.double().abs().sum(0) + 1, parts.double().sum(0)
    assert ((first.double() - exact[:wide]).abs() <= 3e-7 * size[:wide]).all()
    assert ((second.double() - add.double() - exact[-narrow:]).abs() <= 3e-7 * size[-narrow:]).all()
    sums.launch()  # nothing is left
    assert emulate.num_launches == 1


def test_more_sums_than_a_launch_takes(emulate):
    outs, parts = torch.full((150, 3), torch.nan), torch.randn(150, 4, 3)
    sums = PartSums(parts)
    for out, some in zip(outs, parts, strict=True):
        sums.add(sum_of(out, some))
    sums.launch()
    torch.testing.assert_close(outs, parts.sum(1))
    assert emulate.num_launches == 2


def test_a_sum_that_is_taken_is_not_added_up(emulate):
    out, parts = torch.zeros(3), torch.ones(4, 3)
    sums = PartSums(parts)
    left = sum_of(out, parts)
    sums.add(left)
    assert sums.take(left.out) == left and sums.take(left.out) is None
    sums.launch()
    assert not out.any() and emulate.num_launches == 0


@pytest.mark.parametrize("arch", EVERY_ARCHITECTURE)
def test_compiles_for_every_architecture(arch):
    with launching_by(compiler := Compiler(arch)):
        for dtype in (torch.float32, torch.float64):
            sums = PartSums(torch.zeros(1, dtype=dtype))
            sums.add(Sum(0, 1, 0, 1, 1))
            sums.launch()
    assert compiler.sources == {"part_sums.cu"}
