"""How many labels each part has is said where some are missing."""

import logging

import numpy as np
import pytest
from split_sets import set_of

from molgcn.data.target_reports import report_labels

NAN = np.nan
PARTS = {"train": np.arange(6), "val": np.arange(6, 8), "test": np.array([], int), "calibration": np.array([8, 9])}
KNOWN = np.arange(10.0)
HALF = np.where(np.arange(10) % 2, NAN, KNOWN)
FEW = np.where(np.arange(10) % 4 == 1, KNOWN, NAN)


def said(columns, caplog, parts=PARTS):
    caplog.set_level(logging.INFO)
    names = tuple(f"y{place}" for place in range(len(columns)))
    report_labels(set_of(range(10), targets=np.stack(columns, 1), target_names=names), parts, "x.csv")
    return caplog.messages


@pytest.mark.parametrize(
    ("columns", "expected"),
    [
        ([HALF], "x.csv: labels in training / validation / calibration: y0 3 / 1 / 1"),
        ([KNOWN, HALF], "x.csv: labels in training / validation / calibration: y0 6 / 2 / 2; y1 3 / 1 / 1"),
        (
            [FEW, HALF],
            "x.csv: labels in training / validation / calibration: y0 2 / 0 / 1; y1 3 / 1 / 1; molecules without any label: 1 / 1 / 0",
        ),
    ],
)
def test_labels_are_counted_by_target_and_part(columns, expected, caplog):
    assert said(columns, caplog) == [expected]


def test_nothing_is_said_where_all_are_there(caplog):
    assert said([KNOWN, KNOWN], caplog) == []
    assert said([HALF], caplog, {"train": np.array([0, 2]), "val": np.array([4])}) == []


def test_of_many_targets_those_with_the_fewest_labels_are_listed(caplog):
    (message,) = said([*[HALF] * 38, FEW, KNOWN], caplog, {"all": np.arange(10)})
    assert message.startswith("x.csv: labels in all: y38 3; y0 5; ")
    assert message.endswith("y28 5; 10 more targets 5 to 10 in all")
