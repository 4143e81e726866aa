"""`gatv2`: attention whose scores apply the leaky relu before the attention vector, so that each atom ranks its neighbours differently."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch import Tensor, nn
from torch.nn import functional as F

from molgcn.config.layer_settings import defaults_of
from molgcn.nn.init import GlorotLinear
from molgcn.nn.layers import attention
from molgcn.nn.layers.attention import AttentionLayer, Bonds, attention_steps, pyg_arguments
from molgcn.nn.layers.base import LayerKind, LayerOptions

if TYPE_CHECKING:
    from molgcn.ops.layer_network.builder import Builder

SETTINGS = {**attention.SETTINGS, **defaults_of("share_weights")}


class GATv2Layer(AttentionLayer):
    r"""Graph attention of the second version, equal to PyG's `GATv2Conv`.

    .. math::
        h_i' = \sum_j \alpha_{ij} W_l h_j + b, \qquad
        \alpha_{ij} = \mathrm{softmax}_j(a^T \mathrm{leaky\_relu}(W_l h_j + W_r h_i + W_e e_{ij}))

    where j runs over the neighbours and i itself. The features of an atom's self-loop are the mean over the bonds that end at the atom.

    Source: Brody, Alon and Yahav, "How Attentive are Graph Attention Networks?", ICLR 2022, equation 7.
    """

    def __init__(self, options: LayerOptions) -> None:
        arguments = pyg_arguments(options, SETTINGS)
        super().__init__(arguments)
        width, bias = self.heads * self.head_channels, arguments["bias"]
        self.lin_l = GlorotLinear(options.in_channels, width, bias=bias)
        self.lin_r = self.lin_l if arguments["share_weights"] else GlorotLinear(options.in_channels, width, bias=bias)
        self.att = self.vector()
        self.add_shared_parameters(arguments)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        self.draw([self.lin_l, self.lin_r], [self.att])  # shared maps are drawn twice, as in PyG

    def scores(self, x: Tensor, bonds: Bonds) -> tuple[Tensor, Tensor]:
        """Return the score of each bond and head, and the state that each bond carries."""
        from_source = self.lin_l(x)
        from_target = from_source if self.lin_r is self.lin_l else self.lin_r(x)
        states = from_source.index_select(0, bonds.source)
        sums = states + from_target.index_select(0, bonds.target)
        if self.lin_edge is not None and bonds.edge_attr is not None:
            sums = sums + self.lin_edge(bonds.edge_attr)
        return (self.by_head(F.leaky_relu(sums, self.negative_slope)) * self.att).sum(-1), self.by_head(states)


def _pyg(options: LayerOptions) -> nn.Module:
    from torch_geometric.nn import GATv2Conv

    return GATv2Conv(**pyg_arguments(options, SETTINGS))


def steps(builder: Builder, options: LayerOptions, h: int) -> int:
    """Add the layer's steps."""
    arguments = pyg_arguments(options, SETTINGS)
    width, bias = arguments["heads"] * arguments["out_channels"], None if arguments["bias"] else ""
    source = builder.linear(h, "lin_l", width, bias=bias)
    target = source if arguments["share_weights"] else builder.linear(h, "lin_r", width, bias=bias)
    return attention_steps(builder, arguments, h, source, ("att",), target)


KIND = LayerKind("gatv2", GATv2Layer, _pyg, steps, bonds="optional", attention=True, settings=SETTINGS)
