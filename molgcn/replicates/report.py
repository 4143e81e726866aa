"""Write the report of a run of several trainings: its models' predictions of molecules that they have not seen."""

from __future__ import annotations

from molgcn.calibration.columns import prediction_columns
from molgcn.config.run import Config
from molgcn.data.label_columns import measured
from molgcn.replicates.compare_models import compare_models
from molgcn.replicates.predictions import Models
from molgcn.replicates.summary import Summary
from molgcn.report.subject import Trainings
from molgcn.tasks.predictions_csv import write_predictions
from molgcn.training.report_subject import assemble_subject


def write_report(summary: Summary, models: Models, config: Config) -> None:
    """Write `predictions_test.csv`, `report.html` and the task's picture into the run's folder.

    They are about the last part that there is. A molecule's prediction combines those of the models whose split has the molecule in that
    part. With cross-validation, this is one model for each repeat, and every molecule of the set has a prediction. With an ensemble, it is
    all models.

    Args:
        summary: the run's results.
        models: the run's models.
        config: the run's configuration.
    """
    folder, task, part = summary.folder, models.task, summary.parts[-1]
    found, predictions, deviation = models.predict(part, config.dataset.batch_size)
    columns = prediction_columns(task, predictions, deviation, models.calibration, models.digits)
    write_predictions(folder / f"predictions_{part}.csv", task, models.molecules[found], *columns)
    molecules = measured(models.molecules[found])
    task.pictures(molecules.targets, predictions, folder)
    if summary.deviations:
        parts = {part: found}
        metrics = {f"{part}/{key}": value for key, value in task.measure(predictions, molecules.targets).items()}
        comparison = compare_models(models, part, metrics, config, one_split=False)
    else:
        parts = {one: models.splits[0][one] for one in summary.parts}
        metrics, comparison = summary.metrics, summary.comparison
    subject = assemble_subject(
        models.modules[0],
        name=folder.resolve().name,
        source=models.title,
        data_hash=models.data_hash,
        where=folder,
        parts={one: models.molecules[indices] for one, indices in parts.items()},
        part=part,
        predictions=predictions,
        metrics=metrics,
        comparison=comparison,
        calibration=models.calibration,
        trainings=Trainings(
            headers={name: summary.headers(name) for name in summary.names},
            rows={name: summary.rows(name) for name in summary.names},
            totals={name: summary.totals(name) for name in summary.names},
            explained=_explained(summary, len(models.modules)),
        ),
    )
    task.write_report(folder / "report.html", subject)


def _explained(summary: Summary, models: int) -> str:
    if summary.deviations:
        return (
            "Each training on its own parts, their mean and their standard deviation (n - 1). The rest of this page is about what the "
            "models of all trainings predict of molecules that they have not seen."
        )
    return f"Each model by itself, and the mean prediction of the {models}. The rest of this page is about the mean prediction."
