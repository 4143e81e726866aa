"""A network bound to its addresses gives what the operator gives; tests/training/steps/test_direct.py trains with it."""

import pytest
import torch
from compiler import needs_extension
from stack_cases import random_batch, random_inputs

from molgcn.ops import gcn_stack

pytestmark = [needs_extension, pytest.mark.usefixtures("one_thread")]


@pytest.mark.parametrize("atoms", [0, 1, 20])
def test_room_grows_from_the_batch_that_it_was_made_of(atoms):
    from molgcn.ops.bound_stack import BoundStack  # needs the extension

    inputs = random_inputs(random_batch([9, 30, 5, 200], 6), 16, 4, norm="batch", training=True, residual=True)
    first = random_inputs(random_batch([max(atoms, 1)], 6), 16, 4, norm="batch", training=True, residual=True)
    made_of = inputs._replace(x=first.x, ptr=first.ptr, rowptr=first.rowptr, col=first.col)
    if atoms == 0:
        made_of = made_of._replace(x=first.x.detach()[:0], ptr=torch.zeros_like(first.ptr), rowptr=first.rowptr[:1], col=first.col[:0])
    expected = gcn_stack(inputs)[0]
    parameters = [tensor for tensors in inputs[5:9] for tensor in tensors]
    gradients = torch.autograd.grad(expected.sum(), parameters)
    bound = BoundStack(made_of, [torch.zeros((), dtype=torch.int64) for _ in inputs.norm_weights])
    pooled = bound.forward((4, *inputs.x.shape[:1], inputs.col.shape[0]), inputs.x.detach(), inputs.ptr, inputs.rowptr, inputs.col)
    bound.backward(torch.ones_like(pooled))
    assert torch.equal(pooled, expected)
    assert all(torch.equal(one, other) for one, other in zip(bound.gradients, gradients, strict=True))
