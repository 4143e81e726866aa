"""Check a network's options, with errors that say what to change."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from molgcn.errors import UserError
from molgcn.nn.activations import ACTIVATIONS
from molgcn.nn.init import INITIALISERS
from molgcn.nn.layers.base import LayerKind
from molgcn.nn.norms import NORMS
from molgcn.nn.pooling import POOLS

if TYPE_CHECKING:
    from molgcn.nn.molecule_net import MoleculeNet

NO_EXTENSION = (
    "backend=fused was installed without its C++ extension. With a C++17 compiler present run `pip install -e .` again, or use backend=pyg."
)
READOUTS = ("last", "all")
# The values of a network of layers alone. `LayerKind.without` names the options that must have these values with a layer.
PLAIN: dict[str, Any] = {
    "norm": None,
    "residual": False,
    "feed_forward": False,
    "readout": "last",
    "last_activation": True,
    "embed": False,
    "embed_bonds": False,
    "rwse": 0,
    "bond_rw": 0,
    "init": None,
}


def check_network(model: MoleculeNet, embed: bool, embed_bonds: bool) -> None:
    """Check the options of a network, which it holds as attributes, before its modules are built; the error names the first wrong one."""
    _check_sizes(model)
    _check_choices(model)
    _check_head(model)
    _check_encodings(model, embed, embed_bonds)
    _check_bonds(model.kind, model.edge_channels, embed_bonds)
    values = {**vars(model), "embed": embed, "embed_bonds": embed_bonds}
    for name, reason in model.kind.without.items():
        if values[name] != PLAIN[name]:
            raise UserError(f"{_key(name)}={_shown(values[name])} does not go with {model.kind.name}: {reason}. Use {_shown(PLAIN[name])}.")


def _check_sizes(model: MoleculeNet) -> None:
    if model.in_channels < 1:
        raise UserError(f"in_channels={model.in_channels}: expected at least one feature per atom, batch.x.shape[1].")
    if model.out_channels < 1:
        raise UserError(f"out_channels={model.out_channels}: expected at least one target, batch.targets.shape[1].")
    if model.num_components < 1:
        raise UserError(f"num_components={model.num_components}: expected at least 1 molecule per row.")
    if model.descriptor_channels < 0:
        raise UserError(f"descriptor_channels={model.descriptor_channels}: expected at least 0, batch.descriptors.shape[1].")
    if model.descriptor_limit is not None and model.descriptor_limit <= 0:
        raise UserError(f"model.descriptor_limit={model.descriptor_limit}: expected a number of standard deviations above 0, or null.")
    if model.hidden_channels < 1:
        raise UserError(f"model.hidden_channels={model.hidden_channels}: expected at least 1.")
    if model.num_layers < 1:
        raise UserError(f"model.num_layers={model.num_layers}: expected at least 1.")
    if not 0.0 <= model.dropout < 1.0:
        raise UserError(f"model.dropout={model.dropout}: expected a probability of at least 0 and below 1.")


def _check_choices(model: MoleculeNet) -> None:
    choices: dict[str, tuple[Any, tuple[Any, ...]]] = {
        "activation": (model.activation, tuple(ACTIVATIONS)),
        "norm": (model.norm, (*NORMS, None)),
        "feed_forward_norm": (model.feed_forward_norm, (*NORMS, None)),
        "pool": (model.pool, POOLS),
        "readout": (model.readout, READOUTS),
        "init": (model.init, (*INITIALISERS, None)),
    }
    for name, (value, known) in choices.items():
        if value not in known:
            first, last = ", ".join(map(_shown, known[:-1])), _shown(known[-1])
            raise UserError(f"model.{name}={_shown(value)}: expected {first} or {last}.")


def _check_head(model: MoleculeNet) -> None:
    halves = model.head_layers if model.head_channels is None else 0
    if model.head_layers < 0 or model.hidden_channels >> halves < 1:
        raise UserError(
            f"model.head_layers={model.head_layers}: expected 0 or more, and few enough to halve {model.hidden_channels} channels as often."
        )
    if model.head_channels is not None and min(model.head_channels, default=1) < 1:
        raise UserError(f"model.head_channels={list(model.head_channels)}: expected widths of at least 1.")


def _check_encodings(model: MoleculeNet, embed: bool, embed_bonds: bool) -> None:
    for name in ("rwse", "bond_rw"):
        if getattr(model, name) < 0:
            raise UserError(f"{_key(name)}={getattr(model, name)}: expected a number of random-walk steps, or 0 for none.")
    room = model.hidden_channels - 1 if embed else model.rwse_dim  # the features need at least one column
    if model.rwse and not 1 <= model.rwse_dim <= room:
        raise UserError(
            f"{_key('rwse_dim')}={model.rwse_dim}: expected at least 1 and less than model.hidden_channels={model.hidden_channels}, whose "
            "columns it shares with the atoms' features."
        )
    if model.bond_rw and model.edge_channels is not None and not embed_bonds:
        raise UserError(f"{_key('bond_rw')}={model.bond_rw} is added to the bonds' embedding. Use model.embed_bonds=true with it.")
    if model.bond_rw and model.kind.bonds == "never":
        raise UserError(f"{_key('bond_rw')}={model.bond_rw} does not go with {model.kind.name}, which does not see bonds. Use 0.")


def _check_bonds(kind: LayerKind, edge_channels: int | None, embed_bonds: bool) -> None:
    if edge_channels is not None and edge_channels < 1:
        raise UserError(f"edge_channels={edge_channels}: expected at least one feature per bond, or None.")
    if embed_bonds and edge_channels is None:
        raise UserError("model.embed_bonds=true embeds the features of bonds. Use model.bonds=true with it, or false.")
    if kind.bonds == "never" and edge_channels is not None:
        raise UserError(f"model.bonds=true does not go with {kind.name}, which does not see bonds. Use false, or another network.")
    if kind.bonds == "always" and edge_channels is None:
        raise UserError(
            f"model.bonds=false does not go with {kind.name}, which needs bonds. Use true (in Python edge_channels=), or another network."
        )


def settings_of(kind: LayerKind, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return a layer's own options by name, with the given values in place of their defaults.

    Raises:
        UserError: for an option that the layer does not have.
    """
    for name in given:
        if name not in kind.own_settings:
            has = ", ".join(kind.own_settings) or "none"
            raise UserError(f"model.{name} is not an option of {kind.name}, whose own options are: {has}. Leave it out.")
    return {**kind.own_settings, **given}


def runs_message_network(conv: str, feed_forward: bool, rwse: int, pool: str) -> bool:
    """Return whether `molgcn::message_network` computes all layers and the pooling on backend=fused.

    It computes networks of graph convolutions and nothing else. The arguments are the network's options of these names.
    """
    return conv == "gcn" and not feed_forward and not rwse and pool in ("mean", "sum", "max")


def _key(name: str) -> str:
    return f"model.encodings.{name}" if name in ("rwse", "rwse_dim", "bond_rw") else f"model.{name}"


def _shown(value: Any) -> str:
    return "null" if value is None else str(value).lower() if isinstance(value, bool) else str(value)
