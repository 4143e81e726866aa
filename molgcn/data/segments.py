"""Index arithmetic on arrays made of consecutive segments (a molecule's atoms, an atom's bonds)."""

from __future__ import annotations

import numpy as np


def segment_index(starts: np.ndarray, sizes: np.ndarray) -> np.ndarray:
    """Return the positions, int64, of all elements of n segments with the given `starts` and `sizes`, one segment after the other."""
    sizes = np.asarray(sizes, np.int64)
    before = np.cumsum(sizes) - sizes
    return np.repeat(np.asarray(starts, np.int64) - before, sizes) + np.arange(sizes.sum())


def pointers(sizes: np.ndarray, dtype: type = np.int64) -> np.ndarray:
    """Return the offsets [n + 1] of segments of the given sizes [n], starting with 0."""
    ptr: np.ndarray = np.zeros(len(sizes) + 1, dtype)
    np.cumsum(sizes, out=ptr[1:])
    return ptr


def smallest_uint(largest: int) -> type[np.uint8] | type[np.uint16]:
    """Return the smallest type that holds `largest`: uint8 up to 255, else uint16."""
    return np.uint8 if largest <= np.iinfo(np.uint8).max else np.uint16
