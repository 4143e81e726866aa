"""The form of a call: all of it but values, addresses and the numbers of rows of a batch. A call of a known form needs no other check."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from itertools import chain, compress
from typing import Any, NamedTuple, TypeVar

import torch
from torch import Tensor
from torch._C._dynamo.guards import TensorGuards

from molgcn.ops.encode import NUM_TENSORS as TENSORS_OF_ENCODER
from molgcn.ops.encode import EncodeInputs
from molgcn.ops.graph import NUM_TENSORS as TENSORS_OF_GRAPH
from molgcn.ops.layer_network.call import LayerNetworkCall

_MOST_KNOWN = 256  # the most forms that are remembered
_MOST_MADE = 1024  # the most that is remembered for a form
_OF_ROWS = [EncodeInputs._fields.index(name) for name in ("x", "walks")]
_known: dict[Hashable, Form] = {}
Made = TypeVar("Made")


class Sizes(NamedTuple):
    """The numbers of molecules, atoms, bonds, distinct bonds and tiles of a batch; None without coded bonds or tiles."""

    graphs: int
    atoms: int
    bonds: int
    kinds: int | None
    tiles: int | None

    @staticmethod
    def of(call: LayerNetworkCall) -> Sizes | None:
        """Return the sizes of a call, or None if the numbers of rows of its tensors do not agree."""
        (x, bonds, ptr, rowptr, col, code, tile_ptr, counts), (of_atoms, of_bonds) = call.graph.tensors, call.encoders
        assert x is not None and ptr is not None and rowptr is not None and col is not None
        num_atoms, num_bonds, ends = x.shape[0], col.shape[0], ptr.shape[0]
        num_tiles = None if tile_ptr is None else tile_ptr.shape[0] - 1
        num_rows = num_bonds if bonds is None else bonds.shape[0]
        agree = (
            rowptr.shape[0] == num_atoms + 1
            and ends > 0
            and (num_rows == num_bonds if code is None else code.shape[0] == num_bonds)
            and (num_tiles is None or num_tiles >= 0)
            and (counts is None or counts.shape[0] > 2)
            and (of_atoms is None or _has_rows(of_atoms, x, num_atoms))
            and (of_bonds is None or _has_rows(of_bonds, bonds, num_rows))
        )
        kinds = None if code is None or bonds is None else num_rows
        return Sizes(ends - 1, num_atoms, num_bonds, kinds, num_tiles) if agree else None


def _has_rows(inputs: EncodeInputs, rows: Tensor | None, count: int) -> bool:
    return (inputs.x is rows or inputs.x.shape[0] == count) and (inputs.walks is None or inputs.walks.shape[0] == count)


class Form:
    """The form of a call that was checked. It holds no tensor.

    Args:
        call: The call, before its encoders.
        tensors: Its tensors, of the types that PyTorch makes.

    Attributes:
        are_contiguous: Whether all tensors are contiguous.
    """

    def __init__(self, call: LayerNetworkCall, tensors: Sequence[Tensor | None]) -> None:
        self._made: dict[Hashable, Any] = {}
        self._have_rows = have_rows(call)
        self._num_of_rows = TENSORS_OF_GRAPH + sum(TENSORS_OF_ENCODER for inputs in call.encoders if inputs is not None)
        self._types = self._may_be_none(tensors)
        self._kinds = [None if tensor is None else (tensor.shape, tensor.dtype, tensor.device, tensor.stride()) for tensor in tensors]
        places = dict[int, int]()
        first = [places.setdefault(id(tensor), place) for place, tensor in enumerate(tensors)]
        self._tied = [(place, other) for place, other in enumerate(first) if place != other and tensors[place] is not None]
        self._once = [tensor is not None and place == first[place] for place, tensor in enumerate(tensors)]
        self._guards = _guards([*compress(tensors, self._once)], [*compress(self._have_rows, self._once)])
        self._guards_of_kept: TensorGuards | None = None
        self.are_contiguous = all(tensor is None or tensor.is_contiguous() for tensor in tensors)

    def has(self, tensors: Sequence[Tensor | None]) -> bool:
        """Return whether tensors have this form, up to their numbers of rows."""
        same = self._types == self._may_be_none(tensors) and self._guards.check(*compress(tensors, self._once))
        return same and (not self._tied or all(tensors[place] is tensors[other] for place, other in self._tied))

    def _may_be_none(self, tensors: Sequence[Tensor | None]) -> list[type]:
        """Return the types of the tensors that there need not be, of the graph and of encoders. Guards compare all that there are."""
        return [*map(type, tensors[: self._num_of_rows])]

    def has_kept(self, tensors: Sequence[Tensor], chosen: Sequence[bool]) -> bool:
        """Return whether tensors that should be the chosen ones, always the same, have their strides too.

        Raises:
            ValueError: If the shape of a tensor, but for its number of rows, its dtype or its device are others.
        """
        if self._guards_of_kept is not None and self._guards_of_kept.check(*tensors):
            return True
        kinds, varies = [*compress(self._kinds, chosen)], [*compress(self._have_rows, chosen)]
        same = self._check(tensors, kinds, varies) and not self._tied
        if same:  # the first time, or with another setting of autocast, which guards compare too
            self._guards_of_kept = _guards(tensors, varies)
        return same

    def _check(self, tensors: Sequence[Tensor], kinds: Sequence[Any], varies: Sequence[bool]) -> bool:
        same = True
        for tensor, (shape, dtype, device, strides), has_rows in zip(tensors, kinds, varies, strict=True):
            if has_rows:
                shape = torch.Size([*tensor.shape[:1], *shape[1:]])
            if (tensor.shape, tensor.dtype, tensor.device) != (shape, dtype, device):
                raise ValueError(
                    f"layer_network: a tensor of shape {list(shape)} in {dtype} on {device} was saved for backward, and came back with "
                    f"{list(tensor.shape)} in {tensor.dtype} on {tensor.device}"
                )
            same = same and tensor.layout == torch.strided and tensor.stride() == strides
        return same

    def made(self, key: Hashable, make: Callable[[], Made]) -> Made:
        """Return what was made for this form with this key before, or make it."""
        if key not in self._made:
            if len(self._made) >= _MOST_MADE:
                self._made.clear()
            self._made[key] = make()
        found: Made = self._made[key]
        return found


def _guards(tensors: Sequence[Any], have_rows: Sequence[bool]) -> TensorGuards:
    """Return what compares tensors with others, up to their numbers of rows, as `torch.compile` does with its inputs."""
    sizes = [
        [None if varies and axis == 0 else size for axis, size in enumerate(tensor.shape)]
        for tensor, varies in zip(tensors, have_rows, strict=True)
    ]
    strides: list[Any] = [[*tensor.stride()] for tensor in tensors]
    return TensorGuards(*tensors, dynamic_dims_sizes=sizes, dynamic_dims_strides=strides)  # type: ignore[arg-type]


def have_rows(call: LayerNetworkCall) -> list[bool]:
    """Return which tensors of a call have as many rows as there are molecules, atoms, bonds or tiles, and not always the same number."""
    of_encoders = ([place in _OF_ROWS for place in range(TENSORS_OF_ENCODER)] for inputs in call.encoders if inputs is not None)
    others = len(call.parameters) + len(call.statistics) + len(call.head) + len(call.counters)
    of_targets = () if call.objective is None else (True, False, False)
    return [*[True] * TENSORS_OF_GRAPH, *chain.from_iterable(of_encoders), *[False] * others, *of_targets]


def known_form(call: LayerNetworkCall, tensors: Sequence[Tensor | None]) -> tuple[Form, Sizes] | None:
    """Return the form of a call if one like it was checked before, and the sizes of its batch; None otherwise."""
    form = _known.get(_constants(call))
    sizes = Sizes.of(call) if form is not None and form.has(tensors) else None
    return None if form is None or sizes is None else (form, sizes)


def remember_form(call: LayerNetworkCall, tensors: Sequence[Tensor | None]) -> tuple[Form, Sizes]:
    """Return the form of a call that was checked, of tensors of PyTorch's own types, and remember it; and the sizes of its batch."""
    if len(_known) >= _MOST_KNOWN:
        _known.clear()
    form, sizes = Form(call, tensors), Sizes.of(call)
    assert sizes is not None
    _known[_constants(call)] = form
    return form, sizes


def _constants(call: LayerNetworkCall) -> Hashable:
    first, second = call.encoders
    of_encoders = None if first is None else first.options, None if second is None else second.options
    return call.program, call.options, call.graph.hints, of_encoders, len(call.statistics), len(call.head), len(call.counters)
