"""Combine the results of a run's members: means and standard deviations over splits, or the metrics of an ensemble."""

from __future__ import annotations

import logging
import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields, replace
from itertools import combinations
from pathlib import Path

import numpy as np
from lightning.pytorch.utilities import rank_zero_only

from molgcn.calibration.calibration import Calibration
from molgcn.config.run import Config, parse
from molgcn.data.datamodule import load_molecules_once
from molgcn.data.load import LoadedDataset
from molgcn.data.splits.given import load_split, rows_to_split
from molgcn.data.splits.parts import IN_WORDS
from molgcn.files.yaml_file import read_yaml
from molgcn.metrics.comparison import Comparison
from molgcn.replicates.summary import Summary
from molgcn.report.subject import Trainings
from molgcn.training.calibrating import calibrated, load_joint_calibration, measured_parts, save_joint_calibration
from molgcn.training.compatible import check_data
from molgcn.training.inference import Models
from molgcn.training.measure_run import compare_models
from molgcn.training.members import members_of, trainings_of
from molgcn.training.predictor import MoleculePredictor
from molgcn.training.restore import best_checkpoint, load_module
from molgcn.training.result import RunResult
from molgcn.training.run_report import write_run_report

log = logging.getLogger(__name__)


def combine(config: Config, folder: Path, results: Mapping[str, RunResult], ensemble: bool, refit_epochs: int | None = None) -> Summary:
    """Combine the results of a run's members, by name, and with `training.report` write the files of its report.

    `ensemble` says whether members are models of the same split, which predict together, and `refit_epochs` for how many epochs a model was
    trained on all molecules, if one was.
    """
    members = {name: result.metrics for name, result in results.items()}
    first = next(iter(results.values()))
    keys = list(dict.fromkeys(key for metrics in members.values() for key in metrics))  # splits of files may lack a part
    alike = {one.name: getattr(first, one.name) for one in fields(RunResult)}  # targets and tasks
    summed_up = {
        "folder": folder,
        "best_loss": _or_none(_mean(result.best_loss for result in results.values())),
        "best_value": _or_none(_mean(result.best_value for result in results.values())),
        "best_epoch": None,
        "epochs": sum(result.epochs for result in results.values()),
        "metrics": {key: _mean(metrics.get(key) for metrics in members.values()) for key in keys},
        "molecules_per_second": _or_none(_mean(result.molecules_per_second for result in results.values())),
        "comparison": Comparison(),  # each member has its own
        "deviations": {} if ensemble else {key: _deviation(metrics.get(key) for metrics in members.values()) for key in keys},
    }
    summary = Summary(**alike | summed_up, members=members, refit_epochs=refit_epochs)
    first_process = rank_zero_only.rank == 0  # type: ignore[attr-defined]
    if first_process and not ensemble and config.dataset.split != "cv" and config.dataset.test_path is None:
        report_overlap([trainings_of(folder / name)[0] for name in results], summary.parts[-1])
    if first_process and (ensemble or config.training.report):
        checkpoints = [best_checkpoint(training) or training for training in trainings_of(folder)]
        models = load_models(config, folder, checkpoints)
        if ensemble:
            models = calibrated(models, config.training)
            save_joint_calibration(folder, models.calibration, checkpoints)
            summary = _of_ensemble(summary, models, config)
        if config.training.report:
            _write_report(summary, models, config)
    return summary


def load_models(config: Config, folder: Path, checkpoints: Sequence[Path]) -> Models:
    """Load all models of a run of several trainings, each with the split that its training saved, on the configuration's backend."""
    trainings = trainings_of(folder)
    device = "cpu" if config.trainer.get("accelerator") == "cpu" else "auto"
    molecules, source, data_hash = load_molecules_once(parse(Config, read_yaml(trainings[0] / "config.yaml", dict)).dataset)
    for training in trainings:
        check_data(data_hash, training)
    by_content: dict[bytes, LoadedDataset] = {}  # models of one split share its parts
    data = []
    for file in (training / "splits.json" for training in trainings):
        rows, content = load_split(file), file.read_bytes()
        if content not in by_content:
            split = rows_to_split(rows, molecules, str(file), source.title)
            by_content[content] = LoadedDataset(molecules, split, source.title, data_hash)
        data.append(by_content[content])
    modules = [load_module(checkpoint, config.backend, device) for checkpoint in checkpoints]
    return Models(modules, data, of_some=_own_calibrations(folder, trainings, checkpoints, modules))


