"""Decides which columns of a data set hold reactions, and reports what their atom maps leave open."""

from __future__ import annotations

import logging
import re

from molgcn.data.config import DatasetConfig
from molgcn.data.featurizers import Featurizer, ReactionFeaturizer, get_featurizer
from molgcn.data.featurizers.reactions import DEFAULT_MODE
from molgcn.data.packed import PackedMolecules
from molgcn.data.reaction_smiles import holds_reactions, sides_of
from molgcn.data.rows import RowNames
from molgcn.data.sources.base import RawMolecules
from molgcn.errors import UserError, shown

log = logging.getLogger(__name__)

_MAP = re.compile(r":(\d+)\]")


def mode_of(featurizer: Featurizer, config: DatasetConfig) -> str:
    """Return what features of reactions hold: as the features' name says, else as the configuration does."""
    return featurizer.mode if isinstance(featurizer, ReactionFeaturizer) else config.reaction_mode or DEFAULT_MODE


def for_reactions(featurizer: Featurizer, raw: RawMolecules, title: str, config: DatasetConfig) -> Featurizer:
    """Return the featuriser of a set's items, which describes reactions where a column holds them.

    Raises:
        UserError: when reactions are in other columns than the features' name says, or an option does not go with reactions.
    """
    columns = raw.components or ([raw.items] if raw.kind == "smiles" else [])
    found = tuple(number for number, column in enumerate(columns) if holds_reactions(column))
    if isinstance(featurizer, ReactionFeaturizer):
        if found != featurizer.reactions:
            there, wanted = (", ".join(config.smiles_columns[place] for place in places) for places in (found, featurizer.reactions))
            raise UserError(
                f"dataset.features={featurizer.spelled} takes reactions in {wanted} of {title}, which has them in {there or 'none'}. "
                "Name the columns with dataset.smiles in the order of the training."
            )
    elif found:
        featurizer = ReactionFeaturizer.of(featurizer, mode_of(featurizer, config), found)
    if found and config.standardize != "none":
        raise UserError(
            f"dataset.standardize={config.standardize} is for molecules, and {title} has reactions, whose atom maps it would not keep. "
            "Standardise molecules before they are mapped, and use dataset.standardize=none."
        )
    for of, path in config.feature_files.items() if found else ():
        raise UserError(
            f"dataset.{of}_features_path={path} is for molecules, and {title} has reactions, whose {of}s are those of both sides. "
            "Leave it out, or give numbers of the whole reaction as dataset.descriptors."
        )
    for of in config.levels if found else ():
        raise UserError(
            f"Targets of {of}s are for molecules, and {title} has reactions, whose {of}s are those of both sides. Leave them out, or learn "
            "numbers of the whole reaction with dataset.targets."
        )
    return featurizer


def check_reactions(molecules: PackedMolecules, title: str, config: DatasetConfig) -> None:
    """Warn where maps of reactants and of products have no partner, since these atoms may be the same.

    Raises:
        UserError: when the configuration has a mode for reactions, and the set has molecules.
    """
    if molecules.features is None or not isinstance(get_featurizer(molecules.features), ReactionFeaturizer):
        if config.reaction_mode is not None:
            raise UserError(
                f"dataset.reaction_mode={config.reaction_mode} is for reactions, and {title} has molecules. Leave it out, or "
                "name a column of reaction SMILES with dataset.smiles."
            )
        return
    assert molecules.smiles is not None
    open_maps = {place: maps for place, text in enumerate(molecules.smiles) if all(maps := _without_partner(text))}
    if open_maps:
        place, (before, after) = next(iter(open_maps.items()))
        log.warning(
            "%s: %s of %s reactions have atom maps that only the reactants have and others that only the products have, as %s and %s in "
            "row %s ('%s'). Such atoms leave or enter; give an atom that is on both sides the same map",
            *(title, f"{len(open_maps):,}", f"{len(molecules):,}", min(before), min(after)),
            *(RowNames.of(molecules)[place], shown(molecules.smiles[place])),
        )


def _without_partner(text: str) -> tuple[set[int], set[int]]:
    """Return the atom maps that only the reactants and agents have, and those that only the products have."""
    sides = sides_of(text)
    assert sides is not None
    before, after = (set(map(int, _MAP.findall(side))) - {0} for side in (f"{sides.reactants}.{sides.agents}", sides.products))
    return before - after, after - before
