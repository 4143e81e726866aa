"""`molgcn.Regressor` and `molgcn.Classifier` work as scikit-learn's own estimators do, with SMILES as input."""

from __future__ import annotations

import csv
import logging
import pickle
import random

import joblib
import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.metrics import r2_score, roc_auc_score
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer

import molgcn
from molgcn.errors import UserError
from molgcn.resources import resource

pytestmark = pytest.mark.usefixtures("one_thread")
SMALL = {"recipe": "plain", "hidden_channels": 8, "num_layers": 2, "max_epochs": 2, "device": "cpu", "random_state": 0}


@pytest.fixture(scope="module")
def table():
    with open(resource("data") / "molecules.csv", newline="") as file:
        rows = list(csv.DictReader(file))[::160]
    return pd.DataFrame(
        {"smiles": [row["smiles"] for row in rows], **{name: [float(row[name]) for row in rows] for name in ("logp", "tpsa")}}
    )


@pytest.fixture(scope="module")
def fitted(table):
    return molgcn.Regressor(**SMALL).fit(list(table["smiles"]), table["logp"])


@pytest.mark.parametrize(
    "of", [list, np.array, lambda column: np.array(column, dtype=object), pd.Series, lambda column: pd.DataFrame({"x": column})]
)
def test_molecules_come_in_every_form(fitted, table, of):
    given = of(list(table["smiles"]))
    expected = fitted.predict(list(table["smiles"]))
    assert expected.shape == (len(table),)
    np.testing.assert_array_equal(fitted.predict(given), expected)


@pytest.mark.slow
def test_the_recipe_learns(table):
    model = molgcn.Regressor(max_epochs=8, device="cpu", random_state=0).fit(table["smiles"], table["logp"])
    assert model.score(table["smiles"], table["logp"]) > 0.5
    sure = molgcn.Classifier(max_epochs=8, device="cpu", random_state=0).fit(table["smiles"], table["logp"] > 0.5)
    assert roc_auc_score(table["logp"] > 0.5, sure.predict_proba(table["smiles"])[:, 1]) > 0.9


def test_a_seed_gives_the_same_model_and_leaves_no_trace(fitted, table, tmp_path, monkeypatch, capfd, caplog):
    monkeypatch.chdir(tmp_path)
    before = random.getstate(), np.random.get_state()[1].copy(), torch.get_rng_state()
    with caplog.at_level(logging.INFO):
        again = clone(fitted).fit(table["smiles"], table["logp"])
        np.testing.assert_array_equal(again.predict(table["smiles"]), fitted.predict(table["smiles"]))
    assert list(tmp_path.iterdir()) == []
    assert [*capfd.readouterr()] == ["", ""]
    assert caplog.text == ""
    assert random.getstate() == before[0]
    np.testing.assert_array_equal(np.random.get_state()[1], before[1])
    assert torch.equal(torch.get_rng_state(), before[2])
    other = clone(fitted).set_params(random_state=1).fit(table["smiles"], table["logp"])
    assert np.abs(other.predict(table["smiles"]) - fitted.predict(table["smiles"])).max() > 1e-6


def test_pickled_copied_and_saved_models_predict_the_same(fitted, table, tmp_path):
    expected = fitted.predict(table["smiles"])
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(fitted)).predict(table["smiles"]), expected)
    joblib.dump(fitted, tmp_path / "model.joblib")
    np.testing.assert_array_equal(joblib.load(tmp_path / "model.joblib").predict(table["smiles"]), expected)
    fitted.save(tmp_path / "run")
    np.testing.assert_allclose(molgcn.load(tmp_path / "run", device="cpu").predict(table["smiles"]).values[:, 0], expected, rtol=1e-12)
    with pytest.raises(UserError, match=r"run is not empty\. Name a new folder"):
        fitted.save(tmp_path / "run")


def test_pipelines_cross_validation_and_grids(table):
    strip = FunctionTransformer(lambda column: [text.strip() for text in column])
    pipeline = make_pipeline(strip, molgcn.Regressor(**{**SMALL, "max_epochs": 1}))
    grid = GridSearchCV(pipeline, {"regressor__overrides": [{"model.dropout": 0.1}, {"optimizer": "sgd"}]}, cv=2, refit=False)
    assert np.isfinite(grid.fit(np.array(table["smiles"]) + " ", table["logp"]).cv_results_["mean_test_score"]).all()


def test_several_targets_with_missing_values(table):
    values = table[["logp", "tpsa"]].to_numpy().copy()
    values[::3, 1] = np.nan
    model = molgcn.Regressor(**SMALL).fit(table["smiles"], values)
    assert model.predict(table["smiles"]).shape == values.shape
    labels = pd.DataFrame({"a": np.where(table["logp"] > 0.5, "high", "low"), "b": pd.cut(table["tpsa"], 3, labels=False)}).astype(object)
    labels.loc[::4, "a"] = None
    sure = molgcn.Classifier(**SMALL).fit(table["smiles"], labels)
    assert [own.tolist() for own in sure.classes_] == [["high", "low"], [0, 1, 2]]
    assert [one.shape for one in sure.predict_proba(table["smiles"])] == [(len(table), 2), (len(table), 3)]
    for one in sure.predict_proba(table["smiles"]):
        np.testing.assert_allclose(one.sum(axis=1), 1, rtol=1e-6)
    assert sure.predict(table["smiles"]).shape == labels.shape


