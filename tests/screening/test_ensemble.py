"""An ensemble gives its members' predictions, their mean and deviation, with the right weights."""

import math
import sys

import numpy as np
import pytest
import torch
from predictions import LOGP, SMILES, TPSA, config, expected, rows_of, values_of

from molgcn.config.run import BackendConfig, Config, parse
from molgcn.data import PackedMolecules
from molgcn.errors import UserError
from molgcn.predict import predict, predict_smiles
from molgcn.screening.ensemble import Ensemble
from molgcn.training.train import train


@pytest.fixture
def other_run(trained_config, tmp_path):
    """Return a second run with another seed, and its folder."""
    return train(parse(Config, {**trained_config, "seed": 1, "training": {"report": False}}), tmp_path / "other run")


def test_an_ensemble_is_the_mean_and_the_sample_deviation(trained_run, other_run, tmp_path):
    (tmp_path / "new.smi").write_text("\n".join(SMILES))
    ckpt = f"[{trained_run.folder},{other_run.folder}]"
    predict(config(ckpt=ckpt, input=str(tmp_path / "new.smi"), output=str(tmp_path / "p.csv")))
    rows = rows_of(tmp_path / "p.csv")
    assert list(rows[0])[2:] == [LOGP, f"{LOGP} std", TPSA, f"{TPSA} std"]
    both = np.stack([expected(trained_run), expected(other_run)])
    np.testing.assert_allclose(values_of(rows), both.mean(axis=0), rtol=2e-5, atol=2e-5)
    deviation = np.array([[float(row[f"{LOGP} std"]), float(row[f"{TPSA} std"])] for row in rows])
    np.testing.assert_allclose(deviation, both.std(axis=0, ddof=1), rtol=1e-3, atol=2e-5)


def test_members_that_do_not_belong_together(trained_run, trained_config, tmp_path):
    values = {**trained_config, "dataset": {**trained_config["dataset"], "targets": ["logp"]}, "training": {"report": False}}
    train(parse(Config, values), tmp_path / "one")
    with pytest.raises(UserError, match=r"differ in their targets: \['logp'\] and \['logp', 'tpsa'\]"):
        Ensemble.load([trained_run.folder, tmp_path / "one"])


def test_molecules_of_one_atom_and_of_two_hundred(trained_run):
    result = predict_smiles(Ensemble.load([trained_run.folder]), ["C" * 66, "O", "C"])  # 200 atoms with hydrogens
    assert result.values.shape == (3, 2)
    assert np.isfinite(result.values).all()
    assert result.deviation is None


def test_weights_that_are_not_finite_are_said(trained_run):
    ensemble = Ensemble.load([trained_run.folder])
    with torch.no_grad():
        ensemble.members[0].model.convs[0].bias.fill_(math.nan)
    with pytest.raises(UserError, match=r"Row 0 .*not a finite number"):
        predict_smiles(ensemble, ["C"])
    assert predict_smiles(ensemble, ["C"], on_error="nan").errors == ["the model's output is not a finite number"]


def test_the_weights_of_the_moving_average_are_used(trained_config, tmp_path):
    values = {**trained_config, "training": {"ema_decay": 0.9, "report": False}, "trainer": {**trained_config["trainer"], "max_epochs": 1}}
    train(parse(Config, values), tmp_path)
    ensemble = Ensemble.load([tmp_path])
    (module,) = ensemble.members
    assert not torch.equal(module.ema.module.convs[0].lin.weight, module.model.convs[0].lin.weight)
    molecules = PackedMolecules.from_smiles(SMILES, features="qm9")
    with torch.no_grad():
        averaged = module.ema.module(molecules.batch(slice(None))) * module.target_std + module.target_mean
    np.testing.assert_allclose(predict_smiles(ensemble, SMILES).values, averaged.numpy(), rtol=1e-5, atol=1e-5)


def test_prediction_needs_no_drawing_libraries(trained_run, monkeypatch):
    """Nor do the imports, see test_imports.py."""
    monkeypatch.setitem(sys.modules, "rdkit.Chem.Draw", None)
    assert len(predict_smiles(Ensemble.load([trained_run.folder], BackendConfig(), "cpu"), ["CCO", "C"]).values) == 2


@pytest.mark.gpu
@pytest.mark.parametrize("backend", ["fused", "pyg"])
def test_on_a_gpu(trained_run, backend):
    ensemble = Ensemble.load([trained_run.folder], BackendConfig(name=backend), "cuda")
    np.testing.assert_allclose(predict_smiles(ensemble, SMILES).values, expected(trained_run), rtol=2e-4, atol=2e-4)
