"""What a run writes about its test molecules, what `evaluate` writes and what `predict` writes are the same."""

from __future__ import annotations

import csv

import numpy as np
import pandas as pd
import pytest

from molgcn.errors import UserError
from molgcn.evaluate import EvaluateConfig, evaluate
from molgcn.model import load
from molgcn.predict import PredictConfig, predict
from molgcn.replicates.run import train_all
from molgcn.resources import resource
from molgcn.training.members import trainings_of

pytestmark = pytest.mark.usefixtures("one_thread", "empty_figures")

INTERVAL = ["y conformal lower", "y conformal upper"]
AUTO = {"calibration": "auto", "calibration_alpha": 0.3}
KINDS = {
    "plain": ({}, ["y predicted"]),
    "variance": ({"loss": "mve", **AUTO}, ["y predicted", "y std", "y calibrated std", *INTERVAL]),
    "evidential": (
        {"loss": "evidential", **AUTO},
        ["y predicted", "y aleatoric std", "y epistemic std", "y calibrated std", *INTERVAL],
    ),
    "quantile": ({"loss": "quantile", **AUTO}, ["y predicted", "y lower", "y upper", *INTERVAL]),
    "trees": ({"blend": "trees", **AUTO}, ["y predicted", *INTERVAL]),
    "ensemble": ({"ensemble": 2, **AUTO}, ["y predicted", "y predicted std", *INTERVAL]),
    "ensemble with variance": (
        {"ensemble": 2, "loss": "mve", **AUTO},
        ["y predicted", "y predicted std", "y std", "y calibrated std", *INTERVAL],
    ),
    "ensemble with trees": ({"ensemble": 2, "blend": "trees", **AUTO}, ["y predicted", "y predicted std", *INTERVAL]),
    "classes": (AUTO, ["kind probability", "kind calibrated probability", "kind conformal set"]),
    "ensemble of classes": (
        {"ensemble": 2, **AUTO},
        ["kind probability", "kind probability std", "kind calibrated probability", "kind conformal set"],
    ),
}
SHARED = ("variance", "ensemble", "trees", "classes")  # whose columns other kinds have too


