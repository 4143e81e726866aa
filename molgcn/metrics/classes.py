"""Metrics of classes from probabilities: the one place where they are computed, for a set of molecules and for its bootstrap resamples."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import numpy as np

from molgcn.metrics.ties import Ties

RANKING = ("roc_auc", "pr_auc")
METRICS = (*RANKING, "accuracy", "balanced_accuracy", "f1", "mcc", "brier", "log_loss")
RISING = frozenset(METRICS) - {"brier", "log_loss"}
THRESHOLD = 0.5  # probability of class 1 above which a molecule counts for it


def class_metrics(labels: np.ndarray, probabilities: np.ndarray) -> dict[str, float]:
    """Compute every metric of one target; see :func:`weighted_class_metrics`."""
    return {metric: float(values[0]) for metric, values in weighted_class_metrics(labels, probabilities).items()}


def weighted_class_metrics(
    labels: np.ndarray, probabilities: np.ndarray, wanted: Collection[str] = METRICS, weights: np.ndarray | None = None
) -> dict[str, np.ndarray]:
    """Compute metrics of one target in float64, one molecule one vote or as many as its weight.

    ROC-AUC, average precision (`pr_auc`) and F1 are those of class 1 where there are two classes and the plain mean over the classes where
    there are more, of which ROC-AUC and average precision tell one from the rest. Classes are told by the largest probability; equal ones
    go to the lower class.

    Args:
        labels: [n], classes, NaN = missing.
        probabilities: [n], of class 1, or [n, C].
        wanted: some of `METRICS`.
        weights: [R, n], how often each of R resamples has a molecule, or None for a single one that has each once.

    Returns:
        [R] by metric; NaN where a metric is undefined: all without labels or with probabilities that are not finite, the areas where a
        class has no label, balanced accuracy and Matthews' correlation coefficient where only one class has some, F1 where class 1 is
        neither there nor predicted.
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
    """Compute what depends on the order of the molecules alone."""
    columns = {1: given} if given.ndim == 1 else dict(enumerate(given.T))
    areas = [_areas(true == place, column, weights) for place, column in columns.items()]
    return dict(zip(RANKING, np.mean(areas, axis=0), strict=True))


def _areas(positive: np.ndarray, score: np.ndarray, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Compute ROC-AUC and average precision [R] of one class, which a resample may lack."""
    ties = Ties(score)
    hits, others = (ties.sums(weights * some) for some in (positive, ~positive))
    num_hits, num_others = hits.sum(axis=1), others.sum(axis=1)
    below = others.cumsum(axis=1) - others / 2
    roc = (hits * below).sum(axis=1) / (num_hits * num_others)
    found, said = (values[:, ::-1].cumsum(axis=1)[:, ::-1] for values in (hits, hits + others))
    precision = (hits * (found / np.maximum(said, 1))).sum(axis=1) / num_hits
    return roc, np.where(num_others > 0, precision, np.nan)


def _decisions(true: np.ndarray, given: np.ndarray, weights: np.ndarray) -> Mapping[str, np.ndarray]:
    """Compute what depends on the predicted class alone, from the numbers [R, C] of molecules of each class, told as it, and both."""
    said, classes = predicted_classes(given), range(2 if given.ndim == 1 else given.shape[1])
    of_true, of_said, right = (
        np.stack([weights @ of_class for of_class in each], axis=1)
        for each in ([true == one for one in classes], [said == one for one in classes], [(true == one) & (said == one) for one in classes])
    )
    total, correct = of_true.sum(axis=1), right.sum(axis=1)
    there, either = of_true > 0, of_true + of_said > 0
    alone = there.sum(axis=1) == 1
    f1 = 2 * right / (of_true + of_said)
    squares = [(one * other).sum(axis=1) for one, other in ((of_true, of_true), (of_said, of_said), (of_true, of_said))]
    spread = (total**2 - squares[0]) * (total**2 - squares[1])
    recall = np.where(there, right / of_true, 0).sum(axis=1) / there.sum(axis=1)
    return {
        "accuracy": correct / total,
        "balanced_accuracy": np.where(alone, np.nan, recall),
        "f1": f1[:, 1] if given.ndim == 1 else np.where(either, f1, 0).sum(axis=1) / either.sum(axis=1),
        # Gorodkin (Comput. Biol. Chem. 28, 2004) for any number of classes; 0 where one class is predicted for all
        "mcc": np.where(alone | (total == 0), np.nan, (correct * total - squares[2]) / np.sqrt(np.where(spread > 0, spread, 1))),
    }


def _calibration(true: np.ndarray, given: np.ndarray, weights: np.ndarray) -> Mapping[str, np.ndarray]:
    """Compute what depends on the probabilities themselves; a probability of 0 counts as the smallest step of float64 in the log loss."""
    columns = np.column_stack([1 - given, given]) if given.ndim == 1 else given
    squares = ((columns - np.eye(columns.shape[1])[true]) ** 2).sum(axis=1) / (2 if given.ndim == 1 else 1)
    of_truth = columns[np.arange(len(true)), true].clip(np.finfo(np.float64).eps)
    total = weights.sum(axis=1)
    return {"brier": weights @ squares / total, "log_loss": weights @ -np.log(of_truth) / total}


def count_classes(targets: np.ndarray, num_classes: int) -> np.ndarray:
    """Count the labels [T, C] of each class among labels [M, T], NaN = missing."""
    return np.array([(targets == one).sum(axis=0) for one in range(num_classes)], np.int64).reshape(num_classes, targets.shape[1]).T


def confusion(true: np.ndarray, given: np.ndarray, threshold: float = THRESHOLD) -> np.ndarray:
    """Count molecules [C, C] by true (row) and predicted class (column), of probabilities [n] of class 1 or [n, C]."""
    matrix = np.zeros([2 if given.ndim == 1 else given.shape[1]] * 2, np.int64)
    np.add.at(matrix, (true, predicted_classes(given, threshold)), 1)
    return matrix


def predicted_classes(probabilities: np.ndarray, threshold: float = THRESHOLD) -> np.ndarray:
    """Return the class of each molecule: 1 where its probability [n] is above the threshold, or the likeliest of [n, C]."""
    return (probabilities > threshold).astype(np.int64) if probabilities.ndim == 1 else probabilities.argmax(axis=1)
