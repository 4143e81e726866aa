"""Write the report of a run of one training or several, and assemble what any report is about."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import cast

import numpy as np

from molgcn.calibration.columns import prediction_columns, write_predictions
from molgcn.comparison.compare import class_counts
from molgcn.data.label_columns import measured
from molgcn.data.levels import Rows
from molgcn.data.packed import PackedMolecules
from molgcn.errors import counted
from molgcn.metrics.comparison import Comparison
from molgcn.report.subject import Subject, Trainings
from molgcn.training.inference import Models, common_digits
from molgcn.training.predictor import MoleculePredictor
from molgcn.training.provenance import versions


def write_run_report(
    models: Models,
    folder: Path,
    parts: Mapping[str, PackedMolecules],
    metrics: Mapping[str, float],
    comparison: Comparison,
    pictures: Mapping[str, Path] | None = None,
    trainings: Trainings | None = None,
) -> dict[str, Path]:
    """Write predictions, pictures and page about the last part of a run into its folder, and return the task's own pictures by name.

    :class:`molgcn.report.subject.Subject` says what the arguments are.
    """
    task, part = models.task, [*parts][-1]
    predicted = models.predicted(part)
    write_part(models, part, folder)
    own_pictures = task.pictures(predicted.targets, predicted.values, folder)
    subject = assemble_subject(models, folder.resolve().name, folder, parts, part, metrics)
    subject = replace(subject, comparison=comparison, pictures=pictures or {}, trainings=trainings)
    task.write_report(folder / "report.html", subject)
    return own_pictures


def write_part(models: Models, part: str, folder: Path, each: Mapping[str, np.ndarray] | None = None) -> None:
    """Write `predictions_<part>.csv`, with the predictions of `each` model by its name where they are to be shown too."""
    task, predicted, digits = models.task, models.predicted(part), common_digits(models.modules)
    columns = prediction_columns(task, predicted.values, predicted.deviation, predicted.calibrations, digits, each, predicted.rows)
    write_predictions(folder / f"predictions_{part}.csv", task, predicted.molecules, *columns)


def assemble_subject(
    models: Models, name: str, where: Path, parts: Mapping[str, PackedMolecules], part: str, metrics: Mapping[str, float]
) -> Subject:
    """Assemble what every report is about, as :class:`molgcn.report.subject.Subject` describes it.

    The facts are those of the model, or of one of several that predict together. `where` is the checkpoint or the run's folder.
    """
    from molgcn.calibration.section import uncertainty_of  # Matplotlib takes long to import

    task, data, predictions = models.task, models.data[0], models.predicted(part).values
    exact = {one: measured(molecules) for one, molecules in parts.items()}
    rows = {one: Rows.of(molecules) for one, molecules in exact.items()}
    shown = _labelled(rows[part])
    levels = rows[part].levels.of_targets
    below = {name: level for name, level in zip(task.names, levels, strict=True) if level != "molecule"}
    return Subject(
        title=f"{name} on {_file_names(data.title)}",
        facts=_facts(models.modules[0], data.title, data.data_hash, where),
        metrics=metrics,
        sizes={one: len(molecules) for one, molecules in parts.items()},
        labels={one: (~np.isnan(own.targets)).sum(axis=0).tolist() for one, own in rows.items()},
        class_counts={one: class_counts(task, own.targets) for one, own in rows.items()},
        part=part,
        molecules=exact[part] if shown is None else _molecules_of_rows(rows[part], shown),
        predictions=predictions if shown is None else predictions[shown],
        names=task.names,
        units=task.units,
        below={name: (level, {one: own.counts[level] for one, own in rows.items()}) for name, level in below.items()},
        numbers=None if shown is None else rows[part].number[shown],
        uncertainty=uncertainty_of(task, models.calibration, metrics, part, predictions, rows[part].targets),
    )


def _labelled(rows: Rows) -> np.ndarray | None:
    """Return the rows that have a value of any target, int64; None for a set whose rows are its molecules."""
    return np.flatnonzero(~np.isnan(rows.targets).all(axis=1)) if rows.levels else None


def _molecules_of_rows(rows: Rows, chosen: np.ndarray) -> PackedMolecules:
    """Return the molecule of each chosen row, with the targets of that row."""
    molecules = cast(PackedMolecules, rows.molecules[rows.molecule[chosen]])
    return replace(molecules, targets=rows.targets[chosen], atom_targets=None, bond_targets=None)


def _file_names(source: str) -> str:
    """Return the title of a source with the files' names in place of their paths."""
    return "".join(part if place % 2 else Path(part).name for place, part in enumerate(re.split(r"(, | and )", source)))


def _facts(module: MoleculePredictor, source: str, data_hash: str, where: Path) -> dict[str, str]:
    model, config = module.averaged, module.config
    parameters = sum(parameter.numel() for parameter in model.parameters())
    options = [f"norm {model.norm or 'none'}", "residual" if model.residual else "no residual", f"pool {model.pool}"]
    averaged = f", moving average of the weights ({config.training.ema_decay})" if module.ema is not None else ""
    network = f"{model.conv}, {counted(model.num_layers, 'layer')} of {counted(model.hidden_channels, 'channel')}, {', '.join(options)}"
    shown = {name: number for name, number in versions().items() if number and name in ("python", "molgcn", "torch", "rdkit")}
    dataset = config.dataset
    given = [*(dataset.descriptors or ()), *(["a file"] if dataset.descriptors_path else []), *(dataset.descriptor_generators or ())]
    descriptors = {"Descriptors": f"{len(module.descriptor_names)}, of {', '.join(given)}"} if module.descriptor_names else {}
    own = {of: names for of, names in module.own_features.items() if names}
    given_features = {f"Own features of {of}s": f"{len(names)}, of a file" for of, names in own.items()}
    trees = {} if module.blend is None else {"Blend": f"the network and boosted trees (LightGBM): {module.blend.described}"}
    return {
        "Model": f"{network}; {counted(parameters, 'parameter')}{averaged}",
        **trees,
        "Weights": str(where),
        "Data": source,
        "Data hash": data_hash[:16],
        "Features": f"{module.features}, {model.in_channels} an atom" if module.features else f"{model.in_channels} an atom",
        **given_features,
        **descriptors,
        "Trained on": f"{config.dataset.name}, {module.task.loss_name(config.training)} loss, {config.optimizer.name}, seed {config.seed}",
        "Computed by": f"backend {model.backend.name} on {module.device}",
        "Versions": ", ".join(f"{name} {number}" for name, number in shown.items()),
    }
