"""Find a network's parameters, buffers and modules by name, without looking each name up at every step."""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from operator import attrgetter
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

import torch
from torch import nn
from torch.utils.hooks import RemovableHandle

LAYERS = ("convs", "norms", "edge_norms", "feed_forwards")
"""The attributes of a `MoleculeNet` with the parameters of fused layers."""
PARTS = (*LAYERS, "embed", "rwse_encoder", "bond_embed", "bond_rw_encoder", "head")
"""These, and the attributes with what comes before and after the layers."""
Found = TypeVar("Found")


class Members:
    """The members of some `parts` of a network, the names of its attributes. A part may be None, or not be there.

    Looking up a dotted name takes half a microsecond for each module on the way. So the dictionaries that hold the members are kept: a
    tensor that has been replaced is found in its dictionary, and modules are compared with those that were there.

    Attributes:
        modules: All modules inside of the parts.
    """

    def __init__(self, network: nn.Module, parts: Sequence[str]) -> None:
        held: list[nn.Module] = [module for module in (getattr(network, part, None) for part in parts) if module is not None]
        self.modules = [module for part in held for module in part.modules()]
        holders = [(network._modules, [*parts]), *((module._modules, [*module._modules]) for module in self.modules)]
        self._links = [(children, name) for children, names in holders for name in names]
        self._children = [children.get(name) for children, name in self._links]
        self._holders = [children for children, _ in holders]
        self._sizes = [*map(len, self._holders)]
        self._places: dict[int, tuple[Collection[str], list[tuple[Mapping[str, Any], str]]]] = {}
        self._found: dict[Hashable, Any] = {}
        self._hooks = 0

    def are_current(self) -> bool:
        return [children.get(name) for children, name in self._links] == self._children and [*map(len, self._holders)] == self._sizes

    def once(self, key: Hashable, find: Callable[[], Found]) -> Found:
        """Return what depends on the modules and their hooks alone. It is found again after any hook has been registered."""
        if torch.compiler.is_compiling():
            return find()
        if self._hooks != RemovableHandle.next_id:
            self._found.clear()
            self._hooks = RemovableHandle.next_id
        if key not in self._found:
            self._found[key] = find()
        found: Found = self._found[key]
        return found

    def named(self, network: nn.Module, names: Collection[str], refuse: Callable[[], Exception] | None = None) -> list[Any]:
        """Return parameters, buffers or modules by their dotted names.

        Args:
            network: The network.
            names: The names, in an object that does not change: its places are remembered.
            refuse: Returns the error for a member that is None. By default None is returned.
        """
        if torch.compiler.is_compiling():
            return _searched(network, names, refuse)
        if not names:
            return []
        known = self._places.get(id(names))
        if known is None:
            known = self._places[id(names)] = names, [_place(network, name) for name in names]  # keeps `names`, whose id stays its own
        found = [holder.get(name) for holder, name in known[1]]
        if type(None) in map(type, found):  # not there, or computed by a hook or a parametrization
            return _searched(network, names, refuse)
        return found


def _searched(network: nn.Module, names: Collection[str], refuse: Callable[[], Exception] | None) -> list[Any]:
    found = [attrgetter(name)(network) for name in names]
    if refuse is not None and any(member is None for member in found):
        raise refuse()
    return found


def own_parameters(modules: Iterable[nn.Module]) -> list[Any]:
    """Return weight and bias of modules that have no hooks and are of PyTorch's own types, or None for one that there is not."""
    return [module._parameters[name] for module in modules for name in ("weight", "bias")]


def _place(network: nn.Module, name: str) -> tuple[Mapping[str, Any], str]:
    path, _, last = name.rpartition(".")
    module = attrgetter(path)(network)
    return next((held for held in (module._buffers, module._modules) if last in held), module._parameters), last


_members: WeakKeyDictionary[nn.Module, Members] = WeakKeyDictionary()


def members_of(network: nn.Module, parts: Sequence[str]) -> Members:
    """Return the members of some parts of a network, found anew where its modules have changed."""
    if torch.compiler.is_compiling():
        return Members(network, parts)
    found = _members.get(network)
    if found is None or not found.are_current():
        found = _members[network] = Members(network, parts)
    return found
