"""Checkpoints that molgcn wrote before 2026-11-25 open, and predict what they predicted then.

Both were trained for two epochs on 300 built-in molecules: `general.ckpt` with the first version of that featuriser, batch norm and a
moving average of the weights, `qm9.ckpt` with two targets, layer norm and max pooling.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from molgcn.config.run import BackendConfig
from molgcn.predict import predict_smiles
from molgcn.screening.ensemble import Ensemble

FOLDER = Path(__file__).with_name("checkpoints")
PREDICTED = json.loads((FOLDER / "predictions.json").read_text())


@pytest.mark.parametrize("backend", ["auto", "pyg"])
@pytest.mark.parametrize("name", ["general", "qm9"])
def test_they_predict_what_they_did(name, backend):
    """Predictions agree to a millionth, since targets were unscaled in float32 then."""
    ensemble = Ensemble.load([FOLDER / f"{name}.ckpt"], BackendConfig(name=backend))
    predictions = predict_smiles(ensemble, PREDICTED["smiles"])
    np.testing.assert_allclose(predictions.values, PREDICTED[name], rtol=1e-6, atol=1e-6)
