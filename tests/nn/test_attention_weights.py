"""Attention weights of layers and of the pooling are those that PyG's layers return, whatever backend the network has."""

import pytest
import torch
from network_cases import BATCHES, NUM_DESCRIPTORS, NUM_EDGE_FEATURES, NUM_FEATURES, batch_of, joined, network
from pairs import parametrize_pairs
from torch_geometric.utils import softmax

from molgcn.errors import UserError
from molgcn.nn import MoleculeNet
from molgcn.nn.layers.base import LayerOptions
from molgcn.nn.registry import get_kind, layer_names

pytestmark = pytest.mark.usefixtures("one_thread")

HEADS = [{"heads": 1}, {"heads": 3}, {"heads": 4, "concat": False, "linear_residual": True, "negative_slope": 0.5}]
TIGHT = {torch.float64: {"rtol": 1e-10, "atol": 1e-10}, torch.float32: {"rtol": 0, "atol": 1e-6}}
OPTIONS = {"norm": "batch", "residual": True, "dropout": 0.3, "attention_dropout": 0.2}


def from_pyg(model: MoleculeNet, batch) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Return what the layers of a network on backend=pyg return in evaluation for `return_attention_weights`, in order."""
    model, found = model.on_backend("pyg").eval(), []
    for conv in (conv for encoder in (model, *model.encoders) for conv in encoder.convs):
        conv.register_forward_hook(lambda conv, given, _: found.append(conv.forward(*given, return_attention_weights=True)[1]))
    model(batch)
    return found


@parametrize_pairs("conv, bonds, settings, dtype", ["gat", "gatv2"], [None, NUM_EDGE_FEATURES], HEADS, TIGHT, slow=True)
def test_they_are_those_of_pyg(conv, bonds, settings, dtype):
    torch.manual_seed(0)
    model = MoleculeNet(NUM_FEATURES, 12, 3, 2, conv=conv, edge_channels=bonds, backend="reference", **OPTIONS, **settings).to(dtype)
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.5)
    for name in BATCHES:
        batch = batch_of(name)
        batch.x, batch.edge_attr = batch.x.to(dtype), batch.edge_attr.to(dtype)
        expected = from_pyg(model, batch)
        for backend in ("fused", "pyg"):
            moved = model.on_backend(backend).train()
            before = {key: value.clone() for key, value in moved.state_dict().items()}
            actual = moved.attention_weights(batch)
            assert len(actual) == 3
            for (edges, weights), (its_edges, its_weights) in zip(actual, expected, strict=True):
                assert torch.equal(edges, its_edges)
                assert weights.shape == (edges.shape[1], settings["heads"]) and weights.dtype == dtype
                torch.testing.assert_close(weights, its_weights, **TIGHT[dtype])
            assert moved.training
            torch.testing.assert_close(moved.state_dict(), before, rtol=0, atol=0)


@pytest.mark.parametrize("conv", ["gat", "gatv2"])
def test_encodings_and_embeddings_come_before_them(conv):
    options = {"embed": True, "embed_bonds": True, "rwse": 4, "rwse_dim": 5, "bond_rw": 4, "feed_forward": True, "readout": "all"}
    model, batch = network(conv, {**options, "descriptor_channels": NUM_DESCRIPTORS}), batch_of("many")
    for (edges, weights), (its_edges, its_weights) in zip(model.attention_weights(batch), from_pyg(model, batch), strict=True):
        assert torch.equal(edges, its_edges)
        torch.testing.assert_close(weights, its_weights, **TIGHT[torch.float64])


def test_own_encoders_number_atoms_as_the_batch_does():
    batch = joined()
    model = network("gat", {"pool": "attention"}, num_components=2, shared_encoder=False)
    by_layer = from_pyg(model, batch)
    own = [torch.nonzero(batch.component == number)[:, 0] for number in (0, 1)]
    for layer, (edges, weights) in enumerate(model.attention_weights(batch)):
        parts = [by_layer[layer], by_layer[3 + layer]]
        assert torch.equal(edges, torch.cat([atoms[part[0]] for atoms, part in zip(own, parts, strict=True)], dim=1))
        torch.testing.assert_close(weights, torch.cat([part[1] for part in parts]), **TIGHT[torch.float64])
        assert batch.component[edges[0]].equal(batch.component[edges[1]])
    molecule = batch.batch * 2 + batch.component
    sums = torch.zeros(6, dtype=torch.double).index_add_(0, molecule, model.pool_weights(batch))
    torch.testing.assert_close(sums, torch.ones_like(sums))


@pytest.mark.parametrize("conv", ["gat", "gcn"])
def test_weights_of_the_pooling_are_those_of_pygs_softmax(conv):
    model, batch = network(conv, {"pool": "attention", "readout": "all", "norm": "batch"}), batch_of("many")
    scores = []
    pyg = model.on_backend("pyg").eval()
    pyg.gate.register_forward_hook(lambda *given: scores.append(given[-1]))
    pyg(batch)
    expected = softmax(scores[0], batch.batch)[:, 0]
    for backend in ("fused", "pyg"):
        torch.testing.assert_close(model.on_backend(backend).pool_weights(batch), expected, **TIGHT[torch.float64])


@pytest.mark.parametrize("conv", ["gcn", "gine", "dmpnn"])
def test_a_network_without_attention_names_those_that_have_it(conv):
    model = network(conv, {})
    with pytest.raises(UserError, match=rf"{conv} layers has no attention weights. Networks with attention are model=gat and model=gatv2"):
        model.attention_weights(batch_of("many"))
    with pytest.raises(UserError, match=r"Pooling by mean has no weights of atoms.*model\.pool=attention"):
        model.pool_weights(batch_of("many"))


@pytest.mark.parametrize("name", layer_names())
def test_kinds_say_whether_their_layer_has_weights(name):
    kind = get_kind(name)
    layer = kind.reference(LayerOptions(6, 6, None if kind.bonds == "never" else 6))
    assert hasattr(layer, "attention_weights") == kind.attention
