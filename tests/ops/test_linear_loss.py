"""The last linear map with its loss: compiled for every architecture, run under emulation against float64, checked on a GPU."""

from __future__ import annotations

import emulated
import pytest
import torch
from architectures import EVERY_ARCHITECTURE
from compiler import needs_compiler

from molgcn.cuda_runtime.nvrtc import compile_source
from molgcn.ops import linear_loss as module
from molgcn.ops.linear_loss import linear_loss, linear_loss_reference
from molgcn.ops.masked_loss import LOSSES

SIZES = [(1, 1, 1), (37, 8, 3), (550, 33, 1), (521, 20, 11)]  # molecules, width, targets: one block and several, all columns and a rest


@pytest.mark.parametrize("arch", EVERY_ARCHITECTURE)
def test_compiles_for_every_architecture(arch):
    assert compile_source("linear_loss.cu", {"TARGETS": 8}, arch).startswith(b"\x7fELF")


def example(count: int, width: int, num_targets: int, device: str = "cpu") -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(count)

    def draw(*shape: int) -> torch.Tensor:
        return torch.randn(shape, generator=generator)

    x, weight, bias, target = draw(count, width), draw(num_targets, width) / width, draw(num_targets), draw(count, num_targets)
    target[torch.rand(count, num_targets, generator=generator) < 0.3] = torch.nan
    return [tensor.to(device) for tensor in (x, weight, bias, target, draw(num_targets), draw(num_targets).abs() + 0.1)]


@pytest.fixture
def emulated_operator(monkeypatch):
    """The kernels as the operator's implementation for CPU tensors."""
    monkeypatch.setattr(module, "kernel", emulated.kernel)
    monkeypatch.setattr(module, "_THREADS", 64)  # a thread is a fiber here, and slow
    library = torch.library.Library("molgcn", "IMPL")
    library.impl("linear_loss", module._forward, "CPU")
    library.impl("linear_loss_backward", module._backward, "CPU")
    yield
    library._destroy()


def expected(inputs: list[torch.Tensor], loss: str) -> tuple[torch.Tensor, torch.Tensor, tuple[torch.Tensor, ...]]:
    """Loss, sums and three times the gradients in float64."""
    exact = [tensor.double() for tensor in inputs]
    parameters = [tensor.requires_grad_() for tensor in exact[:3]]
    value, sums = linear_loss_reference(*exact, loss, 0.5)
    return value.detach(), sums, torch.autograd.grad(3 * value, parameters)


def assert_close(value, sums, gradients, exact) -> None:
    torch.testing.assert_close(value.double(), exact[0], rtol=2e-6, atol=1e-12)
    torch.testing.assert_close(sums, exact[1], rtol=2e-6, atol=1e-12)
    for one, other in zip(gradients, exact[2], strict=True):
        assert (one.double() - other).norm() <= 1e-6 * other.norm() + 1e-12


@needs_compiler
@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("size", SIZES, ids=str)
def test_logic_under_emulation(loss, size, monkeypatch):
    monkeypatch.setattr(module, "kernel", emulated.kernel)
    monkeypatch.setattr(module, "_THREADS", 64)  # a thread is a fiber here, and slow
    inputs = example(*size)
    value, sums, slopes = module._forward(*inputs, loss, 0.5)
    gradients = module._backward(torch.tensor(3.0), sums, slopes, *inputs[:2])
    assert_close(value, sums, gradients, expected(inputs, loss))


@needs_compiler
def test_nothing_is_known(monkeypatch):
    monkeypatch.setattr(module, "kernel", emulated.kernel)
    monkeypatch.setattr(module, "_THREADS", 64)
    inputs = example(5, 4, 2)
    inputs[3].fill_(torch.nan)
    value, sums, slopes = module._forward(*inputs, "mse", 1.0)
    assert value == 0 and sums.tolist() == [0, 0]
    assert all(torch.all(gradient == 0) for gradient in module._backward(torch.tensor(1.0), sums, slopes, *inputs[:2]))


@pytest.mark.gpu
@pytest.mark.parametrize("size", [*SIZES, (5000, 32, 1), (4096, 130, 19)], ids=str)
def test_against_float64_on_a_gpu(size):
    for loss in LOSSES:
        inputs = example(*size, device="cuda")
        results = []
        for _ in range(2):
            parameters = [tensor.clone().requires_grad_() for tensor in inputs[:3]]
            value, sums = linear_loss(*parameters, *inputs[3:], loss, 0.5)
            results.append((value.detach(), sums, *torch.autograd.grad(3 * value, parameters)))
        assert all(torch.equal(one, other) for one, other in zip(*results, strict=True))
        assert_close(results[0][0], results[0][1], results[0][2:], expected(inputs, loss))


@pytest.mark.gpu
def test_contract_of_an_operator():
    inputs = example(40, 16, 2, "cuda")
    parameters = [tensor.requires_grad_() for tensor in inputs[:3]]
    torch.library.opcheck(torch.ops.molgcn.linear_loss.default, (*parameters, *inputs[3:], "huber", 0.5))
    compiled = torch.compile(lambda x: linear_loss(x, *inputs[1:], "l1")[0], backend="aot_eager", fullgraph=True)
    torch.testing.assert_close(compiled(inputs[0]), linear_loss(*inputs, "l1")[0], rtol=0, atol=0)


def test_what_does_not_fit_is_refused():
    inputs = example(6, 4, 2)
    with pytest.raises(ValueError, match="expected mean in float32 on cpu"):
        module._forward(*inputs[:4], inputs[4].double(), inputs[5], "mse", 1.0)
    for place, name in ((2, "bias"), (4, "mean"), (5, "std")):  # which PyTorch would spread over the targets
        short = [tensor[:1] if place == index else tensor for index, tensor in enumerate(inputs)]
        with pytest.raises(ValueError, match=rf"expected {name} of shape \[2\], got \[1\]"):
            module._forward(*short, "mse", 1.0)
    with pytest.raises(ValueError, match=r"loss=mae is unknown\. Expected one of mse, l1, huber"):
        module._forward(*inputs, "mae", 1.0)
    with pytest.raises(ValueError, match=r"x \[6, 4\], weight \[2, 4\] and target \[3, 2\] do not fit"):
        module._forward(*inputs[:3], inputs[3][:3], *inputs[4:], "mse", 1.0)


@needs_compiler
def test_second_derivative_is_refused(emulated_operator):
    inputs = example(6, 4, 2)
    (grad,) = torch.autograd.grad(linear_loss(inputs[0].requires_grad_(), *inputs[1:], "mse")[0], inputs[0], create_graph=True)
    with pytest.raises(RuntimeError, match="backend=pyg"):
        grad.sum().backward()
