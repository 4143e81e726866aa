"""The command `python -m molgcn.evaluate`: it measures a checkpoint on its run's own data and split, or on another file."""

from __future__ import annotations

import logging
import re
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from omegaconf import OmegaConf

from molgcn.cli import run_app
from molgcn.config.run import parse
from molgcn.data.applicability import Contents, contents_of, warn_of_extrapolation
from molgcn.data.config import NAMES, DatasetConfig
from molgcn.data.packed import PackedMolecules
from molgcn.data.row_names import RowNames
from molgcn.errors import UserError
from molgcn.evaluation.config import EvaluateConfig
from molgcn.files.json_file import write_json
from molgcn.tasks.predictions_csv import write_predictions

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Evaluation:
    """The result of :func:`evaluate`.

    Attributes:
        folder: the folder that it wrote.
        metrics: the metrics by "<part>/<metric>/<target>".
    """

    folder: Path
    metrics: dict[str, float]


def main() -> None:
    """Run `python -m molgcn.evaluate`."""
    sys.argv[1:] = [spell_out_dataset(argument) for argument in sys.argv[1:]]
    run_app("evaluate", _job, imports=["molgcn.training.restore"])


def spell_out_dataset(argument: str) -> str:
    """Return `dataset=qm9` as `dataset.name=qm9`, `dataset=<file>` as `dataset.path=<file>`, and other arguments unchanged."""
    key, _, value = argument.partition("=")
    if key != "dataset" or not value:
        return argument
    return f"dataset.{'name' if value in NAMES else 'path'}={value}"


def _job(config: Any) -> None:
    evaluate(parse(EvaluateConfig, OmegaConf.to_container(config, resolve=True)))  # type: ignore[arg-type]


