"""Morgan fingerprints as packed bits."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np

from molgcn.data.fingerprints import BITS, morgan_generator
from molgcn.data.standardize import item_reader
from molgcn.data.workers import map_chunks


def morgan_fingerprints(smiles: Sequence[str], standardize: str = "none", num_workers: int | None = 0) -> np.ndarray:
    """Compute Morgan fingerprints (Rogers and Hahn, J. Chem. Inf. Model. 50, 742, 2010) of radius 2 and 2,048 bits.

    Args:
        smiles: M SMILES.
        standardize: the standard form that is computed first, one of :data:`molgcn.data.standardize.LEVELS`.
        num_workers: the number of worker processes; see :func:`molgcn.data.workers.map_chunks`.

    Returns:
        uint8 [M, 256], with eight bits in each number as :func:`numpy.packbits` packs them.
    """
    chunks = map_chunks(partial(_of_chunk, standardize=standardize), smiles, num_workers=num_workers, description="fingerprints")
    return np.concatenate([np.empty((0, BITS // 8), np.uint8), *chunks])


def _of_chunk(smiles: Sequence[str], standardize: str) -> np.ndarray:
    from rdkit import rdBase

    read = item_reader("smiles", "counted", stereo=False, standardize=standardize)
    with rdBase.BlockLogs():
        bits = [morgan_generator().GetFingerprintAsNumPy(read(text).mol) for text in smiles]
    return np.packbits(np.array(bits, np.uint8).reshape(-1, BITS), axis=1)
