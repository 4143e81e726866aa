"""A run with descriptors is trained, resumed, evaluated and exported, and predicts files."""

import csv
import json
import logging
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
import torch

from molgcn.config.run import BackendConfig, Config, parse
from molgcn.data.datamodule import MoleculeDataModule
from molgcn.data.load import load_molecules
from molgcn.errors import UserError
from molgcn.evaluate import EvaluateConfig, evaluate
from molgcn.evaluation.config import EvaluationDataConfig
from molgcn.explain.command import explain
from molgcn.explain.config import ExplainConfig
from molgcn.export import METADATA, ExportConfig, export
from molgcn.fingerprint import FingerprintConfig, fingerprint
from molgcn.predict import PredictConfig, predict, predict_smiles
from molgcn.screening.ensemble import Ensemble
from molgcn.training.build import build_module
from molgcn.training.checkpoint_file import load_checkpoint
from molgcn.training.inference import predict_molecules
from molgcn.training.restore import load_module
from molgcn.training.train import train

pytestmark = pytest.mark.usefixtures("one_thread", "empty_figures")
COUNT = 60
HEADER = ["smiles", "y", "temperature", "ph"]


def table(path, rows=None, separator=","):
    smiles = ["C" * (1 + n % 12) + "NO"[n % 2] + "C" * (n // 12) for n in range(COUNT)]
    rows = rows or [[text, 0.05 * n + len(text), 280.5 + n, 7] for n, text in enumerate(smiles)]
    with open(path, "w", newline="") as file:
        csv.writer(file, delimiter=separator).writerows([HEADER, *rows])
    return [list(map(str, row)) for row in rows]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("described")


@pytest.fixture(scope="module")
def config(folder):
    table(folder / "a.csv")
    np.savez(folder / "x.npz", x=np.random.default_rng(0).normal(5, 3, (COUNT, 2)))
    return parse(
        Config,
        {
            "dataset": {
                "name": "csv",
                "path": str(folder / "a.csv"),
                "targets": ["y"],
                "descriptors": ["temperature", "ph"],
                "descriptors_path": str(folder / "x.npz"),
                "descriptor_generators": ["maccs"],
                "batch_size": 16,
                "features": "general",
            },
            "model": {"hidden_channels": 8, "num_layers": 2},
            "training": {"report": False, "ema_decay": 0.9},
            "logger": {"name": "csv"},
            "trainer": {"max_epochs": 2, "accelerator": "cpu", "num_sanity_val_steps": 0, "enable_model_summary": False},
        },
    )


@pytest.fixture(scope="module")
def run(folder, config):
    return train(config, folder / "run")


def predicted(path):
    with open(path, newline="") as file:
        return list(csv.DictReader(file))


def options(run, folder, **values):
    fixed = {"ckpt": str(run.folder), "input": str(folder / "a.csv"), "descriptors": str(folder / "x.npz"), "device": "cpu"}
    return parse(PredictConfig, {**fixed, **values})


def test_the_scale_is_the_training_parts_in_the_checkpoint(run, folder):
    checkpoint = load_checkpoint(run.folder / "checkpoints" / "best.ckpt")
    train_rows = json.loads((run.folder / "splits.json").read_text())["train"]
    temperature = 280.5 + np.array(train_rows)
    for prefix in ("model", "ema.module"):
        mean, std = (checkpoint["state_dict"][f"{prefix}.descriptors.{name}"] for name in ("mean", "std"))
        np.testing.assert_allclose(mean[:2], [temperature.mean(), 7], rtol=1e-6)
        np.testing.assert_allclose(std[:2], [temperature.std(), 1], rtol=1e-6)
    assert checkpoint["molgcn"]["descriptor_names"][:5] == ["temperature", "ph", "x_0", "x_1", "maccs_1"]
    assert checkpoint["molgcn"]["versions"]["rdkit"]


def test_predict_takes_the_same_columns_file_and_generators(run, folder, tmp_path):
    predict(options(run, folder, output=str(tmp_path / "p.csv"), batch_size=7))
    rows = predicted(tmp_path / "p.csv")
    assert [*rows[0]] == [*HEADER, "y predicted"]
    module = load_module(run.folder)
    molecules, *_ = load_molecules(module.config.dataset)
    expected = predict_molecules(module, molecules, 1024)
    np.testing.assert_allclose([float(row["y predicted"]) for row in rows], expected[:, 0], rtol=1e-5, atol=1e-5)
    given = np.concatenate([[[280.5 + n, 7] for n in range(COUNT)], np.load(folder / "x.npz")["x"]], 1)
    ensemble = Ensemble.load([run.folder, run.folder])
    values = predict_smiles(ensemble, [row["smiles"] for row in rows], descriptors=given, num_workers=0)
    np.testing.assert_allclose(values.values, expected, rtol=1e-5, atol=1e-5)
    assert not values.deviation.any()
    for wrong, what in ((None, "no descriptors are given"), (np.zeros((1, 2)), r"descriptors has shape \[1, 2\]")):
        with pytest.raises(
            UserError, match=rf"takes an array of shape \[1, 4\] with temperature, ph, x_0, x_1 as descriptors=, and {what}"
        ):
            predict_smiles(ensemble, ["CCO"], descriptors=wrong)


def test_missing_and_wrong_values_name_row_and_column(run, folder, tmp_path):
    rows = table(folder / "b.csv")
    rows[3][3], rows[5][2], rows[8][0] = "", "warm", "not a molecule"
    table(folder / "b.csv", rows)
    wrong = {"input": str(folder / "b.csv"), "output": str(tmp_path / "p.csv")}
    with pytest.raises(UserError, match=r"Row 3 of .*b\.csv.*'ph' is missing"):
        predict(options(run, folder, **wrong))
    predict(options(run, folder, **wrong, on_error="nan", batch_size=4))
    written = predicted(tmp_path / "p.csv")
    reasons = {number: row["error"] for number, row in enumerate(written) if row["error"]}
    assert [*reasons] == [3, 5, 8] and "'temperature' is not a number: 'warm'" in reasons[5] and "SMILES" in reasons[8]
    assert [number for number, row in enumerate(written) if row["y predicted"] == "nan"] == [3, 5, 8]


def test_semicolons_and_decimal_commas_in_training_and_prediction(run, config, folder, tmp_path, caplog):
    """A German Excel writes such files; the numbers are the same, and one line reports it each time."""
    rows = [[cell.replace(".", ",") for cell in row] for row in table(folder / "a.csv")]
    table(folder / "german.csv", rows, ";")
    caplog.set_level(logging.INFO)
    said = f"{folder / 'german.csv'}: cells are separated by semicolons, its numbers may have decimal commas"
    own, german = (load_molecules(replace(config.dataset, path=str(folder / f"{name}.csv")))[0] for name in ("a", "german"))
    assert np.array_equal(own.targets, german.targets) and np.array_equal(own.descriptors, german.descriptors)
    assert caplog.messages.count(said) == 1
    for name in ("a", "german"):
        predict(options(run, folder, input=str(folder / f"{name}.csv"), output=str(tmp_path / f"{name}.csv")))
    assert caplog.messages.count(said) == 2
    point, comma = ([row["y predicted"] for row in predicted(tmp_path / f"{name}.csv")] for name in ("a", "german"))
    assert point == comma


@pytest.mark.parametrize(("first", "second"), [("290,5", "1.234"), ("290.5", "1,234")])
def test_numbers_of_both_signs_might_be_either(run, folder, tmp_path, first, second):
    rows = table(folder / "both.csv")
    for row in rows:
        row[2] = first
    rows[4][2] = second
    table(folder / "both.csv", rows, ";")
    with pytest.raises(UserError, match=rf"Row 4 .*'temperature' is not a number: '{second}'"):
        predict(options(run, folder, input=str(folder / "both.csv"), output=str(tmp_path / "p.csv")))


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({"descriptors": None}, "takes 2 descriptors of a .npz file. Give the file for these rows"),
        ({"descriptors": "short.npz"}, r"has 3 rows, and .*a\.csv has more"),
        ({"descriptors": "long.npz"}, r"has 70 rows, and .*a\.csv has 60"),
        ({"descriptors": "wide.npz"}, "has 3 columns; the model was trained with 2"),
        ({"input": "c.csv"}, "no column 'ph', a descriptor .* Did you mean 'pH'"),
    ],
)
def test_inputs_that_do_not_fit(run, folder, tmp_path, changes, match):
    for name, shape in (("short", (3, 2)), ("long", (70, 2)), ("wide", (COUNT, 3))):
        np.savez(folder / f"{name}.npz", x=np.zeros(shape))
    (folder / "c.csv").write_text((folder / "a.csv").read_text().replace("ph", "pH", 1))
    values = {key: None if value is None else str(folder / value) for key, value in changes.items()}
    with pytest.raises(UserError, match=match):
        predict(options(run, folder, output=str(tmp_path / "p.csv"), **values))


