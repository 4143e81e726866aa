"""Check that this RDKit computes what a model was trained with: descriptors and standardisation change between versions."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

from molgcn.data.components import names_of_row
from molgcn.data.config import DatasetConfig
from molgcn.data.descriptors.generators import generated_names
from molgcn.errors import UserError

log = logging.getLogger(__name__)


def check_rdkit(dataset: DatasetConfig, names: Sequence[str], saved: Mapping[str, Any], source: str | Path) -> None:
    """Warn where a model that uses RDKit's descriptors or standardisation was trained with another version of RDKit.

    Args:
        dataset: the data set that the model was trained on.
        names: the names of all its descriptors, those that RDKit computes last.
        saved: the description of itself in the checkpoint `source`.
        source: the checkpoint, for messages.

    Raises:
        UserError: If this RDKit computes descriptors of other names.
    """
    generators = dataset.descriptor_generators or ()
    uses = [*generators, *(dataset.tree_generators or ())]
    if dataset.standardize != "none":
        uses.append(f"dataset.standardize={dataset.standardize}")
    if not uses:
        return
    versions, mine = saved.get("versions"), version("rdkit")
    theirs = versions.get("rdkit") if isinstance(versions, Mapping) else None
    trained = f"RDKit {theirs or 'of an unknown version'}"
    computed = names_of_row(generated_names(generators), dataset.smiles_columns)
    if tuple(names[len(names) - len(computed) :]) != computed:
        raise UserError(f"{source} was trained with descriptors of {trained}, and RDKit {mine} computes others. Install that version.")
    if theirs != mine:
        log.warning(
            "%s was trained with %s of %s, and RDKit %s computes it now: numbers may differ", source, ", ".join(uses), trained, mine
        )
