"""Calibration is fitted at the end of training on the right molecules, kept, and used by every command."""

from __future__ import annotations

import csv
import json
import re
import shutil
from dataclasses import replace

import numpy as np
import pytest
import torch
from run_cases import assert_same_run, check_columns, train_and_copy

from molgcn.calibration.assessment import assess
from molgcn.calibration.outputs import outputs_of
from molgcn.config.run import parse
from molgcn.data.load import load_dataset
from molgcn.data.splits.parts import CALIBRATION
from molgcn.errors import UserError
from molgcn.evaluate import EvaluateConfig, evaluate
from molgcn.predict import PredictConfig, predict, predict_smiles
from molgcn.resources import resource
from molgcn.screening.ensemble import Ensemble
from molgcn.training.checkpoint_file import load_checkpoint, write
from molgcn.training.inference import predict_molecules
from molgcn.training.members import write_members
from molgcn.training.restore import load_module
from molgcn.training.train import train

pytestmark = pytest.mark.usefixtures("empty_figures")

KINDS = {
    "absolute": ({"calibration": "conformal"}, ["conformal lower", "conformal upper"]),
    "mve": ({"calibration": "auto", "loss": "mve"}, ["calibrated std", "conformal lower", "conformal upper"]),
    "quantile": ({"calibration": "auto", "loss": "quantile"}, ["conformal lower", "conformal upper"]),
    "classes": ({"calibration": ["isotonic", "conformal"], "conformal_sets": "adaptive"}, ["calibrated probability", "conformal set"]),
}


def config_of(kind, small_config, folder, **training):
    """Return a configuration on the built-in molecules, where classes are whether logp is large."""
    dataset = {"calibration_fraction": 0.25, "batch_size": 90}
    if kind == "classes":
        with open(resource("data") / "molecules.csv", newline="") as file:
            rows = list(csv.DictReader(file))[::5][:300]
        lines = [f"{row['smiles']},{float(row['logp']) > 1:d}" for row in rows]
        (folder / "mine.csv").write_text("\n".join(["smiles,logp", *lines]) + "\n")
        dataset |= {"name": "csv", "path": str(folder / "mine.csv"), "subset": None}
    return small_config(dataset=dataset, training={**KINDS[kind][0], **training}, optimizer={"lr": 0.01})


@pytest.fixture(scope="module", params=["absolute", "mve", pytest.param("quantile", marks=pytest.mark.slow), "classes"])
def run(request, small_config, tmp_path_factory):
    """Return a kind, its configuration, result, folder, and the folders of copies at its checkpoints."""
    folder = tmp_path_factory.mktemp(request.param)
    config = config_of(request.param, small_config, folder, report=True, checkpoint_seconds=0)
    result, copies = train_and_copy(config, folder / "run")
    return request.param, config, result, folder / "run", copies


def test_it_is_that_of_the_best_weights_on_molecules_that_training_did_not_see(run):
    kind, config, _, folder, _ = run
    data = load_dataset(replace(config.dataset, split="file", split_file=str(folder / "splits.json")))
    splits = json.loads((folder / "splits.json").read_text())
    assert len(splits[CALIBRATION]) == pytest.approx(60, abs=2) and len(splits["train"]) == pytest.approx(180, abs=2)
    assert [len(splits[part]) for part in ("val", "test")] == [30, 30]
    module = load_module(folder)
    assert module.calibration.part == "calibration" and module.calibration.targets[0].molecules == len(splits[CALIBRATION])
    statistics = module.task.statistics_of(data.part("train").targets)
    assert all(torch.equal(getattr(module, name), values) for name, values in statistics.items())
    molecules = data.part(CALIBRATION)
    found = assess(module.task, module.calibration, predict_molecules(module, molecules, 32), molecules.targets)
    assert found["conformal_coverage/logp"] >= 0.9
    if kind == "mve":
        output = outputs_of(module.task, predict_molecules(module, molecules, 32))[0]
        scale = np.sqrt(np.mean(((molecules.targets[:, 0] - output.values) / output.std) ** 2))
        assert module.calibration.targets[0].zscaling.scale == pytest.approx(scale, rel=1e-4)


