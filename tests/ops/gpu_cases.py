"""Inputs and checks that the message network's tests on a GPU share."""

import torch
from stack_cases import changed, converted, gcn, mapped, run

from molgcn.ops.gcn_network import GcnCall

SIZES = [5, 9, 18, 1, 30, 1, 7, 22, 40, 64, 3, 200, 70]


def on_gpu(inputs: GcnCall, dtype: torch.dtype) -> GcnCall:
    return mapped(converted(inputs, dtype), lambda tensor: tensor.detach().cuda().requires_grad_(tensor.requires_grad))


def gradient_of(inputs: GcnCall) -> torch.Tensor:
    shape = (inputs.graph.num_graphs, inputs.network.hidden_channels)
    return torch.sin(torch.arange(shape[0] * shape[1], dtype=torch.float64, device="cuda")).view(shape)


def check_nothing(inputs: GcnCall) -> None:
    """Check a batch without molecules and one of two molecules without atoms."""
    none = torch.zeros(1, dtype=torch.int32, device="cuda")
    empty = changed(inputs, x=inputs.graph.x.detach()[:0].requires_grad_(), ptr=none, rowptr=none, col=none[:0])
    assert run(gcn, empty, gradient_of(empty)).outputs["pooled"].shape == (0, 32)
    atomless = changed(empty, ptr=torch.zeros(3, dtype=torch.int32, device="cuda"))
    result = run(gcn, atomless, gradient_of(atomless))
    assert torch.equal(result.outputs["pooled"], torch.zeros(2, 32, device="cuda"))
    assert not any(gradient.any() for gradient in result.gradients.values())
