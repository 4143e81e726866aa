"""Symbols and mean atomic masses of the chemical elements, from RDKit."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np


def element_symbol(number: int) -> str:
    """Return the symbol of the element of an atomic number, "*" for 0."""
    return str(_table().GetElementSymbol(number))


def atomic_number(symbol: str) -> int:
    return int(_table().GetAtomicNumber(symbol))


def scaled_mass(number: int) -> float:
    """Return the mean atomic mass of an element, in units of 100 u."""
    return float(_table().GetAtomicWeight(number)) / 100


def element_of_mass(mass: float) -> int:
    """Return the atomic number of the element with a :func:`scaled_mass` in float32, 0 if there is none.

    Only a few synthetic elements have the same mass as another element.
    """
    return _elements_by_mass().get(mass, 0)


@cache
def _elements_by_mass() -> dict[float, int]:
    return {float(np.float32(scaled_mass(number))): number for number in reversed(range(1, _table().GetMaxAtomicNumber() + 1))}


@cache
def _table() -> Any:
    from rdkit.Chem import GetPeriodicTable

    return GetPeriodicTable()
