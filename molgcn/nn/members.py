"""Find a network's parameters, buffers and modules once, and again after one of them or a hook has become another."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from operator import attrgetter
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

import torch
from torch import nn
from torch.utils.hooks import RemovableHandle

from molgcn.nn.held import are_held
from molgcn.nn.hooks import has_hooks

LAYERS = ("convs", "norms", "edge_norms", "feed_forwards")
"""The attributes of a `MoleculeNet` with the parameters of fused layers."""
PARTS = (*LAYERS, "embed", "rwse_encoder", "bond_embed", "bond_rw_encoder", "head")
"""These, and the attributes with what comes before and after the layers."""
Found = TypeVar("Found")


class Members:
    """The members of some `parts` of a network, the names of its attributes. A part may be None, or not be there.

    Looking up a dotted name takes half a microsecond for each module on the way. So what was found is kept, and all that modules hold is
    compared with what they held, object by object. In-place changes of a tensor, its `data` included, are not seen.
    """

    def __init__(self, network: nn.Module, parts: Sequence[str]) -> None:
        held: list[nn.Module] = [module for module in (getattr(network, part, None) for part in parts) if module is not None]
        self.modules = [module for part in held for module in part.modules()]  # all modules inside of the parts
        self.found: dict[Hashable, Any] = {}  # what has been found of these members, by any key
        if torch.compiler.is_compiling():
            return
        self._parents: list[Any] = [network._modules, *(module._modules for module in self.modules)]
        self._children = [child for parent in self._parents for child in parent.values()]
        self._fields = [vars(module) for module in self.modules]
        self._remember()

    def _remember(self) -> None:
        holders = (holder for module in self.modules for holder in (module._parameters, module._buffers))
        self._holders = [holder for holder in (*self._parents, *holders) if holder]
        self._members = [member for holder in self._holders for member in holder.values()]
        self._hooks, self._hooked = RemovableHandle.next_id, self._with_hooks()
        self._num_fields = sum(map(len, self._fields))  # a method that a module has of its own is one more

    def _with_hooks(self) -> list[bool]:
        return [*map(has_hooks, self.modules)]

    def are_current(self) -> bool:
        """Return whether modules, parameters, buffers and the modules with hooks or methods of their own are those that were found."""
        if self._hooks != RemovableHandle.next_id:
            if self._hooked != self._with_hooks():
                return False
            self._hooks = RemovableHandle.next_id
        return sum(map(len, self._fields)) == self._num_fields and are_held(self._holders, self._members)

    def renew(self) -> bool:
        """Forget what was found, for parameters, buffers or hooks that are others, and return whether the modules are the same."""
        if not are_held(self._parents, self._children):
            return False
        self.found.clear()
        self._remember()
        return True

    def hold(self, members: Iterable[Any]) -> bool:
        """Return whether all of these are members, and not computed by a hook or a parametrization at each call."""
        return {*map(id, self._members)}.issuperset(map(id, members))

    def once(self, key: Hashable, find: Callable[[], Found]) -> Found:
        """Return what depends on these members and on which modules have hooks alone."""
        if torch.compiler.is_compiling():
            return find()
        if key not in self.found:
            self.found[key] = find()
        found: Found = self.found[key]
        return found


def named(network: nn.Module, names: Iterable[str], refuse: Callable[[], Exception] | None = None) -> list[Any]:
    """Return parameters, buffers or modules by their dotted names.

    Args:
        network: The network.
        names: The names.
        refuse: Returns the error for a member that is None. By default None is returned.
    """
    found = [attrgetter(name)(network) for name in names]
    if refuse is not None and any(member is None for member in found):
        raise refuse()
    return found


def own_parameters(modules: Iterable[nn.Module]) -> list[Any]:
    """Return weight and bias of modules that have no hooks and are of PyTorch's own types, or None for one that there is not."""
    return [module._parameters.get(name) for module in modules for name in ("weight", "bias")]


_members: WeakKeyDictionary[nn.Module, Members] = WeakKeyDictionary()


def members_of(network: nn.Module, parts: Sequence[str]) -> Members:
    """Return the members of some parts of a network, found anew where they have changed."""
    if torch.compiler.is_compiling():
        return Members(network, parts)
    found = _members.get(network)
    if found is None or not (found.are_current() or found.renew()):
        found = _members[network] = Members(network, parts)
    return found
