"""The loss operator's kernels: compiled for every architecture, run under emulation against float64, checked on a GPU."""

from __future__ import annotations

import emulated
import pytest
import torch
from architectures import EVERY_ARCHITECTURE
from compiler import needs_compiler

from molgcn.cuda_runtime.nvrtc import compile_source
from molgcn.ops import masked_loss as module
from molgcn.ops.masked_loss import LOSSES, masked_loss, masked_loss_reference


@pytest.mark.parametrize("arch", EVERY_ARCHITECTURE)
@pytest.mark.parametrize("loss", LOSSES)
def test_compiles_for_every_architecture(loss, arch):
    assert compile_source("masked_loss.cu", {"LOSS": LOSSES.index(loss)}, arch).startswith(b"\x7fELF")


def example(device: str, count: int = 1500, num_targets: int = 2) -> tuple[torch.Tensor, ...]:
    generator = torch.Generator().manual_seed(count)
    prediction, target = (torch.randn(count, num_targets, generator=generator) for _ in range(2))
    target[torch.rand(count, num_targets, generator=generator) < 0.3] = torch.nan
    mean, std = torch.randn(num_targets, generator=generator), torch.rand(num_targets, generator=generator) + 0.1
    return tuple(tensor.to(device) for tensor in (prediction, target, mean, std))


@needs_compiler
@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("count", [1, 37, 1500])
def test_logic_under_emulation(loss, count, monkeypatch):
    monkeypatch.setattr(module, "kernel", emulated.kernel)
    inputs = example("cpu", count)
    exact = [tensor.double() for tensor in inputs]
    exact[0].requires_grad_()
    expected, expected_sums = masked_loss_reference(*exact, loss, 0.5)
    value, sums = module._forward(*inputs, loss, 0.5)
    torch.testing.assert_close(value.double(), expected.detach(), rtol=1e-6, atol=1e-12)
    torch.testing.assert_close(sums, expected_sums, rtol=1e-6, atol=1e-12)
    gradient = module._backward(torch.tensor(3.0), sums, *inputs, loss, 0.5)
    torch.testing.assert_close(gradient.double(), 3 * torch.autograd.grad(expected, exact[0])[0], rtol=1e-5, atol=1e-9)


@pytest.mark.gpu
@pytest.mark.parametrize("loss", LOSSES)
def test_contract_of_an_operator(loss):
    prediction, *rest = example("cuda")
    arguments = (prediction.requires_grad_(), *rest, loss, 0.5)
    torch.library.opcheck(torch.ops.molgcn.masked_loss.default, arguments)
    compiled = torch.compile(lambda p: masked_loss(p, *rest, loss, 0.5)[0], backend="aot_eager", fullgraph=True)
    torch.testing.assert_close(compiled(prediction), masked_loss(*arguments)[0], rtol=0, atol=0)


@needs_compiler
def test_second_derivative_is_refused(monkeypatch):
    monkeypatch.setattr(module, "kernel", emulated.kernel)
    library = torch.library.Library("molgcn", "IMPL")
    library.impl("masked_loss", module._forward, "CPU")
    library.impl("masked_loss_backward", module._backward, "CPU")
    prediction, *rest = example("cpu", 6)
    (grad,) = torch.autograd.grad(masked_loss(prediction.requires_grad_(), *rest, "mse")[0], prediction, create_graph=True)
    with pytest.raises(RuntimeError, match="backend=pyg"):
        grad.sum().backward()
    library._destroy()


def test_what_does_not_fit_is_refused():
    prediction, target, mean, std = example("cpu")
    for wrong, message in [
        ((prediction, target, mean.double(), std), "expected mean in float32 on cpu"),
        ((prediction, target[:3], mean, std), "differ in shape"),
        ((prediction, target, mean[:1], std), r"expected mean of shape \[2\], got \[1\]"),
        ((prediction, target, mean, std[:, None]), r"expected std of shape \[2\], got \[2, 1\]"),
    ]:
        with pytest.raises(ValueError, match=message):
            module._forward(*wrong, "l1", 1.0)
    with pytest.raises(ValueError, match="loss=mae is unknown"):
        module._forward(prediction, target, mean, std, "mae", 1.0)
