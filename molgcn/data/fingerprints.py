"""Morgan fingerprints (Rogers and Hahn, J. Chem. Inf. Model. 50, 742, 2010), their Tanimoto distances, and Bemis-Murcko scaffolds."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator, Sequence
from functools import cache, partial
from itertools import chain
from typing import Any, TypeVar

import numpy as np

from molgcn.data.molecules import InvalidMoleculeError, whole_molecule
from molgcn.data.plain_molecule import without_labels
from molgcn.data.reaction_smiles import sides_of
from molgcn.data.segments import pointers
from molgcn.data.workers import map_chunks
from molgcn.errors import UserError

log = logging.getLogger(__name__)

T = TypeVar("T")

RADIUS, BITS = 2, 2048
_ROWS_AT_ONCE = 512
_MANY = 20_000  # molecules whose pairs take a minute or two
_SECONDS_A_PAIR = 2e-7


def morgan_fingerprints(smiles: Sequence[str], num_workers: int | None = None) -> Any:
    """Return the Morgan fingerprints of M molecules (radius 2) as zeros and ones, `scipy.sparse.csr_matrix` float64 [M, 2048].

    A molecule whose SMILES RDKit refuses has no bits.
    """
    from scipy.sparse import csr_matrix

    bits = list(of_each(_bits, smiles, num_workers, "fingerprints"))
    starts = pointers(np.array([len(one) for one in bits]))
    return csr_matrix((np.ones(starts[-1]), np.concatenate(bits), starts), shape=(len(bits), BITS))


def _bits(smiles: str) -> np.ndarray:
    try:
        return np.flatnonzero(morgan_fingerprint(smiles)).astype(np.int32)
    except InvalidMoleculeError:
        return np.empty(0, np.int32)


def morgan_fingerprint(smiles: str, read: Callable[[str], Any] = whole_molecule, counts: bool = False) -> np.ndarray:
    """Return the Morgan fingerprint of a SMILES, bits uint8 or counts uint32 [2048].

    That of a reaction is the fingerprint of its reactants joined with that of its products, whose bits are half of the length further on,
    so that a reaction is not similar to its reverse. `read` gives the molecule of a SMILES, and its errors are raised.
    """
    generator, sides = morgan_generator(), sides_of(smiles)
    compute = generator.GetCountFingerprintAsNumPy if counts else generator.GetFingerprintAsNumPy
    if sides is None:
        return np.asarray(compute(read(smiles)))
    return np.maximum(compute(read(sides.reactants)), np.roll(compute(read(sides.products)), BITS // 2))


def murcko_scaffolds(smiles: Sequence[str], num_workers: int | None = None) -> list[str]:
    """Return the SMILES of each molecule's scaffold, its rings and the chains between them, "" for a molecule without rings.

    The scaffold of a reaction is that of its reactants.
    Source: Bemis and Murcko, J. Med. Chem. 39, 2887, 1996.
    """
    return list(of_each(_scaffold, smiles, num_workers, "scaffolds"))


def _scaffold(smiles: str) -> str:
    from rdkit.Chem.Scaffolds.MurckoScaffold import MurckoScaffoldSmiles

    sides = sides_of(smiles)
    if sides is not None:
        smiles = sides.reactants
    try:
        return str(MurckoScaffoldSmiles(mol=whole_molecule(smiles)))
    except InvalidMoleculeError:  # a molecule whose valences RDKit refuses, as an SDF may have, is its own scaffold
        return without_labels(smiles)


def of_each(function: Callable[[str], T], smiles: Sequence[str], num_workers: int | None, description: str) -> Iterator[T]:
    """Yield what a function that can be imported returns for each SMILES, computed in worker processes. RDKit logs nothing."""
    chunks = map_chunks(partial(_of_chunk, function), smiles, num_workers=num_workers, description=description)
    return chain.from_iterable(chunks)


def _of_chunk(function: Callable[[str], T], smiles: Sequence[str]) -> list[T]:
    from rdkit import rdBase

    with rdBase.BlockLogs():
        return [function(text) for text in smiles]


@cache
def morgan_generator(bits: int = BITS) -> Any:
    """Return RDKit's generator of Morgan fingerprints of radius 2, which every fingerprint here is made by."""
    from rdkit.Chem import rdFingerprintGenerator

    return rdFingerprintGenerator.GetMorganGenerator(radius=RADIUS, fpSize=bits)


def tanimoto_distances(fingerprints: Any) -> Iterator[tuple[slice, np.ndarray]]:
    """Yield slices of rows, and those rows of the matrix of Tanimoto distances, float64 [n, M].

    A distance is 1 minus the Tanimoto similarity. Counts of bits are whole numbers, so that every machine gets the same distances.
    """
    counts = np.asarray(fingerprints.sum(axis=1)).ravel()
    for start in range(0, len(counts), _ROWS_AT_ONCE):
        rows = slice(start, min(start + _ROWS_AT_ONCE, len(counts)))
        shared = (fingerprints[rows] @ fingerprints.T).toarray()
        yield rows, 1 - shared / np.maximum(counts[rows, None] + counts - shared, 1)


def check_pairs(count: int, bytes_a_pair: int, split: str, memory: float | None = None) -> None:
    """Check that all pairs of molecules fit into half of the memory, and warn when comparing them takes minutes.

    `bytes_a_pair` are kept for each pair. `memory` are the bytes of memory of the machine, by default as the system says.
    """
    if memory is None:
        memory = float(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    size, minutes = count**2 * bytes_a_pair, count**2 * _SECONDS_A_PAIR / 60
    need = f"dataset.split={split} compares all pairs of {count:,} molecules, which takes {size / 1e9:.1f} GB of memory"
    if size > memory / 2:
        raise UserError(
            f"{need}; this machine has {memory / 1e9:.1f} GB. Use dataset.split=scaffold or kmeans, which need no pairs, or fewer "
            "molecules with dataset.subset=."
        )
    if count > _MANY:
        log.warning("%s and about %.0f minutes", need, max(minutes, 1))
