"""Unusual targets are reported in one line before training; others are not."""

import logging
import re

import numpy as np
import pytest
from split_sets import set_of

from molgcn.data import PackedMolecules
from molgcn.data.target_config import TargetConfig
from molgcn.data.target_reports import report_labels, warn_of_targets

COUNT = 40
SPREAD = np.linspace(-1, 1, COUNT)
OUTLIER = np.where(np.arange(COUNT) == 7, 1.0, 0.0)


@pytest.mark.parametrize(
    ("values", "said"),
    [
        (SPREAD, None),
        (1e8 + SPREAD, None),
        (np.full(COUNT, 0.3), None),
        (SPREAD + 1e4 * OUTLIER, None),
        (SPREAD + 1e9 * OUTLIER, r"'y': half of its values lie between .* steps of \S+, because values from -1 to 1e\+09 .*64-true"),
        (SPREAD > 0, None),
    ],
)
def test_targets_that_need_a_word(values, said, caplog):
    molecules = PackedMolecules.from_smiles(["C"] * COUNT, targets=values, target_names=["y"], num_workers=0)
    warn_of_targets(molecules, np.arange(COUNT - 4), TargetConfig(transform="quantile_normal"))
    assert caplog.messages == []
    warn_of_targets(molecules, np.arange(COUNT - 4), TargetConfig())
    if said is None:
        assert caplog.messages == []
    else:
        (message,) = caplog.messages
        assert re.search(said, message)
        assert len(message) < 330


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
