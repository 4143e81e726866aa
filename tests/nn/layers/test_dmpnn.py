"""The reference, PyG's `MessagePassing`, a loop over bonds and Chemprop itself agree on directed message passing."""

from types import SimpleNamespace

import pytest
import torch
from edge_layer_cases import GRAPHS, assert_same
from torch import nn

from molgcn.errors import UserError
from molgcn.nn.layers.base import LayerOptions
from molgcn.nn.layers.dmpnn import KIND
from molgcn.nn.layers.propagate import reverse_bonds

SHAPES = pytest.mark.parametrize("graph", GRAPHS.values(), ids=GRAPHS)
SETTINGS = pytest.mark.parametrize(
    "settings",
    [{}, {"depth": 1}, {"depth": 5, "activation": "gelu"}, {"undirected": True}, {"message_bias": True}],
    ids=["defaults", "depth 1", "gelu", "undirected", "message bias"],
)


class Loop(nn.Module):
    """The formulas of Yang et al., computed bond by bond."""

    def __init__(self, layer):
        super().__init__()
        self.W_i, self.W_h, self.W_o, self.act = layer.W_i, layer.W_h, layer.W_o, layer.activation
        self.depth, self.undirected = layer.depth, layer.undirected

    def forward(self, x, edge_index, edge_attr):
        ends = edge_index.T.tolist()
        back = reverse_bonds(edge_index, x.shape[0]).tolist()
        rows = [x[v] if edge_attr is None else torch.cat([x[v], edge_attr[bond]]) for bond, (v, _) in enumerate(ends)]
        first = [self.W_i(row) for row in rows]
        states = [self.act(state) for state in first]
        zeros = self.W_o.bias.new_zeros(self.W_o.out_features)
        for _ in range(1, self.depth):
            if self.undirected:
                states = [(state + states[back[bond]]) / 2 for bond, state in enumerate(states)]
            others = [[u for u, (_, end) in enumerate(ends) if end == v and u != back[bond]] for bond, (v, _) in enumerate(ends)]
            messages = [sum((states[u] for u in bonds), zeros) for bonds in others]
            states = [self.act(h + self.W_h(message)) for h, message in zip(first, messages, strict=True)]
        incoming = [sum((states[u] for u, (_, end) in enumerate(ends) if end == v), zeros) for v in range(x.shape[0])]
        return torch.stack([self.act(self.W_o(torch.cat(pair))) for pair in zip(x, incoming, strict=True)])


@SETTINGS
@SHAPES
def test_pyg_gives_the_same(graph, settings):
    options = LayerOptions(5, 7, 3, settings)
    assert_same(KIND.reference(options).double(), KIND.pyg(options).double(), graph, 5, 3)


@SETTINGS
@SHAPES
def test_a_loop_over_bonds_gives_the_same(graph, settings):
    options = LayerOptions(5, 7, 3, settings)
    assert_same(KIND.reference(options).double(), Loop(KIND.reference(options)).double(), graph, 5, 3)


@SHAPES
def test_without_bonds(graph):
    options = LayerOptions(5, 7, None)
    assert_same(KIND.reference(options).double(), Loop(KIND.reference(options)).double(), graph, 5, None)


def test_chemprops_parameters():
    shapes = {name: tuple(parameter.shape) for name, parameter in KIND.reference(LayerOptions(72, 300, 14)).named_parameters()}
    assert shapes == {"W_i.weight": (300, 86), "W_h.weight": (300, 300), "W_o.weight": (300, 372), "W_o.bias": (300,)}


@pytest.mark.parametrize("settings", [{"depth": 0}, {"activation": "swoosh"}])
def test_settings_out_of_range_are_refused(settings):
    with pytest.raises(UserError, match=next(iter(settings))):
        KIND.reference(LayerOptions(5, 7, 3, settings))


@pytest.mark.peers
@pytest.mark.parametrize(
    "settings",
    [{}, {"depth": 1}, {"depth": 5, "activation": "elu"}, {"undirected": True}, {"message_bias": True}, {"dropout": 0.3}],
    ids=str,
)
@SHAPES
def test_chemprop_gives_the_same(graph, settings):
    from chemprop.nn import BondMessagePassing

    theirs = {"bias" if name == "message_bias" else name: value for name, value in settings.items()}
    chemprop = BondMessagePassing(5, 3, 7, **theirs).double()
    chemprop.register_forward_pre_hook(lambda _, given: batch_of_chemprop(*given))
    assert_same(KIND.reference(LayerOptions(5, 7, 3, settings)).double(), chemprop, graph, 5, 3)


def batch_of_chemprop(x, edge_index, edge_attr):
    """Return the parts of a `BatchMolGraph` that Chemprop's message passing reads."""
    return SimpleNamespace(V=x, E=edge_attr, edge_index=edge_index, rev_edge_index=reverse_bonds(edge_index, x.shape[0]))


@pytest.mark.peers
def test_chemprops_own_batches_give_the_same():
    from chemprop.data import BatchMolGraph
    from chemprop.featurizers import SimpleMoleculeMolGraphFeaturizer
    from chemprop.nn import BondMessagePassing
    from rdkit import Chem

    smiles = ["CC(=O)Oc1ccccc1C(=O)O", "C", "[Na+].[Cl-]", "C1CC1", "N#Cc1ccc2c(c1)C(=O)N(C2)[C@@H](F)/C=C/S"]
    batch = BatchMolGraph([SimpleMoleculeMolGraphFeaturizer()(Chem.MolFromSmiles(text)) for text in smiles])
    batch.V, batch.E = batch.V.double(), batch.E.double()
    assert torch.equal(reverse_bonds(batch.edge_index, len(batch.V)), batch.rev_edge_index)

    chemprop = BondMessagePassing().double()
    ours = KIND.reference(LayerOptions(batch.V.shape[1], 300, batch.E.shape[1])).double()
    ours.load_state_dict(chemprop.state_dict())
    torch.testing.assert_close(ours(batch.V, batch.edge_index, batch.E), chemprop(batch), rtol=1e-10, atol=1e-10)
