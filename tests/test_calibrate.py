"""`python -m molgcn.calibrate` calibrates a trained model on another file, and `predict` and `evaluate` use that."""

from __future__ import annotations

import csv
import shutil

import numpy as np
import pandas as pd
import pytest

from molgcn.calibrate import CalibrateConfig, calibrate, main
from molgcn.calibration.conformal import rank
from molgcn.errors import UserError
from molgcn.evaluate import EvaluateConfig, evaluate
from molgcn.evaluation.config import EvaluationDataConfig, LabelledDataConfig
from molgcn.model import load
from molgcn.replicates.run import train_all
from molgcn.resources import resource
from molgcn.screening.ensemble import Ensemble

pytestmark = pytest.mark.usefixtures("one_thread", "empty_figures")


@pytest.fixture(scope="module")
def table():
    with open(resource("data") / "molecules.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    frame = pd.DataFrame(rows[5 :: len(rows) // 60])[["smiles", "logp", "tpsa"]].astype({"logp": float, "tpsa": float})
    return frame[:60].assign(high=lambda one: (one["logp"] > 2).astype(int))


@pytest.fixture
def given(table, tmp_path):
    """Return a function that writes columns of some rows of the table to a file and returns its path."""

    def write(rows=slice(None), columns=("smiles", "logp", "tpsa"), name="new.csv"):
        table.loc[:, list(columns)].iloc[rows].to_csv(tmp_path / name, index=False)
        return tmp_path / name

    return write


@pytest.fixture
def run(trained_run, tmp_path):
    """Return a copy of the short run that may be written to."""
    return shutil.copytree(trained_run.folder, tmp_path / "run")


@pytest.fixture
def trained(small_config, given, tmp_path):
    """Return a function that trains a run on the last 40 molecules of the table, and returns its folder."""

    def make(*, training=None, model=None, **dataset):
        data = {"name": "csv", "path": str(given(slice(20, 60), ("smiles", "logp", "tpsa", "high"), "x.csv")), "subset": None}
        data |= {"targets": ["logp"], "cache_dir": str(tmp_path / "cache")} | dataset
        config = small_config(dataset=data, training={"baseline": "none", "bootstrap": 0, **(training or {})}, trainer={"max_epochs": 1})
        train_all(config, tmp_path / "run")
        return tmp_path / "run"

    return make


def config(ckpt, path, **values):
    options = {key.removeprefix("dataset_"): values.pop(key) for key in list(values) if key.startswith("dataset_")}
    return CalibrateConfig(ckpt=str(ckpt), input=str(path), dataset=LabelledDataConfig(**options), device="cpu", **values)


@pytest.mark.parametrize(
    ("training", "dataset"),
    [
        ({}, {}),
        ({"ensemble": 2}, {}),
        pytest.param({}, {"split": "cv", "folds": 2}, marks=pytest.mark.slow),
        pytest.param({"ensemble": 2}, {"split": "cv", "folds": 2}, marks=pytest.mark.slow),
        ({"blend": "trees"}, {}),
    ],
    ids=["one", "ensemble", "cross-validation", "cross-validation of ensembles", "trees"],
)
def test_predict_and_evaluate_use_what_was_fitted(training, dataset, trained, given, table, tmp_path):
    """The threshold is the ceil((n + 1)(1 - alpha))-th smallest error of what all models predict together."""
    run, alpha = trained(training=training, **dataset), 0.25
    path = given(slice(0, 20))
    before = load(run, device="cpu").predict([*table["smiles"][:20]], num_workers=0)
    errors = np.sort(np.abs(before.values[:, 0] - table["logp"][:20]))
    threshold = errors[rank(20, alpha) - 1]
    fitted = calibrate(config(run, path, calibration_alpha=alpha))
    assert fitted.targets[0].conformal.threshold == pytest.approx(threshold, rel=1e-5)
    after = load(run, device="cpu").predict([*table["smiles"][:20]], num_workers=0)
    np.testing.assert_array_equal(after.values, before.values)
    np.testing.assert_allclose(after.beside["logp conformal upper"] - after.values[:, 0], threshold, rtol=1e-5)
    values = {"ckpt": str(run), "output": str(tmp_path / "out"), "device": "cpu", "baseline": "none", "bootstrap": 0}
    metrics = evaluate(EvaluateConfig(**values, dataset=EvaluationDataConfig(path=str(path)))).metrics
    assert metrics["all/conformal_coverage/logp"] == pytest.approx(rank(20, alpha) / 20)
    written = pd.read_csv(tmp_path / "out" / "predictions_all.csv")
    np.testing.assert_allclose(written["logp conformal lower"], after.beside["logp conformal lower"], rtol=1e-5, atol=1e-6)


def test_classes_and_standard_deviations(trained, given, table):
    run = trained(training={"loss": "mve"}, targets=["logp", "high"], tasks={"high": "classification"})
    calibrate(config(run, given(slice(0, 20), ("smiles", "logp", "high"))))
    found = load(run, device="cpu").predict(["CCO"], num_workers=0)
    assert [*found.beside] == [
        *("logp calibrated std", "logp conformal lower", "logp conformal upper"),
        *("high calibrated probability", "high conformal set"),
    ]


def test_the_command_says_what_it_did(run, given, cli):
    """A second calibration takes the place of the first one, and says so; columns of other names can be chosen."""
    path = given()
    code, out, error = cli(f"ckpt={run}", f"input={path}", "device=cpu", main=main)
    assert (code, error) == (0, "")
    assert "The uncertainties of logp, tpsa are calibrated on 60 molecules of new.csv" in out and "predict and evaluate use it" in out
    pd.read_csv(path).rename(columns={"logp": "a", "tpsa": "b"})[:30].to_csv(path, index=False)
    code, out, _ = cli(f"ckpt={run}", f"input={path}", "dataset.targets=[a,b]", "calibration_alpha=0.2", "device=cpu", main=main)
    assert code == 0
    assert "The earlier calibration is replaced: the model was calibrated on 60 molecules of new.csv" in out
    calibration = Ensemble.load([run]).calibration
    assert (calibration.alpha, calibration.described) == (0.2, "calibrated on 30 molecules of new.csv")


@pytest.mark.parametrize(
    ("rows", "columns", "options", "said"),
    [
        (slice(8), None, {}, r"new\.csv has 8 molecules with a value of logp, tpsa, and calibration_alpha=0\.1 needs at least 9"),
        (slice(None), ("smiles", "logp"), {}, r"no column.*tpsa"),
        (slice(None), None, {"calibration": "platt"}, r"calibration=platt suits no target"),
        (slice(None), None, {"calibration_alpha": 1.0}, r"calibration_alpha=1\.0 is not valid"),
    ],
    ids=["few", "no labels", "method", "alpha"],
)
def test_what_cannot_be_calibrated(run, given, rows, columns, options, said, caplog):
    path = given(rows, columns or ("smiles", "logp", "tpsa"))
    with pytest.raises(UserError, match=said):
        calibrate(config(run, path, **options))
    assert Ensemble.load([run]).calibration is None
    assert not [text for text in caplog.messages if "too few" in text]


def test_a_target_with_few_labels_is_named_with_the_file(run, given, caplog):
    path = given()
    table = pd.read_csv(path)
    table.assign(tpsa=table["tpsa"].where(table.index < 5)).to_csv(path, index=False)
    calibrate(config(run, path))
    assert [text for text in caplog.messages if text.startswith("The file new.csv has too few labels of tpsa for intervals")]


def test_a_file_without_values_is_refused(run, given):
    path = given()
    pd.read_csv(path).assign(logp=np.nan, tpsa=np.nan).to_csv(path, index=False)
    with pytest.raises(UserError, match=r"all 60 values of column 'logp' are missing"):
        calibrate(config(run, path))


def test_molecules_of_the_training_are_refused_or_left_out(trained, given):
    run = trained()
    mixed = given(slice(0, 60))
    with pytest.raises(UserError, match=r"was trained on 32 of the 60 molecules of .*, the first in row \d+\. .*known=skip"):
        calibrate(config(run, mixed))
    assert calibrate(config(run, mixed, known="skip")).targets[0].molecules == 28
    (run / "training_hashes.npy").unlink()
    assert calibrate(config(run, mixed)).targets[0].molecules == 60


def test_a_full_disk_leaves_the_earlier_calibration(run, given, full_disk):
    path = given()
    calibrate(config(run, path))
    before = (run / "checkpoints" / "best.ckpt").read_bytes()
    with full_disk(1000), pytest.raises(UserError, match="could not be written"):
        calibrate(config(run, path, calibration_alpha=0.3))
    assert (run / "checkpoints" / "best.ckpt").read_bytes() == before
