"""Products have the requested precision, whatever PyTorch's switch says; test_gcn_layers_gpu.py tests the switch's own products."""

import pytest
import torch

from molgcn.ops.matmul import matmul_in

SWITCHES = ("highest", "high", "medium")


@pytest.fixture(params=SWITCHES)
def switch(request):
    torch.set_float32_matmul_precision(request.param)
    yield request.param
    torch.set_float32_matmul_precision("highest")


@pytest.fixture
def tf32_by_the_newer_switch():
    torch.backends.cuda.matmul.fp32_precision = "tf32"
    yield
    torch.backends.cuda.matmul.fp32_precision = "none"


def error(precision):
    generator = torch.Generator().manual_seed(0)
    left, right = (torch.randn(64, 64, generator=generator, dtype=torch.float64) for _ in range(2))
    exact = left.float().double() @ right.float().double()
    return ((matmul_in(precision, torch.float32)(left.float(), right.float()).double() - exact).norm() / exact.norm()).item()


def test_float32_stays_float32(switch):
    assert error("float32") < 1e-6
    assert torch.get_float32_matmul_precision() == switch


def test_float32_stays_float32_beside_the_newer_switch(tf32_by_the_newer_switch):
    assert error("float32") < 1e-7  # computed in float64
    assert torch.backends.cuda.matmul.fp32_precision == "tf32"


def test_tf32_without_the_switch():
    assert 1e-4 < error("tf32") < 2e-3
    assert torch.get_float32_matmul_precision() == "highest"


def test_bf16(switch):
    assert 1e-3 < error("bf16") < 1e-2


def test_float64_is_always_float64(switch):
    matrix = torch.randn(8, 8, dtype=torch.float64)
    for precision in ("float32", "tf32", "bf16"):
        assert torch.equal(matmul_in(precision, torch.float64)(matrix, matrix), matrix @ matrix)


def test_tf32_keeps_what_is_no_number():
    """CUDA's NaN has all bits set, so that rounding it up would give -0."""
    left = torch.tensor([[0x7FFFFFFF], [0x7F800000], [-0x800000], [0x7F7FFFFF]], dtype=torch.int32).view(torch.float32)
    product = matmul_in("tf32", torch.float32)(left, torch.ones(1, 1))[:, 0]
    assert product[0].isnan()
    assert product[1:3].tolist() == [torch.inf, -torch.inf]
    assert product[3].isfinite()
