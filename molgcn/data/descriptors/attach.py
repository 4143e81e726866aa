"""Adds descriptors to the molecules of a packed set."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TypeVar

import numpy as np

from molgcn.data.molecule_set import MoleculeSet
from molgcn.errors import UserError, shown

_Set = TypeVar("_Set", bound=MoleculeSet)


def with_descriptors(molecules: _Set, values: np.ndarray, names: Sequence[str] = ()) -> _Set:
    """Return a packed set with additional descriptors, placed before the descriptors that it already has.

    Args:
        molecules: M molecules.
        values: [M, K] numbers, converted to float32.
        names: K names. Default: d0, d1, ...

    Raises:
        UserError: when the shape does not fit, a name occurs twice, or a value is missing or not finite.
    """
    if values.ndim != 2 or len(values) != len(molecules):
        raise UserError(f"The descriptors have shape {list(values.shape)}; expected [{len(molecules)}, K], a row for each molecule.")
    names = tuple(names) or tuple(f"d{i}" for i in range(values.shape[1]))
    all_names = (*names, *molecules.descriptor_names)
    if len(names) != values.shape[1] or len(set(all_names)) < len(all_names):
        raise UserError(f"There are {values.shape[1]} descriptors for the names {list(names)}; expected one name each, none twice.")
    for place, reason in unusable(values, names).items():
        raise UserError(f"Molecule {place}: {reason}. Give every molecule finite descriptors.")
    columns = np.asarray(values, np.float32)
    if molecules.descriptors is not None:
        columns = np.concatenate([columns, molecules.descriptors], axis=1)
    return replace(molecules, descriptors=np.ascontiguousarray(columns), descriptor_names=all_names)


def unusable(values: np.ndarray, names: Sequence[str]) -> dict[int, str]:
    """Return the reason for each row of descriptors [M, K] that cannot be used, by its position.

    A row cannot be used if a value is missing (NaN) or is not finite as float32.
    """
    usable = np.abs(values) <= np.finfo(np.float32).max  # False for NaN
    first = np.argmin(usable, axis=1) if values.shape[1] else np.zeros(len(values), np.int64)
    return {
        place: f"its descriptor '{shown(names[first[place]])}' is {'missing' if np.isnan(values[place, first[place]]) else 'not finite'}"
        for place in np.flatnonzero(~usable.all(axis=1)).tolist()
    }