def test_evaluate_on_its_own_data_and_on_another_file(run, folder, tmp_path):
    own = evaluate(EvaluateConfig(ckpt=str(run.folder), device="cpu", output=str(tmp_path / "own")))
    assert own.metrics["test/mae/y"] == pytest.approx(run.metrics["test/mae/y"], rel=1e-5)
    assert "170, of temperature, ph, a file, maccs" in (tmp_path / "own" / "report.html").read_text()
    table(folder / "other.csv")
    other = EvaluationDataConfig(path=str(folder / "other.csv"), descriptors_path=str(folder / "x.npz"))
    everything = evaluate(EvaluateConfig(ckpt=str(run.folder), device="cpu", dataset=other, output=str(tmp_path / "other")))
    assert 0 < everything.metrics["all/mae/y"] < 10
    with pytest.raises(UserError, match=r"dataset\.descriptors_path="):
        evaluate(
            EvaluateConfig(ckpt=str(run.folder), device="cpu", dataset=replace(other, descriptors_path=None), output=str(tmp_path / "x"))
        )


def test_an_exported_network_takes_them_as_they_are(run, tmp_path):
    assert export(ExportConfig(str(run.folder), str(tmp_path / "m.pt2"))) < 1e-5
    extra = {METADATA: ""}
    program = torch.export.load(tmp_path / "m.pt2", extra_files=extra).module()
    assert json.loads(json.loads(extra[METADATA])["descriptor_names"])[:3] == ["temperature", "ph", "x_0"]
    module = load_module(run.folder)
    batch = load_molecules(module.config.dataset)[0].batch([4, 2, 9])
    found = program(batch.x, batch.edge_index, batch.batch, descriptors=batch.descriptors)
    torch.testing.assert_close(found.double(), module(batch), rtol=1e-5, atol=1e-5)


