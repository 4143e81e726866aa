"""Every network through a run of its own: training on both backends, resume, prediction and export."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from run_cases import assert_same_run

from molgcn.config import Config, parse
from molgcn.data import PackedMolecules
from molgcn.export import ExportConfig, export
from molgcn.nn.registry import get_kind
from molgcn.training.inference import predict_molecules
from molgcn.training.restore import load_regressor
from molgcn.training.train import train

pytestmark = pytest.mark.usefixtures("one_thread")
SLOW = [pytest.param(name, marks=pytest.mark.slow) for name in ("gcn", "gin", "sage", "gatv2", "gcn_edge")]
NETWORKS = ["gine", "gat", "gated_gcn", "dmpnn", *SLOW]
SMILES = ["CCO", "c1ccccc1O", "C", "CC(=O)N", "C1CC1"]


@pytest.fixture(params=NETWORKS)
def config(request) -> Config:
    """Two epochs of 60 molecules, with bonds and encodings where the network takes them."""
    kind = get_kind(request.param)
    bonds = kind.bonds != "never"
    model = {"name": kind.name, "hidden_channels": 8, "num_layers": 3, "init": None, "bonds": bonds, "embed_bonds": bonds, "dropout": 0.1}
    model |= {"embed": True, "encodings": {"rwse": 4, "rwse_dim": 3, "bond_rw": 4 if bonds else 0}}
    model |= {"norm": None, "residual": False} if kind.without else {"feed_forward": True}
    values = {
        "dataset": {"name": "builtin", "targets": ["logp"], "subset": 60, "batch_size": 16},
        "model": model,
        "backend": {"name": "reference"},
        "scheduler": {"name": "constant"},
        "training": {"report": False, "ema_decay": 0.9},
        "trainer": {"max_epochs": 2, "accelerator": "cpu", "num_sanity_val_steps": 0, "enable_model_summary": False},
        "logger": {"name": "csv"},
    }
    return parse(Config, values)


def test_a_run_resumes_bit_for_bit_and_predicts_on_both_backends(config, tmp_path):
    train(config, tmp_path / "whole")
    train(replace(config, trainer={**config.trainer, "max_epochs": 1}), tmp_path / "resumed")
    train(replace(config, resume=str(tmp_path / "resumed")), tmp_path / "resumed")
    assert_same_run(tmp_path / "resumed", tmp_path / "whole")

    predictions = []
    for name in ("auto", "reference", "pyg"):
        module = load_regressor(tmp_path / "whole", replace(config.backend, name=name))
        molecules = PackedMolecules.from_smiles(SMILES, features=module.features)
        predictions.append(predict_molecules(module, molecules, 3))
    for other in predictions[1:]:
        np.testing.assert_allclose(other, predictions[0], rtol=1e-4, atol=1e-5)


@pytest.mark.slow
def test_both_backends_learn_the_same(config, tmp_path):
    """Loaders and layers differ, sums are in another order."""
    config = replace(config, model=replace(config.model, dropout=0.0), trainer={**config.trainer, "max_epochs": 1})
    losses = [
        train(replace(config, backend=replace(config.backend, name=name)), tmp_path / name).best_loss for name in ("reference", "pyg")
    ]
    assert losses[0] == pytest.approx(losses[1], rel=1e-3)


@pytest.mark.slow
def test_onnx_predicts_the_same(config, tmp_path):
    train(replace(config, trainer={**config.trainer, "max_epochs": 1}), tmp_path / "run")
    assert export(ExportConfig(str(tmp_path / "run"), str(tmp_path / "model.onnx"))) < 1e-4
