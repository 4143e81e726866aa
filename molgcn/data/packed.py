"""Packed molecules, and how they are made, saved and turned into batches."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from molgcn.data import packing
from molgcn.data.concat import concat_packed
from molgcn.data.featurize import OnError, as_text, featurize_items
from molgcn.data.molecule_set import MoleculeSet
from molgcn.data.rows import SkippedRow
from molgcn.data.storage import load_packed, save_packed

if TYPE_CHECKING:
    import torch

    from molgcn.data.batch import GraphBatch


class PackedMolecules(MoleculeSet):
    """A :class:`molgcn.data.molecule_set.MoleculeSet` with ways to make, save and convert it."""

    @classmethod
    def of(cls, molecules: MoleculeSet) -> Self:
        """Return a set with the arrays of another one, which are not copied."""
        return cls(**{one.name: getattr(molecules, one.name) for one in fields(molecules)})

    @classmethod
    def from_pyg(cls, data: Sequence[Any], **metadata: Any) -> Self:
        """Pack PyG's `Data` with `x` [n, F], `edge_index` [2, m] and, all or none, `edge_attr` [m, D], `descriptors` [K], `y` [T]."""
        from molgcn.data.pyg import pack_pyg  # needs torch, which takes seconds to import

        return cls.of(pack_pyg(data, **metadata))

    @classmethod
    def from_smiles(
        cls,
        smiles: Sequence[str],
        targets: np.ndarray | None = None,
        features: str = "qm9",
        on_error: OnError = "raise",
        num_workers: int | None = None,
        **metadata: Any,
    ) -> Self:
        """Featurise SMILES with RDKit and pack them. Their `rows` are the positions of the SMILES that were kept.

        Args:
            smiles: M SMILES.
            targets: float [M, T], NaN where missing.
            features: a name in :data:`molgcn.data.featurizers.FEATURIZERS`, such as "qm9" (hydrogens are atoms, behind the heavy ones) or
                "general" (any organic molecule, heavy atoms only). "general:1" is an older version, "general:no_stereo" leaves
                stereochemistry out, and "general:explicit_hydrogens" makes hydrogens atoms. Isotopes are not told apart.
            on_error: "raise" stops at the first SMILES that cannot be used, "skip" leaves it out and lists it in `skipped`.
            num_workers: number of worker processes. 0 works in this process. None decides by the number of molecules and cores.
            metadata: `target_names` and `target_units` of :meth:`from_arrays`.

        Raises:
            UserError: when a row fails with on_error="raise" (the message has its number and text), no row is left, an option is unknown,
                or the targets do not fit.
        """
        done = featurize_items(smiles, features=features, on_error=on_error, num_workers=num_workers)
        kept = None if targets is None else packing.check_targets(targets, len(smiles))[done.kept]
        texts = (smiles[place] for place in done.kept.tolist())
        skipped = [SkippedRow(place, as_text(smiles[place]), reason) for place, reason in done.failures]
        return cls.of(done.packed.with_data(kept, done.kept, texts, skipped=skipped, **metadata))

    @classmethod
    def concat(cls, parts: Sequence[Self]) -> Self:
        """Join several sets into one, with their molecules in order. `rows` are kept as they are.

        Raises:
            UserError: when there is no set, or sets differ in features, targets or units.
        """
        return concat_packed(parts)

    def save(self, folder: str | Path) -> None:
        """Write the set as npy files and `meta.json`, atomically: `folder` appears complete or not at all."""
        save_packed(self, Path(folder))

    @classmethod
    def load(cls, folder: str | Path) -> Self:
        """Open a saved set by memory map.

        Raises:
            UserError: when the folder is missing, damaged or of another format.
        """
        return cls.of(load_packed(Path(folder)))

    def to_pyg(self) -> list[Any]:
        """Convert the molecules to a list of `torch_geometric.data.Data`, with edges sorted by target, then source."""
        from molgcn.data.pyg import unpack_pyg

        return unpack_pyg(self)

    def batch(self, indices: Any, device: str | torch.device = "cpu") -> GraphBatch:
        """Return the molecules at `indices` as one :class:`molgcn.data.GraphBatch`."""
        from molgcn.data.batch import GraphBatch

        return GraphBatch.from_packed(self, indices).to(device)
