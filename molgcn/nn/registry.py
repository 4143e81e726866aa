"""The layers that a network can be built of, by the names that `model.name` takes."""

from __future__ import annotations

from molgcn.errors import UserError
from molgcn.nn.layers import dmpnn, gat, gated_gcn, gatv2, gcn, gcn_edge, gin, gine, sage
from molgcn.nn.layers.base import LayerKind

_LAYERS = (gcn, gin, gine, sage, gat, gatv2, gcn_edge, gated_gcn, dmpnn)
_KINDS = {layer.KIND.name: layer.KIND for layer in _LAYERS}


def register(kind: LayerKind) -> None:
    """Add a layer, which `model.name` and :class:`molgcn.nn.MoleculeNet` then take by its name.

    Raises:
        UserError: for a name that is taken.
    """
    if _KINDS.get(kind.name, kind) is not kind:
        raise UserError(f"A layer called {kind.name} is registered already. Give yours another name.")
    _KINDS[kind.name] = kind


def get_kind(name: str) -> LayerKind:
    """Return the layer called `name`.

    Raises:
        UserError: for an unknown name.
    """
    if name not in _KINDS:
        raise UserError(f"model.name={name!r} is not valid: expected one of {', '.join(_KINDS)}.")
    return _KINDS[name]


def layer_names() -> list[str]:
    """Return the names of all layers."""
    return list(_KINDS)
