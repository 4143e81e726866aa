"""Inputs and checks that the stack operator's tests on a GPU share."""

import torch
from stack_cases import converted, run

from molgcn.ops import StackInputs, gcn_stack

SIZES = [5, 9, 18, 1, 30, 1, 7, 22, 40, 64, 3, 200, 70]


def on_gpu(inputs: StackInputs, dtype: torch.dtype) -> StackInputs:
    def move(value: object) -> object:
        if isinstance(value, list):
            return [move(item) for item in value]
        return value.detach().cuda().requires_grad_(value.requires_grad) if isinstance(value, torch.Tensor) else value

    return StackInputs(*(move(value) for value in converted(inputs, dtype)))  # type: ignore[arg-type]


def gradient_of(inputs: StackInputs) -> torch.Tensor:
    shape = (inputs.num_graphs, inputs.hidden_channels)
    return torch.sin(torch.arange(shape[0] * shape[1], dtype=torch.float64, device="cuda")).view(shape)


def check_nothing(inputs: StackInputs) -> None:
    """No molecules, then two molecules without atoms."""
    none = torch.zeros(1, dtype=torch.int32, device="cuda")
    empty = inputs._replace(x=inputs.x.detach()[:0].requires_grad_(), ptr=none, rowptr=none, col=none[:0])
    assert run(gcn_stack, empty, gradient_of(empty)).outputs["pooled"].shape == (0, 32)
    atomless = empty._replace(ptr=torch.zeros(3, dtype=torch.int32, device="cuda"))
    result = run(gcn_stack, atomless, gradient_of(atomless))
    assert torch.equal(result.outputs["pooled"], torch.zeros(2, 32, device="cuda"))
    assert not any(gradient.any() for gradient in result.gradients.values())
