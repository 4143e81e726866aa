"""Passes with dropout have the spread of the closed form, follow seeds and leave all else as in evaluation."""

import csv

import numpy as np
import pytest
import torch
from predictions import SMILES, config

from molgcn.config.run import Config, parse
from molgcn.data import PackedMolecules
from molgcn.errors import UserError
from molgcn.predict import predict, predict_smiles
from molgcn.screening.ensemble import Ensemble
from molgcn.training.restore import load_module
from molgcn.training.train import train

RATE = 0.2


@pytest.fixture(scope="module")
def folder(trained_config, tmp_path_factory):
    """Return a run of one layer with dropout, batch norm and a linear head, without hydrogens."""
    folder = tmp_path_factory.mktemp("dropout")
    changes = {
        "dataset": {**trained_config["dataset"], "features": "general"},
        "model": {"hidden_channels": 8, "num_layers": 1, "dropout": RATE, "norm": "batch", "residual": False, "head_layers": 0},
        "training": {"report": False},
    }
    train(parse(Config, {**trained_config, **changes}), folder)
    return folder


@pytest.mark.parametrize("backend", ["fused", "reference", pytest.param("pyg", marks=pytest.mark.slow)])
def test_mean_and_spread_of_one_layer_in_closed_form(folder, backend):
    """For a single atom each channel h_c is zeroed or divided by 1 - p, so that w h has the variance p / (1 - p) sum (w_c h_c)^2."""
    module = load_module(folder)
    states = []
    module.model.head.register_forward_pre_hook(lambda _, inputs: states.append(inputs[0]))
    with torch.no_grad():
        expected = module(PackedMolecules.from_smiles(["O"], features=module.features).batch([0]))
    terms = module.model.head.weight * states[0]
    spread = (RATE / (1 - RATE) * terms.square().sum(1)).sqrt() * module.target_std
    backend = parse(Config, {"dataset": {}, "backend": {"name": backend}}).backend
    found = predict_smiles(Ensemble.load([folder], backend, dropout_samples=2_000), ["O"], num_workers=0)
    np.testing.assert_allclose(found.deviation[0], spread.detach(), rtol=0.05)
    np.testing.assert_allclose(found.values[0], expected[0], atol=4 * spread.max().item() / 2_000**0.5)


def test_the_seed_decides_and_batches_differ(folder):
    def predicted(seed, **options):
        return predict_smiles(Ensemble.load([folder], dropout_samples=4, seed=seed), ["CCO"] * 6, num_workers=0, **options)

    first, again, other = predicted(1), predicted(1), predicted(2)
    assert np.array_equal(first.values, again.values) and np.array_equal(first.deviation, again.deviation)
    assert not np.allclose(first.values, other.values)
    small = predicted(1, batch_size=2).values
    assert len(np.unique(small[:, 0])) == 6  # no two rows share a dropout mask


def test_only_dropout_is_active(folder):
    """Batch norms keep their statistics, and torch's own generator keeps its state."""
    ensemble = Ensemble.load([folder], dropout_samples=2)
    before = {key: value.clone() for key, value in ensemble.members[0].state_dict().items()}
    torch.manual_seed(3)
    predict_smiles(ensemble, SMILES, num_workers=0)
    drawn = torch.rand(3)
    after = ensemble.members[0].state_dict()
    assert all(torch.equal(value, after[key]) for key, value in before.items())
    torch.manual_seed(3)
    assert torch.equal(drawn, torch.rand(3))


def test_attention_dropout_counts(trained_config, tmp_path):
    model = {"name": "gat", "hidden_channels": 8, "num_layers": 1, "heads": 2, "attention_dropout": 0.3}
    train(parse(Config, {**trained_config, "model": model, "training": {"report": False}}), tmp_path)
    found = predict_smiles(Ensemble.load([tmp_path], dropout_samples=3), ["CCO"], num_workers=0)
    assert (found.deviation > 0).all()


def test_the_table_is_that_of_an_ensemble_of_passes_and_models(folder, tmp_path, caplog):
    caplog.set_level("INFO")
    (tmp_path / "new.csv").write_text("smiles\nCCO\nC\n")
    output = tmp_path / "p.csv"
    predict(config(ckpt=[str(folder)] * 2, input=str(tmp_path / "new.csv"), output=str(output), dropout_samples=3, seed=5))
    with open(output, newline="") as file:
        header, *rows = csv.reader(file)
    assert header == ["smiles", "logp predicted", "logp predicted std", "tpsa [A^2] predicted", "tpsa [A^2] predicted std"]
    expected = predict_smiles(Ensemble.load([folder] * 2, dropout_samples=3, seed=5), ["CCO", "C"], num_workers=0)
    both = np.stack([expected.values, expected.deviation], axis=2).reshape(2, -1)
    np.testing.assert_allclose(np.array(rows)[:, 1:].astype(float), both, rtol=1e-6)
    assert "mean and standard deviation of 6 passes with dropout" in caplog.text


def test_a_network_without_dropout_is_refused(trained_run):
    with pytest.raises(
        UserError, match=r"best\.ckpt was trained without dropout, .*Leave dropout_samples out, or train with model\.dropout"
    ):
        Ensemble.load([trained_run.folder], dropout_samples=10)


@pytest.mark.parametrize("number", [1, -1])
def test_a_number_of_passes_that_have_no_spread(number):
    with pytest.raises(UserError, match=f"dropout_samples={number} is not valid: expected at least 2, or 0 for none"):
        config(dropout_samples=number)


@pytest.mark.gpu
def test_on_a_gpu(folder):
    found = predict_smiles(Ensemble.load([folder], device="cuda", dropout_samples=500), SMILES, num_workers=0)
    on_cpu = predict_smiles(Ensemble.load([folder], dropout_samples=500), SMILES, num_workers=0)
    np.testing.assert_allclose(found.deviation, on_cpu.deviation, rtol=0.3)
