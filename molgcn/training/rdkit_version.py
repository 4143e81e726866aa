"""Whether this RDKit computes what a model was trained with: descriptors and standard forms change between its versions."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

from molgcn.data.config import DatasetConfig
from molgcn.data.descriptors.generators import generated_names
from molgcn.errors import UserError

log = logging.getLogger(__name__)


def check_rdkit(dataset: DatasetConfig, names: Sequence[str], saved: Mapping[str, Any], source: str | Path) -> None:
    """Warn in one line where the model's run had another RDKit, if it computed descriptors or standard forms with it.

    Args:
        dataset: what the model was trained on.
        names: of all its descriptors, the computed ones last.
        saved: a checkpoint's description of itself.
        source: the checkpoint, for messages.

    Raises:
        UserError: where this RDKit computes other descriptors.
    """
    generators = dataset.descriptor_generators or ()
    uses = [*generators, *([] if dataset.standardize == "none" else [f"dataset.standardize={dataset.standardize}"])]
    if not uses:
        return
    versions, mine = saved.get("versions"), version("rdkit")
    theirs = versions.get("rdkit") if isinstance(versions, Mapping) else None
    trained = f"RDKit {theirs or 'of an unknown version'}"
    computed = generated_names(generators)
    if tuple(names[len(names) - len(computed) :]) != computed:
        raise UserError(f"{source} was trained with descriptors of {trained}, and RDKit {mine} computes others. Install that one.")
    if theirs != mine:
        log.warning(
            "%s was trained with %s of %s, and RDKit %s computes it now: numbers may differ", source, ", ".join(uses), trained, mine
        )
