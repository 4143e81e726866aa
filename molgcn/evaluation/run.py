"""Evaluate one model, or several that predict together: predict, measure, compare with baselines and write the report."""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path

from rich.console import Console

from molgcn.calibration.assessment import print_assessment
from molgcn.comparison.baselines import baselines_of, check_forest
from molgcn.comparison.compare import compare, saved_thresholds
from molgcn.comparison.table import results_tables
from molgcn.config.overrides import as_typed
from molgcn.data.applicability import Contents, contents_of, warn_of_extrapolation
from molgcn.data.levels import Rows
from molgcn.data.load import LoadedDataset, write_skipped
from molgcn.data.packed import PackedMolecules
from molgcn.data.rows import RowNames
from molgcn.data.target_reports import report_labels
from molgcn.errors import UserError, counted
from molgcn.evaluation.config import EvaluateConfig
from molgcn.evaluation.data import check_fits, chosen_parts, differ_in_split, other_data, own_data, training_part
from molgcn.files.json_file import write_json
from molgcn.metrics.comparison import without_nan
from molgcn.process.tables import print_table
from molgcn.report.subject import Subject
from molgcn.screening.config import one_checkpoint
from molgcn.screening.ensemble import Ensemble
from molgcn.training.blending import blended_parts
from molgcn.training.calibrating import measured_parts
from molgcn.training.inference import Models
from molgcn.training.run_report import assemble_subject, write_part
from molgcn.training.trained_on import count_trained_on

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Evaluation:
    """The result of :func:`molgcn.evaluate.evaluate`: the folder that it wrote, and the metrics by "<part>/<metric>/<target>"."""

    folder: Path
    metrics: dict[str, float]


def run(config: EvaluateConfig) -> Evaluation:
    """Evaluate what a configuration names; see :func:`molgcn.evaluate.evaluate`."""
    config = replace(config, ckpt=one_checkpoint(config.ckpt))
    ensemble = Ensemble.load([config.ckpt], config.backend, config.device, models=config.models)
    if config.members:
        ensemble.check_several()
    where, run_dir = _source(config, ensemble)
    task, module = ensemble.task, ensemble.members[0]
    own = config.dataset.path is None and config.dataset.name in (None, ensemble.dataset.name)
    data = _load_data(config, ensemble, where, own)
    check_fits(data.molecules, module)
    data = replace(data, splits=chosen_parts(data, config.split))
    detailed = "test" if "test" in data.splits else [*data.splits][-1]
    wanted, training_molecules = _baseline(config, ensemble)
    trained_on = count_trained_on(ensemble.trainings, data.molecules, data.splits)
    known = _warn_of_known(trained_on, data, run_dir, own_split=own and config.dataset.split_file is None)
    all_rows = Rows.of(data.molecules)
    task.check(all_rows.targets, RowNames(data.molecules.rows[all_rows.molecule], data.molecules.files))
    report_labels(data.molecules, data.splits, data.title)

    folder = _output_folder(config, own, run_dir or where.parent)
    models = Models(ensemble.members, [data] * len(ensemble.members), ensemble.calibration, batch_size=config.dataset.batch_size)
    contents = Contents()
    for part in data.splits:
        contents += contents_of(data.part(part))
        write_part(models, part, folder, ensemble.named(models.predicted(part).passes) if config.members else None)
    warn_of_extrapolation(data.title, contents, ensemble.trained_on)
    metrics, shown = measured_parts(models, data.splits), models.predicted(detailed)
    task.pictures(shown.targets, shown.values, folder, f"_{detailed}")
    if data.molecules.skipped:
        write_skipped(folder / "skipped.csv", data.molecules.skipped, data.molecules.files)

    resamples, seed, thresholds = config.bootstrap, module.config.seed, {} if run_dir is None else saved_thresholds(run_dir)
    baselines = baselines_of(wanted, task, module.statistics, detailed, shown.molecules, training_molecules, seed)
    if models.blended:
        baselines |= blended_parts(models, [part for part in data.splits if part != "train"])
    labels, molecule = shown.labels, shown.molecule_of_row
    comparison = compare(task, metrics, detailed, shown.values, labels, resamples, seed, baselines, thresholds, molecule)
    parts = {part: data.part(part) for part in data.splits}
    subject = assemble_subject(models, (run_dir or where).name, where, parts, detailed, metrics)
    subject = replace(subject, comparison=comparison, trained_on=known)
    task.write_report(folder / "report.html", subject)
    _write_summary(folder, where, models, subject, trained_on)
    _print(folder, where, models, subject)
    return Evaluation(folder, metrics)


def _source(config: EvaluateConfig, ensemble: Ensemble) -> tuple[Path, Path | None]:
    """Return the checkpoint, or the folder of a run of several trainings, and the folder of the run; None for a checkpoint alone."""
    if len(ensemble.checkpoints) == 1:
        return ensemble.checkpoints[0], next(iter(ensemble.trainings), None)
    folder = Path(config.ckpt or "").expanduser()
    return folder, folder


def _load_data(config: EvaluateConfig, ensemble: Ensemble, where: Path, own: bool) -> LoadedDataset:
    given, task = config.dataset, ensemble.task
    if not own:
        return other_data(given.path, given, ensemble.dataset, task.names, task.units, given.split_file, ensemble.levels)
    if given.split_file is None and differ_in_split(ensemble.trainings):
        one = as_typed("ckpt", ensemble.trainings[0])
        raise UserError(
            f"ckpt={where}: its {len(ensemble.trainings)} models have different training, validation and test parts. What they "
            f"predict of their test parts is in {where / 'report.html'}. Name one of them, as in {one}, "
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


def _warn_of_known(trained_on: Mapping[str, int] | None, data: LoadedDataset, run_dir: Path | None, own_split: bool) -> dict[str, int]:
    """Warn of molecules that the models were trained on, and return their number by part.

    The models' own training part is left out where there are others to look at.
    """
    if trained_on is None and not own_split:
        log.info("How many of these molecules the model was trained on is not known: there is no training_hashes.npy of its run")
    expected = {"train"} if own_split and len(data.splits) > 1 else set()
    known = {part: count for part, count in (trained_on or {}).items() if count and part not in expected}
    for part, count in known.items():
        log.warning(
            "%s of the %s molecules of '%s' are in the training part of %s, so that errors look smaller than on new molecules",
            *(f"{count:,}", f"{len(data.splits[part]):,}", part, run_dir),
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


def _write_summary(folder: Path, where: Path, models: Models, subject: Subject, trained_on: Mapping[str, int] | None) -> None:
    task, data, calibration = models.task, models.data[0], models.calibration
    summary = {
        "checkpoint": str(where),
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


def _print(folder: Path, where: Path, models: Models, subject: Subject) -> None:
    task, calibration = models.task, models.calibration
    console = Console()
    line = partial(console.print, soft_wrap=True, highlight=False, markup=False)
    *others, (last, count) = subject.sizes.items()
    counts = [*(f"{part} {size:,}" for part, size in others), f"{last} {counted(count, 'molecule')}"]
    line(f"{where.name} on {models.data[0].title}: {', '.join(counts)}")
    parts = [*(part for part in subject.sizes if part != subject.part), subject.part]
    monitor = models.modules[0].config.training.monitor
    for table in results_tables(task, "", subject.metrics, parts, subject.comparison, monitor):
        print_table(console, table)
    print_assessment(console, subject.part, "" if calibration is None else calibration.described, task.names, subject.metrics)
    line(f"The report is {folder / 'report.html'}; everything is in {folder}")