def test_it_is_kept_where_its_weights_are(run):
    _, _, _, folder, copies = run
    best, last = (load_checkpoint(folder / "checkpoints" / name) for name in ("best.ckpt", "last.ckpt"))
    assert json.loads(json.dumps(best["molgcn"]["calibration"])) == best["molgcn"]["calibration"]
    same = all(torch.equal(best["state_dict"][key], last["state_dict"][key]) for key in best["state_dict"])
    assert ("calibration" in last["molgcn"]) == same
    assert all("calibration" not in load_checkpoint(copy / "checkpoints" / "last.ckpt")["molgcn"] for copy in copies)


def test_every_place_tells_the_same(run):
    kind, config, result, folder, _ = run
    again = evaluate(parse(EvaluateConfig, {"ckpt": str(folder), "device": "cpu", "dataset": {"cache_dir": config.dataset.cache_dir}}))
    assert again.metrics.keys() == result.metrics.keys()
    mine, theirs = ({key: value for key, value in one.metrics.items() if not key.startswith("train/")} for one in (again, result))
    assert mine == pytest.approx(theirs, rel=1e-5, abs=1e-6, nan_ok=True)
    assert {"test/conformal_coverage/logp", "val/conformal_coverage/logp"} < result.metrics.keys()
    assert not any(key.startswith("train/conformal") for key in result.metrics)
    assert result.calibrated == load_module(folder).calibration.described
    assert json.loads((folder / "evaluation" / "metrics.json").read_text())["calibrated"] == result.calibrated
    for page in (folder / "report.html", folder / "evaluation" / "report.html"):
        text = page.read_text()
        assert result.calibrated in text and "Approximate" not in text
        section = text[text.index('id="uncertainty"') :]
        assert f"{result.metrics['test/conformal_coverage/logp']:.4g}" in section
        assert ("calibration of logp" in section) == (kind in ("mve", "classes"))


def test_tables_have_the_same_columns(run):
    kind, config, _, folder, _ = run
    if not (folder / "evaluation").exists():
        evaluate(parse(EvaluateConfig, {"ckpt": str(folder), "device": "cpu", "dataset": {"cache_dir": config.dataset.cache_dir}}))
    own = {"mve": ["predicted", "std"], "quantile": ["predicted", "lower", "upper"], "classes": ["probability"]}.get(kind, ["predicted"])
    check_columns(folder, folder / "evaluation", [f"logp {ending}" for ending in [*own, *KINDS[kind][1]]])


