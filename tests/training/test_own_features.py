"""A run with own features of atoms and bonds is trained and resumed, and every command asks for the files that it needs."""

import csv
import json
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from rdkit import Chem

import molgcn
from molgcn.config.run import BackendConfig, Config, parse
from molgcn.data.load import load_molecules
from molgcn.errors import UserError
from molgcn.evaluate import EvaluateConfig, evaluate
from molgcn.evaluation.config import EvaluationDataConfig
from molgcn.explain.command import explain
from molgcn.explain.config import ExplainConfig
from molgcn.export import METADATA, ExportConfig, export, metadata
from molgcn.fingerprint import FingerprintConfig, fingerprint
from molgcn.onnx_inputs import OnnxInputs
from molgcn.predict import PredictConfig, predict
from molgcn.training.inference import predict_molecules
from molgcn.training.restore import load_module
from molgcn.training.train import train

pytestmark = pytest.mark.usefixtures("one_thread", "empty_figures")
SMILES = ["C" * (1 + n % 7) + "NO"[n % 2] + "C" * (n // 7) for n in range(40)]
FILES = ("atom", "bond")


def save(folder, smiles=SMILES):
    """Write features of atoms from which the target is computed, and of bonds, of very different sizes."""
    mols, rng = [Chem.MolFromSmiles(text) for text in smiles], np.random.default_rng(0)
    atoms = [np.stack([rng.normal(1000, 50, mol.GetNumAtoms()), np.ones(mol.GetNumAtoms())], 1) for mol in mols]
    bonds = [1e-3 * rng.normal(size=(mol.GetNumBonds(), 1)) for mol in mols]
    np.savez(folder / "atom.npz", *atoms)
    np.savez(folder / "bond.npz", x=np.concatenate(bonds), offsets=np.cumsum([0, *map(len, bonds)]), names=np.array(["strain"]))
    rows = [[text, f"{one[:, 0].mean():.3f}"] for text, one in zip(smiles, atoms, strict=True)]
    with open(folder / "a.csv", "w", newline="") as file:
        csv.writer(file).writerows([["smiles", "y"], *rows])
    return atoms, bonds


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("own")


@pytest.fixture(scope="module")
def given(folder):
    return save(folder)


@pytest.fixture(scope="module")
def config(folder, given):
    files = {f"{of}_features_path": str(folder / f"{of}.npz") for of in FILES}
    dataset = {"name": "csv", "path": str(folder / "a.csv"), "targets": ["y"], "features": "general", "batch_size": 8, **files}
    return parse(
        Config,
        {
            "dataset": {**dataset, "cache_dir": str(folder / "cache")},
            "model": {"name": "gine", "bonds": True, "embed_bonds": True, "hidden_channels": 16, "num_layers": 2, "pool": "mean"},
            "optimizer": {"lr": 0.01},
            "training": {"report": False, "ema_decay": 0.9},
            "logger": {"name": "csv"},
            "trainer": {"max_epochs": 12, "accelerator": "cpu", "num_sanity_val_steps": 0, "enable_model_summary": False},
        },
    )


@pytest.fixture(scope="module")
def run(folder, config):
    return train(config, folder / "run")


def options(cls, run, folder, **values):
    files = {f"{of}_features": str(folder / f"{of}.npz") for of in FILES}
    return parse(cls, {"ckpt": str(run.folder), "input": str(folder / "a.csv"), "device": "cpu", **files, **values})


def expected(run):
    module = load_module(run.folder)
    molecules, *_ = load_molecules(module.config.dataset)
    return predict_molecules(module, molecules, 1024)[:, 0]


def test_they_are_learned_from_and_scaled_by_the_training_part(run, given):
    """The target is the mean of an own feature, which nothing else tells."""
    rows = json.loads((run.folder / "splits.json").read_text())["train"]
    atoms, bonds = (np.concatenate([one[row] for row in rows]) for one in given)
    network = load_module(run.folder).averaged
    np.testing.assert_allclose(network.atom_scale.mean[-2:], [atoms[:, 0].mean(), 1], rtol=1e-6)
    np.testing.assert_allclose(network.atom_scale.std[-2:], [atoms[:, 0].std(), 1], rtol=1e-5)
    np.testing.assert_allclose(network.bond_scale.std[-1:], bonds.std(0), rtol=1e-5)
    assert not network.atom_scale.mean[:-2].any() and (network.bond_scale.std[:-1] == 1).all()
    truth = np.array([one[:, 0].mean() for one in given[0]])
    assert np.corrcoef(expected(run), truth)[0, 1] > 0.8


@pytest.mark.parametrize("name", ["gcn", "gine", "dmpnn", "gated_gcn"])
def test_backends_agree(run, config, name, tmp_path):
    """Networks with and without an embedding of the features: where the scale stands differs between operators."""
    model = replace(config.model, name=name, bonds=name != "gcn", embed_bonds=name in ("gine", "gated_gcn"))
    model = replace(model, norm=None if name == "dmpnn" else "batch", residual=name != "dmpnn")
    dataset = config.dataset if name != "gcn" else replace(config.dataset, bond_features_path=None)
    trainer = {**config.trainer, "max_epochs": 1}
    found = train(replace(config, model=model, dataset=dataset, trainer=trainer), tmp_path / name)
    molecules, *_ = load_molecules(dataset)
    values = []
    for backend in ("reference", "pyg", "fused") if name in ("gcn", "gine") else ("reference", "pyg"):
        module = load_module(found.folder, BackendConfig(name=backend))
        values.append(predict_molecules(module, molecules, 16))
        values.append(predict_molecules(module, molecules[[0]], 1))
    for one, alone in zip(values[::2], values[1::2], strict=True):
        np.testing.assert_allclose(one, values[0], rtol=1e-5)
        np.testing.assert_allclose(alone[0], values[0][0], rtol=1e-5)


def test_predict_and_fingerprint_take_the_same_files(run, folder, given, tmp_path):
    predict(options(PredictConfig, run, folder, output=str(tmp_path / "p.csv"), batch_size=7))
    with open(tmp_path / "p.csv", newline="") as file:
        written = [float(row["y predicted"]) for row in csv.DictReader(file)]
    np.testing.assert_allclose(written, expected(run), rtol=1e-5)
    model = molgcn.load([run.folder, run.folder], device="cpu")
    atoms, bonds = given
    values = model.predict(SMILES, atom_features=atoms, bond_features=bonds, num_workers=0)
    np.testing.assert_allclose(values.values[:, 0], written, rtol=1e-5)
    fingerprint(options(FingerprintConfig, run, folder, output=str(tmp_path / "f.npz"), batch_size=9))
    vectors = molgcn.load(run.folder, device="cpu").fingerprint(SMILES, atom_features=atoms, bond_features=bonds, num_workers=0)
    np.testing.assert_allclose(np.load(tmp_path / "f.npz")["fingerprints"], vectors, rtol=1e-5, atol=1e-6)
    for wrong, match in (
        ({"atom_features": None}, r"trained with 2 own features of atoms \(atom_feature_0, atom_feature_1\)\. Give atom_features=, which"),
        ({"bond_features": bonds[:3]}, "bond_features= has 3 matrices for 40 molecules"),
        ({"atom_features": [one[:, :1] for one in atoms]}, r"molecule 0: it has shape \[2, 1\]; expected \[atoms, 2\]"),
        ({"atom_features": [[[1.0, 2.0], [3.0]], *atoms[1:]]}, r"atom_features=, molecule 0: it is not an array of .* shape \[atoms, 2\]"),
        ({"atom_features": [atoms[0][:1], *atoms[1:]]}, r"Row 0 of the list.*its atom features have 1 row, and it has 2 atoms"),
    ):
        with pytest.raises(UserError, match=match):
            model.predict(SMILES, **{"atom_features": atoms, "bond_features": bonds, "num_workers": 0, **wrong})


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        (
            {"atom_features": None},
            r"trained with 2 own features of atoms \(atom_feature_0, atom_feature_1\)\. Give atom_features=<file\.npz>, which",
        ),
        ({"bond_features": "short.npz"}, r"bond_features= has the matrices of 3 molecules, and .*a\.csv has more rows"),
        ({"bond_features": "long.npz"}, r"bond_features= has the matrices of 41 molecules, and .*a\.csv has 40 rows"),
        (
            {"bond_features": "atom.npz"},
            r"trained with 1 own feature of bonds \(strain\), and bond_features=.*atom\.npz has 2 columns\. Give",
        ),
        ({"bond_features": "moved.npz"}, r"Row 0 of .*a\.csv.*its bond features have 2 rows, and it has 1 bond"),
    ],
)
def test_inputs_that_do_not_fit(run, folder, given, tmp_path, changes, match):
    _, bonds = given
    for name, matrices in (("short", bonds[:3]), ("long", [*bonds, bonds[0]]), ("moved", [*bonds[1:], bonds[0]])):
        np.savez(folder / f"{name}.npz", *matrices)
    values = {key: None if value is None else str(folder / value) for key, value in changes.items()}
    with pytest.raises(UserError, match=match):
        predict(options(PredictConfig, run, folder, output=str(tmp_path / "p.csv"), **values))


