"""The keys that all commands which read a file of molecules share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from molgcn.config.run import WhichModels
from molgcn.data.column_names import SmilesColumns
from molgcn.data.text import RECORD_MB
from molgcn.errors import UserError, require

OnError = Literal["raise", "skip", "nan"]
STREAM = "-"


@dataclass(frozen=True)
class ScreeningConfig:
    """The keys of conf/predict.yaml that other commands share."""

    ckpt: str | list[str] | None = None
    models: WhichModels = "auto"
    input: str | None = None
    molecule: str | None = None
    output: str | None = None
    format: Literal["auto", "csv", "tsv", "smi", "sdf"] = "auto"
    header: bool = True
    smiles: SmilesColumns | None = None
    descriptors: str | None = None
    atom_features: str | None = None
    bond_features: str | None = None
    max_record_mb: float = RECORD_MB
    on_error: OnError = "raise"
    batch_size: int = 1024
    num_workers: int | None = None
    device: str = "auto"

    def __post_init__(self) -> None:
        require(self.batch_size >= 1, "batch_size", self.batch_size, "at least 1")
        require(0 < self.max_record_mb <= 1000, "max_record_mb", f"{self.max_record_mb:g}", "more than 0 and at most 1000")

    @property
    def source(self) -> Path | None:
        """The file that is read, or None for standard input or a single `molecule=`; UserError where neither or both are given."""
        if self.input is None and self.molecule is None:
            raise UserError(
                "No molecules are named. Give input=<file.csv> smiles=<column>, a .smi or .sdf file, input=- for standard input, or one "
                "molecule=<SMILES>."
            )
        if self.input is not None and self.molecule is not None:
            raise UserError(
                f"input={self.input} and molecule={self.molecule} are both given, and only one can be used. Leave one of them out."
            )
        return None if self.input in (STREAM, None) else Path(self.input).expanduser()

    @property
    def prints(self) -> bool:
        """Whether the result is printed on the terminal, as for a single `molecule=`, and not written to a file."""
        return self.molecule is not None and self.output is None

    def output_or(self, default: str) -> Path | None:
        """Return the file to write, or `default` where the configuration names none. None means standard output."""
        path = self.output or default
        return None if path == STREAM or self.prints else Path(path).expanduser()


def checkpoint_paths(ckpt: str | Sequence[str] | None) -> list[str]:
    """Return the paths that `ckpt` names: one, or several in brackets or separated by commas; none is a UserError."""
    if isinstance(ckpt, str):
        ckpt = [ckpt] if Path(ckpt).expanduser().exists() else ckpt.removeprefix("[").removesuffix("]").split(",")
    paths = [path.strip() for path in ckpt or ()]
    if not any(paths):
        raise UserError("No checkpoint is named. Give ckpt=<run folder>, a .ckpt file, or several as in ckpt=[runs/a,runs/b].")
    return paths


def one_checkpoint(ckpt: str | Sequence[str] | None) -> str:
    """Return the path that `ckpt` names for a command that takes one; none and several are a UserError."""
    path, *others = checkpoint_paths(ckpt)
    if others:
        raise UserError(f"ckpt names {1 + len(others)} checkpoints, and this command takes one at a time. Give one of them.")
    return path
