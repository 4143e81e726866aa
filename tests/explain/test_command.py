"""`python -m molgcn.explain` writes a folder with tables, pictures and a page."""

import csv
from collections import defaultdict

import numpy as np
import pytest
from predictions import SMILES, expected

from molgcn.config.run import parse
from molgcn.errors import UserError
from molgcn.explain.command import explain, explained_column
from molgcn.explain.config import ExplainConfig
from molgcn.tasks.registry import build_task


def config(**values):
    return parse(ExplainConfig, {"device": "cpu", "num_workers": 0, **values})


def rows_of(path):
    with open(path, newline="") as file:
        return list(csv.DictReader(file))


@pytest.mark.parametrize("method", ["integrated_gradients", "masking"])
@pytest.mark.parametrize("image", ["png", "svg"])
def test_the_folder(trained_run, tmp_path, caplog, method, image):
    caplog.set_level("INFO")
    (tmp_path / "new.smi").write_text("\n".join(["CC1", *SMILES]))
    folder = tmp_path / "why"
    files = {"ckpt": str(trained_run.folder), "input": str(tmp_path / "new.smi"), "output": str(folder)}
    summary = explain(config(**files, target="tpsa", method=method, image=image, on_error="nan", steps=200))
    assert (summary.rows, summary.predicted) == (7, 6)
    molecules, parts = rows_of(folder / "molecules.csv"), rows_of(folder / "contributions.csv")
    header = ["smiles", "name", "tpsa [A^2] predicted", "baseline", "difference", "completeness error", "error"]
    assert list(molecules[0]) == header
    assert molecules[0]["tpsa [A^2] predicted"] == "nan"
    assert "it is not a SMILES" in molecules[0]["error"]
    predicted = [float(row["tpsa [A^2] predicted"]) for row in molecules[1:]]
    np.testing.assert_allclose(predicted, expected(trained_run)[:, 1], rtol=1e-5)
    sums = defaultdict(float)
    for part in parts:
        sums[int(part["row"])] += float(part["contribution"])
    for row, molecule in enumerate(molecules[1:], 1):
        assert sums[row] - float(molecule["difference"]) == pytest.approx(float(molecule["completeness error"]), abs=1e-4)
    ethanol = [part for part in parts if part["row"] == "1"]
    assert [part["elements"] for part in ethanol] == [*"CCO", *"HHHHHH"]
    assert {path.name for path in folder.glob("molecule_*")} == {f"molecule_{row}.{image}" for row in range(1, 7)}
    page = (folder / "index.html").read_text()
    assert page.count("<img") == 6
    assert "tpsa [A^2]" in page
    assert "add up to the prediction minus the baseline, within" in caplog.text


def test_what_does_not_add_up_is_said(trained_run, tmp_path, caplog):
    files = {"ckpt": str(trained_run.folder), "output": str(tmp_path / "why")}
    explain(config(**files, target="logp", molecule="CC(=O)N", steps=1, tolerance=1e-6))
    assert "The contributions of 1 molecule miss that by more than tolerance=1e-06" in caplog.text


def test_folders_are_named_anew(trained_run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for _ in range(2):
        explain(config(ckpt=str(trained_run.folder), molecule="CO", target="logp", method="masking"))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["explanations", "explanations_2"]


@pytest.mark.parametrize(
    ("options", "what"),
    [
        ({}, "has 2 targets, and only one is explained. Give target= one of logp, tpsa"),
        ({"target": "gap"}, "target=gap is not a target"),
        ({"target": "logp", "class_number": 1}, "class_number=1 is for task=multiclass"),
        ({"target": "logp", "output": "."}, "exists and is not an empty folder"),
        ({"target": "logp", "output": "-"}, "output=- is not possible"),
        ({"target": "logp", "molecule": None}, "No molecules are named"),
        ({"target": "logp", "molecule": "CC1"}, "molecule=CC1 cannot be explained"),
        ({"ckpt": ["a", "b"]}, "ckpt names 2 checkpoints"),
        ({"steps": 0}, "steps=0 is not valid"),
        ({"tolerance": 1}, "tolerance=1 is not valid"),
        ({"method": "lime"}, "method='lime' is not valid"),
    ],
)
def test_mistakes_are_one_paragraph(trained_run, tmp_path, monkeypatch, options, what):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine").touch()
    with pytest.raises(UserError, match=what):
        explain(config(**{"ckpt": str(trained_run.folder), "molecule": "C", **options}))
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]


def test_which_column_a_class_is():
    task = build_task("multiclass", ["a", "b"], ["", ""], 3)
    assert explained_column(task, ExplainConfig(target="b", class_number=2)) == (5, "logit of b class 2", "logit of b class 2")
    two = build_task("multiclass", ["a", "b"], ["", ""], 2)
    assert explained_column(two, ExplainConfig(target="b", class_number=1)) == (3, "logit of b class 1", "logit of b class 1")
    with pytest.raises(UserError, match=r"has 3 classes.*class_number= from 0 to 2"):
        explained_column(task, ExplainConfig(target="b"))
    assert explained_column(build_task("classification", ["a"], [""], 2), ExplainConfig()) == (0, "logit of a", "logit of a")