def test_classes_are_labels_of_any_kind(table):
    labels = np.where(table["logp"] > 0.5, "high", "low")
    model = molgcn.Classifier(**SMALL).fit(table["smiles"], labels)
    assert model.classes_.tolist() == ["high", "low"]
    chosen = model.classes_[model.predict_proba(table["smiles"]).argmax(axis=1)]
    np.testing.assert_array_equal(model.predict(table["smiles"]), chosen)
    assert model.score(table["smiles"], labels) == pytest.approx((chosen == labels).mean())


def test_weights_change_what_is_learned(table):
    high = (table["logp"] > 0.5).to_numpy()
    mean = {}
    for name, weights in {"high": np.where(high, 1.0, 0.0), "low": np.where(high, 0.0, 1.0)}.items():
        model = molgcn.Regressor(**{**SMALL, "max_epochs": 20, "lr": 0.02, "validation_fraction": 0})
        mean[name] = model.fit(table["smiles"], table["logp"], sample_weight=weights).predict(table["smiles"]).mean()
    assert mean["high"] > mean["low"] + 0.5


def test_parameters_are_keys_of_the_configuration(table):
    model = molgcn.Regressor(
        "gin",
        **{**SMALL, "max_epochs": 1},
        loss="mve",
        ensemble=2,
        overrides={"model.pool": "sum", "dataset.descriptor_generators": ["physchem"]},
    ).fit(table["smiles"], table["logp"])
    assert model.predict(table["smiles"]).shape == (len(table),)
    config = model.run_["config.yaml"].decode()
    for line in ("name: gin", "hidden_channels: 8", "loss: mve", "ensemble: 2", "pool: sum", "- physchem", "seed: 0", "max_epochs: 1"):
        assert line in config, line
    assert sum(name.endswith(".ckpt") for name in model.run_) == 2


def test_rows_of_several_molecules_and_their_deviations(table, tmp_path):
    pairs = pd.DataFrame({"solute": table["smiles"], "solvent": table["smiles"].sample(frac=1, random_state=0).to_list()})
    model = molgcn.Regressor(**{**SMALL, "max_epochs": 1}, ensemble=2).fit(pairs, table["logp"])
    values, std = model.predict(pairs.to_numpy(), return_std=True)
    assert model.n_features_in_ == 2 and values.shape == std.shape == (len(table),) and (std > 0).all()
    model.save(tmp_path / "run")
    found = molgcn.load(tmp_path / "run", device="cpu").predict(pairs.to_numpy().tolist())
    np.testing.assert_allclose(std, found.deviation[:, 0], rtol=1e-6)
    np.testing.assert_allclose(values, model.predict(pairs), rtol=1e-12)
    with pytest.raises(ValueError, match="X has 1 features, but Regressor is expecting 2 features as input"):
        model.predict(table["smiles"])


def test_deviations_that_the_loss_learns(fitted, table, tmp_path):
    with pytest.raises(UserError, match=r'return_std=True needs a model that predicts .* loss="mve".* ensemble=5'):
        fitted.predict(table["smiles"], return_std=True)
    calibration = {"training.calibration": "auto", "dataset.calibration_fraction": 0.3}
    sure = molgcn.Regressor(**{**SMALL, "max_epochs": 1}, loss="mve", overrides=calibration).fit(table["smiles"], table["logp"])
    sure.save(tmp_path / "run")
    frame = molgcn.load(tmp_path / "run", device="cpu").predict(table["smiles"]).to_frame()
    np.testing.assert_allclose(sure.predict(table["smiles"], return_std=True)[1], frame["y0 calibrated std"], rtol=1e-6)


@pytest.mark.parametrize(
    ("options", "smiles", "values", "kind", "said"),
    [
        (
            {"overrides": {"model.hidden": 3}},
            ["C", "O"],
            [1, 2],
            UserError,
            r"model\.hidden is not a key.*mean model\.hidden_channels",
        ),
        ({"overrides": ["seed=1"]}, ["C", "O"], [1, 2], TypeError, r"overrides=\['seed=1'\] is no mapping"),
        ({"model": "gni"}, ["C", "O"], [1, 2], UserError, r"model=gni does not exist\. Did you mean gin\?"),
        ({}, ["C", "CO", "zz"], [1, 2, 3], UserError, r"Row 2 of X and y .*'zz' cannot be used: it is not a SMILES"),
        ({}, "CCO", [1], ValueError, r"X is a string\. Expected a list of SMILES"),
        ({}, [1.0, 2.0], [1, 2], ValueError, r"X\[0\] is 1\.0 and no string"),
        ({}, [[["C"], ["O"]]], [1], ValueError, r"X has the shape \(1, 2, 1\)\. Expected M SMILES, or a column"),
        ({}, [["C", "O"], ["C", None]], [1, 2], ValueError, r"X\[1, 1\] is None and no string"),
        ({}, ["C", "O"], [1, 2, 3], ValueError, r"inconsistent numbers of samples"),
        ({}, ["C", "O"], [1, np.inf], ValueError, r"Input y contains infinity"),
        ({}, ["C", "O"], [np.nan, np.nan], ValueError, r"Input y contains NaN only, in target 0"),
    ],
)
def test_mistakes(options, smiles, values, kind, said):
    with pytest.raises(kind, match=said):
        molgcn.Regressor(**SMALL).set_params(**options).fit(smiles, values)


def test_what_is_no_classification(table):
    with pytest.raises(ValueError, match="when only one class is present: target 0 has"):
        molgcn.Classifier(**SMALL).fit(["C", "O"], ["a", "a"])
    with pytest.raises(NotFittedError):
        molgcn.Classifier().predict(["C"])


def test_the_score_is_the_usual_one(fitted, table):
    assert fitted.score(table["smiles"], table["logp"]) == pytest.approx(r2_score(table["logp"], fitted.predict(table["smiles"])))
