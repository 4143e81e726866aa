"""What finished runs predicted of their test molecules, brought into one order so that runs can be compared."""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from molgcn.config.overrides import as_typed
from molgcn.errors import UserError, shown
from molgcn.tasks.base import Task
from molgcn.training.members import members_of, trainings_of
from molgcn.training.restore import best_checkpoint, load_module

FILE = "predictions_test.csv"


@dataclass(frozen=True)
class Tested:
    """Test molecules with true values [M, T], NaN where missing, and predictions [M, P].

    They are ordered by their SMILES and their true values, so that copies of a molecule correspond too.
    """

    smiles: list[str]
    targets: np.ndarray
    predictions: np.ndarray

    @classmethod
    def of(cls, smiles: Sequence[str], targets: np.ndarray, predictions: np.ndarray) -> Tested:
        """Return molecules in this order."""
        values = np.nan_to_num(targets, nan=np.inf).tolist()
        order = sorted(range(len(smiles)), key=lambda place: (smiles[place], values[place]))
        return cls([smiles[place] for place in order], targets[order], predictions[order])


@dataclass(frozen=True)
class FinishedRun:
    """A run with what it predicts and the test molecules of each of its splits, one where it has one split."""

    folder: Path
    task: Task
    splits: list[Tested]


def read_run(folder: Path) -> FinishedRun:
    """Read what a run predicted of the molecules of its test parts; UserError unless it is complete and has such predictions."""
    if not folder.is_dir():
        raise UserError(f"There is no folder {folder}. Expected the folder of a finished run, as in runs/<run>.")
    members = members_of(folder)
    splits = [folder] if not members or members[0].name.startswith("member_") else members
    if missing := [split for split in splits if not (split / FILE).is_file() or not (split / "result.json").is_file()]:
        raise UserError(
            f"{missing[0]} has no {FILE} or no result.json, so that {folder} cannot be compared. Expected a run that is complete (else "
            f"{as_typed('resume', folder)}), with a test part and training.report=true."
        )
    checkpoint = best_checkpoint(trainings_of(folder)[0])
    module = load_module(checkpoint or folder)
    module.levels.check_none("python -m molgcn.compare", f"Compare the metrics in {folder / 'result.json'} and in that of the other run.")
    return FinishedRun(folder, module.task, [_read(split / FILE, module.task) for split in splits])


def _read(path: Path, task: Task) -> Tested:
    with open(path, newline="", encoding="utf-8") as file:
        header, *rows = csv.reader(file)
    columns = [name.removeprefix("'") for name in header]
    predicted = [name for names in task.columns for name in names]
    try:
        places = [columns.index(name) for name in ("smiles", *task.labels, *predicted)]
        cells = [[row[place] for place in places] for row in rows]
        values = np.array([[_number(cell) for cell in row[1:]] for row in cells], np.float64).reshape(len(rows), -1)
    except (ValueError, IndexError) as error:
        raise UserError(
            f"{path} is not what a run wrote: {error}. Restore it, or continue the run with changed keys to write it."
        ) from error
    targets, predictions = np.split(values, [len(task.labels)], axis=1)
    return Tested.of([smiles for smiles, *_ in cells], targets, predictions)


def _number(cell: str) -> float:
    """Return a number, NaN for an empty cell and for a bound, which says nothing certain about an error."""
    return float(cell) if cell and cell[0] not in "<>" else np.nan


def check_comparable(runs: Sequence[FinishedRun]) -> bool:
    """Return whether the splits of runs are the same, so that they can be compared fold by fold.

    UserError names two runs and the difference where they do not predict the same of the same test molecules.
    """
    first, *others = runs
    for other in others:
        for what, ours, theirs in (
            ("tasks", first.task.name, other.task.name),
            ("targets", ", ".join(first.task.names), ", ".join(other.task.names)),
            ("units", ", ".join(unit or "-" for unit in first.task.units), ", ".join(unit or "-" for unit in other.task.units)),
            ("numbers of classes", first.task.num_classes, other.task.num_classes),
        ):
            if ours != theirs:
                raise _differ(first, other, f"their {what} are {ours} and {theirs}")
        mine, its = pooled(first), pooled(other)
        if mine.smiles != its.smiles:
            only = Counter(mine.smiles) - Counter(its.smiles) or Counter(its.smiles) - Counter(mine.smiles)
            raise _differ(
                first,
                other,
                f"they were tested on other molecules ({len(mine.smiles):,} and {len(its.smiles):,}), of which only one has "
                f"{shown(min(only))}. Train both with the same split, for example with dataset.split_file=<run>/splits.json",
            )
        if not np.array_equal(mine.targets, its.targets, equal_nan=True):
            same = (mine.targets == its.targets) | (np.isnan(mine.targets) & np.isnan(its.targets))
            raise _differ(first, other, f"the true values of {shown(mine.smiles[int(np.argmin(same.all(axis=1)))])} differ")
    return len(first.splits) > 1 and all(_parts(run) == _parts(first) for run in others)


def pooled(run: FinishedRun) -> Tested:
    """Return the test molecules of all splits together; with repeats a molecule is there as often as it was tested."""
    smiles = [one for split in run.splits for one in split.smiles]
    targets, predictions = (np.concatenate([getattr(split, name) for split in run.splits]) for name in ("targets", "predictions"))
    return Tested.of(smiles, targets, predictions)


def _parts(run: FinishedRun) -> list[list[str]]:
    return [split.smiles for split in run.splits]


def _differ(first: FinishedRun, other: FinishedRun, how: str) -> UserError:
    return UserError(f"{first.folder} and {other.folder} cannot be compared: {how}.")
