"""Learned fingerprints: hidden states of molecules in trained networks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import torch

from molgcn.data.formats import Kind, Record
from molgcn.data.packed import PackedMolecules
from molgcn.errors import UserError
from molgcn.nn.head import without_last_layers
from molgcn.screening.chunk import Chunk
from molgcn.screening.ensemble import Ensemble
from molgcn.screening.pipeline import NOT_FINITE
from molgcn.screening.ready import prepare_records


class Fingerprints:
    """Trained networks that return a hidden state of each molecule.

    Args:
        ensemble: the trained networks.
        layer: 0 is the vector before the head, k the one after the head's k-th hidden layer, -1 the one after its last.

    Attributes:
        columns: the H headers "fp_<number>", or "fp_<number>_model_<network>" for several networks.

    Raises:
        UserError: for a layer that a head does not have.
    """

    def __init__(self, ensemble: Ensemble, layer: int = 0) -> None:
        self.ensemble = ensemble
        if not ensemble.levels.molecule:
            raise UserError(
                "A fingerprint is what the head of molecules receives, and all targets of this model are of atoms or bonds. Train with "
                "dataset.targets beside them."
            )
        heads = [without_last_layers(member.averaged.head, layer) for member in ensemble.members]
        self._networks = [member.averaged.with_head(head) for member, (head, _) in zip(ensemble.members, heads, strict=True)]
        endings = [""] if len(heads) == 1 else [f"_model_{number}" for number in range(len(heads))]
        self.columns = [f"fp_{place}{end}" for (_, width), end in zip(heads, endings, strict=True) for place in range(width)]

    @torch.no_grad()
    def of(self, molecules: PackedMolecules) -> np.ndarray:
        """Compute the fingerprints of M molecules as one batch, float32 [M, H]."""
        batch = molecules.batch(slice(None), device=self.ensemble.members[0].device)
        return torch.cat([network(batch) for network in self._networks], dim=1).float().cpu().numpy()


@dataclass(frozen=True)
class Fingerprinted(Chunk):
    """R rows with their fingerprints, float32 [R, H], NaN where there is an error."""

    values: np.ndarray


def fingerprint_records(
    fingerprints: Fingerprints, records: Iterable[Record], kind: Kind, batch_size: int, num_workers: int | None
) -> Iterator[Fingerprinted]:
    """Compute the fingerprints of records; the arguments are those of :func:`molgcn.screening.pipeline.predict_records`."""
    for ready in prepare_records(fingerprints.ensemble.inputs, records, kind, batch_size, num_workers):
        values, errors = np.full((len(ready.records), len(fingerprints.columns)), np.nan, np.float32), dict(ready.errors)
        if ready.molecules is not None:
            found = fingerprints.of(ready.molecules)
            finite = np.isfinite(found).all(axis=1)
            errors |= dict.fromkeys(ready.kept[~finite].tolist(), NOT_FINITE)
            values[ready.kept[finite]] = found[finite]
        yield Fingerprinted(ready.start, ready.records, ready.smiles, errors, values)
