"""The head with its loss on the CPU, in every instruction set: against float64, as an operator, and what does not fit."""

from __future__ import annotations

from itertools import pairwise

import pytest
import torch
from compiler import needs_extension

pytestmark = needs_extension
SIZES = [(1, (1, 1)), (37, (8, 5, 3)), (131, (33, 17, 1)), (4096, (64, 32, 16, 19)), (0, (4, 2))]  # molecules; widths from input to targets


def example(count: int, widths: tuple[int, ...], dtype: torch.dtype = torch.float32) -> tuple:
    generator = torch.Generator().manual_seed(count)

    def draw(*shape: int) -> torch.Tensor:
        return torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype)

    weights = [draw(out, width) / width**0.5 for width, out in pairwise(widths)]
    biases = [draw(out) for out in widths[1:]]
    target = draw(count, widths[-1])
    target[torch.rand(target.shape, generator=generator) < 0.3] = torch.nan
    return draw(count, widths[0]), weights, biases, target, draw(widths[-1]), draw(widths[-1]).abs() + 0.1


def differentiated(function, inputs: tuple, loss: str) -> tuple[torch.Tensor, ...]:
    """Loss, sums and three times the gradients."""
    x, weights, biases, *rest = inputs
    parameters = [tensor.clone().requires_grad_() for tensor in (x, *weights, *biases)]
    k = 1 + len(weights)
    value, sums = function(parameters[0], parameters[1:k], parameters[k:], *rest, loss, 0.5)
    return value.detach(), sums, *torch.autograd.grad(3 * value, parameters)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(("count", "widths"), SIZES, ids=str)
def test_against_float64(count, widths, dtype):
    from molgcn import _cpu
    from molgcn.ops.head_loss import head_loss, head_loss_reference
    from molgcn.ops.masked_loss import LOSSES

    inputs = example(count, widths, dtype)
    exact = [[t.double() for t in some] if isinstance(some, list) else some.double() for some in inputs]
    tolerance = 2e-6 if dtype == torch.float32 else 1e-14
    for loss in LOSSES:
        expected = differentiated(head_loss_reference, exact, loss)
        for name in _cpu.instruction_sets():
            _cpu.use_instruction_set(name)
            try:
                found = differentiated(head_loss, inputs, loss)
            finally:
                _cpu.use_instruction_set(_cpu.instruction_sets()[0])
            for one, other in zip(found, expected, strict=True):
                assert (one.double() - other).norm() <= tolerance * other.norm() + 1e-12


def test_nothing_is_known():
    from molgcn.ops.head_loss import head_loss

    x, weights, biases, target, mean, std = example(5, (4, 3, 2))
    inputs = (x, weights, biases, target.fill_(torch.nan), mean, std)
    value, sums, *gradients = differentiated(head_loss, inputs, "mse")
    assert value == 0 and sums.tolist() == [0, 0] and not any(gradient.any() for gradient in gradients)


def test_nan_comes_through():
    from molgcn.ops.head_loss import head_loss

    x, *rest = example(70, (4, 3, 2))
    x[69, 0] = torch.nan
    assert head_loss(x, *rest, "l1")[0].isnan()


def test_contract_of_an_operator():
    from molgcn.ops.head_loss import head_loss

    x, weights, biases, *rest = example(40, (16, 8, 2))
    parameters = x.requires_grad_(), [weight.requires_grad_() for weight in weights], [bias.requires_grad_() for bias in biases]
    torch.library.opcheck(torch.ops.molgcn.head_loss.default, (*parameters, *rest, "huber", 0.5))
    compiled = torch.compile(lambda x: head_loss(x, weights, biases, *rest, "l1")[0], backend="aot_eager", fullgraph=True)
    torch.testing.assert_close(compiled(x), head_loss(x, weights, biases, *rest, "l1")[0], rtol=0, atol=0)


def test_there_is_no_second_derivative():
    from molgcn.ops.head_loss import head_loss

    x, *rest = example(9, (4, 3, 2))
    (gradient,) = torch.autograd.grad(head_loss(x.requires_grad_(), *rest, "mse")[0], x, create_graph=True)
    with pytest.raises(RuntimeError, match="head_loss has no second derivative"):
        gradient.sum().backward()


def test_what_does_not_fit_is_refused():
    from molgcn.ops.head_loss import head_loss

    x, weights, biases, target, mean, std = example(6, (4, 3, 2))
    with pytest.raises(ValueError, match="expected float32 or float64 on the CPU throughout, got torch"):
        head_loss(x, weights, biases, target, mean.double(), std, "mse")
    for wrong in (
        (x, weights[1:], biases[1:], target, mean, std),
        (x, weights, biases[1:], target, mean, std),
        (x, weights, biases, target[:3], mean, std),
    ):
        with pytest.raises(ValueError, match="do not fit together"):
            head_loss(*wrong, "mse")
