"""Networks for rows of several molecules concatenate the encoders' states of all components."""

import copy

import pytest
import torch
from network_cases import CHAIN, NUM_FEATURES, fitting, molecule, random_molecule
from torch import nn
from torch_geometric.data import Batch

from molgcn.data import GraphBatch
from molgcn.errors import UserError
from molgcn.nn import MoleculeNet
from molgcn.nn.registry import layer_names

pytestmark = pytest.mark.usefixtures("one_thread")
EXACT = {"rtol": 1e-10, "atol": 1e-10}
OPTIONS = {"norm": "batch", "residual": True, "feed_forward": True, "head_layers": 1, "pool": "attention", "readout": "all", "rwse": 4}
COMPONENTS = [
    [molecule(4, CHAIN), random_molecule(9, 12, 2), molecule(1, [])],
    [molecule(1, [], 3), molecule(6, CHAIN, 4), random_molecule(30, 40, 5)],
]


def network(conv, backend="reference", **more):
    torch.manual_seed(0)
    options = fitting(conv, {**OPTIONS, "rwse_dim": 3})
    return MoleculeNet(NUM_FEATURES, 12, 3, 2, conv=conv, backend=backend, num_components=2, **options, **more).double().eval()


def joined():
    """Return the rows with one graph each, as :func:`molgcn.data.components.join_components` makes them."""
    apart = Batch.from_data_list([one for row in zip(*COMPONENTS, strict=True) for one in row])
    apart.component = (apart.batch % 2).int()
    apart.batch, apart._num_graphs, apart.ptr = apart.batch // 2, 3, apart.ptr[::2]
    apart.edge_index, apart.edge_attr = apart.edge_index, apart.edge_attr
    del apart.descriptors
    return apart


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
    for backend in ("reference", "pyg"):
        model = network(conv, backend, shared_encoder=shared)
        torch.testing.assert_close(model(joined()), by_hand(model), **EXACT)
        torch.testing.assert_close(model(GraphBatch.from_pyg(joined())), by_hand(model), **EXACT)


@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("conv", layer_names())
def test_padding_does_not_count(conv, shared):
    """Unused places of a slot, which hold rows of an earlier batch, do not change outputs, gradients and statistics."""
    batch, model = GraphBatch.from_pyg(joined()), network(conv, shared_encoder=shared)

    def longer(tensor, count, value):
        return torch.cat([tensor, torch.full((count, *tensor.shape[1:]), value, dtype=tensor.dtype)])

    graph = longer(batch.x, 3, 7), longer(batch.ptr, 2, batch.num_nodes), longer(batch.rowptr, 3, batch.num_edges), longer(batch.col, 4, 0)
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


def test_fused_has_no_operators_for_them():
    with pytest.raises(UserError, match="its rows are several molecules each"):
        MoleculeNet(6, 8, 2, 1, conv="gcn", backend="fused", num_components=2)
    assert MoleculeNet(6, 8, 2, 1, conv="gcn", num_components=2).backend.name == "reference"
