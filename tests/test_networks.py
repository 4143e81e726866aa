"""Every network of conf/model works in every command."""

from __future__ import annotations

import shutil
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from conf_cases import MODELS, model_values
from predictions import rows_of
from run_cases import assert_same_run, train_and_copy

from molgcn.config.run import BackendConfig, Config, ModelConfig, parse
from molgcn.data import PackedMolecules
from molgcn.data.layout import with_encodings
from molgcn.errors import UserError
from molgcn.evaluate import EvaluateConfig, evaluate
from molgcn.export import ExportConfig, export
from molgcn.nn.build import build_network
from molgcn.predict import PredictConfig, predict
from molgcn.training.checkpoint_file import load_checkpoint
from molgcn.training.inference import predict_molecules
from molgcn.training.restore import load_module
from molgcn.training.result import RunResult
from molgcn.training.train import train

pytestmark = pytest.mark.usefixtures("one_thread", "empty_figures")
FAST = ("dmpnn", "gated_gcn", "gine")  # bonds with and without states, one set of matrices for all rounds, batch norm, padding
EVERY = [pytest.param(name, marks=() if name in FAST else pytest.mark.slow) for name in MODELS]
# The backends on which a network is trained; a network trained on one runs on all.
BACKENDS = dict.fromkeys(MODELS, ("reference", "pyg")) | {"gcn": ("fused", "pyg", "reference"), "gated_gcn": ("pyg", "reference")}
SMILES = ["CCO", "CC(=O)N", "C1CC1", "c1ccccc1O", "C", "N#CC"]
CLOSE = {"rtol": 1e-5, "atol": 1e-5}


def tiny(name: str) -> dict[str, Any]:
    """Return the keys of a network's YAML, changed to a narrow network with short random walks."""
    keys = model_values(name)
    encodings = keys["encodings"]
    walks = {"rwse": min(encodings["rwse"], 3), "rwse_dim": 2, "bond_rw": min(encodings["bond_rw"], 3)}
    return {**keys, "hidden_channels": 8, "num_layers": 2, "encodings": walks}


def configuration(name: str, **changes: Any) -> Config:
    """Return the configuration of a network on 20 molecules, 16 of them for training; `changes` replaces single keys."""
    values: dict[str, Any] = {
        "dataset": {"name": "builtin", "targets": ["logp"], "features": "qm9", "subset": 20, "batch_size": 6},
        "model": {**tiny(name), "dropout": 0.1},
        "backend": {"name": BACKENDS[name][0]},
        "optimizer": {"lr": 0.01},
        "training": {"ema_decay": 0.5, "checkpoint_seconds": 0},
        "trainer": {"max_epochs": 2, "accelerator": "cpu", "num_sanity_val_steps": 0, "enable_model_summary": False},
        "logger": {"name": "csv"},
    }
    return parse(Config, {key: {**value, **changes.get(key, {})} for key, value in values.items()} | {"loader": changes.get("loader", {})})


@dataclass(frozen=True)
class Run:
    """A network's name, its configuration, the result of training it, and copies of the folder after each `last.ckpt`."""

    name: str
    config: Config
    result: RunResult
    copies: list[Path]

    @property
    def folder(self) -> Path:
        return self.result.folder

    def predictions(self, checkpoint: str = "best.ckpt") -> np.ndarray:
        """Return predictions of `SMILES` by the network and the scaling alone, float64 [6]."""
        module = load_module(self.folder / "checkpoints" / checkpoint, BackendConfig(name="reference")).double()
        batch = PackedMolecules.from_smiles(SMILES, features="qm9").batch(slice(None)).double()
        with torch.no_grad():
            return (module.ema.module(batch) * module.target_std + module.target_mean).numpy()[:, 0]


@pytest.fixture(scope="module", params=EVERY)
def run(request, tmp_path_factory) -> Run:
    """Return a run of each network, which tests must not change."""
    config = configuration(request.param)
    return Run(request.param, config, *train_and_copy(config, tmp_path_factory.mktemp(request.param) / "run"))


def losses(config: Config, folder: Path) -> list[float]:
    """Return the losses of training and validation in metrics.csv."""
    train(config, folder)
    return [float(row[key]) for row in rows_of(folder / "metrics.csv") for key in ("train/loss", "val/loss") if row[key]]


