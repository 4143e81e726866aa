"""Choose few of all combinations of several options, such that each two (or three) values of different options meet in one of them."""

from __future__ import annotations

from collections.abc import Collection
from itertools import combinations, product
from typing import Any

import pytest


def covering(strength: int, *axes: Collection[Any], chosen: Collection[tuple[Any, ...]] = ()) -> list[tuple[Any, ...]]:
    """Return a covering design, made greedily: each combination has as many pairs (triples ...) that have not met yet as possible.

    Args:
        strength: how many options have each of their combinations of values: 2 for pairs.
        axes: the values of each option.
        chosen: combinations that are there already, and are left out.
    """
    values = [list(axis) for axis in axes]
    every = list(product(*(range(len(axis)) for axis in axes)))
    bits: dict[tuple, int] = {}
    for places in every:
        for some in combinations(enumerate(places), strength):
            bits.setdefault(some, 1 << len(bits))
    met = {places: sum(bits[some] for some in combinations(enumerate(places), strength)) for places in every}
    left = sum(bits.values())
    for combination in chosen:
        left &= ~met[tuple(own.index(value) for own, value in zip(values, combination, strict=True))]
    more = []
    while left:
        more.append(max(every, key=lambda places: (met[places] & left).bit_count()))
        left &= ~met[more[-1]]
    return [tuple(own[place] for own, place in zip(values, places, strict=True)) for places in sorted(more)]


def parametrize_pairs(names: str, *axes: Collection[Any], slow: bool = False) -> pytest.MarkDecorator:
    """Parametrise a test by several options, so that each two values of two options meet; the slow tier may have each three of three."""
    chosen = covering(2, *axes)
    others = covering(3, *axes, chosen=chosen) if slow else []
    return pytest.mark.parametrize(names.split(", "), [*chosen, *(pytest.param(*values, marks=pytest.mark.slow) for values in others)])
