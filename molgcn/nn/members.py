"""Find a network's parameters, buffers and modules by name, without looking each name up at every step."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from operator import attrgetter
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import nn


class Members:
    """The members of some `parts` of a network, the names of its attributes.

    Looking up a dotted name takes half a microsecond for each module on the way. So the dictionaries that hold the members are kept: a
    tensor that has been replaced is found in its dictionary, and modules are compared with those that were there.

    Attributes:
        modules: All modules inside of the parts.
    """

    def __init__(self, network: nn.Module, parts: Sequence[str]) -> None:
        held: list[nn.Module] = [getattr(network, part) for part in parts]
        self.modules = [module for part in held for module in part.modules()]
        holders = [(network._modules, [*parts]), *((module._modules, [*module._modules]) for module in self.modules)]
        self._links = [(children, name) for children, names in holders for name in names]
        self._children = [children[name] for children, name in self._links]
        self._holders = [children for children, _ in holders]
        self._sizes = [*map(len, self._holders)]
        self._places: dict[int, tuple[Collection[str], list[tuple[Mapping[str, Any], str]]]] = {}

    def are_current(self) -> bool:
        return [children.get(name) for children, name in self._links] == self._children and [*map(len, self._holders)] == self._sizes

    def named(self, network: nn.Module, names: Collection[str]) -> list[Any]:
        """Return parameters, buffers or modules by their dotted names, in an object that does not change: its places are remembered."""
        if torch.compiler.is_compiling():
            return [attrgetter(name)(network) for name in names]
        if not names:
            return []
        known = self._places.get(id(names))
        if known is None:
            known = self._places[id(names)] = names, [_place(network, name) for name in names]  # keeps `names`, whose id stays its own
        found = [holder.get(name) for holder, name in known[1]]
        if type(None) in {*map(type, found)}:  # not there, or computed by a hook or a parametrization
            return [attrgetter(name)(network) for name in names]
        return found


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
