"""The deep graph convolutional network."""

from __future__ import annotations

from typing import Literal

from molgcn.nn.backbone import Norm
from molgcn.nn.molecule_net import BackendName, MoleculeNet

Pool = Literal["mean", "sum", "max"]


class GCN(MoleculeNet):
    r"""A deep graph convolutional network with global pooling and a linear head: a :class:`MoleculeNet` of `gcn` layers.

    It starts from :math:`H_0 = X` (or :math:`X E` if `embed`). The layers :math:`l = 0 \ldots L-1` are

    .. math::
        H_{l+1} = \mathrm{dropout}(\mathrm{relu}(\mathrm{norm}(\hat A H_l W_l + b_l))) \; (+ H_l),
        \qquad \hat A = D^{-1/2} (A + I) D^{-1/2},

    where the last layer is :math:`\hat A H W + b` (plus :math:`H`) unless `last_activation`. The states of each molecule's atoms are then
    pooled and the head is applied. Duplicate bonds count twice. Existing self-loops are not doubled (PyG's `add_remaining_self_loops`).

    Source: Kipf and Welling, "Semi-Supervised Classification with Graph Convolutional Networks", ICLR 2017, equation 2; residual
    connection and order of norm and relu as in Dwivedi et al., "Benchmarking Graph Neural Networks", JMLR 2023, equation 12.

    Args:
        in_channels: features per atom, F.
        hidden_channels: width of every layer, H.
        num_layers: number of graph convolutions, L.
        out_channels: number of targets, T.
        backend: "fused" (this project's operators), "pyg" (PyTorch Geometric's layers), "reference" (plain PyTorch) or "auto" (the best
            that this machine has).
        strategy: way that the fused operator parallelises the work; "auto" chooses.
        dropout: probability that an activation is zeroed in training.
        norm: "batch", "layer" (over one atom's features) or None.
        residual: add a layer's input to its output where the widths agree.
        pool: "mean", "sum" or "max" over a molecule's atoms.
        add_self_loops: include the identity in :math:`\hat A`.
        embed: map the features to H columns by a matrix without bias before the first layer.
        last_activation: treat the last layer like the others.
        head_layers: number of hidden layers of the head, each half as wide as the one before, with relu after each. With 0 the head is one
            linear map.
        init: rule that draws the convolutions' matrices: "glorot" (as PyG) or "kaiming" (keeps the scale of activations through relu).

    Shapes:
        - **input:** a :class:`molgcn.data.GraphBatch` or a `torch_geometric.data.Batch` of B molecules
        - **output:** [B, T], standardised values

    Raises:
        UserError: for an option out of range, or a backend that this machine does not have.
    """

    def __init__(
        self,
        in_channels: int,
        hidden_channels: int,
        num_layers: int,
        out_channels: int,
        *,
        backend: BackendName = "auto",
        strategy: str = "auto",
        dropout: float = 0.0,
        norm: Norm = None,
        residual: bool = False,
        pool: Pool = "mean",
        add_self_loops: bool = True,
        embed: bool = False,
        last_activation: bool = False,
        head_layers: int = 0,
        init: Literal["glorot", "kaiming"] = "glorot",
    ) -> None:
        super().__init__(
            in_channels,
            hidden_channels,
            num_layers,
            out_channels,
            conv="gcn",
            backend=backend,
            strategy=strategy,
            dropout=dropout,
            norm=norm,
            residual=residual,
            pool=pool,
            embed=embed,
            last_activation=last_activation,
            head_layers=head_layers,
            init=init,
            add_self_loops=add_self_loops,
        )

    @property
    def add_self_loops(self) -> bool:
        """Whether every atom is its own neighbour."""
        return self.settings["add_self_loops"]
