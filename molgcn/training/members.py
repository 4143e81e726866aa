"""Read and write `members.json`, which names the folders of a run of several trainings."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from molgcn.errors import UserError
from molgcn.files.json_file import read_json, write_json

FILE = "members.json"
REFIT = "refit"  # the folder of the training on all molecules, which is not a member
_NAME = re.compile(r"(repeat_\d+/)?(fold|repeat|member)_\d+", re.ASCII)  # no name leads out of the run's folder


def write_members(folder: Path, names: Sequence[str]) -> None:
    write_json(folder / FILE, list(names))


def members_of(folder: Path) -> list[Path]:
    """Return the folders of a run's members; none where it is a single training."""
    path = folder / FILE
    if not path.is_file():
        return []
    names = read_json(path)
    if not isinstance(names, list) or not names or not all(isinstance(name, str) and _NAME.fullmatch(name) for name in names):
        raise UserError(f"{path} does not name the members of a run. Expected a list of folders such as fold_0, as training wrote it.")
    return [folder / name for name in names]


def splits(members: Sequence[Path]) -> bool:
    """Return whether members have splits of their own, as folds do; those of an ensemble share one."""
    return not members[0].name.startswith("member_")


def trainings_of(folder: Path) -> list[Path]:
    """Return the folders of all single trainings of a run, which is its own folder where it is one training."""
    members = members_of(folder)
    return [training for member in members for training in trainings_of(member)] if members else [folder]
