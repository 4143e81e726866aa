"""Classification with two and more classes works from training to every command."""

from __future__ import annotations

import csv
import json
import math
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch
from run_cases import assert_same_run, log_of, train_and_copy
from sklearn.metrics import roc_auc_score

from molgcn.calibration.columns import prediction_columns, write_predictions
from molgcn.config.run import Config, parse
from molgcn.data import PackedMolecules
from molgcn.errors import UserError
from molgcn.evaluate import EvaluateConfig, evaluate
from molgcn.export import ExportConfig, export
from molgcn.metrics.classes import METRICS
from molgcn.predict import PredictConfig, predict, predict_smiles
from molgcn.resources import resource
from molgcn.screening.ensemble import Ensemble
from molgcn.tasks.registry import build_task
from molgcn.training.checkpoint_file import load_checkpoint, write
from molgcn.training.compatible import check_same_keys
from molgcn.training.restore import load_module
from molgcn.training.resume import saved_config
from molgcn.training.train import train

pytestmark = pytest.mark.usefixtures("empty_figures")
COLUMNS = {
    "classification": [["a probability"], ["b probability"]],
    "multiclass": [[f"{name} probability {number}" for number in range(3)] for name in "ab"],
}
TASKS = [*COLUMNS]


def task_of(name):
    return build_task(name, ("a", "b"), ("", ""), {"classification": 2, "multiclass": 3}[name])


@pytest.mark.parametrize("name", TASKS)
def test_probabilities_names_and_files(name, tmp_path):
    task = task_of(name)
    assert task.columns == COLUMNS[name] and task.num_outputs == sum(map(len, COLUMNS[name]))
    outputs = torch.randn(4, task.num_outputs)
    given = task.decode(outputs)
    exact = outputs.double().unflatten(1, (2, -1))
    right = exact.sigmoid() if name == "classification" else exact.softmax(-1)
    assert given.dtype == torch.float64
    torch.testing.assert_close(given, right.flatten(1), rtol=1e-14, atol=1e-14)
    assert task.output_layer()(outputs).dtype == torch.float32
    targets = np.array([[0, 1], [1, math.nan], [1, 0], [0, 1.0]])
    packed = PackedMolecules.from_smiles(["C", "CC", "CO", "CN"], targets, num_workers=0)
    write_predictions(tmp_path / "p.csv", task, packed, *prediction_columns(task, given.numpy(), None, None, task.digits()))
    table = pd.read_csv(tmp_path / "p.csv")
    assert [*table] == ["row", "smiles", "a", *COLUMNS[name][0], "b", *COLUMNS[name][1]]
    np.testing.assert_array_equal(table[["a", "b"]], targets)
    columns = [column for columns in COLUMNS[name] for column in columns]
    np.testing.assert_allclose(table[columns], given.numpy(), rtol=1e-6)
    assert list(task.measure(given, torch.from_numpy(targets))) == [f"{metric}/{one}" for one in "ab" for metric in METRICS]


def test_shares_of_classes():
    targets = np.array([[0, 1], [1, math.nan], [2, 1], [2, 1.0]], np.float32)
    shares = task_of("multiclass").statistics_of(targets)["class_frequencies"]
    assert shares.dtype == torch.float32
    torch.testing.assert_close(shares, torch.tensor([[0.25, 0.25, 0.5], [0, 1, 0]]))


