"""Refuse networks with other layers than they were made with, whose weights backend=fused would read without calling them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from torch import nn
from torch.nn.utils.parametrize import type_before_parametrizations

from molgcn.errors import UserError
from molgcn.nn.members import LAYERS

if TYPE_CHECKING:
    from molgcn.nn.backbone import Backbone


def types_of_layers(network: Backbone) -> frozenset[tuple[str, str, type]]:
    """Return the types of the modules in a network's layers, each with its place in a layer."""
    return frozenset((part, name, type_before_parametrizations(module)) for part, name, module in _modules_of_layers(network))


def refuse_replaced(network: Backbone) -> None:
    """Raise an error if a module in a layer is of another type than the network was made with, or if it has a `forward` of its own."""
    for part, name, module in _modules_of_layers(network):
        if (part, name, type_before_parametrizations(module)) not in network.types_of_layers or "forward" in vars(module):
            raise UserError(
                f"A {type(module).__name__} in {part} is not the module, or has not the method, that the network was made with. "
                "backend=fused would never call it, since it runs all layers as one operator, and other backends make layers anew. To "
                "replace layers, make the network with backend=reference or backend=pyg and stay there. Head and embeddings may be "
                "replaced anywhere."
            )


def _modules_of_layers(network: Backbone) -> Iterator[tuple[str, str, nn.Module]]:
    for part in LAYERS:
        for layer in getattr(network, part):
            for name, module in layer.named_modules(remove_duplicate=False):
                if "parametrizations" not in name.split("."):  # these compute weights, which the operator asks for
                    yield part, name, module
    yield "activate", "", network.activate
