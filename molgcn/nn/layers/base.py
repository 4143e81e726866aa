"""The description of a message-passing layer: the options that it is built from, and its entry in the registry."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from torch import nn

if TYPE_CHECKING:
    from molgcn.ops.layer_network.builder import Builder

# Maps options of the network to their names among the settings of a layer that is not stacked.
INNER = {"depth": "num_layers", "activation": "activation", "dropout": "dropout"}


@dataclass(frozen=True)
class LayerOptions:
    """The options from which one message-passing layer is built.

    Attributes:
        in_channels: width of the atoms' states before the layer.
        out_channels: width of the atoms' states after the layer.
        edge_channels: width of the bonds' states, or None where the network sees no bonds.
        settings: the layer's own options by name, such as `heads` or `train_eps`; :attr:`LayerKind.settings` lists them.
    """

    in_channels: int
    out_channels: int
    edge_channels: int | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)

    def settings_over(self, defaults: Mapping[str, Any]) -> dict[str, Any]:
        """Return `defaults` with this layer's own settings in their place."""
        return {**defaults, **self.settings}


class Layer(nn.Module):
    """Base of layers in plain PyTorch that draw their linear maps one after another, and begin with a bias of 0 where they have one."""

    def reset_parameters(self) -> None:
        """Draw the linear maps by their own rules, in the order in which they were made, and set the bias to 0."""
        for part in self.children():
            if isinstance(part, nn.Linear):
                part.reset_parameters()
        if isinstance(bias := getattr(self, "bias", None), nn.Parameter):
            nn.init.zeros_(bias)


class NoStepsError(Exception):
    """A layer's steps do not exist for these options. The message is the reason, such as "its mlp_activation is tanh, not relu"."""


@dataclass(frozen=True)
class LayerKind:
    """A layer of the registry, under the name that `model.name` takes.

    Both builders give a module whose `forward(x, edge_index, edge_attr=None)` takes the atoms' states [N, in_channels], the source and
    target of every bond, int64 [2, E], and the bonds' rows [E, edge_channels] where the layer sees them. It returns the atoms' new states
    [N, out_channels], before norm, activation, dropout and residual. A layer with `edge_states` returns these and the bonds' new states
    [E, out_channels]. Both modules can load each other's state dict: their parameters have the same names, those of PyG's layer where there
    is one. Both raise a :class:`molgcn.errors.UserError` for a setting out of range.

    Attributes:
        name: name of the layer, which `model.name` takes.
        reference: builds the layer in plain PyTorch. Kernels are checked against it, it runs where no kernel does, and it is exported.
        pyg: builds PyTorch Geometric's layer, or a `MessagePassing` of this project where PyG has none. None leaves the layer without
            backend=pyg.
        steps: adds the layer's steps to those of a network, for backend=fused, and returns the value that they compute: `steps(builder,
            options, h)` of the atoms' states `h`. Names of parameters are those of the layer's own state dict. The bonds' states are the
            value :attr:`molgcn.ops.layer_network.builder.Builder.bonds`, which a layer with `edge_states` replaces by the new ones. It
            raises :class:`NoStepsError` for options without steps. None leaves the layer without backend=fused.
        bonds: whether the layer sees the features of bonds: "never", "optional" or "always".
        edge_states: whether the layer gives bonds new states.
        stacked: whether a network has `num_layers` of this layer, each followed by norm, activation, dropout and residual. If False, the
            network has one, which gets the network's options :data:`INNER` among its settings.
        attention: whether the reference has `attention_weights`, as :class:`molgcn.nn.layers.attention.AttentionLayer` does.
        counts_atoms: whether the reference's `forward` also takes `count`, the number of real atoms of a padded batch (integer [], or None
            where all are real). A layer with batch norm or several rounds of sums inside needs it.
        settings: the layer's own options with their defaults.
        without: options in :data:`molgcn.nn.options.PLAIN` that a network of this layer cannot have, each with the reason, which errors and
            docs show.
    """

    name: str
    reference: Callable[[LayerOptions], nn.Module]
    pyg: Callable[[LayerOptions], nn.Module] | None = None
    steps: Callable[[Builder, LayerOptions, int], int] | None = None
    bonds: Literal["never", "optional", "always"] = "never"
    edge_states: bool = False
    stacked: bool = True
    attention: bool = False
    counts_atoms: bool = False
    settings: Mapping[str, Any] = field(default_factory=dict)
    without: Mapping[str, str] = field(default_factory=dict)

    @property
    def own_settings(self) -> dict[str, Any]:
        """The settings that are not options of the network."""
        return {name: value for name, value in self.settings.items() if self.stacked or name not in INNER}
