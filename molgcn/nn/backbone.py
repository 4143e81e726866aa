"""The part of a network from atoms and bonds to the states that are pooled: embeddings, layers and their norms."""

from __future__ import annotations

from typing import Any, Literal

import torch
from torch import nn

from molgcn.errors import UserError
from molgcn.nn.activations import ACTIVATIONS
from molgcn.nn.backend import Backend, backend_module
from molgcn.nn.encoders import Scale, WalkEncoder
from molgcn.nn.feed_forward import FeedForward
from molgcn.nn.init import draw_layer
from molgcn.nn.layers.base import INNER, LayerKind, LayerOptions
from molgcn.nn.norms import NORMS
from molgcn.nn.registry import get_kind
from molgcn.nn.replaced import refuse_replaced, types_of_layers

Norm = Literal["batch", "layer"] | None
_OF_LAYERS = frozenset(("conv", "activation", "feed_forward_norm", "settings"))  # options of the modules that layers are


class Backbone(nn.Module):
    """The modules of a :class:`molgcn.nn.MoleculeNet` below its head, whose arguments are the attributes."""

    in_channels: int
    hidden_channels: int
    num_layers: int
    conv: str
    edge_channels: int | None
    scaled_channels: int
    scaled_edge_channels: int
    activation: str
    norm: Norm
    residual: bool
    feed_forward: bool
    feed_forward_norm: Norm
    pool: str
    readout: str
    rwse: int
    rwse_dim: int
    bond_rw: int
    last_activation: bool
    init: str | None
    settings: dict[str, Any]
    _backend: str

    def __setattr__(self, name: str, value: Any) -> None:
        """Set an attribute.

        Raises:
            UserError: For another value of an option that the layers were made with.
        """
        if name in _OF_LAYERS and (made := vars(self).get(name, value)) != value:
            raise UserError(
                f"{name}={value!r}: the layers of this network were made with {name}={made!r}. Make another network. Options that are not "
                "of its modules may be changed, such as dropout, pool and residual."
            )
        super().__setattr__(name, value)

    @property
    def kind(self) -> LayerKind:
        """The entry of the layer in the registry, looked up by name, so that the model can be copied and saved."""
        return get_kind(self.conv)

    @property
    def backend(self) -> Backend:
        """The module that computes the layers, looked up by name, so that the model can be copied and saved."""
        return backend_module(self._backend)

    def _build_embeddings(self, embed: bool, embed_bonds: bool) -> None:
        hidden_channels, edge_channels = self.hidden_channels, self.edge_channels
        self.atom_scale = Scale(self.in_channels) if self.scaled_channels else None
        self.bond_scale = Scale(edge_channels) if self.scaled_edge_channels and edge_channels else None
        self.embed = nn.Linear(self.in_channels, hidden_channels - self.rwse_dim, bias=False) if embed else None
        self.rwse_encoder = WalkEncoder(self.rwse, self.rwse_dim) if self.rwse else None
        self.bond_embed = nn.Linear(edge_channels, hidden_channels, bias=False) if embed_bonds and edge_channels else None
        self.bond_rw_encoder = nn.Linear(self.bond_rw, hidden_channels) if self.bond_rw else None

    def _build_layers(self) -> None:
        activated = self.num_layers if self.last_activation else self.num_layers - 1
        self.activate = ACTIVATIONS[self.activation]()
        self.convs = nn.ModuleList(self.backend.conv(self.kind, self._layer(i)) for i in range(self.num_layers if self.kind.stacked else 1))
        norms = [] if self.norm is None else [NORMS[self.norm]] * activated
        self.norms = nn.ModuleList(norm(self.hidden_channels) for norm in norms)
        self.edge_norms = nn.ModuleList(norm(self.hidden_channels) for norm in norms if self.kind.edge_states)
        for norm in self.edge_norms[self.num_layers - 1 :]:  # unused, but published networks count it; DDP would wait for its gradient
            norm.requires_grad_(False)
        blocks = range(self.num_layers if self.feed_forward else 0)
        self.feed_forwards = nn.ModuleList(
            FeedForward(self.hidden_channels, self.feed_forward_norm, ACTIVATIONS[self.activation]) for _ in blocks
        )
        self.types_of_layers = types_of_layers(self)
        self.gate = nn.Linear(self._width, 1) if self.pool == "attention" else None

    def _move_to_backend(self, backend: str) -> None:
        """Take another backend, and layers of it with the same weights, of which the same learn and the same are shared."""
        before, self._backend = self._backend, backend
        if before == backend or "pyg" not in (before, backend):  # fused and reference have the same modules
            return
        refuse_replaced(self)
        like = next(self.parameters())
        shared: dict[nn.Parameter, nn.Parameter] = {}
        for index, conv in enumerate(self.convs):
            with torch.random.fork_rng(devices=[]):
                layer = self.backend.conv(self.kind, self._layer(index)).to(like.device, like.dtype)
            if layer.state_dict().keys() != conv.state_dict().keys():
                raise UserError(
                    f"Layer {index} has weights that are computed from others, as pruning and parametrizations do, which backend={backend} "
                    "cannot take over. Remove these first, or make the network with that backend."
                )
            layer.load_state_dict(conv.state_dict())
            for name, parameter in conv.named_parameters(remove_duplicate=False):
                place, _, own = name.rpartition(".")
                moved = shared.setdefault(parameter, layer.get_parameter(name))
                setattr(layer.get_submodule(place), own, moved.requires_grad_(parameter.requires_grad))
            self.convs[index] = layer.train(conv.training)
        self.types_of_layers = types_of_layers(self)

    @property
    def _width(self) -> int:
        """Return the number of columns of a molecule's pooled states."""
        return self.hidden_channels * (self.num_layers if self.readout == "all" else 1)

    def _layer(self, index: int) -> LayerOptions:
        """Return the options of layer `index`. For a layer that is not stacked the settings include the network's own options."""
        hidden_channels = self.hidden_channels
        atoms = hidden_channels if index > 0 or self.embed is not None else self.in_channels + self.rwse_dim
        bonds = hidden_channels if self.bond_embed is not None or self.bond_rw_encoder is not None else self.edge_channels
        if index > 0 and self.kind.edge_states:
            bonds = hidden_channels
        inner = {} if self.kind.stacked else {name: getattr(self, option) for name, option in INNER.items()}
        return LayerOptions(atoms, hidden_channels, bonds, {**self.settings, **inner})

    def layer_options(self, index: int) -> tuple[nn.Module | None, bool, bool]:
        """Return the norm of layer `index`, whether activation and dropout follow, and whether its input is added."""
        activated = self.kind.stacked and (self.last_activation or index < len(self.convs) - 1)
        norm = self.norms[index] if self.norm and activated else None
        same_width = index > 0 or self.embed is not None or self.in_channels + self.rwse_dim == self.hidden_channels
        return norm, activated, self.residual and same_width

    def _reset_encoder(self) -> None:
        for embedding in (self.embed, self.bond_embed):
            if embedding is not None:
                nn.init.normal_(embedding.weight)
        for index, conv in enumerate(self.convs):
            conv.load_state_dict(draw_layer(self.kind, self._layer(index), self.init))
        others = (self.rwse_encoder, self.bond_rw_encoder, self.edge_norms, self.feed_forwards, self.gate, self.norms)
        for layer in (layer for part in others if part is not None for layer in part.modules()):
            if isinstance(layer, (nn.Linear, nn.BatchNorm1d, nn.LayerNorm)):
                layer.reset_parameters()
