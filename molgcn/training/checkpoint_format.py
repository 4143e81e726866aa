"""What a checkpoint says about itself, as plain values, and how older forms of it are brought up to date."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from molgcn.config import Config
from molgcn.data.atoms import get_featurizer
from molgcn.errors import UserError
from molgcn.training.provenance import versions

FORMAT = 2


def describe(config: Config, features: str | None, architecture: Mapping[str, Any]) -> dict[str, Any]:
    """What prediction needs beside the weights, and who wrote it.

    Args:
        config: the run's configuration.
        features: the featuriser's name, or None for graphs of one's own.
        architecture: `in_channels`, `target_names` and `target_units`.

    Returns:
        dicts, lists, strings and numbers. The targets' scaling is in the state dict, as `target_mean` and `target_std`.
    """
    return {
        "format": FORMAT,
        "config": config.to_dict(),
        "features": features,
        "features_version": None if features is None else get_featurizer(features).version,
        **architecture,
        "versions": versions(),
    }


def upgrade(saved: Any, path: Path) -> Any:
    """A checkpoint's description of itself in the present format; what is no description at all is left for others to refuse.

    Raises:
        UserError: when a newer molgcn wrote it, or the format is none.
    """
    if not isinstance(saved, Mapping):
        return saved
    number = saved.get("format", 1)  # the first one did not say
    if not isinstance(number, int) or isinstance(number, bool) or number < 1:
        raise UserError(f"{path} says that its format is {str(number)[:50]!r}. Expected a number from 1 to {FORMAT}; the file is damaged.")
    if number > FORMAT:
        writer = saved.get("versions", {})
        by = f"molgcn {writer['molgcn']}" if isinstance(writer, Mapping) and isinstance(writer.get("molgcn"), str) else "a newer molgcn"
        raise UserError(
            f"{path} was written by {by[:50]} in format {number}; this molgcn reads formats up to {FORMAT}. Install that version, or a "
            "newer one, to use it."
        )
    upgraded = dict(saved)
    for step in range(number, FORMAT):
        upgraded = _STEPS[step](upgraded)
    return {**upgraded, "format": FORMAT}


def _from_1(saved: dict[str, Any]) -> dict[str, Any]:
    """Format 1 came with the first version of every featuriser, and kept no versions."""
    return {**saved, "features_version": None if saved.get("features") is None else 1, "versions": {}}


_STEPS: dict[int, Callable[[dict[str, Any]], dict[str, Any]]] = {1: _from_1}


def check_features(saved: Mapping[str, Any], path: Path) -> None:
    """Raises UserError unless this version's featuriser gives the rows that the checkpoint was trained on."""
    features = saved.get("features")
    if features is None:
        return
    featurizer = get_featurizer(features)
    writer = saved["versions"].get("molgcn") if isinstance(saved.get("versions"), Mapping) else None
    advice = f"Use molgcn {writer}, which wrote it" if isinstance(writer, str) else "Use the version that wrote it (provenance.json)"
    if saved.get("features_version") != featurizer.version:
        raise UserError(
            f"{path} was trained on version {saved.get('features_version')} of features={features}, and this molgcn computes version "
            f"{featurizer.version}, which would give wrong predictions. {advice}, or train again."
        )
    if featurizer.num_features != saved["in_channels"]:
        raise UserError(
            f"{path} was trained on {saved['in_channels']} features an atom, but features={features} has {featurizer.num_features} in this "
            f"version of molgcn. {advice}, or train again."
        )
