"""Check a network's options, with errors that say what to change."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import chain
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
    "backend=fused has no C++ extension for this machine. With a C++17 compiler present run `pip install -e .` again, or use backend=pyg."
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
    for holds, message in chain(_sizes(model), _choices(model), _encodings(model, embed, embed_bonds), _bonds(model, embed_bonds)):
        if not holds:
            raise UserError(message)
    values = {**vars(model), "embed": embed, "embed_bonds": embed_bonds}
    for name, reason in model.kind.without.items():
        if values[name] != PLAIN[name]:
            raise UserError(f"{_key(name)}={_shown(values[name])} does not go with {model.kind.name}: {reason}. Use {_shown(PLAIN[name])}.")


Checks = Iterator[tuple[bool, str]]
"""What must hold, and the message where it does not."""


def _sizes(model: MoleculeNet) -> Checks:
    yield model.in_channels >= 1, f"in_channels={model.in_channels}: expected at least one feature per atom, batch.x.shape[1]."
    yield model.out_channels >= 1, f"out_channels={model.out_channels}: expected at least one target, batch.targets.shape[1]."
    yield model.num_components >= 1, f"num_components={model.num_components}: expected at least 1 molecule per row."
    descriptors, limit = model.descriptor_channels, model.descriptor_limit
    yield descriptors >= 0, f"descriptor_channels={descriptors}: expected at least 0, batch.descriptors.shape[1]."
    yield limit is None or limit > 0, f"model.descriptor_limit={limit}: expected a number of standard deviations above 0, or null."
    yield model.hidden_channels >= 1, f"model.hidden_channels={model.hidden_channels}: expected at least 1."
    yield model.num_layers >= 1, f"model.num_layers={model.num_layers}: expected at least 1."
    yield 0.0 <= model.dropout < 1.0, f"model.dropout={model.dropout}: expected a probability of at least 0 and below 1."
    layers, hidden = model.head_layers, model.hidden_channels
    few = layers >= 0 and (model.head_channels is not None or hidden >> layers >= 1)
    yield few, f"model.head_layers={layers}: expected 0 or more, and few enough to halve {hidden} channels as often."
    widths = list(model.head_channels or ())
    yield min(widths, default=1) >= 1, f"model.head_channels={widths}: expected widths of at least 1."


def _choices(model: MoleculeNet) -> Checks:
    norms, rules = (*NORMS, None), (*INITIALISERS, None)
    choices = {
        "activation": tuple(ACTIVATIONS),
        "norm": norms,
        "feed_forward_norm": norms,
        "pool": POOLS,
        "readout": READOUTS,
        "init": rules,
    }
    for name, known in choices.items():
        value, first, last = getattr(model, name), ", ".join(map(_shown, known[:-1])), _shown(known[-1])
        yield value in known, f"model.{name}={_shown(value)}: expected {first} or {last}."


def _encodings(model: MoleculeNet, embed: bool, embed_bonds: bool) -> Checks:
    rwse, bond_rw = f"{_key('rwse')}={model.rwse}", f"{_key('bond_rw')}={model.bond_rw}"
    for text, steps in ((rwse, model.rwse), (bond_rw, model.bond_rw)):
        yield steps >= 0, f"{text}: expected a number of random-walk steps, or 0 for none."
    room = model.hidden_channels - 1 if embed else model.rwse_dim  # the features need at least one column
    message = f"{_key('rwse_dim')}={model.rwse_dim}: expected at least 1 and less than model.hidden_channels={model.hidden_channels}, whose"
    yield not model.rwse or 1 <= model.rwse_dim <= room, f"{message} columns it shares with the atoms' features."
    alone = not model.bond_rw or model.edge_channels is None or embed_bonds
    yield alone, f"{bond_rw} is added to the bonds' embedding. Use model.embed_bonds=true with it."
    seen = not model.bond_rw or model.kind.bonds != "never"
    yield seen, f"{bond_rw} does not go with {model.kind.name}, which does not see bonds. Use 0."


def _bonds(model: MoleculeNet, embed_bonds: bool) -> Checks:
    kind, channels = model.kind, model.edge_channels
    yield channels is None or channels >= 1, f"edge_channels={channels}: expected at least one feature per bond, or None."
    yield (
        not embed_bonds or channels is not None,
        "model.embed_bonds=true embeds the features of bonds. Use model.bonds=true with it, or false.",
    )
    blind = f"model.bonds=true does not go with {kind.name}, which does not see bonds. Use false, or another network."
    yield kind.bonds != "never" or channels is None, blind
    needed = f"model.bonds=false does not go with {kind.name}, which needs bonds. Use true (in Python edge_channels=), or another network."
    yield kind.bonds != "always" or channels is not None, needed


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


def _key(name: str) -> str:
    return f"model.encodings.{name}" if name in ("rwse", "rwse_dim", "bond_rw") else f"model.{name}"


def _shown(value: Any) -> str:
    return "null" if value is None else str(value).lower() if isinstance(value, bool) else str(value)
