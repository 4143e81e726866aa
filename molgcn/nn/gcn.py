"""The one model definition; the backend chooses how its layers are computed."""

from __future__ import annotations

from typing import Any, Literal

import torch
from torch import Tensor, nn

from molgcn.data.batch import GraphBatch
from molgcn.nn.backend import Backend, backend_module, check_strategy, resolve_backend
from molgcn.nn.hooks import has_hooks
from molgcn.nn.init import INITIALISERS
from molgcn.nn.options import check_options, check_sizes
from molgcn.ops.head_loss import Objective, loss_of

Norm = Literal["batch", "layer"] | None
Pool = Literal["mean", "sum", "max"]


class GCN(nn.Module):
    r"""A deep graph convolutional network with global pooling and a linear head.

    With :math:`H_0 = X` (or :math:`X E` if `embed`) and, for the layers :math:`l = 0 \ldots L-1`,

    .. math::
        H_{l+1} = \mathrm{dropout}(\mathrm{relu}(\mathrm{norm}(\hat A H_l W_l + b_l))) \; (+ H_l),
        \qquad \hat A = D^{-1/2} (A + I) D^{-1/2},

    where the last layer is :math:`\hat A H W + b` (plus :math:`H`) unless `last_activation`. The molecules' atoms are then pooled and
    the head applied. Duplicate bonds count twice; existing self-loops are not doubled (PyG's `add_remaining_self_loops`).

    Source: Kipf and Welling, "Semi-Supervised Classification with Graph Convolutional Networks", ICLR 2017, equation 2; residual
    connection and order of norm and relu as in Dwivedi et al., "Benchmarking Graph Neural Networks", JMLR 2023, equation 12.

    Args:
        in_channels: features an atom, F.
        hidden_channels: width of every layer, H.
        num_layers: graph convolutions, L.
        out_channels: targets, T.
        backend: "fused" (this project's operators), "pyg" (PyTorch Geometric's layers) or "auto" (the best that this machine has).
        strategy: how the fused operator parallelises; "auto" chooses.
        dropout: probability that an activation is zeroed in training.
        norm: "batch", "layer" (over one atom's features) or None.
        residual: add a layer's input to its output where the widths agree.
        pool: "mean", "sum" or "max" over a molecule's atoms.
        add_self_loops: False leaves the identity out of :math:`\hat A`.
        embed: map the features to H columns by a matrix without bias before the first layer.
        last_activation: treat the last layer like the others.
        head_layers: hidden layers of the head, each half as wide as the one before, relu between; 0 is one linear map.
        init: of the convolutions: "glorot" (PyG's) or "kaiming" (keeps the scale of activations through relu).

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
        backend: Literal["auto", "fused", "pyg"] = "auto",
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
        super().__init__()
        check_sizes(in_channels, hidden_channels, num_layers, out_channels)
        check_options(hidden_channels, dropout, norm, pool, head_layers, init)
        self.in_channels = in_channels
        self.hidden_channels = hidden_channels
        self.num_layers = num_layers
        self.out_channels = out_channels
        self.dropout = dropout
        self.norm = norm
        self.residual = residual
        self.pool = pool
        self.add_self_loops = add_self_loops
        self.last_activation = last_activation
        self.head_layers = head_layers
        self.init = init
        self._backend = resolve_backend(backend, hidden_channels).name
        self.strategy = check_strategy(strategy, self._backend)

        with torch.random.fork_rng(devices=[]):  # the layers' constructors draw numbers too, differently on each backend
            self.embed = nn.Linear(in_channels, hidden_channels, bias=False) if embed else None
            widths = [hidden_channels if embed else in_channels] + [hidden_channels] * num_layers
            self.convs = nn.ModuleList(self.backend.conv(self, widths[i], widths[i + 1]) for i in range(num_layers))
            num_norms = num_layers if last_activation else num_layers - 1
            self.norms = nn.ModuleList(_NORMS[norm](hidden_channels) for _ in range(num_norms)) if norm else nn.ModuleList()
            self.head = _head(hidden_channels, out_channels, head_layers)
        self.reset_parameters()

    @property
    def backend(self) -> Backend:
        """What computes the layers; looked up by name, so that the model can be copied and saved."""
        return backend_module(self._backend)

    def reset_parameters(self) -> None:
        """Draws the convolutions by `init` with zero biases, the embedding and the head as torch's `Embedding` and `Linear` are drawn.

        The order is fixed: one seed gives one set of weights on every backend.
        """
        if self.embed is not None:
            nn.init.normal_(self.embed.weight)
        for conv in self.convs:
            INITIALISERS[self.init](conv.lin.weight)  # type: ignore[union-attr, arg-type]
            nn.init.zeros_(conv.bias)  # type: ignore[arg-type]
        for layer in [*self.norms, *self.head.modules()]:
            if isinstance(layer, (nn.Linear, nn.BatchNorm1d, nn.LayerNorm)):
                layer.reset_parameters()

    def forward(self, batch: GraphBatch | Any) -> Tensor:
        """Predictions [B, T] for a batch of B molecules."""
        return self.backend.predictions(self, batch)

    def loss(self, batch: GraphBatch | Any, objective: Objective) -> tuple[Tensor, Tensor]:
        """The loss of :meth:`forward`'s predictions, in fewer operators where the backend has some; see :func:`molgcn.ops.head_loss`."""
        if has_hooks(self):  # they are called with predictions
            return loss_of(self(batch), objective, fused=self._backend == "fused")
        return self.backend.loss(self, batch, objective)

    @property
    def linears(self) -> list[nn.Linear] | None:
        """The head's linear maps, where it is nothing but these, with biases, and relu between them; hooks would not be called."""
        parts: list[Any] = list(self.head) if isinstance(self.head, nn.Sequential) else [self.head]
        alternate = all(type(part) is (nn.ReLU if place % 2 else nn.Linear) for place, part in enumerate(parts)) and len(parts) % 2 == 1
        return (
            parts[::2]
            if alternate and not any(map(has_hooks, [self.head, *parts])) and all(part.bias is not None for part in parts[::2])
            else None
        )

    def layer_options(self, index: int) -> tuple[nn.Module | None, bool, bool]:
        """The norm of layer `index`, whether relu and dropout follow, and whether its input is added."""
        activated = self.last_activation or index < self.num_layers - 1
        norm = self.norms[index] if self.norm and activated else None
        same_width = index > 0 or self.embed is not None or self.in_channels == self.hidden_channels
        return norm, activated, self.residual and same_width

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}({self.in_channels}, {self.hidden_channels}, num_layers={self.num_layers}, "
            f"out_channels={self.out_channels}, backend='{self.backend.name}')"
        )


_NORMS = {"batch": nn.BatchNorm1d, "layer": nn.LayerNorm}


def _head(channels: int, out_channels: int, head_layers: int) -> nn.Module:
    if head_layers == 0:
        return nn.Linear(channels, out_channels)
    widths = [channels // 2**i for i in range(head_layers + 1)]
    layers: list[nn.Module] = []
    for narrow, wide in zip(widths[1:], widths, strict=False):
        layers += [nn.Linear(wide, narrow), nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(widths[-1], out_channels))
