import math

import numpy as np
import pytest

from molgcn.calibration.methods import check_labels, chosen_methods
from molgcn.errors import UserError
from molgcn.tasks.distributions import MeanVariance
from molgcn.tasks.registry import build_task
from molgcn.tasks.regression import Regression

REGRESSION, MVE = Regression(("a", "b"), ("", "")), MeanVariance(("a", "b"), ("", ""))
CLASSES = build_task("classification", ("a", "b"), ("", ""), 2)


@pytest.mark.parametrize(
    ("task", "wanted", "found"),
    [
        (REGRESSION, "none", ()),
        (REGRESSION, "auto", ("conformal",)),
        (MVE, "auto", ("zscaling", "conformal")),
        (CLASSES, "auto", ("platt", "conformal")),
        (CLASSES, "isotonic", ("isotonic",)),
        (CLASSES, ["conformal", "isotonic"], ("conformal", "isotonic")),
        (MVE, ["zscaling"], ("zscaling",)),
    ],
)
def test_auto_is_all_that_suit(task, wanted, found):
    assert chosen_methods(wanted, task) == found


@pytest.mark.parametrize(
    ("task", "wanted", "message"),
    [
        (
            REGRESSION,
            "zscaling",
            r"training\.calibration=zscaling suits no target of task=regression .* Expected one of conformal\.",
        ),
        (REGRESSION, ["conformal", "platt"], r"training\.calibration=platt suits no target"),
        (CLASSES, "zscaling", r"training\.calibration=zscaling suits no target .* isotonic, platt, conformal\."),
        (CLASSES, ["platt", "isotonic"], "names isotonic and platt"),
    ],
)
def test_a_method_of_another_task_is_refused(task, wanted, message):
    with pytest.raises(UserError, match=message):
        chosen_methods(wanted, task)


@pytest.mark.parametrize(
    ("methods", "alpha", "few"), [(["platt"], 0.1, None), (["conformal"], 0.1, "a, b"), (["platt", "conformal"], 0.25, "b")]
)
def test_too_few_labels_for_intervals_are_warned_of(methods, alpha, few, caplog):
    targets = np.array([[0, 1], [1, math.nan], [0, 0], [1, math.nan]])
    check_labels(methods, CLASSES, targets, alpha, "the calibration part")
    assert [record.getMessage().partition(" for intervals")[0] for record in caplog.records] == (
        [f"The calibration part has too few labels of {few}"] if few else []
    )


@pytest.mark.parametrize(
    ("task", "labels", "said"),
    [(CLASSES, 1, "'b' has only 1 there"), (CLASSES, math.nan, "'b' has no value"), (MVE, math.nan, "'b' has no value")],
)
def test_targets_without_labels_stay_uncalibrated(task, labels, said, caplog):
    targets = np.array([[0, labels], [1, math.nan], [0, labels], [1, math.nan]])
    check_labels(["platt", "conformal"], task, targets, 0.25, "the calibration part")
    assert [said in record.getMessage() for record in caplog.records] == [True]
    targets[:, 0] = targets[:, 1]
    with pytest.raises(UserError, match=rf"The validation part has no labels from which .*: 'a' has .*{said}"):
        check_labels(["conformal"], task, targets, 0.1, "the validation part")
