"""Runs on rows of two molecules are trained, predicted, evaluated and exported."""

import csv

import numpy as np
import pytest

from molgcn.config.run import Config, parse
from molgcn.errors import UserError
from molgcn.evaluate import EvaluateConfig, evaluate
from molgcn.evaluation.config import EvaluationDataConfig
from molgcn.explain.command import explain
from molgcn.explain.config import ExplainConfig
from molgcn.export import ExportConfig, export
from molgcn.predict import PredictConfig, predict, predict_smiles
from molgcn.screening.ensemble import Ensemble
from molgcn.training.train import train

pytestmark = pytest.mark.usefixtures("one_thread", "empty_figures")
ROWS = [("C" * (1 + n % 8) + "O", ["O", "CO", "CCO", "C1CC1"][n % 4], n % 8 - n % 4) for n in range(48)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("components")
    with open(folder / "a.csv", "w", newline="") as file:
        csv.writer(file).writerows([["solute", "solvent", "y"], *ROWS])
    return folder


def config(folder, **model):
    return parse(
        Config,
        {
            "dataset": {
                "name": "csv",
                "path": str(folder / "a.csv"),
                "smiles": ["solute", "solvent"],
                "targets": ["y"],
                "descriptor_generators": ["maccs"],
                "batch_size": 16,
                "features": "general",
            },
            "model": {"hidden_channels": 8, "num_layers": 2, **model},
            "logger": {"name": "csv"},
            "trainer": {"max_epochs": 2, "accelerator": "cpu", "num_sanity_val_steps": 0, "enable_model_summary": False},
        },
    )


@pytest.fixture(scope="module", params=[True, False], ids=["shared", "own"])
def run(request, folder):
    return train(config(folder, shared_encoder=request.param), folder / f"run_{request.param}")


def rows_of(path):
    with open(path, newline="") as file:
        return list(csv.DictReader(file))


def options(run, folder, **values):
    return parse(PredictConfig, {"ckpt": str(run.folder), "input": str(folder / "a.csv"), "device": "cpu", **values})


def test_predictions_are_those_of_the_run(run, folder, tmp_path):
    predict(options(run, folder, output=str(tmp_path / "p.csv"), batch_size=7))
    rows = rows_of(tmp_path / "p.csv")
    assert [*rows[0]] == ["solute", "solvent", "y", "y predicted"]
    for own in rows_of(run.folder / "predictions_test.csv"):
        row = rows[int(own["row"])]
        assert own["smiles"] == f"{row['solute']}.{row['solvent']}"
        assert float(own["y predicted"]) == pytest.approx(float(row["y predicted"]), rel=1e-5, abs=1e-5)
    ensemble = Ensemble.load([run.folder])
    found = predict_smiles(ensemble, [row[:2] for row in ROWS], num_workers=0).values[:, 0]
    np.testing.assert_allclose(found, [float(row["y predicted"]) for row in rows], rtol=1e-5, atol=1e-5)
    with pytest.raises(UserError, match="The model takes solute, solvent in each row"):
        predict_smiles(ensemble, ["CCO"])


def test_columns_may_have_other_names(run, folder, tmp_path):
    (tmp_path / "b.csv").write_text((folder / "a.csv").read_text().replace("solute,solvent", "a,b", 1))
    for name, smiles in (("a.csv", None), ("b.csv", ["a", "b"])):
        path = folder / name if smiles is None else tmp_path / name
        predict(options(run, folder, input=str(path), smiles=smiles, output=str(tmp_path / f"p_{name}")))
    one, other = ([row["y predicted"] for row in rows_of(tmp_path / f"p_{name}.csv")] for name in "ab")
    assert one == other
    data = EvaluationDataConfig(path=str(tmp_path / "b.csv"), smiles=["a", "b"])
    metrics = evaluate(EvaluateConfig(ckpt=str(run.folder), dataset=data, device="cpu", output=str(tmp_path / "e"))).metrics
    assert np.isfinite(metrics["all/mae/y"])


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({"smiles": "solute"}, r"expected 2 columns, for solute, solvent"),
        ({"smiles": ["solute", "Solvent"]}, "no column of SMILES 'Solvent'.* Did you mean 'solvent'"),
        ({"input": "x.smi"}, r"no column of SMILES 'solute'.* Name the columns for solute, solvent with smiles=\[<column>,<column>\]"),
        ({"input": "other.csv"}, r"no column 'solute' or 'solvent' \(name it with smiles=<column>\)\. There are: id, smiles"),
        ({"input": None, "molecule": "CCO"}, "molecule=CCO is a SMILES alone, and the model takes the columns solute, solvent"),
    ],
)
def test_inputs_that_do_not_fit(run, folder, tmp_path, changes, match):
    (tmp_path / "x.smi").write_text("CCO\n")
    (tmp_path / "other.csv").write_text("id,smiles\n1,CCO\n")
    values = {key: str(tmp_path / value) if key == "input" and value else value for key, value in changes.items()}
    with pytest.raises(UserError, match=match):
        predict(options(run, folder, output=str(tmp_path / "p.csv"), **values))


def test_rows_that_cannot_be_predicted_say_which_component(run, folder, tmp_path):
    (tmp_path / "c.csv").write_text("solute,solvent\nCCO,O\nC1,O\nCCO,\n")
    predict(options(run, folder, input=str(tmp_path / "c.csv"), output=str(tmp_path / "p.csv"), on_error="nan"))
    errors = [row["error"] for row in rows_of(tmp_path / "p.csv")]
    assert errors[0] == "" and errors[1].startswith("solute: ") and errors[2] == "solvent: the SMILES is empty"


def test_explanations_draw_and_attribute_each_component(run, folder, tmp_path):
    why = tmp_path / "why"
    (tmp_path / "few.csv").write_text("solute,solvent\nCCO,O\nCCCO,C1CC1\n")
    values = {"ckpt": str(run.folder), "input": str(tmp_path / "few.csv"), "output": str(why), "method": "masking", "orders": 2}
    explain(parse(ExplainConfig, {**values, "device": "cpu", "num_workers": 0}))
    parts, rows = rows_of(why / "contributions.csv"), rows_of(why / "molecules.csv")
    assert [part["atoms"] for part in parts if (part["row"], part["component"]) == ("1", "solvent") and part["part"] == "atom"] == [*"012"]
    predict(options(run, folder, input=str(tmp_path / "few.csv"), output=str(tmp_path / "p.csv")))
    for number, (row, predicted) in enumerate(zip(rows, rows_of(tmp_path / "p.csv"), strict=True)):
        assert float(row["y predicted"]) == pytest.approx(float(predicted["y predicted"]), rel=1e-5, abs=1e-5)
        total = sum(float(part["contribution"]) for part in parts if part["row"] == str(number))
        assert total == pytest.approx(float(row["difference"]), rel=1e-5, abs=1e-6)
    assert {path.name for path in why.glob("*.png")} == {f"molecule_{row}_{number}.png" for row in (0, 1) for number in (0, 1)}
    assert (why / "index.html").read_text().count("<img") == 4


@pytest.mark.slow
@pytest.mark.parametrize("ending", ["pt2", "onnx"])
def test_export(run, tmp_path, ending):
    assert export(ExportConfig(str(run.folder), str(tmp_path / f"m.{ending}"))) < 1e-5
