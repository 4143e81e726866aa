"""The page about a classifier has its tables and pictures."""

from __future__ import annotations

import math
import re

import numpy as np
import pytest
from matplotlib.image import imread

from molgcn.data import PackedMolecules
from molgcn.metrics.classes import METRICS, confusion, count_classes
from molgcn.metrics.comparison import Comparison, Threshold
from molgcn.report.class_plots import plot_classes
from molgcn.report.classes import class_group
from molgcn.report.page import write_page
from molgcn.report.subject import Subject

SMILES = ["CCO", "c1ccccc1O", "c1ccccc1N", "C1CC1", "CC(C)C", "c1ccncc1", "C", "O"]
LABELS = np.array([0, 1, 0, 1, 1, 0, 1, math.nan])
SCRIPT = "<script>alert(1)</script> $x"


def probabilities(count):
    given = np.random.default_rng(0).dirichlet(np.ones(count), len(SMILES))
    return given[:, 1] if count == 2 else given


def page(tmp_path, labels, given, name, thresholds=None, titles=("0", "1", "2")):
    molecules = PackedMolecules.from_smiles(SMILES, labels[:, None], target_names=[name], num_workers=0)
    known = int((~np.isnan(labels)).sum())
    metrics = {f"test/{metric}/{name}": 0.123456 for metric in METRICS}
    columns = given[:, None] if given.ndim == 1 else given
    counts = {"test": count_classes(labels[:, None], 2 if given.ndim == 1 else given.shape[1])}
    given_facts = "run", {}, metrics, {"test": len(SMILES)}, {"test": [known]}, "test", molecules, columns, [name], [""]
    subject = Subject(*given_facts, class_counts=counts, comparison=Comparison(thresholds=thresholds or {}))
    group = class_group(subject, [given], [titles[: 2 if given.ndim == 1 else given.shape[1]]])
    write_page(tmp_path / "report.html", subject, [group])
    return " ".join((tmp_path / "report.html").read_text().split())


@pytest.mark.usefixtures("blank_figures")
@pytest.mark.parametrize("count", [2, 3])
def test_the_page_says_metrics_labels_and_the_worst(tmp_path, count):
    given = probabilities(count)
    text = page(tmp_path, LABELS, given, "y")
    assert text.count("0.1235") == len(METRICS) + 5  # the table and five tiles
    row = "".join(f'<td class="right">{number}</td>' for number in ([3, 4, 1] if count == 2 else [3, 4, 0, 1]))
    assert f"<tr><td>test</td>{row}</tr>" in text  # labels of each class, and molecules without one
    of_truth = [(given[i] if LABELS[i] else 1 - given[i]) if count == 2 else given[i, int(LABELS[i])] for i in range(7)]
    worst = int(np.argmin(of_truth))
    first = text.split("The worst molecules")[1].split("<dl>")[1]
    assert f'<dd class="big">{of_truth[worst]:.4g}</dd>' in first and SMILES[worst] in first
    assert text.count("data:image/svg+xml") == (2 if count == 2 else 1) + 7  # curves and decisions, and each molecule with a label
    assert ("above the probability 0.5, since no other threshold" in text) == (count == 2)


@pytest.mark.parametrize("count", [2, 3])
def test_classes_are_called_by_their_names(tmp_path, count):
    """Tables, decisions, cards and pictures show the names; a class without a name is shown by its number."""
    text = page(tmp_path, LABELS, probabilities(count), "y", titles=("<i>no", "yes & so", "2"))
    heads = "".join(f'<th class="right">class {title}</th>' for title in ("&lt;i&gt;no", "yes &amp; so", "2")[:count])
    assert f"<tr><th>labels</th>{heads}" in text
    assert set(re.findall(r"<dt>true class</dt><dd>(.*?)</dd>", text)) == {"&lt;i&gt;no", "yes &amp; so"}
    assert ("Class yes &amp; so is predicted above the probability 0.5" in text) == (count == 2)


@pytest.mark.usefixtures("blank_figures")
def test_decisions_are_at_the_threshold_that_validation_has_chosen(tmp_path):
    given = np.array([0.1, 0.35, 0.2, 0.45, 0.6, 0.25, 0.3, 0.5])
    text = page(tmp_path, LABELS, given, "y", {"y": Threshold(0.28, 0.875), "another": Threshold(0.9, 0.1)})
    assert (
        "above the probability 0.28. This threshold has the largest Matthews' correlation coefficient on the validation part, 0.875" in text
    )
    at = [re.findall(r'"right">([^<]+)<', row) for row in text.split("<th>threshold</th>")[1].split("</table>")[0].split("<tr>")[1:]]
    assert at == [["0.5714", "0.625", "0.4", "0.3536"], ["1", "1", "1", "1"]]


@pytest.mark.parametrize("labels", [np.full(8, math.nan), np.where(np.isnan(LABELS), math.nan, 1.0)])
def test_missing_labels_and_classes_are_words(tmp_path, labels):
    text = page(tmp_path, labels, probabilities(2), SCRIPT)
    assert "<script" not in text and "nan" not in text.lower().replace("finance", "")
    assert ("There is no molecule with both" in text) == bool(np.isnan(labels).all())


@pytest.mark.usefixtures("blank_figures")
def test_predictions_that_are_not_finite_are_counted(tmp_path):
    given = probabilities(2)
    given[0] = math.nan
    assert "1 predictions are not finite" in page(tmp_path, LABELS, given, "y")


def test_confusions_count_by_true_and_likeliest_class():
    assert confusion(np.array([0, 0, 1]), np.array([0.1, 0.9, 0.9])).tolist() == [[1, 1], [0, 1]]
    assert confusion(np.array([2, 0]), np.eye(3)[[2, 1]]).tolist() == [[0, 1, 0], [0, 0, 0], [0, 0, 1]]


@pytest.mark.parametrize("count", [2, 3])
def test_pictures_of_any_targets(tmp_path, count):
    given = probabilities(count)
    targets = np.stack([LABELS, np.full(8, math.nan), np.where(np.isnan(LABELS), math.nan, 1.0)], axis=1)
    plot_classes(
        targets, [given, given, np.full_like(given, math.nan)], ["a", "$b", SCRIPT], tmp_path / "p.png", [["0", "$1$", SCRIPT][:count]] * 3
    )
    assert imread(tmp_path / "p.png").ndim == 3