def test_a_row_without_its_features_is_kept_with_the_reason(run, folder, given, tmp_path):
    atoms, _ = given
    np.savez(tmp_path / "holes.npz", *atoms[:5], np.zeros((0, 2)), *atoms[6:])
    holes = {"atom_features": str(tmp_path / "holes.npz"), "on_error": "nan", "batch_size": 4, "output": str(tmp_path / "p.csv")}
    predict(options(PredictConfig, run, folder, **holes))
    with open(tmp_path / "p.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [number for number, row in enumerate(rows) if row["error"]] == [5] and "have 0 rows" in rows[5]["error"]
    kept = [number for number in range(len(rows)) if number != 5]
    np.testing.assert_allclose([float(rows[row]["y predicted"]) for row in kept], expected(run)[kept], rtol=1e-5)


def test_evaluate_on_its_own_data_and_on_another_file(run, folder, given, tmp_path):
    own = evaluate(EvaluateConfig(ckpt=str(run.folder), device="cpu", output=str(tmp_path / "own")))
    assert own.metrics["test/mae/y"] == pytest.approx(run.metrics["test/mae/y"], rel=1e-4)
    assert "2, of a file" in (tmp_path / "own" / "report.html").read_text()
    (folder / "other.csv").write_text((folder / "a.csv").read_text())
    files = {f"{of}_features_path": str(folder / f"{of}.npz") for of in FILES}
    other = EvaluationDataConfig(path=str(folder / "other.csv"), **files)
    everything = evaluate(EvaluateConfig(ckpt=str(run.folder), device="cpu", dataset=other, output=str(tmp_path / "other")))
    assert np.isfinite(everything.metrics["all/mae/y"])
    (folder / "methanes.csv").write_text("smiles,y\n" + "CC(C)C,1\n" * 3)
    np.savez(folder / "three.npz", *[np.ones((4, 2))] * 3)
    np.savez(folder / "wide.npz", *[np.ones((3, 2))] * 3)
    wide = {"path": "methanes.csv", "atom_features_path": "three.npz", "bond_features_path": "wide.npz"}
    wide = EvaluationDataConfig(**{key: str(folder / name) for key, name in wide.items()})
    with pytest.raises(UserError, match=r"own feature of bonds \(strain\), and dataset\.bond_features_path has 2 columns"):
        evaluate(EvaluateConfig(ckpt=str(run.folder), device="cpu", dataset=wide, output=str(tmp_path / "wide")))
    without = replace(other, bond_features_path=None)
    with pytest.raises(UserError, match=r"own feature of bonds \(strain\)\. Give dataset\.bond_features_path=<file\.npz>, which"):
        evaluate(EvaluateConfig(ckpt=str(run.folder), device="cpu", dataset=without, output=str(tmp_path / "x")))


def test_an_exported_network_takes_them_as_they_are(run, tmp_path):
    assert export(ExportConfig(str(run.folder), str(tmp_path / "m.pt2"))) < 1e-5
    extra = {METADATA: ""}
    program = torch.export.load(tmp_path / "m.pt2", extra_files=extra).module()
    about = json.loads(extra[METADATA])
    assert json.loads(about["feature_names"])[-2:] == ["atom_feature_0", "atom_feature_1"]
    assert json.loads(about["bond_feature_names"])[-1] == "strain"
    assert json.loads(about["inputs"])["own_features"] == {"atom": ["atom_feature_0", "atom_feature_1"], "bond": ["strain"]}
    module = load_module(run.folder)
    batch = load_molecules(module.config.dataset)[0].batch([4, 2, 9])
    found = program(batch.x, batch.edge_index, batch.batch, edge_attr=batch.edge_attr)
    torch.testing.assert_close(found.double(), module(batch), rtol=1e-5, atol=1e-3)


def test_inputs_of_an_exported_network_have_them(run, given):
    module, (atoms, bonds) = load_module(run.folder), given
    session = SimpleNamespace(
        get_modelmeta=lambda: SimpleNamespace(custom_metadata_map=metadata(module)),
        get_inputs=lambda: [SimpleNamespace(name=name, shape=["rows", 1]) for name in ("x", "edge_attr")],
    )
    molecules = load_molecules(module.config.dataset)[0]
    found = OnnxInputs(session)(SMILES, atom_features=atoms, bond_features=bonds, num_workers=0)
    assert np.array_equal(found["x"], molecules.node_features()) and np.array_equal(found["edge_attr"], molecules.edge_features())
    with pytest.raises(UserError, match=r"trained with 1 own feature of bonds \(strain\)\. Give bond_features=, which"):
        OnnxInputs(session)(SMILES, atom_features=atoms)


def test_explanations_start_from_their_mean(run, folder, given, tmp_path):
    """In the baseline an own feature has the training part's mean, so that a molecule of mean features has next to no contributions."""
    explain(options(ExplainConfig, run, folder, output=str(tmp_path / "e"), on_error="raise", image="svg"))
    with open(tmp_path / "e" / "molecules.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == len(SMILES)
    baselines = [float(row["baseline"]) for row in rows]
    assert all(abs(value - 1000) < 200 for value in baselines)


def test_a_finished_run_goes_on_with_its_files_and_not_with_others(run, folder, config, given):
    longer = replace(config, resume=str(run.folder), trainer={**config.trainer, "max_epochs": 13})
    assert train(longer, run.folder).folder == run.folder
    atoms, _ = given
    np.savez(folder / "changed.npz", *(one + 1 for one in atoms))
    changed = replace(longer, dataset=replace(config.dataset, atom_features_path=str(folder / "changed.npz")))
    with pytest.raises(UserError, match="has changed since the run was interrupted"):
        train(changed, run.folder)


def test_weights_of_a_network_with_others_are_refused(run, config, tmp_path):
    without = replace(config, ckpt_path=str(run.folder), dataset=replace(config.dataset, atom_features_path=None))
    with pytest.raises(UserError, match="was trained with 2 own features of atoms, and this run has 0"):
        train(without, tmp_path / "other")


def test_a_network_that_reads_no_bonds_refuses_features_of_bonds(config, tmp_path):
    model = replace(config.model, name="gcn", bonds=False, embed_bonds=False)
    with pytest.raises(UserError, match=r"dataset\.bond_features_path gives features of bonds, which model=gcn"):
        train(replace(config, model=model), tmp_path / "gcn")
