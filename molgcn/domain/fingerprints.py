"""Morgan fingerprints as packed bits, and the search for the largest Tanimoto similarity to a set of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache, partial

import numpy as np

from molgcn.data.fingerprints import BITS, morgan_fingerprint, of_each
from molgcn.data.standardize import Read, item_reader

_WORD = 64  # bits
_AT_ONCE = 8192  # fingerprints unpacked at a time


def morgan_fingerprints(smiles: Sequence[str], standardize: str = "none", num_workers: int | None = 0) -> np.ndarray:
    """Compute Morgan fingerprints (Rogers and Hahn, J. Chem. Inf. Model. 50, 742, 2010) of radius 2 and 2,048 bits.

    Args:
        smiles: M SMILES.
        standardize: the standard form that is computed first, one of :data:`molgcn.data.standardize.LEVELS`.
        num_workers: the number of worker processes; see :func:`molgcn.data.workers.map_chunks`.

    Returns:
        uint8 [M, 256], with eight bits in each number as :func:`numpy.packbits` packs them.
    """
    packed = [*of_each(partial(_packed, standardize=standardize), smiles, num_workers, "fingerprints")]
    return np.array(packed, np.uint8).reshape(-1, BITS // 8)


def _packed(smiles: str, standardize: str) -> np.ndarray:
    return np.packbits(morgan_fingerprint(smiles, lambda one: _reader(standardize)(one).mol))


@cache
def _reader(standardize: str) -> Callable[[str], Read]:
    return item_reader("smiles", "counted", stereo=False, standardize=standardize)


class NearestNeighbour:
    """A set of N fingerprints, stored so that a query reads few of their bits.

    The 64 most frequent bits of each fingerprint are packed into one 64-bit word, and their overlap with a query is counted for all N words
    at once. For every other bit there is a list of the fingerprints that have it. The lists of a query's bits are short.

    Args:
        fingerprints: uint8 [N, bits / 8], packed as by :func:`numpy.packbits`. N is at least 1.
    """

    def __init__(self, fingerprints: np.ndarray) -> None:
        from scipy.sparse import csr_array, vstack

        parts = [fingerprints[start : start + _AT_ONCE] for start in range(0, len(fingerprints), _AT_ONCE)]
        self._count = np.bitwise_count(fingerprints).sum(axis=1, dtype=np.int64)
        frequency = np.sum([np.unpackbits(part, axis=1).sum(axis=0, dtype=np.int64) for part in parts], axis=0)
        self._common = np.argsort(-frequency, kind="stable")[:_WORD]
        self._is_rare = np.ones(len(frequency), bool)
        self._is_rare[self._common] = False
        self._words = np.concatenate([_word(np.unpackbits(part, axis=1)[:, self._common]) for part in parts])
        lists = vstack([csr_array(np.unpackbits(part, axis=1) & self._is_rare) for part in parts], format="csc")
        self._owners, self._ptr = lists.indices, lists.indptr

    def similarity(self, queries: np.ndarray) -> np.ndarray:
        """Return the largest Tanimoto similarity |a and b| / |a or b| of each query to a fingerprint of the set, float64 [M].

        The queries, uint8 [M, bits / 8], are packed like the set. The similarity of two fingerprints without any bit is 1.
        """
        return np.array([self._of_one(np.unpackbits(query)) for query in queries], np.float64)

    def _of_one(self, query: np.ndarray) -> float:
        rare = np.flatnonzero(query & self._is_rare)
        owners = [self._owners[self._ptr[bit] : self._ptr[bit + 1]] for bit in rare]
        shared = np.bincount(np.concatenate([self._owners[:0], *owners]), minlength=len(self._count))
        shared += np.bitwise_count(self._words & _word(query[None, self._common])[0])
        either = self._count + int(query.sum()) - shared
        return float(np.divide(shared, either, out=np.ones(len(either)), where=either > 0).max())


def _word(bits: np.ndarray) -> np.ndarray:
    """Return bits [n, 64] packed as uint64 [n]."""
    return np.ascontiguousarray(np.packbits(bits, axis=1)).view(np.uint64)[:, 0]
