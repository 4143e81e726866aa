"""The index of a run's training molecules, with which other molecules are compared."""

from __future__ import annotations

import zipfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path

import numpy as np

from molgcn.data.applicability import heavy_atoms
from molgcn.data.fingerprints import BITS
from molgcn.data.packed import PackedMolecules
from molgcn.domain.fingerprints import morgan_fingerprints
from molgcn.errors import UserError
from molgcn.files.whole_file import whole

FILE = "domain_index.npz"
_KINDS = [("u", 2), ("f", 2), ("f", 2), ("i", 1)]


@dataclass(frozen=True)
class DomainIndex:
    """The distinct fingerprints, atoms and bonds of a set of molecules, as arrays."""

    fingerprints: np.ndarray  # uint8 [K, 256], the distinct Morgan fingerprints
    atoms: np.ndarray  # float32 [A, F], the distinct feature rows of atoms
    bonds: np.ndarray  # float32 [B, D], the distinct feature rows of bonds
    sizes: np.ndarray  # int64 [2], the smallest and the largest number of heavy atoms

    @classmethod
    def of(cls, molecules: PackedMolecules, standardize: str = "none", num_workers: int | None = None) -> DomainIndex:
        """Make the index of packed molecules; see :func:`morgan_fingerprints`.

        Raises:
            UserError: for molecules without SMILES, which have no fingerprint.
        """
        if molecules.smiles is None:
            raise UserError("training.domain_index needs molecules with SMILES, which these graphs do not have. Leave it out.")
        sizes = heavy_atoms(molecules)
        return cls(
            np.unique(morgan_fingerprints(list(molecules.smiles), standardize, num_workers), axis=0),
            _distinct(*molecules.computed_features),
            np.empty((0, 0), np.float32) if molecules.edge_attr is None else _distinct(*molecules.computed_edge_features),
            np.array([sizes.min(), sizes.max()], np.int64),
        )

    def arrays(self) -> dict[str, np.ndarray]:
        return asdict(self)

    def save(self, path: Path) -> None:
        """Write the arrays to a .npz file. Where writing fails, the earlier file stays as it was."""
        with whole(path) as temporary, open(temporary, "wb") as file:
            np.savez(file, **self.arrays())  # type: ignore[arg-type]  # mypy takes the arrays for allow_pickle

    @classmethod
    def load(cls, path: Path) -> DomainIndex:
        """Read the file that :meth:`save` wrote. Nothing in it is executed.

        Raises:
            UserError: when the file is damaged or is no index.
        """
        try:
            with np.load(path, allow_pickle=False) as file:
                return cls.of_arrays(file)
        except (OSError, ValueError, EOFError, zipfile.BadZipFile) as error:
            raise UserError(
                f"{path} holds no index of training molecules, or a damaged one: {error}. Write it again with training.domain_index=run."
            ) from error

    @classmethod
    def of_arrays(cls, arrays: Mapping[str, np.ndarray]) -> DomainIndex:
        """Make the index from the arrays that :meth:`arrays` returned.

        Raises:
            ValueError: for a missing array, or one of another shape or dtype.
        """
        for field in fields(cls):
            if field.name not in arrays:
                raise ValueError(f"there is no {field.name}")
        found = cls(**{field.name: arrays[field.name] for field in fields(cls)})
        kinds = [(values.dtype.kind, values.ndim) for values in found.arrays().values()]
        if kinds != _KINDS or found.fingerprints.shape[1:] != (BITS // 8,) or not len(found.fingerprints) or len(found.sizes) != 2:
            raise ValueError("its arrays have other shapes or dtypes")
        return found


def _distinct(codes: np.ndarray, table: np.ndarray | None) -> np.ndarray:
    """Return the distinct rows of a table that codes refer to, or the distinct rows of `codes` where there is no table."""
    return np.unique(codes, axis=0) if table is None else np.unique(table[np.unique(codes)], axis=0)
