"""Unusual targets are reported in one line before training; others are not."""

import re

import numpy as np
import pytest

from molgcn.data import PackedMolecules
from molgcn.data.target_config import TargetConfig
from molgcn.data.target_reports import warn_of_targets

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
