"""Metrics of classes agree with their definitions in float64 and with scikit-learn."""

from __future__ import annotations

import math
import warnings

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from sklearn import metrics as sk

from molgcn.metrics.classes import METRICS, RISING, class_metrics, predicted_classes, weighted_class_metrics

TIGHT = {"rtol": 1e-12, "atol": 1e-12}
AREAS = sk.roc_auc_score, sk.average_precision_score


def area_under_roc(positive, score):
    """Return the share of pairs of a positive and a negative in which the positive has the higher score; ties count half."""
    above = score[positive][:, None] - score[~positive][None]
    return ((above > 0) + (above == 0) / 2).mean()


def average_precision(positive, score):
    """Return the sum over thresholds of the gained recall times the precision."""
    total, before = 0.0, 0.0
    for threshold in np.unique(score)[::-1]:
        said = score >= threshold
        recall, precision = (said & positive).sum() / positive.sum(), positive[said].mean()
        total, before = total + (recall - before) * precision, recall
    return total


def correlation(one, other, count):
    """Return Gorodkin's R_K, the correlation of two classifications, which is Matthews' coefficient for two classes."""
    x, y = np.eye(count)[one], np.eye(count)[other]
    covariance = lambda a, b: ((a - a.mean(0)) * (b - b.mean(0))).sum()  # noqa: E731
    return covariance(x, y) / math.sqrt(covariance(x, x) * covariance(y, y))


def by_definition(true, columns):
    """Return every metric of probabilities [n, C]; with two classes areas and F1 are those of class 1."""
    count = columns.shape[1]
    said, classes = columns.argmax(1), [1] if count == 2 else range(count)
    f1 = [2 * ((said == c) & (true == c)).sum() / ((said == c).sum() + (true == c).sum()) for c in classes]
    squares = ((columns - np.eye(count)[true]) ** 2).sum(1).mean()
    return {
        "roc_auc": np.mean([area_under_roc(true == c, columns[:, c]) for c in classes]),
        "pr_auc": np.mean([average_precision(true == c, columns[:, c]) for c in classes]),
        "accuracy": (said == true).mean(),
        "balanced_accuracy": np.mean([(said == c)[true == c].mean() for c in range(count)]),
        "f1": np.mean(f1),
        "mcc": correlation(true, said, count),
        "brier": squares / 2 if count == 2 else squares,
        "log_loss": -np.log(columns[np.arange(len(true)), true]).mean(),
    }


@pytest.mark.parametrize("ties", [False, True])
@pytest.mark.parametrize("count", [2, 3, 5])
def test_definitions(count, ties):
    rng = np.random.default_rng(count)
    true = np.concatenate([np.arange(count), rng.integers(count, size=200)])
    columns = rng.dirichlet(np.ones(count), len(true))
    if ties:
        columns = (np.round(columns * 8) + 0.5) / (np.round(columns * 8) + 0.5).sum(1, keepdims=True)
        columns += np.linspace(0, 1e-9, count)  # so that the likeliest class is one
        columns /= columns.sum(1, keepdims=True)
    probabilities = columns[:, 1] if count == 2 else columns
    labels = np.append(true.astype(float), math.nan)  # a missing label counts nowhere
    found = class_metrics(labels, np.concatenate([probabilities, probabilities[:1]]))
    expected = by_definition(true, np.column_stack([1 - probabilities, probabilities]) if count == 2 else columns)
    assert list(found) == list(METRICS) and set(METRICS) > RISING
    for name in METRICS:
        np.testing.assert_allclose(found[name], expected[name], err_msg=name, **TIGHT)


