import math

import numpy as np
import pytest

from molgcn.calibration.methods import check_labels, chosen_methods
from molgcn.errors import UserError
from molgcn.tasks.mean_variance import MeanVariance
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


def test_labels_that_are_not_enough():
    targets = np.array([[0, 1], [1, math.nan], [0, 0], [1, math.nan]])
    assert check_labels(["platt"], CLASSES, targets, 0.1, "calibration") == []
    assert check_labels(["conformal"], CLASSES, targets, 0.1, "calibration") == ["a", "b"]
    assert check_labels(["conformal"], CLASSES, targets, 0.25, "calibration") == ["b"]
    targets[2, 1] = 1
    with pytest.raises(UserError, match="Target 'b' has only labels 1 in the calibration part"):
        check_labels(["platt"], CLASSES, targets, 0.1, "calibration")
    targets[:, 1] = math.nan
    with pytest.raises(UserError, match="Target 'b' has no value in the validation part"):
        check_labels(["conformal"], REGRESSION, targets, 0.1, "validation")
