"""The network of every model: encoders, message-passing layers of one kind, pooling and a head."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any, Literal, Self

import torch
from torch import Tensor, nn

from molgcn.data.batch import GraphBatch
from molgcn.nn.activations import ACTIVATIONS
from molgcn.nn.attention_weights import evaluated, layer_weights, pool_weights
from molgcn.nn.backbone import Backbone, Norm
from molgcn.nn.backend import check_recompute, check_strategy, resolve_backend, why_not_fused
from molgcn.nn.encoders import Descriptors
from molgcn.nn.head import build_head, linears_of
from molgcn.nn.hooks import has_hooks
from molgcn.nn.network_steps import is_plain_gcn
from molgcn.nn.options import check_network, settings_of
from molgcn.ops.head_loss import Objective, loss_of

HEADS = ("head", "atom_head", "bond_head")
BackendName = Literal["auto", "fused", "pyg", "reference"]


class MoleculeNet(Backbone):
    r"""A message-passing network with global pooling and a head.

    :math:`H_0` are the atoms' features, mapped to the hidden width if `embed`, concatenated to encodings of random walks. The layers are

    .. math::
        H_{l+1} = \mathrm{block}(\mathrm{dropout}(\mathrm{act}(\mathrm{norm}(\mathrm{conv}(H_l)))) \; (+ H_l)),

    with a feed-forward block if `feed_forward`. The states of each molecule's atoms are then pooled and concatenated to the molecule's
    descriptors, and the head is applied.

    Args:
        in_channels: features per atom, F.
        hidden_channels: width of every layer, H.
        num_layers: number of layers, L.
        out_channels: number of outputs, T: one for each target, or several.
        conv: name of the layer, one of :func:`molgcn.nn.registry.layer_names`.
        edge_channels: features per bond, D; None leaves them out.
        num_components: molecules per row, k, such as a solute and its solvent. Their pooled states stand side by side before the head.
        shared_encoder: use one encoder for all components; otherwise each component has its own layers and pooling.
        descriptor_channels: numbers per molecule that the head takes beside the pooled states, K. :class:`Descriptors` standardises them.
        scaled_channels: number of the atoms' features, the last ones, that :class:`molgcn.nn.encoders.Scale` standardises.
        scaled_edge_channels: number of the bonds' features, the last ones, that are standardised.
        atom_outputs: places of the outputs that are of atoms, computed from their states by a head of their own.
        bond_outputs: places of the outputs that are of bonds; see :func:`molgcn.nn.forward.bond_inputs`.
        backend: "fused" (this project's operators), "pyg" (PyTorch Geometric's layers), "reference" (plain PyTorch) or
            "auto" (the best that this machine has for the network).
        strategy: way that the fused operator parallelises the work; "auto" chooses.
        recompute: keep only the layers' inputs for backward on a GPU, and compute the other rows again: less memory, more time.
            A network of one layer, as `dmpnn` is, has nothing to gain and keeps its rows.
        activation: "relu", "gelu", "silu", "leaky_relu", "elu" or "tanh", after layers, in feed-forward blocks and in the head.
        dropout: probability that an activation is zeroed in training.
        norm: "batch", "layer" (over one atom's features) or None. It also applies to bonds' states, if the layer has them.
        residual: add a layer's input to its output where the widths agree.
        feed_forward: put a :class:`molgcn.nn.feed_forward.FeedForward` block after every layer.
        feed_forward_norm: norm of the feed-forward blocks: "batch", "layer" or None.
        pool: "mean", "sum", "max", "norm" (the sum divided by 100) or "attention" over a molecule's atoms.
        readout: pool the states of the "last" layer, or those of "all" layers side by side, as PyG's `JumpingKnowledge("cat")`.
        embed: map the atoms' features to the hidden width by a matrix without bias before the first layer.
        embed_bonds: map the bonds' features to the hidden width once for all layers, by a matrix without bias; otherwise each layer maps
            them.
        rwse: return probabilities of random walks per atom, k; 0 for none.
        rwse_dim: columns of an atom's state that encode its return probabilities. The features get the other columns if `embed`.
        bond_rw: probabilities of random walks per bond, k, whose encoding is added to the bond's embedding; 0 for none.
        last_activation: treat the last layer like the others, with norm, activation and dropout.
        head_layers: number of hidden layers of the head. The first is half as wide as the layers, and each next one half as wide as the
            one before.
        head_channels: widths of the head's hidden layers, in place of `head_layers`.
        descriptor_limit: largest distance of a molecule's standardised descriptors from 0, see :class:`Descriptors`; None is no limit.
        init: rule that draws the layers' matrices: "glorot", "kaiming" (keeps the scale of activations through relu), or None, which draws
            each layer as PyG does.
        **settings: the layer's own options, such as `heads`, see :attr:`molgcn.nn.layers.base.LayerKind.settings`.

    Shapes:
        - **input:** a :class:`molgcn.data.GraphBatch` or a `torch_geometric.data.Batch` of B molecules
        - **output:** [B, T], standardised values. With outputs of atoms or bonds, a row for each molecule, atom (if they have outputs) and
          directed bond (if they have), in this order, with 0 in the columns of other rows

    Raises:
        UserError: for an option that is out of range or that the layer cannot have, or a backend that cannot compute the network or that
            this machine does not have.
    """

    def __init__(
        self,
        in_channels: int,
        hidden_channels: int,
        num_layers: int,
        out_channels: int,
        *,
        conv: str = "gine",
        edge_channels: int | None = None,
        num_components: int = 1,
        shared_encoder: bool = True,
        descriptor_channels: int = 0,
        scaled_channels: int = 0,
        scaled_edge_channels: int = 0,
        atom_outputs: Sequence[int] = (),
        bond_outputs: Sequence[int] = (),
        backend: BackendName = "auto",
        strategy: str = "auto",
        recompute: bool = False,
        activation: str = "relu",
        dropout: float = 0.0,
        norm: Norm = None,
        residual: bool = False,
        feed_forward: bool = False,
        feed_forward_norm: Norm = "batch",
        pool: str = "mean",
        readout: str = "last",
        embed: bool = False,
        embed_bonds: bool = False,
        rwse: int = 0,
        rwse_dim: int = 16,
        bond_rw: int = 0,
        last_activation: bool = True,
        head_layers: int = 0,
        head_channels: Sequence[int] | None = None,
        descriptor_limit: float | None = None,
        init: Literal["glorot", "kaiming"] | None = None,
        **settings: Any,
    ) -> None:
        super().__init__()
        self.in_channels = in_channels
        self.hidden_channels = hidden_channels
        self.num_layers = num_layers
        self.out_channels = out_channels
        self.conv = conv
        self.edge_channels = edge_channels
        self.num_components = num_components
        self.shared_encoder = shared_encoder
        self.descriptor_channels = descriptor_channels
        self.scaled_channels = scaled_channels
        self.scaled_edge_channels = scaled_edge_channels
        below = {"atom": list(atom_outputs), "bond": list(bond_outputs)}
        self.outputs = {level: places for level, places in below.items() if places}
        taken = {place for places in self.outputs.values() for place in places}
        every = range(out_channels)  # a checkpoint may claim any number
        self.molecule_outputs: Sequence[int] = [place for place in every if place not in taken] if taken else every
        self.activation = activation
        self.dropout = dropout
        self.norm = norm
        self.residual = residual
        self.feed_forward = feed_forward
        self.feed_forward_norm = feed_forward_norm
        self.pool = pool
        self.readout = readout
        self.rwse = rwse
        self.rwse_dim = rwse_dim if rwse else 0
        self.bond_rw = bond_rw
        self.last_activation = last_activation
        self.head_layers = head_layers
        self.head_channels = head_channels
        self.descriptor_limit = descriptor_limit
        self.init = init
        self.settings = settings_of(self.kind, settings)
        check_network(self, embed, embed_bonds)
        self._backend = resolve_backend(backend, why_not_fused(self)).name
        self.strategy, self.recompute = check_strategy(strategy, self._backend), check_recompute(recompute, self)

        with torch.random.fork_rng(devices=[]):  # reset_parameters draws all weights again, in an order that all backends share
            self._build_embeddings(embed, embed_bonds)
            self._build_layers()
            self._build_own_encoders()
            self._build_head()
        if not any(parameter.is_meta for parameter in self.parameters()):  # of one without memory only names and sizes are looked at
            self.reset_parameters()

    def _build_own_encoders(self) -> None:
        """Give each component after the first its own encoder, a copy of the modules built so far with newly drawn weights."""
        own = 0 if self.shared_encoder else self.num_components - 1
        self.encoders = nn.ModuleList()
        self.encoders.extend([copy.deepcopy(self) for _ in range(own)])

    def _build_head(self) -> None:
        self.descriptors = Descriptors(self.descriptor_channels, self.descriptor_limit) if self.descriptor_channels else None
        width = self.num_components * self._width + self.descriptor_channels
        widths = [self.hidden_channels >> (i + 1) for i in range(self.head_layers)] if self.head_channels is None else self.head_channels
        activation = ACTIVATIONS[self.activation]
        self.head = build_head(width, widths, len(self.molecule_outputs), activation) if self.molecule_outputs else nn.Identity()
        of_atoms, of_bonds = (len(self.outputs.get(level, ())) for level in ("atom", "bond"))
        self.atom_head = build_head(self._width, widths, of_atoms, activation) if of_atoms else None
        width = 2 * self._width + (self.edge_channels or 0)
        self.bond_head = build_head(width, widths, of_bonds, activation) if of_bonds else None

    def reset_parameters(self) -> None:
        """Draw the layers by `init`, embeddings as `torch.nn.Embedding` does and all other modules as torch does.

        The order is fixed, so that a seed gives the same weights on every backend.
        """
        for encoder in (self, *self.encoders):
            encoder._reset_encoder()
        for layer in (layer for head in self.heads for layer in head.modules()):
            if isinstance(layer, nn.Linear):
                layer.reset_parameters()

    def forward(self, batch: GraphBatch | Any) -> Tensor:
        """Return predictions [B, T] for a batch of B molecules."""
        return self.backend.predictions(self, batch)

    def loss(self, batch: GraphBatch | Any, objective: Objective) -> tuple[Tensor, Tensor]:
        """Return the loss of :meth:`forward`'s predictions, computed by fused operators where the backend has them.

        Args:
            batch: B molecules, in a form that :meth:`forward` takes.
            objective: the targets and the loss.

        Returns:
            The mean loss, and float64 [2] with the sum and the number of its terms; see :func:`molgcn.ops.head_loss.head_loss`.
        """
        if has_hooks(self):  # hooks need the predictions
            return loss_of(self(batch), objective, fused=self._backend == "fused")
        return self.backend.loss(self, batch, objective)

    @torch.no_grad()
    def attention_weights(self, batch: GraphBatch | Any) -> list[tuple[Tensor, Tensor]]:
        """Return the attention weights of each layer in evaluation mode, as PyG's `return_attention_weights` gives them.

        They are a pair for each layer: the edges, int64 [2, E'], and the weights of the heads, [E', heads]. The edges are those of the
        batch without self-loops, followed by a self-loop for each atom. The weights of the edges that end at an atom add up to 1.

        Raises:
            UserError: for a network whose layers have no attention.
        """
        return layer_weights(*evaluated(self, batch))

    @torch.no_grad()
    def pool_weights(self, batch: GraphBatch | Any) -> Tensor:
        """Return the weight of each atom in the pooled states of its molecule [N], in evaluation mode, for `pool="attention"`."""
        return pool_weights(*evaluated(self, batch))

    @property
    def heads(self) -> list[nn.Module]:
        """The heads that compute outputs: of molecules, of atoms and of bonds."""
        heads = (self.head if self.molecule_outputs else None, self.atom_head, self.bond_head)
        return [head for head in heads if head is not None]

    @property
    def optional_inputs(self) -> list[str]:
        """The names of the tensors that the network reads from a batch beside `x`, `edge_index` and `batch`.

        They are among `edge_attr`, `rwse`, `bond_rw`, `descriptors` and `component`.
        """
        widths = {"edge_attr": self.edge_channels, "rwse": self.rwse, "bond_rw": self.bond_rw, "descriptors": self.descriptor_channels}
        widths["component"] = self.num_components - 1
        return [name for name, width in widths.items() if width]

    def with_descriptors(self, pooled: Tensor, descriptors: Tensor | None) -> Tensor:
        """Return the head's input: the pooled states [B, H], concatenated to the descriptors [B, K] if the network reads them."""
        return pooled if self.descriptors is None else self.descriptors(pooled, descriptors)

    @property
    def is_plain_gcn(self) -> bool:
        """Whether kernels made for graph convolutions may run the network; see :func:`molgcn.nn.network_steps.is_plain_gcn`."""
        pool = "none" if self.outputs else self.pool
        return is_plain_gcn(self.conv, self.feed_forward, self.rwse, pool, self.readout, self.activation)

    @property
    def linears(self) -> list[nn.Linear] | None:
        """The head's linear maps if a fused operator can compute the head, else None; see :func:`molgcn.nn.head.linears_of`."""
        return linears_of(self.head)

    def on_backend(self, name: BackendName, strategy: str = "auto", recompute: bool = False) -> Self:
        """Return a copy on another backend, with the same options and weights, of which the same learn."""
        moved = copy.deepcopy(self)
        moved._move_to_backend(resolve_backend(name, why_not_fused(self)).name)
        moved.strategy, moved.recompute = check_strategy(strategy, moved._backend), check_recompute(recompute, moved)
        moved.encoders = nn.ModuleList(encoder.on_backend(name) for encoder in self.encoders)  # type: ignore[operator]
        return moved

    def with_head(self, head: nn.Module) -> Self:
        """Return a copy with the same weights and another head, which has outputs of molecules alone."""
        changed = copy.deepcopy(self)
        changed.head, changed.atom_head, changed.bond_head = copy.deepcopy(head), None, None
        changed.outputs = {}
        return changed

    def __repr__(self) -> str:
        more = "" if self.edge_channels is None else f"edge_channels={self.edge_channels}, "
        more += f"num_components={self.num_components}, " if self.num_components > 1 else ""
        for name in ("descriptor_channels", "scaled_channels", "scaled_edge_channels"):
            more += f"{name}={getattr(self, name)}, " if getattr(self, name) else ""
        return (
            f"{type(self).__name__}({self.in_channels}, {self.hidden_channels}, num_layers={self.num_layers}, "
            f"out_channels={self.out_channels}, conv='{self.conv}', {more}backend='{self.backend.name}')"
        )
