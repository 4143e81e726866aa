"""Save and load the calibration of a run's mean prediction, `calibration.json` in the run's folder."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from pathlib import Path

from molgcn.calibration.calibration import Calibration
from molgcn.errors import UserError
from molgcn.files.json_file import read_json, write_json
from molgcn.tasks.base import Task
from molgcn.training.restore import run_folder

FILE = "calibration.json"


def save_joint_calibration(folder: Path, calibration: Calibration | None, checkpoints: Sequence[Path]) -> None:
    """Write the calibration of the mean prediction of checkpoints into their run's folder; None removes an earlier one."""
    if calibration is None:
        (folder / FILE).unlink(missing_ok=True)
    else:
        write_json(folder / FILE, {"checkpoints": _digests(checkpoints), "calibration": calibration.to_values()})


def load_joint_calibration(checkpoints: Sequence[Path], task: Task) -> Calibration | None:
    """Return the calibration of the mean prediction of checkpoints; None where there is none for exactly these files.

    Raises:
        UserError: If the file is damaged.
    """
    run = common_folder(checkpoints)
    if run is None or not (run / FILE).is_file():
        return None
    saved = read_json(run / FILE)
    try:
        return Calibration.of_values(saved["calibration"], task) if saved["checkpoints"] == _digests(checkpoints) else None
    except (KeyError, TypeError, ValueError) as error:
        raise UserError(f"{run / FILE} cannot be used: {error}. Restore it, or delete it to predict without calibration.") from error


def common_folder(checkpoints: Sequence[Path]) -> Path | None:
    """Return the deepest folder that holds the folders of the checkpoints' trainings; None where one lies outside any."""
    folders = [run_folder(checkpoint) for checkpoint in checkpoints]
    found = [folder for folder in folders if folder is not None]
    return Path(os.path.commonpath(found)) if len(found) == len(folders) else None


def _digests(checkpoints: Sequence[Path]) -> list[str]:
    """Return the SHA-256 digests of the files, sorted: once a model is trained further, its earlier calibration no longer applies."""
    found = []
    for path in checkpoints:
        with open(path, "rb") as file:
            found.append(hashlib.file_digest(file, "sha256").hexdigest())
    return sorted(found)
