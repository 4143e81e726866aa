"""What a checkpoint says about itself, as plain values, and how an older form of it is brought up to date."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from molgcn.config.run import Config, parse
from molgcn.data.featurizers import ReactionFeaturizer, get_featurizer
from molgcn.errors import UserError
from molgcn.training.provenance import newer_writer, this_version, versions

log = logging.getLogger(__name__)

FORMAT = 4
_FORMAT_2 = {"edge_channels": None, "task": "regression", "num_classes": 0}  # no network saw bonds, and regression was the only task


def describe(
    config: Config, features: str | None, architecture: Mapping[str, Any], trained_on: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Return what prediction needs beside the weights, and the versions that wrote it, as nested dicts and lists of strings and numbers.

    The task's statistics, such as the targets' scaling, are in the state dict. `features` has the featuriser's version if it is not the
    newest, and is None for graphs that do not come from SMILES. `architecture` is that of a :class:`MoleculePredictor`, and `trained_on` is
    from :func:`molgcn.data.applicability.domain_of`.
    """
    featurizer = None if features is None else get_featurizer(features)
    return {
        "format": FORMAT,
        "config": config.to_dict(),
        "features": None if featurizer is None else featurizer.name,
        "features_version": None if featurizer is None else featurizer.version,
        "stereo": featurizer is not None and featurizer.stereo != "none",
        "reactions": featurizer.described if isinstance(featurizer, ReactionFeaturizer) else "",
        "explicit_hydrogens": featurizer is not None and featurizer.hydrogens_added,
        **architecture,
        "trained_on": trained_on,
        "versions": versions(),
    }


def upgrade(saved: Any, path: Path) -> Any:
    """Return a checkpoint's description of itself, the value of its key "molgcn", in the present format; what is no mapping as it is.

    A newer molgcn's format is a UserError, and a newer molgcn with a format that this one reads a warning.
    """
    if not isinstance(saved, Mapping):
        return saved
    number = saved.get("format")
    if isinstance(number, int) and number > FORMAT:
        writer = saved.get("versions", {})
        by = f"molgcn {writer['molgcn']}" if isinstance(writer, Mapping) and isinstance(writer.get("molgcn"), str) else "a newer molgcn"
        raise UserError(
            f"{path} was written by {by[:50]} in format {number}; this molgcn reads formats 2 and {FORMAT}. Install that version, or a "
            "newer one, to use it."
        )
    if number not in (2, FORMAT):
        raise UserError(f"{path} says that its format is {str(number)[:50]!r}. Expected 2 or {FORMAT}; the file is damaged.")
    if number == 2:
        saved = {**_FORMAT_2, **saved}
        config = saved.get("config")
        if isinstance(config, Mapping) and isinstance(config.get("dataset"), Mapping):  # its splits did not keep copies together
            saved["config"] = {**config, "dataset": {"group_duplicates": False, **config["dataset"]}}
    if newer := newer_writer(saved.get("versions")):
        log.warning("%s is by molgcn %s, and this is molgcn %s, which does not know what is new there", path, newer, this_version())
    return {**saved, "format": FORMAT}


def config_of(saved: Mapping[str, Any], path: Path) -> Config:
    """Return the configuration in a checkpoint's description of itself; UserError says so where a newer molgcn wrote it."""
    try:
        return parse(Config, saved["config"])
    except UserError as error:
        if newer := newer_writer(saved.get("versions")):
            raise UserError(
                f"{path} was written by molgcn {newer}, and this is molgcn {this_version()}, which cannot use it: {error} Install that "
                "version, or a newer one."
            ) from error
        raise


def features_of(saved: Mapping[str, Any], path: Path) -> str | None:
    """Return the featuriser that a checkpoint was trained with, as :func:`molgcn.data.featurizers.get_featurizer` takes it.

    A version that this molgcn does not compute, or another number of features per atom, is a UserError.
    """
    features, version = saved.get("features"), saved.get("features_version")
    if features is None:
        return None
    newest = get_featurizer(features)
    reactions = f":{saved['reactions']}" if saved.get("reactions") else ""
    writer = saved["versions"].get("molgcn") if isinstance(saved.get("versions"), Mapping) else None
    advice = f"Use molgcn {writer}, which wrote it" if isinstance(writer, str) else "Use the version that wrote it (provenance.json)"
    try:
        featurizer = get_featurizer(f"{features}:{version}{reactions}")
    except UserError as error:
        raise UserError(
            f"{path} was trained on version {version} of features={features}, which this molgcn does not compute (its newest is version "
            f"{newest.version}); another version would give wrong predictions. {advice}, or train again."
        ) from error
    own = saved.get("atom_feature_names", [])
    computed = saved["in_channels"] - len(own) if isinstance(saved.get("in_channels"), int) and isinstance(own, list) else None
    if featurizer.num_features != computed:
        raise UserError(
            f"{path} was trained on {computed} features per atom, but features={features} has {featurizer.num_features} in "
            f"this version of molgcn. {advice}, or train again."
        )
    featurizer = featurizer.with_hydrogens() if saved.get("explicit_hydrogens", False) else featurizer
    return (featurizer if saved.get("stereo", True) else featurizer.without_stereo()).spelled