OTHER_PROGRAM = """
import json, sys
import numpy as np
import onnxruntime
session = onnxruntime.InferenceSession(sys.argv[1], providers=["CPUExecutionProvider"])
about = session.get_modelmeta().custom_metadata_map
with np.load(sys.argv[2]) as file:
    given = dict(file)
columns = [given["names"].tolist().index(name) for name in json.loads(about["descriptor_names"])]
given["descriptors"] = given["descriptors"][:, columns]
found = session.run(None, {one.name: given[one.name] for one in session.get_inputs()})[0]
assert not {"torch", "molgcn", "rdkit"} & set(sys.modules)
print(json.dumps({"columns": json.loads(about["outputs"]), "values": found.tolist()}))
"""


@pytest.mark.slow
def test_another_program_predicts_the_same_with_onnxruntime_alone(run, folder, tmp_path):
    """Descriptors come as they are, in the order of the metadata's names: the file scales them."""
    export(ExportConfig(str(run.folder), str(tmp_path / "m.onnx")))
    predict(options(run, folder, output=str(tmp_path / "p.csv")))
    molecules, *_ = load_molecules(load_module(run.folder).config.dataset)
    order = np.random.default_rng(0).permutation(len(molecules.descriptor_names))
    for rows in ([3], range(COUNT)):
        batch = molecules.batch(list(rows))
        arrays = {name: getattr(batch, name).numpy() for name in ("x", "edge_index", "batch")}
        names, values = np.array(molecules.descriptor_names)[order], batch.descriptors.numpy()[:, order]
        np.savez(tmp_path / "in.npz", names=names, descriptors=values, **arrays)
        command = [sys.executable, "-I", "-c", OTHER_PROGRAM, str(tmp_path / "m.onnx"), str(tmp_path / "in.npz")]
        found = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
        assert found["columns"] == ["y predicted"]
        written = predicted(tmp_path / "p.csv")
        np.testing.assert_allclose(
            np.array(found["values"])[:, 0], [float(written[row]["y predicted"]) for row in rows], rtol=1e-5, atol=1e-5
        )