@pytest.fixture(scope="module")
def molecules(tmp_path_factory):
    """Return a file of 90 molecules with a number and a class."""
    with open(resource("data") / "molecules.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    path = tmp_path_factory.mktemp("data") / "x.csv"
    lines = [f"{row['smiles']},{row['logp']},{int(float(row['logp']) > 2)}" for row in rows[:: len(rows) // 90]]
    path.write_text("\n".join(["smiles,y,kind", *lines]) + "\n")
    return path


@pytest.fixture
def trained(small_config, molecules, tmp_path):
    """Return a function that trains a run with some options of `training` and `dataset`, and returns its folder."""

    def make(training, **dataset):
        calibrated = training.get("calibration") == "auto"
        data = {"name": "csv", "path": str(molecules), "targets": ["y"], "subset": None, "split_fractions": [0.6, 0.1, 0.3]}
        data |= {"calibration_fraction": 0.3 if calibrated else 0, "cache_dir": str(molecules.parent)} | dataset
        config = small_config(dataset=data, training={"report": True, "baseline": "none", "bootstrap": 0, **training})
        train_all(config, tmp_path / "run")
        return tmp_path / "run"

    return make


def evaluated(ckpt, **values):
    return evaluate(EvaluateConfig(ckpt=str(ckpt), bootstrap=0, baseline="none", device="cpu", **values)).folder / "predictions_test.csv"


def predicted(ckpt, table, folder, **values):
    """Return what `predict` adds to the molecules of a table."""
    given, output = folder / "given.csv", folder / "out.csv"
    table[["smiles"]].to_csv(given, index=False)
    predict(PredictConfig(ckpt=str(ckpt), input=str(given), output=str(output), device="cpu", num_workers=0, **values))
    return pd.read_csv(output).drop(columns="smiles")


def assert_alike(one, other):
    """Texts are equal, and numbers as far as batches of other sizes give them."""
    pd.testing.assert_frame_equal(one.reset_index(drop=True), other.reset_index(drop=True), rtol=1e-5, atol=1e-6, check_dtype=False)


@pytest.mark.parametrize("kind", [pytest.param(kind, marks=pytest.mark.slow) if kind in SHARED else kind for kind in KINDS])
def test_a_run_and_both_commands_write_the_same(kind, trained, tmp_path):
    training, columns = KINDS[kind]
    classes = "classes" in kind
    run = trained(training, **({"targets": ["kind"], "tasks": {"kind": "classification"}} if classes else {}))
    own = pd.read_csv(run / "predictions_test.csv")
    assert [*own] == ["row", "smiles", "kind" if classes else "y", *columns]
    assert own[columns].notna().all(axis=None)
    assert_alike(pd.read_csv(evaluated(run, split="test")), own)
    assert_alike(predicted(run, own, tmp_path), own[columns])


def test_molecules_of_a_cross_validation_have_the_calibration_of_their_own_model(trained, tmp_path):
    run = trained({"loss": "mve", **AUTO}, split="cv", folds=2, split_fractions=[0.9, 0.1, 0])
    own = pd.read_csv(run / "predictions_test.csv")
    columns = ["y predicted", "y std", "y calibrated std", *INTERVAL]
    assert [*own] == ["row", "smiles", "y", *columns]
    assert own[columns].notna().all(axis=None)
    for fold in trainings_of(run):
        tested = pd.read_csv(fold / "predictions_test.csv")
        mine = own[own["row"].isin(tested["row"])]
        assert_alike(tested, mine)
        assert_alike(pd.read_csv(evaluated(fold, split="test")), mine)
        assert_alike(predicted(fold, mine, tmp_path), mine[columns])


def test_each_model_of_several(trained, tmp_path):
    run = trained({"ensemble": 2, "loss": "mve"})
    alone = [pd.read_csv(one / "predictions_test.csv") for one in trainings_of(run)]
    own = pd.read_csv(run / "predictions_test.csv")
    table = pd.read_csv(evaluated(run, split="test", members=True))
    names = [f"{column} model {number}" for number in (0, 1) for column in ("y predicted", "y std")]
    assert [*table] == [*own, *names]
    found = predicted(run, own, tmp_path, members=True)
    for number, one in enumerate(alone):
        shown = [f"{column} model {number}" for column in ("y predicted", "y std")]
        for each in (table, found):
            np.testing.assert_allclose(each[shown], one[["y predicted", "y std"]], rtol=1e-5)
    np.testing.assert_allclose(found[names[::2]].mean(axis=1), found["y predicted"], rtol=1e-5)
    frame = load(run, device="cpu").predict([*own["smiles"]], members=True, num_workers=0).to_frame()
    assert_alike(frame.drop(columns="smiles"), found)
    with pytest.raises(UserError, match=r"members=true shows what each of several models predicts, and ckpt= names one model"):
        predicted(trainings_of(run)[0], own, tmp_path, members=True)


def test_each_pass_with_dropout(trained_config, tmp_path):
    from molgcn.config.run import Config, parse

    values = {**trained_config, "model": {**trained_config["model"], "dropout": 0.2}, "training": {"report": False}}
    train_all(parse(Config, values), tmp_path / "run")
    table = pd.DataFrame({"smiles": ["CCO", "c1ccccc1", "not one"]})
    found = predicted(tmp_path / "run", table, tmp_path, members=True, dropout_samples=3, on_error="nan")
    passes = found[[f"logp predicted pass {number}" for number in range(3)]]
    assert passes.loc[2].isna().all()
    np.testing.assert_allclose(passes.mean(axis=1), found["logp predicted"], rtol=1e-5)
    np.testing.assert_allclose(passes.std(axis=1), found["logp predicted std"], rtol=1e-4)
