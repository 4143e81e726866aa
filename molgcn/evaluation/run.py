"""Evaluate one model, or several that predict together: predict, measure, compare with baselines and write the report."""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np
from rich.console import Console

from molgcn.calibration.assessment import print_assessment
from molgcn.comparison.baselines import baselines_of, check_forest
from molgcn.comparison.compare import compare
from molgcn.comparison.table import results_table
from molgcn.comparison.thresholds import saved_thresholds
from molgcn.config.overrides import as_typed
from molgcn.data.label_columns import measured, metric_labels
from molgcn.data.levels import Rows
from molgcn.data.load import write_skipped
from molgcn.data.packed import PackedMolecules
from molgcn.data.rows import RowNames
from molgcn.data.target_reports import report_labels
from molgcn.errors import UserError, counted
from molgcn.evaluation.config import EvaluateConfig
from molgcn.evaluation.data import EvaluationData, check_fits, chosen_parts, differ_in_split, other_data, own_data, training_part
from molgcn.evaluation.measure import measure_parts, predict_part
from molgcn.files.json_file import write_json
from molgcn.metrics.comparison import without_nan
from molgcn.report.subject import Subject
from molgcn.screening.ensemble import Ensemble
from molgcn.training.blending import measured_alone
from molgcn.training.inference import Of, combined
from molgcn.training.run_report import assemble_subject
from molgcn.training.trained_on import count_trained_on

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Evaluation:
    """The result of :func:`molgcn.evaluate.evaluate`.

    Attributes:
        folder: The folder that it wrote.
        metrics: The metrics by "<part>/<metric>/<target>".
    """

    folder: Path
    metrics: dict[str, float]


@dataclass(frozen=True)
class _Models:
    """The models to evaluate.

    Attributes:
        ensemble: The models, which predict together.
        checkpoint: The checkpoint, or the folder of a run of several trainings.
        run: The folder of the run, or None for a checkpoint alone.
    """

    ensemble: Ensemble
    checkpoint: Path
    run: Path | None


def run(config: EvaluateConfig) -> Evaluation:
    """Evaluate what a configuration names; see :func:`molgcn.evaluate.evaluate`."""
    models = _load(config)
    task = models.ensemble.task
    own = config.dataset.path is None and config.dataset.name in (None, models.ensemble.dataset.name)
    data = _load_data(config, models, own)
    check_fits(data.molecules, models.ensemble.members[0])
    parts = chosen_parts(data, config.split)
    detailed = "test" if "test" in parts else [*parts][-1]
    wanted, training_molecules = _baseline(config, models.ensemble)
    trained_on = count_trained_on(models.ensemble.trainings, data.molecules, parts)
    known = _warn_of_known(trained_on, parts, models, own_split=own and config.dataset.split_file is None)
    all_rows = Rows.of(data.molecules)
    task.check(all_rows.targets, RowNames(data.molecules.rows[all_rows.molecule], data.molecules.files))
    report_labels(data.molecules, parts, data.title)

    folder = _output_folder(config, own, models.run or models.checkpoint.parent)
    metrics, predictions = measure_parts(models.ensemble, data, parts, detailed, config.dataset.batch_size, folder, config.members)
    shown_part = data.molecules[parts[detailed]]
    rows = Rows.of(measured(shown_part))
    task.pictures(rows.targets, predictions, folder, f"_{detailed}")
    if data.molecules.skipped:
        write_skipped(folder / "skipped.csv", data.molecules.skipped, data.molecules.files)

    module = models.ensemble.members[0]
    seed = module.config.seed
    baselines = baselines_of(wanted, task, module.statistics, detailed, shown_part, training_molecules, seed)
    if any(member.blend is not None for member in models.ensemble.members):

        def predicted(part: str, of: Of) -> tuple[np.ndarray, np.ndarray]:
            some = data.molecules[parts[part]]
            return combined(task, predict_part(models.ensemble, some, config.dataset.batch_size, of))[0], metric_labels(some)

        baselines |= measured_alone(task, [part for part in parts if part != "train"], predicted)
    thresholds = {} if models.run is None else saved_thresholds(models.run)
    labels, molecule = metric_labels(shown_part), rows.molecule if rows.levels else None
    comparison = compare(task, metrics, detailed, predictions, labels, config.bootstrap, seed, baselines, thresholds, molecule)
    subject = assemble_subject(
        module,
        name=(models.run or models.checkpoint).name,
        source=data.title,
        data_hash=data.data_hash,
        where=models.checkpoint,
        parts={part: data.molecules[indices] for part, indices in parts.items()},
        part=detailed,
        predictions=predictions,
        metrics=metrics,
        calibration=models.ensemble.calibration,
    )
    subject = replace(subject, comparison=comparison, trained_on=known)
    task.write_report(folder / "report.html", subject)
    _write_summary(folder, models, data, subject, trained_on)
    _print(folder, models, data, subject)
    return Evaluation(folder, metrics)