def test_another_rdkit_is_said_when_the_checkpoint_opens(run, folder, tmp_path, caplog):
    checkpoint = load_checkpoint(run.folder / "checkpoints" / "best.ckpt")
    checkpoint["molgcn"]["versions"]["rdkit"] = "2020.3.1"
    torch.save(checkpoint, tmp_path / "old.ckpt")
    with caplog.at_level(logging.WARNING):
        load_module(tmp_path / "old.ckpt")
    assert "old.ckpt was trained with maccs of RDKit 2020.3.1" in caplog.text
    checkpoint["molgcn"]["descriptor_names"][-1] = "maccs_167"
    torch.save(checkpoint, tmp_path / "older.ckpt")
    with pytest.raises(UserError, match=r"older\.ckpt was trained with descriptors of RDKit 2020\.3\.1, .* computes others"):
        load_module(tmp_path / "older.ckpt")


def test_members_of_an_ensemble_take_the_same(run, config, tmp_path):
    without = replace(config, dataset=replace(config.dataset, descriptors_path=None))
    other = train(replace(without, trainer={**config.trainer, "max_epochs": 1}), tmp_path / "run")
    with pytest.raises(UserError, match=r"differ in their descriptors: temperature, ph, maccs and temperature, ph, 2 of a file, maccs"):
        Ensemble.load([run.folder, other.folder])


def test_backends_start_from_the_same_weights_with_descriptors(config, folder):
    data = MoleculeDataModule(config.dataset, config.loader, "pyg", 0)
    modules = [build_module(replace(config, backend=BackendConfig(name=name)), data) for name in ("reference", "pyg")]
    states = [module.state_dict() for module in modules]
    assert all(torch.equal(value, states[1][key]) for key, value in states[0].items())


def test_fingerprints_and_explanations_take_them_too(run, folder, tmp_path):
    files = {"ckpt": str(run.folder), "input": str(folder / "a.csv"), "descriptors": str(folder / "x.npz"), "device": "cpu"}
    fingerprint(parse(FingerprintConfig, {**files, "output": str(tmp_path / "f.npy")}))
    predict(options(run, folder, output=str(tmp_path / "p.csv")))
    module = load_module(run.folder)
    states = np.load(tmp_path / "f.npy")
    assert states.shape == (COUNT, 8 + len(module.descriptor_names))
    with torch.no_grad():
        values = module.decode(module.averaged.head(torch.from_numpy(states)))
    expected = [float(row["y predicted"]) for row in predicted(tmp_path / "p.csv")]
    np.testing.assert_allclose(values[:, 0], expected, rtol=1e-4, atol=1e-4)
    explain(parse(ExplainConfig, {**files, "output": str(tmp_path / "why"), "method": "masking", "orders": 1}))
    explained = predicted(tmp_path / "why" / "molecules.csv")
    np.testing.assert_allclose([float(row["y predicted"]) for row in explained], expected, rtol=1e-4, atol=1e-4)
    with pytest.raises(UserError, match="molecule=CCO is a SMILES alone, and the model takes the columns temperature"):
        predict(parse(PredictConfig, {"ckpt": str(run.folder), "molecule": "CCO", "device": "cpu"}))
