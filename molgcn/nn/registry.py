"""The registry of layers that a network can be built from, by the names that `model.name` takes."""

from __future__ import annotations

from importlib.metadata import EntryPoint, entry_points

from molgcn.errors import UserError
from molgcn.nn.layers import dmpnn, gat, gated_gcn, gatv2, gcn, gcn_edge, gin, gine, sage
from molgcn.nn.layers.base import LayerKind

ENTRY_POINTS = "molgcn.layers"
"""The group of entry points under which an installed package names its layers."""

_LAYERS = (gcn, gin, gine, sage, gat, gatv2, gcn_edge, gated_gcn, dmpnn)
_KINDS = {layer.KIND.name: layer.KIND for layer in _LAYERS}


def register(kind: LayerKind) -> None:
    """Add a layer to the registry, so that `model.name` and :class:`molgcn.nn.MoleculeNet` take its name.

    Args:
        kind: the layer.

    Raises:
        UserError: for a name that another layer has.
    """
    if _KINDS.get(kind.name, kind) is not kind:
        raise UserError(f"A layer called {kind.name} is registered already. Give yours another name.")
    _KINDS[kind.name] = kind


def get_kind(name: str) -> LayerKind:
    """Return the layer called `name`. If it belongs to an installed package, that package is imported and its layer registered.

    Raises:
        UserError: for an unknown name, or a package whose layer cannot be loaded.
    """
    if name not in _KINDS:
        installed = _installed()
        if name not in installed:
            raise UserError(
                f"model.name={name!r} is not valid: expected one of {', '.join([*_KINDS, *installed])}. "
                "A layer of your own is found once its package is installed (docs/extending.md)."
            )
        register(_load(installed[name]))
    return _KINDS[name]


def layer_names() -> list[str]:
    return list(_KINDS)


def _installed() -> dict[str, EntryPoint]:
    """Return the entry points of layers in installed packages by name, without importing these packages."""
    return {point.name: point for point in entry_points(group=ENTRY_POINTS)}


def _load(point: EntryPoint) -> LayerKind:
    """Return the layer of an installed package; what cannot be imported or is not a layer of that name is an error."""
    package = point.dist.name if point.dist else "an installed package"
    where = f"The layer {point.name} of {package}, {point.value},"
    try:
        kind = point.load()
    except Exception as error:
        reason = " ".join(f"{type(error).__name__}: {error}".split())
        raise UserError(f"{where} cannot be imported: {reason}. Fix or uninstall the package, or choose another model.name.") from error
    if not isinstance(kind, LayerKind) or kind.name != point.name:
        raise UserError(f"{where} is not a LayerKind called {point.name}. Fix the package's entry point, or choose another model.name.")
    return kind