def _load(config: EvaluateConfig) -> _Models:
    ensemble = Ensemble.load([config.ckpt], config.backend, config.device, models=config.models)
    if config.members:
        ensemble.check_several()
    if len(ensemble.checkpoints) == 1:
        return _Models(ensemble, ensemble.checkpoints[0], next(iter(ensemble.trainings), None))
    folder = Path(config.ckpt or "").expanduser()
    return _Models(ensemble, folder, folder)


def _load_data(config: EvaluateConfig, models: _Models, own: bool) -> EvaluationData:
    ensemble, given = models.ensemble, config.dataset
    if not own:
        task = ensemble.task
        return other_data(given.path, given, ensemble.dataset, task.names, task.units, given.split_file, ensemble.levels)
    if given.split_file is None and differ_in_split(ensemble.trainings):
        one = as_typed("ckpt", ensemble.trainings[0])
        raise UserError(
            f"ckpt={models.checkpoint}: its {len(ensemble.trainings)} models have different training, validation and test parts. What they "
            f"predict of their test parts is in {models.checkpoint / 'report.html'}. Name one of them, as in {one}, "
            "or evaluate all of them on another file, dataset=<file>."
        )
    return own_data(given, ensemble.dataset, next(iter(ensemble.trainings), None))


def _baseline(config: EvaluateConfig, ensemble: Ensemble) -> tuple[str, PackedMolecules | None]:
    """Return the name of the baselines to measure, and the training molecules where a random forest is one of them.

    A forest that the run asks for and that cannot be fitted is left out with a warning.
    """
    wanted = config.baseline or ensemble.members[0].config.training.baseline
    if wanted != "rf":
        return wanted, None
    try:
        molecules = training_part(config.dataset, ensemble.dataset, ensemble.trainings)
        check_forest(molecules, "baseline")
    except UserError as error:
        if config.baseline is not None:
            raise
        log.warning("The random forest that the run was compared with is left out: %s", error)
        return "simple", None
    return wanted, molecules


def _warn_of_known(
    trained_on: Mapping[str, int] | None, parts: Mapping[str, np.ndarray], models: _Models, own_split: bool
) -> dict[str, int]:
    """Warn of molecules that the models were trained on, and return their number by part.

    The models' own training part is left out where there are others to look at.
    """
    if trained_on is None and not own_split:
        log.info("How many of these molecules the model was trained on is not known: there is no training_hashes.npy of its run")
    expected = {"train"} if own_split and len(parts) > 1 else set()
    known = {part: count for part, count in (trained_on or {}).items() if count and part not in expected}
    for part, count in known.items():
        log.warning(
            "%s of the %s molecules of '%s' are in the training part of %s, so that errors look smaller than on new molecules",
            *(f"{count:,}", f"{len(parts[part]):,}", part, models.run),
        )
    return known


def _output_folder(config: EvaluateConfig, own: bool, beside: Path) -> Path:
    file = Path(config.dataset.path or "").name
    other = re.sub(r"(\.[a-z]+)?(\.gz)?$", "", file, flags=re.IGNORECASE) or config.dataset.name
    name = "evaluation" if own else f"evaluation_{other}"
    folder = beside / name if config.output is None else Path(config.output).expanduser()
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"The folder {folder} cannot be made: {error.strerror}. Give another one with output=.") from error
    return folder


def _write_summary(folder: Path, models: _Models, data: EvaluationData, subject: Subject, trained_on: Mapping[str, int] | None) -> None:
    task, calibration = models.ensemble.task, models.ensemble.calibration
    summary = {
        "checkpoint": str(models.checkpoint),
        "data": data.title,
        "data_hash": data.data_hash,
        "molecules": subject.sizes,
        "trained_on": trained_on,
        "units": dict(zip(task.names, task.units, strict=True)),
        "calibrated": "" if calibration is None else calibration.described,
        "metrics": subject.metrics,
        **asdict(subject.comparison),
    }
    write_json(folder / "metrics.json", without_nan(summary))


def _print(folder: Path, models: _Models, data: EvaluationData, subject: Subject) -> None:
    task, calibration = models.ensemble.task, models.ensemble.calibration
    console = Console()
    line = partial(console.print, soft_wrap=True, highlight=False, markup=False)
    *others, (last, count) = subject.sizes.items()
    counts = [*(f"{part} {size:,}" for part, size in others), f"{last} {counted(count, 'molecule')}"]
    line(f"{models.checkpoint.name} on {data.title}: {', '.join(counts)}")
    parts = [*(part for part in subject.sizes if part != subject.part), subject.part]
    monitor = models.ensemble.members[0].config.training.monitor
    console.print(results_table(task, "", subject.metrics, parts, subject.comparison, monitor))
    print_assessment(console, subject.part, "" if calibration is None else calibration.described, task.names, subject.metrics)
    line(f"The report is {folder / 'report.html'}; everything is in {folder}")
