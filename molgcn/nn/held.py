"""Compare what dictionaries hold with what they held, in C++ (`native/members.cpp`), or in Python where that was not built."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import chain
from operator import is_
from typing import Any

from molgcn.extension import check_format

_END = object()


def are_held_in_python(dictionaries: Sequence[Mapping[str, Any]], values: Sequence[Any]) -> bool:
    """Return whether the values of all dictionaries, one after another, are these very objects."""
    found = chain.from_iterable(dictionary.values() for dictionary in dictionaries)
    return all(map(is_, chain(found, (_END,)), chain(values, (_END,))))


are_held: Callable[[Sequence[Mapping[str, Any]], Sequence[Any]], bool]
"""See :func:`are_held_in_python`, which takes eight times as long."""
try:
    import molgcn._members as _members
except ImportError:
    are_held = are_held_in_python
else:
    check_format(_members)
    are_held = _members.are_held