def test_training_leaves_all_files_and_says_what_the_network_is(run):
    for name in ("report.html", "predictions_test.csv", "learning_curve.png", "parity.png", "provenance.json"):
        assert (run.folder / name).stat().st_size > 0
    saved = load_checkpoint(run.folder / "checkpoints" / "best.ckpt")
    assert saved["molgcn"]["edge_channels"] == (4 if run.config.model.bonds else None)
    assert saved["molgcn"]["config"]["model"] == run.config.to_dict()["model"]
    weights, average = ({key: value for key, value in saved["state_dict"].items() if key.startswith(start)} for start in ("model.", "ema."))
    assert any(not torch.equal(value, average[f"ema.module.{key[6:]}"]) for key, value in weights.items())


def test_a_run_that_is_killed_and_resumed_is_the_whole_one(run, tmp_path):
    """A run killed within its first epoch and resumed is the same bit for bit."""
    killed = shutil.copytree(run.copies[1], tmp_path / "killed")
    assert load_checkpoint(killed / "checkpoints" / "last.ckpt")["global_step"] == 2  # an epoch has 3
    resumed = train(replace(run.config, resume=str(killed)), killed)
    assert_same_run(killed, run.folder)
    assert resumed.metrics == pytest.approx(run.result.metrics, rel=0, abs=0, nan_ok=True)


def test_backends_and_loaders_learn_the_same(run, tmp_path):
    """Runs agree up to the order of sums, with SGD, since Adam makes steps of rounding errors where gradients are 0."""
    changes = {"optimizer": {"name": "sgd"}, "training": {"report": False}, "trainer": {"max_epochs": 1}}
    config = configuration(run.name, model={"dropout": 0.0}, **changes)
    expected = losses(replace(config, loader=replace(config.loader, name="packed")), tmp_path / "packed")
    other = replace(config, loader=replace(config.loader, name="pyg"), backend=BackendConfig(BACKENDS[run.name][1]))
    np.testing.assert_allclose(losses(other, tmp_path / "pyg"), expected, rtol=1e-5)


def test_predict_gives_the_networks_own_predictions(run, tmp_path):
    """This holds on every backend; several checkpoints give mean and deviation."""
    (tmp_path / "new.smi").write_text("\n".join(SMILES))
    files = {"input": str(tmp_path / "new.smi"), "output": str(tmp_path / "p.csv"), "device": "cpu", "batch_size": 4}
    expected = {name: run.predictions(name) for name in ("best.ckpt", "last.ckpt")}
    for backend in BACKENDS[run.name]:
        predict(parse(PredictConfig, {**files, "ckpt": str(run.folder), "backend": {"name": backend}}))
        np.testing.assert_allclose(column(tmp_path / "p.csv", "logp predicted"), expected["best.ckpt"], **CLOSE)
    members = np.stack(list(expected.values()))
    predict(parse(PredictConfig, {**files, "ckpt": [str(run.folder / "checkpoints" / name) for name in expected]}))
    np.testing.assert_allclose(column(tmp_path / "p.csv", "logp predicted"), members.mean(axis=0), **CLOSE)
    np.testing.assert_allclose(column(tmp_path / "p.csv", "logp predicted std"), members.std(axis=0, ddof=1), **CLOSE)


def test_molecules_without_bonds_are_refused_where_the_network_sees_them(run, tmp_path):
    PackedMolecules.from_arrays([2], [2], [[0, 1], [1, 0]], x=np.ones((2, 11), np.float32)).save(tmp_path)
    bare, module = PackedMolecules.load(tmp_path), load_module(run.folder)
    if run.config.model.bonds:
        with pytest.raises(UserError, match="takes features of bonds, but the set has none"):
            predict_molecules(module, bare, 1)
    else:
        assert np.isfinite(predict_molecules(module, bare, 1)).all()


def column(path: Path, name: str) -> list[float]:
    return [float(row[name]) for row in rows_of(path)]