def test_predict_writes_its_columns(run, tmp_path):
    kind, _, _, folder, _ = run
    smiles = ["CCO", "CC(=O)N", "C1CC1", "xx", "c1ccccc1O"]
    (tmp_path / "in.smi").write_text("\n".join(smiles))
    options = {"ckpt": str(folder), "input": str(tmp_path / "in.smi"), "output": str(tmp_path / "p.csv"), "on_error": "nan"}
    predict(parse(PredictConfig, {**options, "device": "cpu"}))
    with open(tmp_path / "p.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert list(rows[0])[-len(KINDS[kind][1]) - 1 :] == [*(f"logp {ending}" for ending in KINDS[kind][1]), "error"]
    ensemble = Ensemble.load([folder])
    found = predict_smiles(ensemble, [*smiles[:3], smiles[4]], num_workers=0)
    assert list(found.beside) == [f"logp {ending}" for ending in KINDS[kind][1]]
    for name, values in found.beside.items():
        cells = [row[name] for place, row in enumerate(rows) if place != 3]
        if name.endswith("set"):
            assert cells == values.tolist() and all(re.fullmatch(r"\{(0|1|0, 1)?\}", cell) for cell in cells)
        else:
            np.testing.assert_allclose([float(cell) for cell in cells], values, rtol=1e-5)
    assert rows[3][f"logp {KINDS[kind][1][0]}"] == "nan"
    if kind == "absolute":
        threshold = ensemble.calibration.targets[0].conformal.threshold
        np.testing.assert_allclose(found.beside["logp conformal lower"], found.values[:, 0] - threshold, rtol=1e-12)


@pytest.mark.parametrize("run", ["mve"], indirect=True)
def test_a_resumed_run_ends_alike(run):
    _, config, finished, folder, copies = run
    copy = copies[len(copies) // 2]
    resumed = train(replace(config, resume=str(copy)), copy)
    assert_same_run(copy, folder)
    assert resumed.metrics == pytest.approx(finished.metrics, abs=0, rel=0, nan_ok=True)
    assert load_module(copy).calibration == load_module(folder).calibration


@pytest.mark.parametrize("run", ["mve"], indirect=True)
def test_several_models_have_none_and_are_told_so(run, tmp_path, caplog):
    _, _, _, folder, _ = run
    best = folder / "checkpoints" / "best.ckpt"
    shutil.copy(best, tmp_path / "other.ckpt")
    (tmp_path / "in.smi").write_text("CCO\n")
    options = {"ckpt": [str(best), str(tmp_path / "other.ckpt")], "input": str(tmp_path / "in.smi"), "output": str(tmp_path / "p.csv")}
    predict(parse(PredictConfig, {**options, "device": "cpu"}))
    header = (tmp_path / "p.csv").read_text().splitlines()[0]
    assert "conformal" not in header and "calibrated" not in header
    assert "is of the predictions of that model alone" in caplog.text


@pytest.mark.parametrize("run", ["mve"], indirect=True)
def test_the_mean_of_several_models_is_not_evaluated_with_the_calibration_of_one(run, tmp_path):
    _, config, _, folder, _ = run
    for name in ("member_0", "member_1"):
        shutil.copytree(folder, tmp_path / "several" / name)
    write_members(tmp_path / "several", ["member_0", "member_1"])
    options = {"ckpt": str(tmp_path / "several"), "device": "cpu", "split": "test", "dataset": {"cache_dir": config.dataset.cache_dir}}
    found = evaluate(parse(EvaluateConfig, options))
    assert "test/miscalibration_area/logp" in found.metrics
    assert not any(key.startswith(("test/calibrated", "test/conformal")) for key in found.metrics)
    assert json.loads((found.folder / "metrics.json").read_text())["calibrated"] == ""


@pytest.mark.parametrize("run", ["mve"], indirect=True)
def test_a_damaged_one_is_named(run, tmp_path):
    saved = load_checkpoint(run[3] / "checkpoints" / "best.ckpt")
    saved["molgcn"]["calibration"]["targets"] = []
    write(saved, tmp_path / "x.ckpt")
    with pytest.raises(UserError, match=r"x\.ckpt cannot be used: its calibration belongs to other targets"):
        load_module(tmp_path / "x.ckpt")
    del saved["molgcn"]["calibration"]
    write(saved, tmp_path / "old.ckpt")
    assert load_module(tmp_path / "old.ckpt").calibration is None


def test_on_validation_everything_says_approximate(small_config, tmp_path, caplog):
    config = small_config(training={"calibration": "conformal", "calibration_on_validation": True, "report": True})
    result = train(config, tmp_path / "run")
    assert result.calibrated == "calibrated on 30 validation molecules, which chose the weights: approximate"
    assert result.metrics["val/conformal_coverage/logp"] == pytest.approx(28 / 30)
    assert "<b>Approximate.</b>" in (tmp_path / "run" / "report.html").read_text()
    assert CALIBRATION not in json.loads((tmp_path / "run" / "splits.json").read_text())
    (tmp_path / "in.smi").write_text("CCO\n")
    options = {"ckpt": str(tmp_path / "run"), "input": str(tmp_path / "in.smi"), "output": str(tmp_path / "p.csv"), "device": "cpu"}
    predict(parse(PredictConfig, options))
    assert "approximate" in caplog.text


@pytest.mark.parametrize(
    ("dataset", "training", "message"),
    [
        ({}, {"calibration": "conformal"}, r"training\.calibration=conformal needs molecules .* dataset\.calibration_fraction=0\.1"),
        ({"calibration_fraction": 0.2}, {"calibration": "platt"}, r"training\.calibration=platt suits no target"),
        (
            {"calibration_fraction": 0.2},
            {"calibration": "auto", "calibration_on_validation": True},
            r"calibration_on_validation=true, but there is a calibration part",
        ),
        ({"calibration_fraction": 0.999}, {}, r"dataset\.calibration_fraction=0\.999"),
    ],
)
def test_what_cannot_be_fitted_is_refused_before_training(small_config, tmp_path, dataset, training, message):
    with pytest.raises(UserError, match=message):
        train(small_config(dataset=dataset, training=training), tmp_path / "run")
    assert not (tmp_path / "run" / "checkpoints").exists()


@pytest.mark.parametrize(
    "changes", [{"calibration": "temperature"}, {"calibration": ["auto"]}, {"calibration_alpha": 1}, {"conformal_sets": "x"}]
)
def test_values_that_are_none(small_config, changes):
    with pytest.raises(UserError, match=rf"training\.{next(iter(changes))}"):
        small_config(training=changes)


def test_too_few_molecules_are_warned_of_and_give_infinite_intervals(small_config, tmp_path, caplog):
    config = small_config(dataset={"calibration_fraction": 0.02}, training={"calibration": "conformal"}, trainer={"max_epochs": 1})
    result = train(config, tmp_path / "run")
    assert "too few labels of logp" in caplog.text
    assert result.metrics["test/conformal_coverage/logp"] == 1 and np.isinf(result.metrics["test/conformal_width/logp"])
    result.save([])
    assert json.loads((tmp_path / "run" / "result.json").read_text())["metrics"]["test/conformal_width/logp"] is None


def test_a_target_of_one_class_stays_uncalibrated(small_config, tmp_path, caplog):
    lines = [f"{'C' * (n % 12 + 1)}{end},{n % 2},0" for n in range(60) for end in ("F", "O", "N", "Cl")]
    (tmp_path / "x.csv").write_text("\n".join(["smiles,toxic,never", *lines]) + "\n")
    dataset = {"name": "csv", "path": str(tmp_path / "x.csv"), "targets": ["toxic", "never"], "subset": None, "duplicates": "keep"}
    dataset |= {"calibration_fraction": 0.25, "group_duplicates": False}
    config = small_config(dataset=dataset, training={"calibration": "auto"}, task="classification", trainer={"max_epochs": 1})
    result = train(config, tmp_path / "run")
    assert "stay uncalibrated: 'never' has only 0 there" in caplog.text
    assert "test/calibrated_ece/toxic" in result.metrics and "test/calibrated_ece/never" not in result.metrics
    found = predict_smiles(Ensemble.load([tmp_path / "run"]), ["CCO"], num_workers=0)
    assert list(found.beside) == ["toxic calibrated probability", "toxic conformal set"]
    assert (
        load_module(tmp_path / "run").calibration.described == result.calibrated == "calibrated on 48 molecules that training did not see"
    )


def test_a_part_that_nothing_uses_is_warned_of(small_config, tmp_path, caplog):
    train(small_config(dataset={"calibration_fraction": 0.1}, trainer={"max_epochs": 1}), tmp_path / "run")
    assert "Nothing uses the calibration part" in caplog.text


def test_a_finished_run_is_calibrated_by_resuming_it(small_config, tmp_path):
    config = small_config(dataset={"calibration_fraction": 0.2}, trainer={"max_epochs": 1})
    first = train(config, tmp_path / "run")
    again = train(replace(config, resume=str(tmp_path / "run"), training=replace(config.training, calibration="auto")), tmp_path / "run")
    assert {key: value for key, value in again.metrics.items() if "conformal" not in key} == first.metrics
    assert load_module(tmp_path / "run").calibration.targets[0].conformal is not None
