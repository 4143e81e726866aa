import csv
import gzip
import math
import shutil

import numpy as np
import pytest
import torch

from molgcn.config import BackendConfig, Config, parse
from molgcn.data import PackedMolecules
from molgcn.errors import UserError
from molgcn.predict import PredictConfig, predict, predict_smiles, read_smiles
from molgcn.training.restore import load_regressor
from molgcn.training.train import train

SMILES = ["CCO", "CC(=O)N", "C1CC1", "c1ccccc1O", "C", "N#CC"]


def config(**values):
    return parse(PredictConfig, {"device": "cpu", **values})


def rows_of(path):
    with open(path, newline="") as file:
        return list(csv.DictReader(file))


def expected(run, smiles=SMILES):
    """The predictions by hand: features, float64 weights, PyG's layers, and the scaling written out."""
    module = load_regressor(run.folder, BackendConfig(name="pyg")).double()
    molecules = PackedMolecules.from_smiles(smiles, features="qm9")
    batch = molecules.batch(slice(None))
    batch.x = batch.x.double()
    with torch.no_grad():
        return (module.model(batch) * module.target_std + module.target_mean).numpy()


@pytest.mark.parametrize("batch_size", [1, 4, 1024])
@pytest.mark.parametrize("backend", ["fused", "pyg"])
def test_a_csv_file(trained_run, tmp_path, backend, batch_size):
    (tmp_path / "new.csv").write_text("id,smiles\n" + "".join(f"m{i},{text}\n" for i, text in enumerate(SMILES)))
    output = tmp_path / "out" / "predictions.csv"
    predict(
        config(
            ckpt_path=str(trained_run.folder / "checkpoints" / "best.ckpt"),
            dataset={"path": str(tmp_path / "new.csv"), "batch_size": batch_size},
            output=str(output),
            backend={"name": backend},
        )
    )
    rows = rows_of(output)
    assert list(rows[0]) == ["row", "smiles", "logp", "tpsa [A^2]"]
    assert [row["row"] for row in rows] == [str(i) for i in range(len(SMILES))]
    assert [row["smiles"] for row in rows] == SMILES
    values = np.array([[float(row["logp"]), float(row["tpsa [A^2]"])] for row in rows])
    np.testing.assert_allclose(values, expected(trained_run), rtol=2e-5, atol=2e-5)


def test_predictions_are_those_of_the_run(trained_run, tmp_path):
    own = rows_of(trained_run.folder / "predictions_test.csv")
    (tmp_path / "test.smi").write_text("".join(f"{row['smiles']}\tmolecule {i}\n" for i, row in enumerate(own)))
    result = predict(
        config(ckpt_path=str(trained_run.folder), dataset={"path": str(tmp_path / "test.smi")}, output=str(tmp_path / "p.csv"))
    )
    theirs = np.array([[float(row["logp predicted"]), float(row["tpsa [A^2] predicted"])] for row in own])
    np.testing.assert_allclose(result.values, theirs, rtol=1e-5, atol=1e-5)


def test_rows_that_are_not_molecules(trained_run, tmp_path):
    smiles = ["CCO", "C1CC", "CC", "", "[Pt]", "C"]
    (tmp_path / "new.csv").write_text("smiles,note\n" + "".join(f"{text},x\n" for text in smiles))
    data = {"path": str(tmp_path / "new.csv")}
    output = str(tmp_path / "p.csv")
    with pytest.raises(UserError, match=r"Row 1 of .*new\.csv.*'C1CC'.*dataset.on_error=skip"):
        predict(config(ckpt_path=str(trained_run.folder), dataset=data, output=output))
    assert not (tmp_path / "p.csv").exists()
    predict(config(ckpt_path=str(trained_run.folder), dataset={**data, "on_error": "skip"}, output=output))
    rows = rows_of(output)
    assert [row["row"] for row in rows] == list("012345")
    assert [row["smiles"] for row in rows] == smiles
    assert [bool(row["error"]) for row in rows] == [False, True, False, True, True, False]
    assert "Pt" in rows[4]["error"]
    good = np.array([[float(rows[i]["logp"]), float(rows[i]["tpsa [A^2]"])] for i in (0, 2, 5)])
    np.testing.assert_allclose(good, expected(trained_run, ["CCO", "CC", "C"]), rtol=2e-5, atol=2e-5)
    assert all(rows[i]["logp"] == rows[i]["tpsa [A^2]"] == "" for i in (1, 3, 4))


def test_molecules_of_one_atom_and_of_two_hundred(trained_run):
    result = predict_smiles(load_regressor(trained_run.folder), ["C" * 66, "O", "C"])  # 200 atoms with hydrogens
    assert result.values.shape == (3, 2)
    assert np.isfinite(result.values).all()


def test_cells_that_a_spreadsheet_would_run_are_inert(trained_run, tmp_path):
    (tmp_path / "new.csv").write_text('smiles\nC\n"=HYPERLINK(""x"")"\n')
    data = {"path": str(tmp_path / "new.csv"), "on_error": "skip"}
    predict(config(ckpt_path=str(trained_run.folder), dataset=data, output=str(tmp_path / "p.csv")))
    assert rows_of(tmp_path / "p.csv")[1]["smiles"] == '\'=HYPERLINK("x")'


