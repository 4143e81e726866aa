"""Check that this RDKit computes what a model was trained with: descriptors and standardisation change between versions."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path

from molgcn.data.components import names_of_row
from molgcn.data.descriptors.generators import generated_names
from molgcn.errors import UserError

log = logging.getLogger(__name__)


def check_rdkit(
    source: str | Path,
    trained_with: object,
    names: Sequence[str],
    *,
    generators: Sequence[str],
    components: Sequence[str],
    standardize: str,
    tree_generators: Sequence[str] = (),
) -> None:
    """Warn where a model that uses RDKit's descriptors or standardisation was trained with another version of RDKit.

    Args:
        source: the checkpoint or the exported file, for messages.
        trained_with: the version of RDKit that it names, or None.
        names: the names of all its descriptors, those that RDKit computes last.
        generators: the generators of these descriptors.
        components: the names of the molecules of a row.
        standardize: the standard form of molecules.
        tree_generators: the generators of the descriptors that trees take.

    Raises:
        UserError: If this RDKit computes descriptors of other names.
    """
    uses = [*generators, *tree_generators]
    if standardize != "none":
        uses.append(f"dataset.standardize={standardize}")
    if not uses:
        return
    trained, mine = f"RDKit {trained_with or 'of an unknown version'}", version("rdkit")
    computed = names_of_row(generated_names(generators), components)
    if tuple(names[len(names) - len(computed) :]) != computed:
        raise UserError(f"{source} was trained with descriptors of {trained}, and RDKit {mine} computes others. Install that version.")
    if trained_with != mine:
        log.warning(
            "%s was trained with %s of %s, and RDKit %s computes it now: numbers may differ", source, ", ".join(uses), trained, mine
        )
