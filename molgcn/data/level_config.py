"""Checks the keys of `dataset` about targets of atoms and bonds."""

from __future__ import annotations

from typing import TYPE_CHECKING

from molgcn.data.column_names import as_names
from molgcn.data.levels import GRAPH_LEVELS
from molgcn.errors import UserError

if TYPE_CHECKING:
    from molgcn.data.config import DatasetConfig


def check_levels(config: DatasetConfig) -> None:
    """Check the keys of targets of atoms and bonds, and that nothing is asked for that does not go with them."""
    for of in GRAPH_LEVELS:
        names = as_names(getattr(config, f"{of}_targets")) or []
        setattr(config, f"{of}_targets", names or None)
        if names and config.name != "csv":
            raise UserError(f"dataset.{of}_targets={names} names columns of dataset=csv. Use dataset.{of}_targets_path.")
        if names and getattr(config, f"{of}_targets_path") is not None:
            raise UserError(f"dataset.{of}_targets and dataset.{of}_targets_path both give targets of {of}s. Leave out one.")
    named = [*(config.targets or ()), *(config.atom_targets or ()), *(config.bond_targets or ())]
    if twice := {name for name in named if named.count(name) > 1}:
        raise UserError(f"dataset.targets, atom_targets and bond_targets name {sorted(twice)} twice. Name each once.")
    if not config.levels:
        return
    below = " and ".join(f"{of}s" for of in config.levels)
    if config.name == "csv" and not config.targets:
        config.descriptor_generators = None  # the recipe's, which only the head of molecules would read
        for key in ("descriptors", "descriptors_path"):
            if getattr(config, key) is not None:
                raise UserError(
                    f"dataset.{key} is of molecules, and all targets are of {below}, whose heads do not read it. Leave it out, or give "
                    "numbers of atoms with dataset.atom_features_path."
                )
    alternatives = {
        "bounded": (config.bounded, "without bounds"),
        "weights": (config.weights is not None, "training.task_weights, which weighs targets"),
        "duplicates": (config.duplicates in ("mean", "median"), "first, or keep"),
        "standardize": (config.standardize != "none", "a file of molecules that was standardised first, and their lists"),
        "sampling": (config.sampling is not None, "training.class_weights"),
        "calibration_fraction": (config.calibration_fraction > 0, "0: calibration is of targets of molecules"),
        "smiles": (len(config.smiles_columns) > 1, "one column of molecules"),
    }
    for key, (given, instead) in alternatives.items():
        if given:
            value = getattr(config, key)
            raise UserError(f"dataset.{key}={value} does not go with targets of {below}. Leave it out, and use {instead}.")
