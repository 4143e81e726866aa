"""An exported network predicts SMILES where PyTorch is not installed, and its inputs are those that molgcn gives the network."""

import csv
import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from reaction_rows import substitutions

from molgcn.config.run import Config, parse
from molgcn.data import PackedMolecules
from molgcn.data.featurizers import FEATURIZERS
from molgcn.data.layout import with_encodings
from molgcn.errors import UserError
from molgcn.export import ExportConfig, export, metadata
from molgcn.onnx_inputs import OnnxInputs, arrays_of
from molgcn.predict import predict_smiles
from molgcn.screening.ensemble import Ensemble
from molgcn.training.restore import load_module
from molgcn.training.train import train

pytestmark = pytest.mark.usefixtures("one_thread", "empty_figures")
ROOT = Path(__file__).parents[1]
SMILES = ["CCO", "c1ccccc1O", "C", "CC(=O)N", "C1CC1", "O", "C[C@H](N)C(=O)O", "CC(=O)O.O"]
SOLVENTS = ["O", "CO", "CCO"]
COLUMNS = {
    "smiles": SMILES,
    "solvent": [SOLVENTS[n % 3] for n in range(len(SMILES))],
    "rxn": [reaction for reaction, *_ in substitutions(len(SMILES))],
}
GIVEN = np.array([[280.0 + 3 * row, 7.5 - row, 0.1 * row] for row in range(len(SMILES))])

PAGE = (ROOT / "docs" / "prediction.md").read_text()
(EXAMPLE,) = (code for code in re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL) if "OnnxInputs" in code)
(INSTALLED,) = re.findall(r"^pip install (numpy .*)$", PAGE, re.MULTILINE)
DEPENDENCIES = {re.split("[>=<]", text)[0] for text in tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]}
IMPORTED_AS = {"torch-geometric": "torch_geometric", "hydra-core": "hydra", "scikit-learn": "sklearn"}
MISSING = {IMPORTED_AS.get(name, name) for name in (DEPENDENCIES - {*INSTALLED.split()}) | {"omegaconf", "torchmetrics"}}
WITHOUT = f"""
import sys

class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {sorted(MISSING)}:
            raise ModuleNotFoundError(f"No module named {{name!r}}")

sys.meta_path.insert(0, Missing())
"""
PRINTED = "\nimport json\nprint(json.dumps(prediction.tolist()))\n"


@pytest.mark.parametrize("features", [*FEATURIZERS, "general:1", "general:no_stereo"])
def test_arrays_are_the_batchs(features):
    molecules = with_encodings(PackedMolecules.from_smiles(SMILES[:7], features=features), rwse=5, bond_rw=4)
    batch, arrays = molecules.batch(slice(None)), arrays_of(molecules)
    assert {"x", "edge_index", "batch", "rwse", "bond_rw"} <= arrays.keys()
    for name, array in arrays.items():
        expected = getattr(batch, name).numpy()
        assert (array.dtype, array.shape) == (expected.dtype, expected.shape)
        np.testing.assert_array_equal(array, expected)


def run_of(folder, dataset, model, training=None):
    with open(folder / "a.csv", "w", newline="") as file:
        rows = [[*cells, 10.0 ** (n % 5), "abc"[n % 3], *GIVEN[n, :2]] for n, cells in enumerate(zip(*COLUMNS.values(), strict=True))]
        csv.writer(file).writerows([[*COLUMNS, "y", "kind", "temperature", "ph"], *rows * 3])
    np.savez(folder / "x.npz", x=np.tile(GIVEN[:, 2:], (3, 1)))
    values = {
        "dataset": {"name": "csv", "path": str(folder / "a.csv"), "targets": ["y"], "batch_size": 8, "duplicates": "keep", **dataset},
        "model": {"hidden_channels": 32, "num_layers": 2, **model},
        "training": {"report": False, **(training or {})},
        "logger": {"name": "csv"},
        "trainer": {"max_epochs": 1, "accelerator": "cpu", "num_sanity_val_steps": 0, "enable_model_summary": False},
    }
    return train(parse(Config, values), folder / "run").folder