def _own_calibrations(
    folder: Path, trainings: Sequence[Path], checkpoints: Sequence[Path], modules: Sequence[MoleculePredictor]
) -> dict[tuple[int, ...], Calibration]:
    """Return the calibration of each member of a run by the numbers of its models; the run itself has none yet."""
    found = {}
    for member in members_of(folder):
        numbers = tuple(trainings.index(training) for training in trainings_of(member))
        first = modules[numbers[0]]
        joint = load_joint_calibration([checkpoints[number] for number in numbers], first.task) if len(numbers) > 1 else first.calibration
        if joint is not None:
            found[numbers] = joint
    return found


def report_overlap(folders: Sequence[Path], part: str) -> None:
    """Log the mean share of a repeat's part that another repeat's part has too, and warn of parts that are the same.

    Where a few large scaffolds or groups always train, draws of a split resemble each other, and so do their errors. `folders` are those of
    one training of each repeat.
    """
    rows = [load_split(folder / "splits.json")[part] for folder in folders]
    shares = [len(np.intersect1d(one, other)) / max(min(len(one), len(other)), 1) for one, other in combinations(rows, 2)]
    name, mean = IN_WORDS[part], f"{np.mean(shares):.0%}"
    if (same := len(rows) - len({tuple(sorted(one.tolist())) for one in rows})) > 0:
        log.warning(
            "%d of the %d repeats have the %s part of another one (two share %s on average), so that the deviation over them says little. "
            "Use other dataset.split_fractions, or dataset.split=cv, which tests on each molecule once",
            *(same, len(rows), name, mean),
        )
    else:
        log.info("The %s parts of two repeats share %s of their molecules on average", name, mean)


def _of_ensemble(summary: Summary, models: Models, config: Config) -> Summary:
    """Return the results of an ensemble: the metrics of the models' mean prediction on every part that the members were measured on."""
    metrics = measured_parts(models, summary.parts)
    described = "" if models.calibration is None else models.calibration.described
    return replace(summary, metrics=metrics, calibrated=described, comparison=compare_models(models, summary.parts[-1], metrics, config))


def _write_report(summary: Summary, models: Models, config: Config) -> None:
    """Write the report of a run of several trainings about the last part that there is.

    A molecule's prediction combines those of the models whose split has the molecule in that part. With cross-validation, this is one model
    for each repeat, and every molecule of the set has a prediction. With an ensemble, it is all models.
    """
    part = summary.parts[-1]
    if summary.deviations:
        predicted = models.predicted(part)
        parts = {part: predicted.molecules}
        metrics = {f"{part}/{key}": value for key, value in models.task.measure(predicted.values, predicted.labels).items()}
        comparison = compare_models(models, part, metrics, config, one_split=False)
        explained = (
            "Each training on its own parts, their mean and their standard deviation (n - 1). The rest of this page is about what the "
            "models of all trainings predict of molecules that they have not seen."
        ) + (f" {summary.refitted}" if summary.refitted else "")
    else:
        parts = {one: models.data[0].part(one) for one in summary.parts}
        metrics, comparison, count = summary.metrics, summary.comparison, len(models.modules)
        explained = f"Each model by itself, and the mean prediction of the {count}. The rest of this page is about the mean prediction."
    trainings = Trainings(
        headers={name: summary.headers(name) for name in summary.names},
        rows={name: summary.rows(name) for name in summary.names},
        totals={name: summary.totals(name) for name in summary.names},
        explained=explained,
    )
    write_run_report(models, summary.folder, parts, metrics, comparison, trainings=trainings)


def _mean(values: Iterable[float | None]) -> float:
    """Return the mean of the values that are neither None nor NaN; NaN where there are none."""
    known = _known(values)
    return statistics.fmean(known) if known else math.nan


def _deviation(values: Iterable[float | None]) -> float:
    """Return the sample standard deviation (n - 1) of the values that are neither None nor NaN.

    It is NaN where there are fewer than two or one is infinite, as an interval's width is with too few molecules to calibrate on.
    """
    known = _known(values)
    return statistics.stdev(known) if len(known) > 1 and all(map(math.isfinite, known)) else math.nan


def _known(values: Iterable[float | None]) -> list[float]:
    return [value for value in values if value is not None and not math.isnan(value)]


def _or_none(value: float) -> float | None:
    return None if math.isnan(value) else value
