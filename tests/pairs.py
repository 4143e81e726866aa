"""Choose few of all combinations of several options, such that each two values of two options meet in one of them."""

from __future__ import annotations

from collections.abc import Collection
from itertools import combinations, product
from typing import Any

import pytest


def pairs(*axes: Collection[Any]) -> list[tuple[Any, ...]]:
    """Return a covering design of strength two, made greedily: each combination has as many pairs that have not met yet as possible."""
    every = list(product(*(range(len(axis)) for axis in axes)))
    bits: dict[tuple, int] = {}
    for places in every:
        for pair in combinations(enumerate(places), 2):
            bits.setdefault(pair, 1 << len(bits))
    met = {places: sum(bits[pair] for pair in combinations(enumerate(places), 2)) for places in every}
    chosen, left = [], sum(bits.values())
    while left:
        chosen.append(max(every, key=lambda places: (met[places] & left).bit_count()))
        left &= ~met[chosen[-1]]
    values = [list(axis) for axis in axes]
    return [tuple(own[place] for own, place in zip(values, places, strict=True)) for places in sorted(chosen)]


def parametrize_pairs(names: str, *axes: Collection[Any], slow: bool = False) -> pytest.MarkDecorator:
    """Parametrise a test by several options, so that each two values of two options meet; the slow tier may have all combinations."""
    chosen = pairs(*axes)
    others = [pytest.param(*values, marks=pytest.mark.slow) for values in product(*axes) if slow and values not in chosen]
    return pytest.mark.parametrize(names.split(", "), chosen + others)