@pytest.fixture(scope="module", params=TASKS)
def run(request, small_config, tmp_path_factory):
    """Return a task, its result, folder, copies of the run at its checkpoints, and the configuration."""
    folder = tmp_path_factory.mktemp(request.param)
    with open(resource("data") / "molecules.csv", newline="") as file:
        rows = [(row["smiles"], float(row["logp"]), float(row["tpsa"])) for row in csv.DictReader(file)]
        rows = rows[:: len(rows) // 200]
    edges = [1.0] if request.param == "classification" else [0.3, 1.5]
    lines = [
        f"{smiles},{np.digitize(logp, edges)},{'' if number % 5 == 0 else np.digitize(tpsa / 20, edges)}"
        for number, (smiles, logp, tpsa) in enumerate(rows)
    ]
    (folder / "mine.csv").write_text("\n".join(["smiles,a,b", *lines]) + "\n")
    config = small_config(
        task="auto" if request.param == "classification" else request.param,
        dataset={
            "name": "csv",
            "path": str(folder / "mine.csv"),
            "targets": ["a", "b"],
            "subset": None,
            "cache_dir": str(folder / "cache"),
        },
        model={"dropout": 0.1},
        backend={"name": "fused"},
        training={"report": True, "monitor": "val/roc_auc", "class_weights": "balanced", "checkpoint_seconds": 0, "baseline": "rf"},
        optimizer={"lr": 0.01},
        scheduler={"name": "plateau", "patience": 0},
        callbacks={"early_stopping_patience": 3},
    )
    result, copies = train_and_copy(config, folder / "run")
    return request.param, result, folder, copies, config


def test_a_run_learns_and_says_its_task(run):
    name, result, folder, _, _ = run
    assert result.task == name
    assert result.metrics["train/roc_auc/a"] > 0.6
    saved = load_checkpoint(folder / "run" / "checkpoints" / "best.ckpt")["molgcn"]
    loss = {"classification": "bce", "multiclass": "ce"}[name]
    assert (saved["task"], saved["config"]["task"], saved["config"]["training"]["loss"]) == (name, name, loss)
    assert {f"val/{metric}/{one}" for metric in METRICS for one in "ab"} | {"val/roc_auc"} < log_of(folder / "run")[0].keys()
    assert {"classes.png", "learning_curve.png", "report.html", "predictions_test.csv"} <= {
        path.name for path in (folder / "run").iterdir()
    }
    text = (folder / "run" / "report.html").read_text()
    for metric in ("roc_auc", "log_loss"):
        assert f"{result.metrics[f'test/{metric}/a']:.4g}" in text
    result.save([])
    assert json.loads((folder / "run" / "result.json").read_text())["task"] == name


def test_metrics_stand_beside_intervals_baselines_means_and_thresholds(run):
    """They are in `result.json`, in the files of `evaluate` and in the report."""
    name, result, folder, _, _ = run
    result.save([])
    evaluate(parse(EvaluateConfig, {"ckpt": str(folder / "run"), "dataset": {"cache_dir": str(folder / "cache")}, "device": "cpu"}))
    saved, again = (json.loads((folder / "run" / file).read_text()) for file in ("result.json", "evaluation/metrics.json"))
    metrics, (low, high) = saved["metrics"], (saved["intervals"]["test/brier/a"][end] for end in ("low", "high"))
    assert low < metrics["test/brier/a"] < high
    assert again["intervals"]["test/brier/a"]["low"] == pytest.approx(low, rel=1e-3)
    assert saved["means"]["test/brier"] == pytest.approx((metrics["test/brier/a"] + metrics["test/brier/b"]) / 2)
    assert saved["counted"]["test/brier"] == 2 and "test/brier" in saved["intervals"]
    assert list(saved["baselines"]) == ["class prior", "random forest"]
    assert again["baselines"]["random forest"] == pytest.approx(saved["baselines"]["random forest"], nan_ok=True)
    assert saved["baselines"]["random forest"]["test/brier/a"] < saved["baselines"]["class prior"]["test/brier/a"]
    assert saved["thresholds"] == again["thresholds"] and bool(saved["thresholds"]) == (name == "classification")
    page = (folder / "run" / "report.html").read_text()
    assert f"{low:.3g} to {high:.3g}" in page and "random forest of 100 trees" in page
    for threshold in saved["thresholds"].values():
        assert f"above the probability {threshold['value']:.3g}" in page


def test_every_place_tells_the_same(run):
    name, result, folder, _, _ = run
    again = evaluate(parse(EvaluateConfig, {"ckpt": str(folder / "run"), "dataset": {"cache_dir": str(folder / "cache")}, "device": "cpu"}))
    assert again.metrics == pytest.approx(result.metrics, rel=1e-5, abs=1e-6, nan_ok=True)
    table = pd.read_csv(folder / "run" / "predictions_test.csv")
    columns = [column for columns in COLUMNS[name] for column in columns]
    of_table = task_of(name).measure(table[columns].to_numpy(), table[["a", "b"]].to_numpy(float))
    assert {f"test/{key}": value for key, value in of_table.items()} == pytest.approx(
        {key: value for key, value in result.metrics.items() if key.startswith("test/")}, rel=1e-5, abs=1e-6, nan_ok=True
    )


def test_predictions_and_ensembles_are_probabilities(run, tmp_path):
    name, _, folder, _, _ = run
    best, last = (folder / "run" / "checkpoints" / file for file in ("best.ckpt", "last.ckpt"))
    smiles = ["CCO", "c1ccccc1", "CC(=O)O"]
    each = [predict_smiles(Ensemble.load([path]), smiles, num_workers=0).values for path in (best, last)]
    both = predict_smiles(Ensemble.load([best, last]), smiles, num_workers=0)
    assert both.values.shape == (3, task_of(name).num_outputs) and (both.values > 0).all() and (both.values < 1).all()
    np.testing.assert_allclose(both.values, np.mean(each, axis=0), rtol=1e-6)
    if name == "multiclass":
        np.testing.assert_allclose(both.values.reshape(3, 2, 3).sum(-1), 1, rtol=1e-6)
    (tmp_path / "in.smi").write_text("\n".join(smiles))
    for count, ckpt in ((1, [best]), (2, [best, last])):
        output = tmp_path / f"{count}.csv"
        predict(
            parse(PredictConfig, {"ckpt": [*map(str, ckpt)], "input": str(tmp_path / "in.smi"), "output": str(output), "device": "cpu"})
        )
        columns = [column + end for columns in COLUMNS[name] for column in columns for end in ["", " std"][:count]]
        table = pd.read_csv(output)
        assert [*table][-len(columns) :] == columns
        np.testing.assert_allclose(table[columns[::count]], (each[0], both.values)[count - 1], rtol=1e-5)


@pytest.mark.parametrize("ending", ["pt2", pytest.param("onnx", marks=pytest.mark.slow)])
def test_exports_are_probabilities(run, tmp_path, ending):
    name, _, folder, _, _ = run
    path = tmp_path / f"m.{ending}"
    assert export(ExportConfig(str(folder / "run"), str(path))) < 1e-5
    if ending == "pt2":
        extra = {"molgcn.json": ""}
        torch.export.load(str(path), extra_files=extra)
        about = json.loads(extra["molgcn.json"])
        assert about["task"] == name
        assert json.loads(about["outputs"]) == [column for columns in COLUMNS[name] for column in columns]


def test_checkpoints_lead_to_the_same_end(run):
    """A run resumed in the middle ends bit for bit the same, and `auto` stays what the run made of it."""
    _, finished, folder, copies, config = run
    copy = copies[len(copies) // 2]
    resumed = train(replace(config, resume=str(copy)), copy)
    assert_same_run(copy, folder / "run")
    assert resumed.metrics == pytest.approx(finished.metrics, abs=0, rel=0, nan_ok=True)


def test_the_task_and_its_options_stay(run):
    name, _, folder, _, config = run
    saved = parse(Config, saved_config(folder / "run", []))
    for changes, message in [
        ({"task": "regression"}, f"trained with task={name}, which cannot become regression"),
        ({"training": replace(config.training, loss="focal")}, r"training\.loss=\w+, which cannot become focal"),
        ({"training": replace(config.training, focal_gamma=1.0)}, r"training\.focal_gamma=2\.0"),
        ({"training": replace(config.training, class_weights=None)}, r"training\.class_weights=balanced"),
        ({"training": replace(config.training, monitor="val/loss")}, r"training\.monitor=val/roc_auc"),
    ]:
        with pytest.raises(UserError, match=message):
            check_same_keys(replace(saved, **changes), folder / "run")


@pytest.mark.parametrize(
    "changes", [{"num_classes": 10**12}, {"num_classes": -1}, {"num_classes": "3"}, {"task": "clustering"}, {"task": []}]
)
def test_a_description_that_does_not_fit_is_refused(run, tmp_path, changes):
    saved = load_checkpoint(run[2] / "run" / "checkpoints" / "best.ckpt")
    write({**saved, "molgcn": {**saved["molgcn"], **changes}}, tmp_path / "x.ckpt")
    with pytest.raises(UserError, match=r"x\.ckpt"):
        load_module(tmp_path / "x.ckpt")


def test_members_of_an_ensemble_share_a_task(run, trained_number):
    name, _, folder, _, _ = run
    with pytest.raises(UserError, match=f"differ in their tasks: regression and {name}"):
        Ensemble.load([folder / "run", trained_number])


def test_labels_of_another_file_are_checked(run, tmp_path):
    _, _, folder, _, _ = run
    (tmp_path / "other.csv").write_text("smiles,a,b\nC,0,1\nCC,7,0\n")
    with pytest.raises(UserError, match=r"'a' has the value 7 in row 1 "):
        evaluate(
            parse(EvaluateConfig, {"ckpt": str(folder / "run"), "dataset": {"path": str(tmp_path / "other.csv")}, "output": str(tmp_path)})
        )


@pytest.fixture(scope="module")
def trained_number(small_config, tmp_path_factory):
    """Return a run of regression."""
    folder = tmp_path_factory.mktemp("number")
    train(small_config(dataset={"features": "general"}, trainer={"max_epochs": 1}), folder)
    return folder


def test_a_run_of_before_there_were_tasks_goes_on(tmp_path, small_config):
    """This holds even for zeros and ones, though neither its configuration nor its checkpoint names a task."""
    lines = [f"{'C' * (1 + number % 30)},{number % 2}" for number in range(60)]
    (tmp_path / "a.csv").write_text("\n".join(["smiles,y", *lines]))
    dataset = {"name": "csv", "path": str(tmp_path / "a.csv"), "targets": ["y"], "subset": None, "cache_dir": str(tmp_path / "cache")}
    config = small_config(task="regression", dataset=dataset, trainer={"max_epochs": 1})
    train(config, tmp_path / "run")
    saved = saved_config(tmp_path / "run", ["trainer.max_epochs=2"])
    for key in ("loss", "focal_gamma", "class_weights", "monitor"):
        del saved["training"][key]
    del saved["task"]
    result = train(parse(Config, {**saved, "training": {**saved["training"], "loss": "l1"}}), tmp_path / "run")
    assert (result.task, result.epochs) == ("regression", 2)
    assert load_module(tmp_path / "run").task.name == "regression"


def test_targets_with_gaps_and_a_class_that_no_molecule_has(small_config, tmp_path):
    """Twelve targets of three classes: the second has only 0 and 2, whose ROC-AUC over all classes is left out of the mean."""
    names = [f"t{place}" for place in range(12)]
    rows = [
        [f"{'C' * (row // 2 + 1)}{'ON'[row % 2]}", *((row * (place + 3) // 5) % 3 if (row + place) % 4 else "" for place in range(12))]
        for row in range(60)
    ]
    lines = [",".join(map(str, [smiles, first, {1: 2}.get(second, second), *rest])) for smiles, first, second, *rest in rows]
    (tmp_path / "x.csv").write_text("\n".join([",".join(["smiles", *names]), *lines]))
    config = small_config(
        task="multiclass",
        dataset={"name": "csv", "path": str(tmp_path / "x.csv"), "targets": names, "subset": None, "split_fractions": [0.5, 0.25, 0.25]},
        training={"class_weights": "balanced", "monitor": "val/roc_auc"},
        trainer={"max_epochs": 1},
    )
    result = train(config, tmp_path / "run")
    known = {name: result.metrics[f"test/roc_auc/{name}"] for name in names}
    assert [name for name, value in known.items() if math.isnan(value)] == ["t1"]
    assert result.comparison.means["test/roc_auc"] == pytest.approx(np.mean([value for name, value in known.items() if name != "t1"]))
    assert math.isfinite(result.metrics["test/mcc/t1"]) and math.isfinite(result.best_value)
    (one,) = predict_smiles(Ensemble.load([tmp_path / "run"]), ["CCO"]).values.reshape(1, 12, 3)
    np.testing.assert_allclose(one.sum(axis=1), 1)


def test_logits_whose_sigmoid_is_one_in_float32_keep_their_order():
    logits = torch.tensor([22.095, 22.461, 22.115, 22.151, 21.604, 22.943, 23.264, 23.501, 23.728, 23.66, 23.693, 23.467, 23.962])
    labels = torch.tensor([0.0] + 12 * [1.0])
    assert (logits.sigmoid() == 1).all()
    task = build_task("classification", ("y",), ("",), 2)
    expected = roc_auc_score(labels, logits)
    assert task.values(task.decode(logits[:, None]), labels[:, None], ["roc_auc"])["roc_auc/y"] == pytest.approx(expected, abs=1e-12)
