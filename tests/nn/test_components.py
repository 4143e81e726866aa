"""Networks for rows of several molecules concatenate the encoders' states of all components."""

import copy

import pytest
import torch
from network_cases import COMPONENTS, NUM_FEATURES, fitting, joined
from torch import nn
from torch_geometric.data import Batch

from molgcn.data import GraphBatch
from molgcn.errors import UserError
from molgcn.nn import MoleculeNet
from molgcn.nn.registry import layer_names
from molgcn.ops import HAS_CPU_EXTENSION

pytestmark = pytest.mark.usefixtures("one_thread")
FUSED = ["fused"] if HAS_CPU_EXTENSION else []
EXACT = {"rtol": 1e-10, "atol": 1e-10}
OPTIONS = {"norm": "batch", "residual": True, "feed_forward": True, "head_layers": 1, "pool": "attention", "readout": "all", "rwse": 4}


def network(conv, backend="reference", **more):
    torch.manual_seed(0)
    options = fitting(conv, {**OPTIONS, "rwse_dim": 3, **more})
    return MoleculeNet(NUM_FEATURES, 12, 3, 2, conv=conv, backend=backend, num_components=2, **options).double().eval()


def by_hand(model):
    """Return the predictions of the head on the states that each component's encoder gives for its own batch."""
    states = []
    for number, data in enumerate(COMPONENTS):
        one = copy.deepcopy(model if model.shared_encoder or number == 0 else model.encoders[number - 1])
        one.encoders, one.num_components, one.head, one.descriptors = nn.ModuleList(), 1, nn.Identity(), None
        states.append(one(Batch.from_data_list(data)))
    return model.head(torch.cat(states, 1))


@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("conv", layer_names())
def test_it_is_the_encoders_side_by_side(conv, shared):
    batch = joined()
    for backend in ("reference", "pyg", *FUSED):
        model = network(conv, backend, shared_encoder=shared)
        expected = by_hand(model)
        torch.testing.assert_close(model(batch), expected, **EXACT)
        torch.testing.assert_close(model(GraphBatch.from_pyg(batch)), expected, **EXACT)


@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("conv", layer_names())
@pytest.mark.skipif(not FUSED, reason="needs the C++ extension")
def test_fused_gives_the_gradients_of_the_reference(conv, shared):
    for options in ({}, {"pool": "mean", "readout": "last", "rwse": 0, "feed_forward": False}):  # the second with gcn is its own operator
        models = [network(conv, backend, shared_encoder=shared, **options).train() for backend in ("reference", "fused")]
        for model in models:
            model(joined()).square().sum().backward()
        for one, other in zip(*(model.parameters() for model in models), strict=True):
            torch.testing.assert_close(other.grad, one.grad, **EXACT)
        for one, other in zip(*(model.buffers() for model in models), strict=True):
            torch.testing.assert_close(other, one, **EXACT)


@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("backend", ["reference", *FUSED])
@pytest.mark.parametrize("conv", layer_names())
def test_padding_does_not_count(conv, backend, shared):
    """Unused places of a slot, which hold rows of an earlier batch, do not change outputs, gradients and statistics."""
    batch, model = GraphBatch.from_pyg(joined()), network(conv, backend, shared_encoder=shared)

    def longer(tensor, count, value):
        return torch.cat([tensor, torch.full((count, *tensor.shape[1:]), value, dtype=tensor.dtype)])

    graph = (
        longer(batch.x, 3, 7),
        longer(batch.ptr, 2, batch.num_nodes),
        longer(batch.rowptr, 3, batch.num_edges),
        longer(batch.col, 4, 10**6),
    )
    rows = {"edge_attr": longer(batch.edge_attr, 4, 7), "rwse": longer(batch.rwse, 3, 7), "component": longer(batch.component, 3, 1)}
    slot = GraphBatch(*graph, torch.zeros(5, 1), tile_nodes=64, **rows)
    slot.counts = torch.tensor([3, batch.num_nodes, batch.num_edges, 1], dtype=torch.int32)
    for training in (False, True):
        plain, padded = (copy.deepcopy(model).train(training) for _ in range(2))
        expected, found = plain(batch), padded(slot)[:3]
        torch.testing.assert_close(found, expected, **EXACT)
        for outputs in (expected, found):
            outputs.square().sum().backward()
        for one, other in zip(plain.parameters(), padded.parameters(), strict=True):
            torch.testing.assert_close(other.grad, one.grad, **EXACT)
        for one, other in zip(plain.buffers(), padded.buffers(), strict=True):
            torch.testing.assert_close(other, one, **EXACT)


def test_own_encoders_differ_and_are_the_same_on_every_backend():
    one, other = (network("gin", backend, shared_encoder=False) for backend in ("reference", "pyg"))
    assert [*one.state_dict()] == [*other.state_dict()]
    assert all(torch.equal(value, other.state_dict()[key]) for key, value in one.state_dict().items())
    weights = [next(parameter for parameter in encoder.convs.parameters() if parameter.dim() == 2) for encoder in (one, *one.encoders)]
    assert not torch.equal(*weights)
    moved = one.on_backend("pyg")
    torch.testing.assert_close(moved(joined()), one(joined()), **EXACT)


@pytest.mark.parametrize("shared", [True, False])
def test_a_batch_without_components_is_refused(shared):
    batch = joined()
    del batch.component
    with pytest.raises(UserError, match="reads `component`"):
        network("gin", shared_encoder=shared)(batch)


def test_components_that_are_not_sorted_are_refused():
    batch = joined()
    batch.component = 1 - batch.component
    with pytest.raises(UserError, match="`component` is not sorted within a row"):
        GraphBatch.from_pyg(batch)