def evaluate(config: EvaluateConfig) -> Evaluation:
    """Predict, measure, print the results table, and write the report.

    The output folder gets `report.html`, `metrics.json`, one `predictions_<part>.csv` per part, and a picture.

    Raises:
        UserError: for every mistake in the configuration, the checkpoint or the data.
    """
    # Lightning takes seconds to import, and `--help` or a misspelt key does not need it
    from rich.console import Console

    from molgcn.calibration.assessment import assess, print_assessment
    from molgcn.calibration.section import uncertainty_of
    from molgcn.comparison.baselines import baselines_of
    from molgcn.comparison.compare import class_counts, compare, saved_thresholds
    from molgcn.comparison.table import results_table
    from molgcn.data.label_columns import measured
    from molgcn.data.load import write_skipped
    from molgcn.evaluation.data import chosen_parts, other_data, own_data
    from molgcn.metrics.comparison import without_nan
    from molgcn.report.facts import facts
    from molgcn.report.subject import Subject
    from molgcn.screening.ensemble import Ensemble
    from molgcn.training.inference import predict_molecules
    from molgcn.training.provenance import versions
    from molgcn.training.restore import find_checkpoints, run_folder
    from molgcn.training.trained_on import count_trained_on

    checkpoints = find_checkpoints(config.ckpt)
    ensemble = Ensemble.load(checkpoints, config.backend, config.device)
    trainings = [training for file in checkpoints if (training := run_folder(file))]
    checkpoint, run = (checkpoints[0], run_folder(checkpoints[0])) if len(checkpoints) == 1 else (Path(config.ckpt or "").expanduser(),) * 2
    module, task = ensemble.members[0], ensemble.task
    names, units = task.names, task.units
    saved = replace(module.config.dataset, features=ensemble.features)
    own = config.dataset.path is None and config.dataset.name in (None, saved.name)
    if own and config.dataset.split_file is None:
        _check_same_split(trainings, checkpoint)
    data = own_data(config.dataset, saved, next(iter(trainings), None)) if own else other_data(config.dataset, saved, names, units)
    parts = chosen_parts(data, config.split)
    detailed = "test" if "test" in parts else [*parts][-1]
    wanted, trained = _baseline(config, saved, module.config.training.baseline, trainings)
    trained_on = count_trained_on(trainings, data.molecules, parts)
    own_split = own and config.dataset.split_file is None
    known = {part: count for part, count in (trained_on or {}).items() if count and not (own_split and part == "train")}
    for part, count in known.items():
        log.warning(
            "%s of the %s molecules of '%s' are in the training part of %s, so that errors look smaller than on new molecules",
            *(f"{count:,}", f"{len(parts[part]):,}", part, run),
        )
    if trained_on is None and not own_split:
        log.info("How many of these molecules the model was trained on is not known: there is no training_molecules.npy of its run")

    task.check(data.molecules.targets, RowNames.of(data.molecules))
    folder = _output_folder(config, own, run or checkpoint.parent)
    metrics: dict[str, float] = {}
    contents = Contents()
    labels: dict[str, list[int]] = {}
    classes: dict[str, np.ndarray] = {}
    for part, indices in parts.items():
        molecules = data.molecules[indices]
        contents += contents_of(molecules)
        passes = np.stack([predict_molecules(member, molecules, config.dataset.batch_size) for member in ensemble.members])
        predictions, exact = task.combine(passes), measured(molecules)
        metrics |= {f"{part}/{key}": value for key, value in task.measure(predictions, exact.targets).items()}
        if part != "train":  # errors are smaller there, so that uncertainties would look too large
            found = assess(task, ensemble.calibration, predictions, exact.targets)
            metrics |= {f"{part}/{key}": value for key, value in found.items()}
        labels[part], classes[part] = exact.num_labels, class_counts(task, exact.targets)
        write_predictions(folder / f"predictions_{part}.csv", task, molecules, predictions)
        if part == detailed:
            looked_at = exact, predictions
    warn_of_extrapolation(data.title, contents, ensemble.trained_on)
    molecules, predictions = looked_at
    task.pictures(molecules.targets, predictions, folder, f"_{detailed}")
    if data.molecules.skipped:
        write_skipped(folder / "skipped.csv", data.molecules.skipped, data.molecules.files)
    counts = {part: len(indices) for part, indices in parts.items()}
    title = f"{run.name if run else checkpoint.name} on {data.title}"
    about = facts(module, data.title, data.data_hash, str(checkpoint), versions())
    seed = module.config.seed
    baselines = baselines_of(wanted, task, module.statistics, detailed, molecules, trained, seed)
    given = predictions, molecules.targets, config.bootstrap, seed
    comparison = compare(task, metrics, detailed, *given, baselines, {} if run is None else saved_thresholds(run))
    section = uncertainty_of(task, ensemble.calibration, metrics, detailed, predictions, molecules.targets)
    subject = Subject(
        title,
        about,
        metrics,
        counts,
        labels,
        detailed,
        molecules,
        predictions,
        names,
        units,
        trained_on=known,
        comparison=comparison,
        class_counts=classes,
        uncertainty=section,
    )
    task.write_report(folder / "report.html", subject)
    calibrated = "" if ensemble.calibration is None else ensemble.calibration.described
    summary = {
        "checkpoint": str(checkpoint),
        "data": data.title,
        "data_hash": data.data_hash,
        "molecules": counts,
        "trained_on": trained_on,
        "units": dict(zip(names, units, strict=True)),
        "calibrated": calibrated,
        "metrics": metrics,
        **asdict(comparison),
    }
    write_json(folder / "metrics.json", without_nan(summary))
    sizes = ", ".join(f"{part} {count:,}" for part, count in counts.items())
    console = Console()
    line = partial(console.print, soft_wrap=True, highlight=False, markup=False)
    line(f"{checkpoint.name} on {data.title}: {sizes} molecules")
    console.print(results_table(task, "", metrics, [*(part for part in parts if part != detailed), detailed], comparison))
    print_assessment(console, detailed, calibrated, names, metrics)
    line(f"The report is {folder / 'report.html'}; everything is in {folder}")
    return Evaluation(folder, metrics)


def _baseline(config: EvaluateConfig, saved: DatasetConfig, of_run: str, trainings: Sequence[Path]) -> tuple[str, PackedMolecules | None]:
    """Return the name of the baselines to measure, and the training molecules where a random forest is one of them.

    Where the run asks for a forest that cannot be fitted, the forest is left out with a warning.

    Raises:
        UserError: where `baseline` asks for a forest that cannot be fitted.
    """
    from molgcn.comparison.forest import check_forest
    from molgcn.evaluation.data import training_part

    wanted = config.baseline or of_run
    if wanted != "rf":
        return wanted, None
    try:
        molecules = training_part(config.dataset, saved, trainings)
        check_forest(molecules, "baseline")
    except UserError as error:
        if config.baseline is not None:
            raise
        log.warning("The random forest that the run was compared with is left out: %s", error)
        return "simple", None
    return wanted, molecules


def _check_same_split(trainings: Sequence[Path], run: Path) -> None:
    """Raise a UserError for models with different splits, since each molecule is then in the training part of some of them."""
    from molgcn.evaluation.data import differ_in_split

    if differ_in_split(trainings):
        raise UserError(
            f"ckpt={run}: its {len(trainings)} models have different training, validation and test parts. What they predict of their test "
            f"parts is in {run / 'report.html'}. Name one of them, as in ckpt={trainings[0]}, or evaluate all of them on another file, "
            "dataset=<file>."
        )


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


if __name__ == "__main__":
    main()