@pytest.mark.parametrize(
    ("labels", "probabilities", "undefined"),
    [
        ([], [], METRICS),
        ([math.nan], [0.5], METRICS),
        ([0, 1], [0.5, math.nan], METRICS),
        ([0, 0], [0.1, 0.2], ("roc_auc", "pr_auc", "balanced_accuracy", "f1", "mcc")),
        ([0, 0], [0.1, 0.9], ("roc_auc", "pr_auc", "balanced_accuracy", "mcc")),
        ([1, 1], [0.1, 0.9], ("roc_auc", "pr_auc", "balanced_accuracy", "mcc")),
        ([0, 1], [[0.8, 0.1, 0.1], [0.1, 0.8, 0.1]], ("roc_auc", "pr_auc")),
        ([0, 1], [0.1, 0.2], ()),
    ],
)
def test_what_is_undefined_is_nan_without_a_warning(labels, probabilities, undefined):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = class_metrics(np.array(labels, float), np.array(probabilities, float))
    assert {name for name, value in found.items() if math.isnan(value)} == set(undefined)


def test_likeliest_classes():
    assert predicted_classes(np.array([0.2, 0.5, 0.7])).tolist() == [0, 0, 1]
    assert predicted_classes(np.array([[0.2, 0.4, 0.4], [0.0, 0.1, 0.9]])).tolist() == [1, 2]


@st.composite
def classified(draw):
    """Draw labels with missing ones, probabilities with many equal ones, and two rows of weights."""
    count = draw(st.integers(2, 4))
    size = draw(st.integers(1, 30))
    table = arrays(np.int64, (size, count + 3), elements=st.integers(0, 59))
    numbers = draw(table)  # every column takes the remainder that it needs
    labels, shares, weights = numbers[:, 0] % (count + 1) - 1, numbers[:, 1:-2] % 10 + 1, numbers[:, -2:] % 4
    columns = shares / shares.sum(axis=1, keepdims=True)
    return np.where(labels < 0, math.nan, labels), columns[:, 1] if count == 2 else columns, weights.T.astype(float)


def by_scikit_learn(true, probabilities):
    """Return every metric by scikit-learn, NaN where it is undefined here."""
    binary = probabilities.ndim == 1
    columns = np.column_stack([1 - probabilities, probabilities]) if binary else probabilities
    present, said, classes = np.unique(true), predicted_classes(probabilities), range(columns.shape[1])
    pairs = [(true == one, columns[:, one]) for one in ([1] if binary else classes)]
    several = len(present) > 1
    areas = [np.mean([area(*pair) for pair in pairs]) if len(present) == len(classes) else math.nan for area in AREAS]
    absent = binary and not (true == 1).any() and not (said == 1).any()
    f1 = sk.f1_score(true, said, zero_division=0) if binary else sk.f1_score(true, said, average="macro")
    squares = sk.brier_score_loss(true, columns, labels=[*classes], scale_by_half=binary)
    return {
        "roc_auc": areas[0],
        "pr_auc": areas[1],
        "accuracy": sk.accuracy_score(true, said),
        "balanced_accuracy": sk.recall_score(true, said, labels=present, average="macro") if several else math.nan,
        "f1": math.nan if absent else f1,
        "mcc": sk.matthews_corrcoef(true, said) if several else math.nan,
        "brier": squares,
        "log_loss": sk.log_loss(true, columns, labels=[*classes]),
    }


@given(classified())
def test_equal_to_scikit_learn(rows):
    labels, probabilities, _ = rows
    known = ~np.isnan(labels)
    found = class_metrics(labels, probabilities)
    expected = by_scikit_learn(labels[known].astype(int), probabilities[known]) if known.any() else dict.fromkeys(METRICS, math.nan)
    for metric in METRICS:
        np.testing.assert_allclose(found[metric], expected[metric], err_msg=metric, **TIGHT)


@given(classified())
def test_a_weight_is_that_many_copies(rows):
    labels, probabilities, weights = rows
    found = weighted_class_metrics(labels, probabilities, weights=weights)
    for place, counts in enumerate(weights.astype(int)):
        copies = class_metrics(np.repeat(labels, counts), np.repeat(probabilities, counts, axis=0))
        for metric in METRICS:
            np.testing.assert_allclose(found[metric][place], copies[metric], err_msg=metric, **TIGHT)


def test_only_what_is_wanted_is_computed():
    found = weighted_class_metrics(np.array([0.0, 1.0]), np.array([0.2, 0.7]), ("brier", "roc_auc"))
    assert list(found) == ["roc_auc", "brier"]
