"""Metrics of classes from probabilities; the areas by scikit-learn, which takes a second to import and is needed by no other task."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

RANKING = ("roc_auc", "pr_auc")
METRICS = (*RANKING, "accuracy", "balanced_accuracy", "f1", "mcc", "brier", "log_loss")
RISING = frozenset(METRICS) - {"brier", "log_loss"}


def class_metrics(labels: np.ndarray, probabilities: np.ndarray) -> dict[str, float]:
    """Compute every metric of one target in float64.

    ROC-AUC, average precision (`pr_auc`) and F1 are those of class 1 where there are two classes and the plain mean over the classes where
    there are more. Classes are told by the largest probability; equal ones go to the lower class.

    Args:
        labels: [n], classes, NaN = missing.
        probabilities: [n], of class 1, or [n, C].

    Returns:
        NaN where a metric is undefined: all without labels or with probabilities that are not finite, the areas where a class has no label,
        balanced accuracy and Matthews' correlation coefficient where only one class has some, F1 where class 1 is neither there nor
        predicted.
    """
    known = ~np.isnan(labels)
    true, given = labels[known].astype(np.int64), np.asarray(probabilities, np.float64)[known]
    if not len(true) or not np.isfinite(given).all():
        return dict.fromkeys(METRICS, math.nan)
    return {**_ranking(true, given), **_decisions(true, given), **_calibration(true, given)}


def _ranking(true: np.ndarray, given: np.ndarray) -> Mapping[str, float]:
    """Compute what depends on the order of the molecules alone."""
    from sklearn.metrics import average_precision_score, roc_auc_score

    pairs = [(true == 1, given)] if given.ndim == 1 else [(true == place, column) for place, column in enumerate(given.T)]
    if not all(0 < positive.sum() < len(positive) for positive, _ in pairs):
        return dict.fromkeys(RANKING, math.nan)
    scores = [[score(*pair) for pair in pairs] for score in (roc_auc_score, average_precision_score)]
    return {name: float(np.mean(values)) for name, values in zip(RANKING, scores, strict=True)}


def _decisions(true: np.ndarray, given: np.ndarray) -> Mapping[str, float]:
    """Compute what depends on the predicted class alone, from the counts of each pair of classes."""
    counts = confusion(true, given).astype(np.float64)
    right, of_true, of_said, total = np.diag(counts), counts.sum(axis=1), counts.sum(axis=0), counts.sum()
    there, either = of_true > 0, of_true + of_said > 0
    f1 = 2 * right / np.where(either, of_true + of_said, np.nan)
    f1 = f1[1:] if given.ndim == 1 else f1[either]
    alone, spread = there.sum() == 1, (total**2 - of_true @ of_true) * (total**2 - of_said @ of_said)
    return {
        "accuracy": float(right.sum() / total),
        "balanced_accuracy": math.nan if alone else float((right[there] / of_true[there]).mean()),
        "f1": float(f1.mean()),
        # Gorodkin (Comput. Biol. Chem. 28, 2004) for any number of classes; 0 where one class is predicted for all
        "mcc": math.nan if alone else float((right.sum() * total - of_true @ of_said) / math.sqrt(spread or 1)),
    }


def _calibration(true: np.ndarray, given: np.ndarray) -> Mapping[str, float]:
    """Compute what depends on the probabilities themselves; a probability of 0 counts as the smallest step of float64 in the log loss."""
    columns = np.column_stack([1 - given, given]) if given.ndim == 1 else given
    squares = (columns - np.eye(columns.shape[1])[true]) ** 2
    of_truth = columns[np.arange(len(true)), true].clip(np.finfo(np.float64).eps)
    return {"brier": float(squares.sum(axis=1).mean() / (2 if given.ndim == 1 else 1)), "log_loss": float(-np.log(of_truth).mean())}


def confusion(true: np.ndarray, given: np.ndarray) -> np.ndarray:
    """Count molecules [C, C] by true (row) and likeliest class (column), of probabilities [n] of class 1 or [n, C]."""
    matrix = np.zeros([2 if given.ndim == 1 else given.shape[1]] * 2, np.int64)
    np.add.at(matrix, (true, predicted_classes(given)), 1)
    return matrix


def predicted_classes(probabilities: np.ndarray) -> np.ndarray:
    """Return the likeliest class of each molecule, of probabilities [n] of class 1 or [n, C]."""
    return (probabilities > 0.5).astype(np.int64) if probabilities.ndim == 1 else probabilities.argmax(axis=1)
