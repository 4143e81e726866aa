"""The files of a run of several trainings: what its models predict of molecules that they have not seen, as CSV, picture and page."""

from __future__ import annotations

from molgcn.replicates.predictions import Models
from molgcn.replicates.summary import Summary
from molgcn.report.facts import facts
from molgcn.report.page import Subject, Trainings
from molgcn.training.provenance import versions


def write_report(summary: Summary, models: Models, batch_size: int) -> None:
    """Write `predictions_test.csv`, `report.html` and the task's picture into the run's folder.

    A molecule's prediction is the mean over the models that have it in their test part: of cross-validation each molecule of the set has
    one, of several repeats their mean, and of an ensemble each test molecule has the mean of all models.

    Args:
        summary: of the run.
        models: of the run.
        batch_size: molecules a batch.
    """
    folder, task = summary.folder, models.task
    found, predictions = models.average("test", batch_size)
    molecules = models.molecules[found]
    task.write_predictions(folder / "predictions_test.csv", molecules, predictions)
    task.plot(molecules.targets, predictions, folder / f"{task.plot_name}.png")
    parts = {"test": found} if summary.deviations else models.splits[0]
    together = {f"test/{key}": value for key, value in task.measure(predictions, molecules.targets).items()}
    subject = Subject(
        title=f"{folder.resolve().name} on {models.title}",
        facts=facts(models.modules[0], models.title, models.data_hash, str(folder), versions()),
        metrics=together if summary.deviations else summary.metrics,
        sizes={part: len(indices) for part, indices in parts.items()},
        labels={part: models.molecules[indices].num_labels for part, indices in parts.items()},
        part="test",
        molecules=molecules,
        predictions=predictions,
        names=summary.names,
        units=summary.units,
        trainings=Trainings(
            headers=summary.headers,
            rows={name: summary.rows(name) for name in summary.names},
            totals={name: summary.totals(name) for name in summary.names},
            explained=_explained(summary, len(models.modules)),
        ),
    )
    task.write_report(folder / "report.html", subject)


def _explained(summary: Summary, count: int) -> str:
    if summary.deviations:
        return (
            "Everything above is of the predictions for molecules that a model had not seen, all together; here are the errors of each "
            "training on its own parts, their mean and their standard deviation (n - 1)."
        )
    return (
        f"Everything above is of the mean prediction of {count} models; here is each of them by itself, and the last row is their mean's."
    )
