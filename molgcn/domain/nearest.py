"""The largest Tanimoto similarity to a set of fingerprints."""

from __future__ import annotations

import numpy as np

from molgcn.data.segments import pointers

_WORD = 64
_AT_ONCE = 8192  # fingerprints that are unpacked at a time


class NearestNeighbour:
    """A set of N fingerprints, arranged so that a query looks at few of their bits.

    The 64 bits that most fingerprints have make one word of each, whose common bits are counted for all N at once. Of every other bit
    there is a list of the fingerprints that have it: those of a query's bits together are short.

    Args:
        fingerprints: uint8 [N, bits / 8], packed as of :func:`numpy.packbits`; N is at least 1.
    """

    def __init__(self, fingerprints: np.ndarray) -> None:
        self._count = np.bitwise_count(fingerprints).sum(axis=1, dtype=np.int64)
        frequency = sum(np.unpackbits(part, axis=1).sum(axis=0, dtype=np.int64) for part in _parts(fingerprints))
        self._common = np.argsort(-np.asarray(frequency), kind="stable")[:_WORD]
        self._is_rare = np.ones(8 * fingerprints.shape[1], bool)
        self._is_rare[self._common] = False
        words, bits, owners = [], [], []
        for number, part in enumerate(_parts(fingerprints)):
            unpacked = np.unpackbits(part, axis=1)
            words.append(_word(unpacked[:, self._common]))
            owner, bit = np.nonzero(unpacked & self._is_rare)
            owners.append((owner + number * _AT_ONCE).astype(np.int32))
            bits.append(bit.astype(np.int16))
        self._words = np.concatenate(words)
        bit_of = np.concatenate(bits)
        self._owners = np.concatenate(owners)[np.argsort(bit_of, kind="stable")]
        self._ptr = pointers(np.bincount(bit_of, minlength=len(self._is_rare)))

    def similarity(self, queries: np.ndarray) -> np.ndarray:
        """Return, for each of M fingerprints [M, bits / 8], the largest |a and b| / |a or b| over the set, float64 [M].

        Two fingerprints without a bit count as the same.
        """
        return np.array([self._of_one(np.unpackbits(query)) for query in queries], np.float64)

    def _of_one(self, query: np.ndarray) -> float:
        rare = np.flatnonzero(query & self._is_rare)
        owners = [self._owners[self._ptr[bit] : self._ptr[bit + 1]] for bit in rare]
        shared = np.bincount(np.concatenate([self._owners[:0], *owners]), minlength=len(self._count))
        shared += np.bitwise_count(self._words & _word(query[None, self._common])[0])
        either = self._count + query.sum() - shared
        return float(np.divide(shared, either, out=np.ones(len(either)), where=either > 0).max())


def _parts(fingerprints: np.ndarray) -> list[np.ndarray]:
    return [fingerprints[start : start + _AT_ONCE] for start in range(0, len(fingerprints), _AT_ONCE)]


def _word(bits: np.ndarray) -> np.ndarray:
    """Return 64 bits [n, 64] as uint64 [n]."""
    return np.ascontiguousarray(np.packbits(bits, axis=1)).view(np.uint64)[:, 0]
