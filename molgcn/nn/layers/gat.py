"""`gat`: a sum over the neighbours and the atom itself, weighted by a softmax of scores of both atoms and the bond."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch import Tensor, nn
from torch.nn import functional as F

from molgcn.nn.init import GlorotLinear
from molgcn.nn.layers.attention import SETTINGS, AttentionLayer, Bonds, attention_steps, pyg_arguments
from molgcn.nn.layers.base import LayerKind, LayerOptions

if TYPE_CHECKING:
    from molgcn.ops.layer_network.builder import Builder


class GATLayer(AttentionLayer):
    r"""Graph attention, equal to PyG's `GATConv`.

    .. math::
        h_i' = \sum_j \alpha_{ij} W h_j + b, \qquad
        \alpha_{ij} = \mathrm{softmax}_j(\mathrm{leaky\_relu}(a_s^T W h_j + a_t^T W h_i + a_e^T W_e e_{ij}))

    where j runs over the neighbours and i itself. The features of an atom's self-loop are the mean over the bonds that end at the atom.

    Source: Veličković et al., "Graph Attention Networks", ICLR 2018, equations 1 to 6.
    """

    att_edge: nn.Parameter | None

    def __init__(self, options: LayerOptions) -> None:
        arguments = pyg_arguments(options, SETTINGS)
        super().__init__(arguments)
        self.lin = GlorotLinear(options.in_channels, self.heads * self.head_channels, bias=False)
        self.att_src, self.att_dst = self.vector(), self.vector()
        self.register_parameter("att_edge", None if options.edge_channels is None else self.vector())
        self.add_shared_parameters(arguments)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        self.draw([self.lin], [self.att_src, self.att_dst, self.att_edge])

    def scores(self, x: Tensor, bonds: Bonds) -> tuple[Tensor, Tensor]:
        """Return the score of each bond and head, and the state that each bond carries."""
        h = self.by_head(self.lin(x))
        from_source, from_target = (h * self.att_src).sum(-1), (h * self.att_dst).sum(-1)
        scores = from_source.index_select(0, bonds.source) + from_target.index_select(0, bonds.target)
        if self.lin_edge is not None and self.att_edge is not None and bonds.edge_attr is not None:
            matrix = (self.by_head(self.lin_edge.weight.T) * self.att_edge).sum(-1)  # W_e^T a_e [edge_channels, heads]: smaller than W_e e
            scores = scores + bonds.edge_attr @ matrix
        return F.leaky_relu(scores, self.negative_slope), h.index_select(0, bonds.source)


def _pyg(options: LayerOptions) -> nn.Module:
    from torch_geometric.nn import GATConv

    return GATConv(**pyg_arguments(options, SETTINGS))


def steps(builder: Builder, options: LayerOptions, h: int) -> int:
    """Add the layer's steps."""
    arguments = pyg_arguments(options, SETTINGS)
    source = builder.linear(h, "lin", arguments["heads"] * arguments["out_channels"], bias="")
    vectors = ("att_src", "att_dst") if options.edge_channels is None else ("att_src", "att_dst", "att_edge")
    return attention_steps(builder, arguments, h, source, vectors)


KIND = LayerKind("gat", GATLayer, _pyg, steps, bonds="optional", attention=True, settings=SETTINGS)
