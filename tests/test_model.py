"""`molgcn.load(...)` gives a trained model in Python."""

import numpy as np
import pandas as pd
import pytest
from predictions import LOGP, SMILES, TPSA, expected

import molgcn
from molgcn.errors import UserError


@pytest.mark.parametrize("path", [".", "checkpoints/best.ckpt"])
def test_predictions_have_values_names_and_units(trained_run, path):
    model = molgcn.load(trained_run.folder / path, device="cpu")
    predictions = model.predict(SMILES)
    np.testing.assert_allclose(predictions.values, expected(trained_run), rtol=2e-5, atol=2e-5)
    assert (predictions.names, predictions.units) == (model.names, model.units) == (["logp", "tpsa"], ["", "A^2"])
    assert predictions.deviation is None
    frame = predictions.to_frame()
    assert list(frame) == ["smiles", LOGP, TPSA]
    assert list(frame["smiles"]) == SMILES
    np.testing.assert_array_equal(frame[[LOGP, TPSA]], predictions.values)
    assert repr(model) == "Model(logp, tpsa in A^2; networks: 1)"


def test_several_networks_predict_together(trained_run):
    predictions = molgcn.load([trained_run.folder, trained_run.folder], device="cpu").predict(SMILES)
    np.testing.assert_allclose(predictions.values, expected(trained_run), rtol=2e-5, atol=2e-5)
    assert np.abs(predictions.deviation).max() < 1e-9
    assert list(predictions.to_frame()) == ["smiles", LOGP, f"{LOGP} std", TPSA, f"{TPSA} std"]


def test_strings_that_are_no_molecules(trained_run):
    model = molgcn.load(trained_run.folder, device="cpu")
    for method in (model.predict, model.fingerprint):
        with pytest.raises(UserError, match=r"Row 1 of the list of SMILES .*'C1CC' cannot be .*on_error=\"nan\"\.$"):
            method(["C", "C1CC"])
        with pytest.raises(UserError, match='on_error=skip is not valid: expected "raise" or "nan"'):
            method(["C", "C1CC"], on_error="skip")
        with pytest.raises(UserError, match="3 is not a SMILES: expected text"):
            method(["C", 3])
    missing = model.predict(["C", None, float("nan")], on_error="nan")  # as a column of pandas has them
    assert [bool(error) for error in missing.errors] == [False, True, True]
    predictions = model.predict(["C", "C1CC"], on_error="nan")
    assert np.isnan(predictions.values).tolist() == [[False, False], [True, True]]
    assert [bool(error) for error in predictions.errors] == [False, True]
    assert np.isnan(model.fingerprint(["C", "C1CC"], on_error="nan")).all(axis=1).tolist() == [False, True]


@pytest.mark.parametrize("smiles", [[], ["CCO"], "CCO", pd.Series(["CCO"], [7]), pd.DataFrame({"x": ["CCO"]}), np.array([["CCO"]])])
def test_none_and_one(trained_run, smiles):
    model = molgcn.load(trained_run.folder, device="cpu")
    count = 0 if isinstance(smiles, list) and not smiles else 1
    assert model.predict(smiles).values.shape == (count, 2)
    assert model.fingerprint(smiles).shape == (count, 8)


def test_a_name_that_is_not_there():
    with pytest.raises(AttributeError, match="no attribute 'lod'"):
        _ = molgcn.lod
