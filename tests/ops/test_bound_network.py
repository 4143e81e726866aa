"""A network bound to its addresses gives what the operator gives; tests/training/steps/test_direct.py trains with it."""

import pytest
import torch
from compiler import needs_extension
from stack_cases import changed, gcn, random_batch, random_inputs

pytestmark = [needs_extension, pytest.mark.usefixtures("one_thread")]


@pytest.mark.parametrize("atoms", [0, 1, 20])
def test_room_grows_from_the_batch_that_it_was_made_of(atoms):
    from molgcn.ops.bound_network import BoundNetwork  # this import needs the extension

    inputs = random_inputs(random_batch([9, 30, 5, 200], 6), 16, 4, norm="batch", training=True, residual=True)
    first = random_inputs(random_batch([max(atoms, 1)], 6), 16, 4, norm="batch", training=True, residual=True)
    made_of = inputs._replace(graph=first.graph)
    if atoms == 0:
        x, ptr, rowptr, col = first.graph.x.detach()[:0], torch.zeros_like(first.graph.ptr), first.graph.rowptr[:1], first.graph.col[:0]
        made_of = changed(made_of, x=x, ptr=ptr, rowptr=rowptr, col=col)
    expected = gcn(inputs).pooled
    gradients = torch.autograd.grad(expected.sum(), inputs.parameters.tensors)
    bound = BoundNetwork(made_of, [torch.zeros((), dtype=torch.int64) for _ in inputs.parameters.norm_weights])
    graph = inputs.graph
    pooled = bound.forward((4, graph.num_nodes, graph.col.shape[0]), graph.x.detach(), graph.ptr, graph.rowptr, graph.col)
    bound.backward(torch.ones_like(pooled))
    assert torch.equal(pooled, expected)
    assert all(torch.equal(one, other) for one, other in zip(bound.gradients, gradients, strict=True))
