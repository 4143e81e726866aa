"""Metrics of predicted class probabilities, for a set of molecules and for its bootstrap resamples."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import numpy as np

from molgcn.metrics.ties import Ties

RANKING = ("roc_auc", "pr_auc")
METRICS = (*RANKING, "accuracy", "balanced_accuracy", "f1", "mcc", "brier", "log_loss")
RISING = frozenset(METRICS) - {"brier", "log_loss"}
THRESHOLD = 0.5  # probability above which class 1 is predicted


def class_metrics(labels: np.ndarray, probabilities: np.ndarray) -> dict[str, float]:
    """Compute every metric of one target, with every molecule counted once; see :func:`weighted_class_metrics`."""
    return {metric: float(values[0]) for metric, values in weighted_class_metrics(labels, probabilities).items()}


def weighted_class_metrics(
    labels: np.ndarray, probabilities: np.ndarray, wanted: Collection[str] = METRICS, weights: np.ndarray | None = None
) -> dict[str, np.ndarray]:
    """Compute metrics of one target in float64, with molecules weighted.

    For two classes, ROC-AUC, average precision (`pr_auc`) and F1 are those of class 1. For more classes they are unweighted means over the
    classes, each taken against the rest. The predicted class is the one with the largest probability, and the lower class among equals.

    Args:
        labels: [n], the true classes, NaN = missing.
        probabilities: the probabilities of class 1 [n], or of all classes [n, C].
        wanted: the metrics to compute, some of `METRICS`.
        weights: [R, n], how often each of R resamples contains each molecule. None means a single resample with every molecule once.

    Returns:
        float64 [R] by metric, NaN where it is undefined. All metrics are undefined without labels, and for probabilities that are not
        finite. ROC-AUC and average precision are undefined where a class has no label. Balanced accuracy and Matthews' correlation
        coefficient are undefined where only one class has labels. F1 is undefined where class 1 is neither present nor predicted.
    """
    known = ~np.isnan(labels)
    true, given = labels[known].astype(np.int64), np.asarray(probabilities, np.float64)[known]
    weights = np.ones((1, len(true))) if weights is None else weights[:, known]
    if not len(true) or not np.isfinite(given).all():
        return {metric: np.full(len(weights), np.nan) for metric in METRICS if metric in wanted}
    found: dict[str, np.ndarray] = {}
    with np.errstate(invalid="ignore", divide="ignore"):
        for group, of_group in ((RANKING, _ranking), (METRICS[2:6], _decisions), (METRICS[6:], _calibration)):
            if not set(group).isdisjoint(wanted):
                found |= of_group(true, given, weights)
    return {metric: found[metric] for metric in METRICS if metric in wanted}


def _ranking(true: np.ndarray, given: np.ndarray, weights: np.ndarray) -> Mapping[str, np.ndarray]:
    """Compute ROC-AUC and average precision, which depend only on the order of the probabilities."""
    columns = {1: given} if given.ndim == 1 else dict(enumerate(given.T))
    areas = [_areas(true == place, column, weights) for place, column in columns.items()]
    return dict(zip(RANKING, np.mean(areas, axis=0), strict=True))


def _areas(positive: np.ndarray, score: np.ndarray, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Compute ROC-AUC and average precision [R] of one class; NaN for a resample without that class."""
    ties = Ties(score)
    positives, negatives = (ties.sums(weights * some) for some in (positive, ~positive))
    num_positives, num_negatives = positives.sum(axis=1), negatives.sum(axis=1)
    below = negatives.cumsum(axis=1) - negatives / 2
    roc = (positives * below).sum(axis=1) / (num_positives * num_negatives)
    tp, predicted = (values[:, ::-1].cumsum(axis=1)[:, ::-1] for values in (positives, positives + negatives))
    average_precision = (positives * (tp / np.maximum(predicted, 1))).sum(axis=1) / num_positives
    return roc, np.where(num_negatives > 0, average_precision, np.nan)


def _decisions(true: np.ndarray, given: np.ndarray, weights: np.ndarray) -> Mapping[str, np.ndarray]:
    """Compute the metrics that depend only on the predicted classes.

    They follow from three numbers [R, C] for each class: its support, how often it is predicted, and the true positives.
    """
    guess, classes = predicted_classes(given), range(2 if given.ndim == 1 else given.shape[1])
    support, predicted, tp = (
        np.stack([weights @ of_class for of_class in each], axis=1)
        for each in ([true == c for c in classes], [guess == c for c in classes], [(true == c) & (guess == c) for c in classes])
    )
    total, correct = support.sum(axis=1), tp.sum(axis=1)
    there, either = support > 0, support + predicted > 0
    alone = there.sum(axis=1) == 1
    f1 = 2 * tp / (support + predicted)
    squares = [(one * other).sum(axis=1) for one, other in ((support, support), (predicted, predicted), (support, predicted))]
    spread = (total**2 - squares[0]) * (total**2 - squares[1])
    recall = np.where(there, tp / support, 0).sum(axis=1) / there.sum(axis=1)
    return {
        "accuracy": correct / total,
        "balanced_accuracy": np.where(alone, np.nan, recall),
        "f1": f1[:, 1] if given.ndim == 1 else np.where(either, f1, 0).sum(axis=1) / either.sum(axis=1),
        # Gorodkin (Comput. Biol. Chem. 28, 2004) for any number of classes; 0 where one class is predicted for all
        "mcc": np.where(alone | (total == 0), np.nan, (correct * total - squares[2]) / np.sqrt(np.where(spread > 0, spread, 1))),
    }


def _calibration(true: np.ndarray, given: np.ndarray, weights: np.ndarray) -> Mapping[str, np.ndarray]:
    """Compute the Brier score and the log loss, which clips a probability of 0 to the machine epsilon of float64."""
    columns = np.column_stack([1 - given, given]) if given.ndim == 1 else given
    squares = ((columns - np.eye(columns.shape[1])[true]) ** 2).sum(axis=1) / (2 if given.ndim == 1 else 1)
    of_truth = columns[np.arange(len(true)), true].clip(np.finfo(np.float64).eps)
    total = weights.sum(axis=1)
    return {"brier": weights @ squares / total, "log_loss": weights @ -np.log(of_truth) / total}


def count_classes(targets: np.ndarray, num_classes: int) -> np.ndarray:
    """Count the labels of each class, int64 [T, C], among labels [M, T], NaN = missing."""
    return np.array([(targets == one).sum(axis=0) for one in range(num_classes)], np.int64).reshape(num_classes, targets.shape[1]).T


def confusion(true: np.ndarray, given: np.ndarray, threshold: float = THRESHOLD) -> np.ndarray:
    """Return the confusion matrix int64 [C, C], with true classes as rows and :func:`predicted_classes` as columns."""
    matrix = np.zeros([2 if given.ndim == 1 else given.shape[1]] * 2, np.int64)
    np.add.at(matrix, (true, predicted_classes(given, threshold)), 1)
    return matrix


def predicted_classes(probabilities: np.ndarray, threshold: float = THRESHOLD) -> np.ndarray:
    """Return the predicted classes int64 [n].

    Args:
        probabilities: the probabilities of class 1 [n], or of all classes [n, C], of which the likeliest is predicted.
        threshold: the probability above which class 1 is predicted; only for two classes.
    """
    return (probabilities > threshold).astype(np.int64) if probabilities.ndim == 1 else probabilities.argmax(axis=1)
