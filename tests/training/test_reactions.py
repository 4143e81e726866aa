"""Runs on reactions, alone or beside a solvent, are trained, resumed, predicted, evaluated, explained and exported."""

import csv
from dataclasses import replace

import numpy as np
import pytest
from reaction_rows import substitutions

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
ROWS = substitutions(64)
ALONE, BESIDE = ["rxn"], ["solvent", "rxn"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("reactions")
    with open(folder / "a.csv", "w", newline="") as file:
        csv.writer(file).writerows([["rxn", "solvent", "y"], *((rxn, solvent, y) for rxn, solvent, _, y in ROWS)])
    return folder


@pytest.fixture(scope="module", params=[ALONE, BESIDE], ids=["alone", "beside"])
def config(request, folder):
    dataset = {"name": "csv", "path": str(folder / "a.csv"), "targets": ["y"], "batch_size": 16, "features": "general"}
    more = {"smiles": request.param, "reaction_mode": "reac_prod_balance", "descriptor_generators": ["maccs"]}
    values = {
        "dataset": dataset | more,
        "model": {"name": "gine", "bonds": True, "hidden_channels": 8, "num_layers": 2},
        "logger": {"name": "csv"},
        "training": {"domain_index": "run", "baseline": "rf"},
        "trainer": {"max_epochs": 2, "accelerator": "cpu", "num_sanity_val_steps": 0, "enable_model_summary": False},
    }
    return parse(Config, values)


@pytest.fixture(scope="module")
def run(config, folder):
    return train(config, folder / "_".join(config.dataset.smiles_columns))


def rows_of(path):
    with open(path, newline="") as file:
        return list(csv.DictReader(file))


def options(run, folder, **values):
    return parse(PredictConfig, {"ckpt": str(run.folder), "input": str(folder / "a.csv"), "device": "cpu", **values})


def columns_of(ensemble):
    return ensemble.inputs.components or ALONE


def test_predictions_are_those_of_the_run(run, folder, tmp_path):
    predict(options(run, folder, output=str(tmp_path / "p.csv"), batch_size=7))
    rows, ensemble = rows_of(tmp_path / "p.csv"), Ensemble.load([run.folder])
    assert ensemble.inputs.features == "general:reac_prod_balance" + ("@1" if ensemble.inputs.components else "")
    for own in rows_of(run.folder / "predictions_test.csv"):
        row = rows[int(own["row"])]
        assert own["smiles"] == (row["rxn"].replace(">>", f">{row['solvent']}>") if ensemble.inputs.components else row["rxn"])
        assert float(own["y predicted"]) == pytest.approx(float(row["y predicted"]), rel=1e-5, abs=1e-5)
    texts = [{"rxn": rxn, "solvent": solvent} for rxn, solvent, *_ in ROWS]
    given = [[text[name] for name in columns_of(ensemble)] if ensemble.inputs.components else text["rxn"] for text in texts]
    found = predict_smiles(ensemble, given, num_workers=0).values[:, 0]
    np.testing.assert_allclose(found, [float(row["y predicted"]) for row in rows], rtol=1e-5, atol=1e-5)


def test_the_direction_and_the_numbers_of_maps(run):
    """Maps may have any numbers. The reverse reaction is another one."""
    ensemble, (reaction, solvent, reverse, _) = Ensemble.load([run.folder]), ROWS[3]
    other = reaction.replace(":1]", ":77]").replace(":4]", ":5]")
    texts = [{"rxn": text, "solvent": solvent} for text in (reaction, other, reverse)]
    given = [[text[name] for name in columns_of(ensemble)] if ensemble.inputs.components else text["rxn"] for text in texts]
    one, same, back = predict_smiles(ensemble, given, num_workers=0).values[:, 0]
    assert one == pytest.approx(same, rel=1e-6) and abs(one - back) > 1e-4


def test_evaluation_reads_the_own_and_another_file(run, folder, tmp_path):
    metrics = evaluate(EvaluateConfig(ckpt=str(run.folder), device="cpu", output=str(tmp_path / "own"), split="test")).metrics
    assert metrics["test/mae/y"] == pytest.approx(run.metrics["test/mae/y"], rel=1e-5)
    data = EvaluationDataConfig(path=str(folder / "a.csv"))
    metrics = evaluate(EvaluateConfig(ckpt=str(run.folder), dataset=data, device="cpu", output=str(tmp_path / "all"))).metrics
    assert np.isfinite(metrics["all/mae/y"])


def test_rows_of_another_kind(config, run, folder, tmp_path):
    reaction = ROWS[0][0]
    (tmp_path / "x.csv").write_text(f'rxn,solvent\n"{reaction}",O\nCCO,O\n"{reaction}",{reaction}\n[CH4:1]>>C,O\n')
    predict(options(run, folder, input=str(tmp_path / "x.csv"), output=str(tmp_path / "p.csv"), on_error="nan"))
    errors = [row["error"] for row in rows_of(tmp_path / "p.csv")]
    assert errors[0] == "" and "it is not a reaction" in errors[1] and "no atom of its reactants has the atom map" in errors[3]
    assert ("looks like a reaction" in errors[2]) == ("solvent" in config.dataset.smiles_columns)
    if config.dataset.smiles_columns == ALONE:
        (tmp_path / "x.sdf").write_text("a\n\n\n  0  0  0  0  0  0            999 V2000\nM  END\n$$$$\n")
        with pytest.raises(UserError, match="The model takes reactions, which a file of structures does not have"):
            predict(options(run, folder, input=str(tmp_path / "x.sdf"), output=str(tmp_path / "q.csv"), num_workers=0))


def test_explanations_draw_both_sides(config, run, folder, tmp_path):
    why = tmp_path / "why"
    (tmp_path / "few.csv").write_text("\n".join(["rxn,solvent", f"{ROWS[20][0]},O", "[CH3:1][Cl:2]>>[CH3:1][OH:3],CO"]))
    values = {"ckpt": str(run.folder), "input": str(tmp_path / "few.csv"), "output": str(why), "method": "masking", "orders": 2}
    explain(parse(ExplainConfig, {**values, "device": "cpu", "num_workers": 0}))
    parts, rows = rows_of(why / "contributions.csv"), rows_of(why / "molecules.csv")
    for number, row in enumerate(rows):
        total = sum(float(part["contribution"]) for part in parts if part["row"] == str(number))
        assert total == pytest.approx(float(row["difference"]), rel=1e-5, abs=1e-6)
    own = [part for part in parts if part["row"] == "1" and part.get("component", "rxn") == "rxn"]
    assert [part["elements"] for part in own if part["part"] == "atom"] == ["C", "Cl", "O"]
    assert [(part["atoms"], part["elements"]) for part in own if part["part"] == "bond"] == [("0-1", "C-Cl"), ("0-2", "C-O")]
    beside = len(config.dataset.smiles_columns) > 1
    names = {f"{'_1' if beside else ''}_{side}" for side in ("reactants", "products")} | ({"_0"} if beside else set())
    assert {path.name for path in why.glob("*.png")} == {f"molecule_{row}{name}.png" for row in (0, 1) for name in names}
    assert (why / "index.html").read_text().count("<img") == 2 * len(names)


def test_export(run, tmp_path):
    assert export(ExportConfig(str(run.folder), str(tmp_path / "m.pt2"))) < 1e-5


def test_resume(config, run):
    """A run that goes on reads the reactions as it did."""
    longer = replace(config, trainer={**config.trainer, "max_epochs": 3}, resume=str(run.folder))
    assert train(longer, run.folder).epochs == 3