DESCRIBED = {"descriptors": ["temperature", "ph"], "descriptors_path": "x.npz", "descriptor_generators": ["maccs", "rdkit2d"]}
CASES = {
    "scaled and encoded": (
        {"features": "general", "transforms": {"y": "log10"}, "standardize": "neutral"},
        {"name": "gine", "bonds": True, "encodings": {"rwse": 5, "rwse_dim": 8, "bond_rw": 4}, "embed": True, "embed_bonds": True},
    ),
    "components and descriptors": (
        {"features": "ogb", "smiles": ["smiles", "solvent"], **DESCRIBED},
        {"name": "gated_gcn", "bonds": True, "shared_encoder": False},
    ),
    "reactions": (
        {"features": "general", "smiles": ["solvent", "rxn"], "reaction_mode": "reac_diff"},
        {"name": "gine", "bonds": True, "shared_encoder": False},
    ),
    "descriptors": (
        {"features": "chemprop", "stereo": False, **DESCRIBED},
        {"name": "dmpnn", "bonds": True, "norm": None, "residual": False},
    ),
    "classes": (
        {"features": "qm9", "targets": ["y", "kind"], "tasks": {"kind": "multiclass"}, "labels": {"kind": {"a": 0, "b": 1, "c": 2}}},
        {"name": "gcn"},
    ),
    "deviations": ({"features": "zinc"}, {"name": "gin"}, {"loss": "mve"}),
}


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_the_documented_example_predicts_without_torch(case, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    folder = run_of(tmp_path, *CASES[case])
    export(ExportConfig(str(folder), "model.onnx"))
    columns, described = CASES[case][0].get("smiles"), "descriptors" in CASES[case][0]
    smiles = [list(row) for row in zip(*map(COLUMNS.get, columns), strict=True)] if columns else SMILES
    code = EXAMPLE.replace('["CCO", "CC(=O)O"]', f"{smiles}, np.array({GIVEN.tolist()})" if described else str(smiles))
    code = WITHOUT + "import numpy as np\n" + code + PRINTED
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    expected = predict_smiles(Ensemble.load([folder]), smiles, descriptors=GIVEN if described else None, num_workers=0)
    np.testing.assert_allclose(json.loads(done.stdout), expected.values, rtol=1e-5, atol=1e-5)


@pytest.fixture(scope="module")
def about(trained_run):
    return metadata(load_module(trained_run.folder))


def session_of(about, **inputs):
    """Return what OnnxInputs reads of a session of onnxruntime."""
    shapes = {"x": ["atoms", 11], "edge_index": [2, "bonds"], "batch": ["atoms"], **inputs}
    return SimpleNamespace(
        get_modelmeta=lambda: SimpleNamespace(custom_metadata_map=about),
        get_inputs=lambda: [SimpleNamespace(name=name, shape=shape) for name, shape in shapes.items()],
    )


def test_what_is_needed_is_named(about):
    inputs = OnnxInputs(session_of(about))
    assert (inputs.components, inputs.descriptors, inputs.columns) == ([], [], ["logp predicted", "tpsa [A^2] predicted"])
    many = inputs(["CCO", "O"] * 1500)  # read in more than one piece
    assert many["batch"][-1] == 2999 and many["x"].shape == (1500 * 12, 11)
    few = inputs(["CCO", "O"])
    assert [*few] == ["x", "edge_index", "batch"]
    np.testing.assert_array_equal(many["x"][-12:], few["x"])
    np.testing.assert_array_equal(many["edge_index"][:, -20:] - 1499 * 12, few["edge_index"])


@pytest.mark.parametrize(
    ("arguments", "match"),
    [
        ((["CCO", "C1CC"],), r"^Row 1 of the list of SMILES .*'C1CC' cannot be an input: .*Correct it, or leave it out\.$"),
        ((["CCO", None],), "Row 1 .*the SMILES is empty"),
        (("CCO",), "Expected a list of at least one SMILES, not 'CCO'"),
        (([],), "Expected a list of at least one SMILES"),
        (([["CCO", "O"]],), "The model takes one in each row"),
        ((["CCO"], np.zeros((1, 2))), "descriptors has shape"),
    ],
)
def test_inputs_that_do_not_fit(about, arguments, match):
    with pytest.raises(UserError, match=match):
        OnnxInputs(session_of(about))(*arguments)


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({"inputs": ""}, "trained on graphs that were not computed from SMILES"),
        (
            {"inputs": None},
            r"does not say how this version of molgcn makes its inputs .*Write the file again with python -m molgcn\.export",
        ),
        ({"inputs": '{"features": "qm9"}'}, "does not say how this version"),
        ({"inputs": "[]"}, "does not say how this version"),
        ({"versions": "5"}, "does not say how this version"),
    ],
)
def test_files_that_do_not_say_what_they_take(about, changes, match):
    changed = {key: value for key, value in {**about, **changes}.items() if value is not None}
    with pytest.raises(UserError, match=match):
        OnnxInputs(session_of(changed))


def test_encodings_need_the_extension_or_torch(about, monkeypatch):
    monkeypatch.setattr("molgcn.onnx_inputs.HAS_EXTENSION", False)
    session = session_of(about, rwse=["atoms", 4])
    assert OnnxInputs(session)(["CCO"])["rwse"].shape == (9, 4)
    monkeypatch.setattr("molgcn.onnx_inputs.find_spec", lambda name: None)
    with pytest.raises(UserError, match="takes encodings of random walks, which molgcn's C\\+\\+ extension or PyTorch computes"):
        OnnxInputs(session)


def test_descriptors_of_another_rdkit_are_said(about, caplog):
    values = json.loads(about["inputs"])
    values["descriptors"]["generators"] = ["maccs"]
    changed = {**about, "inputs": json.dumps(values), "versions": '{"rdkit": "2020.3.1"}'}
    with pytest.raises(UserError, match=r"The exported network was trained with descriptors of RDKit 2020\.3\.1, .* computes others"):
        OnnxInputs(session_of(changed))
    changed["descriptor_names"] = json.dumps([f"maccs_{key}" for key in range(1, 167)])
    OnnxInputs(session_of(changed, descriptors=["molecules", 166]))
    assert "The exported network was trained with maccs of RDKit 2020.3.1" in caplog.text