def test_weights_that_are_not_finite_are_said(trained_run):
    module = load_regressor(trained_run.folder)
    with torch.no_grad():
        module.model.convs[0].bias.fill_(math.nan)
    with pytest.raises(UserError, match=r"Row 0 .*not a finite number"):
        predict_smiles(module, ["C"])
    assert predict_smiles(module, ["C"], on_error="skip").errors[0] == "the model's output is not a finite number"


@pytest.mark.parametrize("name", ["a.smi", "a.txt", "a.smiles", "a.smi.gz", "a.csv", "a.tsv", "a.csv.gz", "my file, (v=2).csv"])
def test_kinds_of_files(tmp_path, name):
    separator = "\t" if ".tsv" in name else ","
    table = "csv" in name or "tsv" in name
    text = f"id{separator}SMILES\n1{separator}C\n2{separator}CC\n" if table else "C methane\nCC\n"
    data = text.encode()
    (tmp_path / name).write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
    assert read_smiles(tmp_path / name, "SMILES") == ["C", "CC"]


def test_the_weights_of_the_moving_average_are_used(trained_config, tmp_path):
    values = {**trained_config, "training": {"ema_decay": 0.9, "report": False}, "trainer": {**trained_config["trainer"], "max_epochs": 1}}
    train(parse(Config, values), tmp_path)
    module = load_regressor(tmp_path)
    assert not torch.equal(module.ema.module.convs[0].lin.weight, module.model.convs[0].lin.weight)
    molecules = PackedMolecules.from_smiles(SMILES, features="qm9")
    with torch.no_grad():
        averaged = module.ema.module(molecules.batch(slice(None))) * module.target_std + module.target_mean
    np.testing.assert_allclose(predict_smiles(module, SMILES).values, averaged.numpy(), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("content", "options", "what"),
    [
        ("smiles\nC\n", {"ckpt_path": None}, "No checkpoint is named"),
        ("smiles\nC\n", {"ckpt_path": "nowhere.ckpt"}, "There is no checkpoint nowhere.ckpt"),
        ("smiles\nC\n", {"ckpt_path": "."}, "holds neither checkpoints/best.ckpt nor"),
        ("smiles\nC\n", {"dataset": {}}, "No molecules are named"),
        ("smiles\nC\n", {"dataset": {"path": "new.xlsx"}}, r"ends in \.csv"),
        ("smiles\nC\n", {"dataset": {"path": "none.csv"}}, "none.csv cannot be read"),
        ("smiles\nC\n", {"dataset": {"path": "none.smi"}}, "none.smi cannot be read"),
        ("smiles\nC\n", {"dataset": {"path": "new.csv", "smiles": "smile"}}, "no column 'smile'.*Did you mean 'smiles'"),
        ("", {}, "new.csv is empty"),
        ("smiles\n", {}, "no rows"),
        ("smiles\nC1\nC(\n", {"dataset": {"path": "new.csv", "on_error": "skip"}}, "None of the 2 molecules"),
        ("smiles\nC\n", {"output": "new.csv"}, "would replace a file that is read"),
        ("smiles\nC\n", {"output": "."}, "is a folder"),
        ("smiles\nC\n", {"output": "new.csv/p.csv"}, "cannot be written"),
        ("smiles\nC\n", {"device": "tpu9"}, "device=tpu9 is not known"),
        ("smiles\nC\n", {"device": "cuda:99"}, "torch sees"),
        ("smiles\nC\n", {"dataset": {"path": "new.csv", "batch_size": 0}}, "dataset.batch_size=0"),
    ],
)
def test_mistakes_are_one_paragraph(trained_run, tmp_path, monkeypatch, content, options, what):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "new.csv").write_text(content)
    with pytest.raises(UserError, match=what) as error:
        predict(config(**{"ckpt_path": str(trained_run.folder), "dataset": {"path": "new.csv"}, **options}))
    assert "\n" not in str(error.value)
    assert (tmp_path / "new.csv").read_text() == content
    assert not (tmp_path / "predictions.csv").exists()


def test_the_command(trained_run, run_cli, tmp_path):
    folder = tmp_path / "a run, with (odd) = name"
    shutil.copytree(trained_run.folder, folder)
    (tmp_path / "new molecules.csv").write_text("smiles\nCCO\nC1CC\n")
    arguments = [f"ckpt_path={folder.name}/checkpoints/best.ckpt", "dataset.path=new molecules.csv", "output=my predictions.csv"]
    before = {*tmp_path.iterdir()}
    done = run_cli(*arguments, module="molgcn.predict")
    assert done.returncode == 2
    assert "Row 1 of new molecules.csv" in done.stderr
    assert "Traceback" not in done.stderr
    done = run_cli(*arguments, "dataset.on_error=skip", module="molgcn.predict")
    assert done.returncode == 0, done.stderr
    assert "1 predictions (logp, tpsa in A^2) are in my predictions.csv" in done.stdout
    assert {*tmp_path.iterdir()} - before == {tmp_path / "my predictions.csv"}  # and no folders or logs of Hydra's
    done = run_cli("ckpt_pth=x", module="molgcn.predict")
    assert done.returncode == 2
    assert "Did you mean ckpt_path?" in done.stderr