def test_evaluate_finds_the_runs_own_errors(run, tmp_path):
    values = {"ckpt": str(run.folder), "output": str(tmp_path / "out"), "device": "cpu", "backend": {"name": BACKENDS[run.name][-1]}}
    metrics = evaluate(parse(EvaluateConfig, values)).metrics
    assert metrics == pytest.approx(run.result.metrics, rel=1e-4, abs=1e-5, nan_ok=True)
    assert (tmp_path / "out" / "report.html").is_file()


def run_onnx(path: Path, **inputs: torch.Tensor) -> np.ndarray:
    session = pytest.importorskip("onnxruntime").InferenceSession(path)
    return session.run(None, {name: tensor.numpy() for name, tensor in inputs.items()})[0]


def run_pt2(path: Path, **inputs: torch.Tensor) -> np.ndarray:
    first = [inputs.pop(name) for name in ("x", "edge_index", "batch")]
    with torch.no_grad():
        return torch.export.load(path).module()(*first, **inputs).numpy()


@pytest.mark.slow  # tests of the command and of components export others
@pytest.mark.parametrize("evaluator", [run_onnx, run_pt2], ids=["onnx", "pt2"])
def test_what_is_exported_predicts_the_same(run, evaluator, tmp_path):
    path = tmp_path / f"model.{evaluator.__name__[4:]}"
    assert export(ExportConfig(str(run.folder), str(path))) < 1e-5
    module = load_module(run.folder)
    molecules = with_encodings(PackedMolecules.from_smiles(SMILES, features="qm9"), module.model.rwse, module.model.bond_rw)
    batch = molecules.batch(slice(None))
    inputs = {name: getattr(batch, name) for name in ("x", "edge_index", "batch", *module.model.optional_inputs)}
    np.testing.assert_allclose(evaluator(path, **inputs)[:, 0], run.predictions(), **CLOSE)


BY_TURNS = [
    pytest.param(name, backend, marks=() if (number + place) % 2 == 0 else pytest.mark.slow)
    for number, name in enumerate(MODELS)
    for place, backend in enumerate(BACKENDS[name])
]


@pytest.mark.parametrize(("name", "backend"), BY_TURNS)
def test_a_plain_loop_learns(name, backend):
    """The loop uses neither Lightning nor Hydra, with batches of this project and of PyG."""
    molecules = PackedMolecules.from_smiles(SMILES, features="qm9")
    edge_channels = molecules.num_edge_features if model_values(name)["bonds"] else None
    torch.manual_seed(0)
    model = build_network(parse(ModelConfig, tiny(name)), BackendConfig(backend), molecules.num_features, 1, edge_channels)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    batches = [molecules.batch([0, 1, 2]), molecules.batch([3, 4, 5]).to_pyg()]
    targets = [torch.tensor([[0.9], [0.9], [0.6]]), torch.tensor([[1.3], [0.5], [0.3]])]
    steps = []
    for _ in range(40):
        errors = [(model(batch) - target).square().mean() for batch, target in zip(batches, targets, strict=True)]
        optimizer.zero_grad()
        sum(errors).backward()
        optimizer.step()
        steps.append(sum(errors).item())
    assert steps[-1] < 0.5 * steps[0]


QUICK = ["dataset.subset=20", "dataset.batch_size=8", "model.num_layers=2", "trainer.max_epochs=1", "training.report=false", "logger=csv"]


def test_a_multirun_over_networks(cli, tmp_path):
    names = ["gcn", "gine"]
    code, _, err = cli("--multirun", f"model={','.join(names)}", "model.hidden_channels=8", *QUICK)
    assert code == 0, err
    (table,) = tmp_path.glob("multirun/*/results.csv")
    assert {row["overrides"].split()[0] for row in rows_of(table)} == {f"model={name}" for name in names}


@pytest.mark.slow
def test_a_search_over_networks(cli, tmp_path):
    varied = ["~sweep.params.model", "++sweep.params.model=[gine,gated_gcn_plus,dmpnn]"]
    code, out, err = cli("sweep=optuna", "sweep.n_trials=3", *varied, "model.hidden_channels=32", *QUICK)
    assert code == 0, out + err
    (table,) = tmp_path.glob("multirun/*/results.csv")
    assert len(rows_of(table)) == 3
    code, _, err = cli(f"--config-dir={table.parent}", "experiment=best", "hydra.run.dir=again", "training.report=false")
    assert code == 0, err
