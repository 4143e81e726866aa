"""dataset=builtin: small organic molecules enumerated and labelled by this project (data/generate.py)."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from molgcn.data.config import DatasetConfig
from molgcn.data.sources.base import Source
from molgcn.data.sources.csv import open_csv
from molgcn.errors import UserError, nearest
from molgcn.resources import resource

UNITS = {"logp": "", "mr": "cm^3/mol", "tpsa": "A^2"}


def builtin_path() -> Path:
    """Return the path of the CSV of the built-in molecules."""
    path = resource("data") / "molecules.csv"
    if path.is_file():
        return path
    raise UserError("The built-in molecules are missing from this installation. Install molgcn again, or use dataset=csv.")


def open_builtin(config: DatasetConfig) -> Source:
    """Open the built-in molecules.

    The targets are `logp` (Crippen logP), `mr` (Crippen molar refractivity, cm^3/mol) and `tpsa` (topological polar surface area, A^2). The
    default is logp.
    """
    if config.path is not None:
        raise UserError("dataset=builtin reads no file. Use dataset=csv with dataset.path, or leave dataset.path out.")
    targets = tuple(config.targets or ("logp",))
    for target in targets:
        if target not in UNITS:
            raise UserError(f"dataset=builtin has no target '{target}'.{nearest(target, list(UNITS))}")
    csv = replace(config, name="csv", path=str(builtin_path()), smiles="smiles", targets=[*targets], features=config.features or "qm9")
    return replace(open_csv(csv), title="the built-in molecules", target_units=tuple(UNITS[target] for target in targets))
