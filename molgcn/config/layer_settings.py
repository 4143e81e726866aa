"""The options that only some layers have: names, types and defaults, for the configuration and for the layers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

Activation = Literal["relu", "gelu", "silu", "leaky_relu", "elu", "tanh"]


@dataclass(frozen=True)
class LayerSettings:
    """The keys of conf/model/*.yaml that only some layers have; see `LayerKind.settings`.

    A layer that does not have a key leaves it at its default.
    """

    add_self_loops: bool = True  # whether an atom counts among its own neighbours
    eps: float = 0.0  # the atom itself has weight 1 + eps
    train_eps: bool = False  # whether eps is learnt
    mlp_norm: bool = False  # whether the MLP has batch norm before its activation
    mlp_activation: Activation = "relu"
    aggr: Literal["mean", "sum", "max"] = "mean"  # aggregation over the neighbours
    project: bool = False  # whether the neighbours pass through a linear map and relu first
    normalize: bool = False  # whether every atom's new state is scaled to length 1
    root_weight: bool = True  # whether the atom itself counts
    heads: int = 1  # attention heads
    concat: bool = True  # put heads of out_channels / heads side by side; False averages heads of out_channels
    negative_slope: float = 0.2  # slope below zero of the leaky relu in the scores
    attention_dropout: float = 0.0  # probability that an atom leaves out a neighbour or itself in training
    bias: bool = True  # whether a bias is added at the end
    linear_residual: bool = False  # whether a linear map of the atom's own state is added at the end, PyG's `residual`
    share_weights: bool = False  # whether one map serves the atom itself and its neighbours
    undirected: bool = False  # average the two states of a bond before every round
    message_bias: bool = False  # add a bias to W_i and W_h


def defaults_of(*names: str) -> dict[str, Any]:
    """Return the defaults of a layer's own options by their names, which are fields of :class:`LayerSettings`."""
    return {name: getattr(LayerSettings, name) for name in names}
