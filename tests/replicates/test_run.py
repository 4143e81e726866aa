"""Cross-validation, repeats and ensembles are one run with a complete folder, which ends the same after an interruption."""

import io
import json
import shutil
from dataclasses import replace

import numpy as np
import pytest
from omegaconf import OmegaConf
from rich.console import Console
from run_cases import InterruptedAfter, assert_same_run, rows_of, split_of

from molgcn.config.run import Config, parse
from molgcn.errors import UserError
from molgcn.evaluate import EvaluateConfig, evaluate
from molgcn.replicates.combine import load_models
from molgcn.replicates.run import train_all
from molgcn.screening.ensemble import Ensemble
from molgcn.training.members import trainings_of
from molgcn.training.restore import find_checkpoints
from molgcn.training.resume import saved_config

pytestmark = pytest.mark.usefixtures("empty_figures")
CV = {"split": "cv", "folds": 3}


@pytest.fixture(scope="module")
def folds(small_config, tmp_path_factory):
    """Return configuration, folder and result of an uninterrupted run of three folds."""
    config = small_config(dataset=CV, training={"checkpoint_seconds": 0})
    folder = tmp_path_factory.mktemp("runs") / "folds"
    return config, folder, train_all(config, folder)


def test_each_fold_is_an_ordinary_run(folds):
    _, folder, _ = folds
    assert [training.name for training in trainings_of(folder)] == ["fold_0", "fold_1", "fold_2"]
    held_out = [split_of(training)["test"] for training in trainings_of(folder)]
    assert [len(rows) for rows in held_out] == [100, 100, 100] and len({row for rows in held_out for row in rows}) == 300
    for training in trainings_of(folder):
        assert {"config.yaml", "provenance.json", "metrics.csv", "result.json", "checkpoints"} <= {path.name for path in training.iterdir()}
        assert json.loads((training / "result.json").read_text())["overrides"] == [f"dataset.fold={training.name[-1]}"]


def test_the_result_is_mean_and_deviation(folds):
    _, folder, result = folds
    values = {key: [metrics[key] for metrics in result.members.values()] for key in result.metrics}
    assert result.metrics == pytest.approx({key: np.mean(some) for key, some in values.items()}, rel=1e-12)
    assert result.deviations == pytest.approx({key: np.std(some, ddof=1) for key, some in values.items()}, rel=1e-12)
    assert result.members["fold_1"] == json.loads((folder / "fold_1" / "result.json").read_text())["metrics"]
    losses = [json.loads((training / "result.json").read_text())["best_loss"] for training in trainings_of(folder)]
    assert (result.best_loss, result.epochs) == (pytest.approx(np.mean(losses), rel=1e-12), 6)
    assert not result.comparison.intervals  # each fold has its own
    assert json.loads((folder / "fold_0" / "result.json").read_text())["intervals"]


def test_a_part_that_only_some_splits_of_a_file_have(folds, small_config, tmp_path):
    rows = split_of(trainings_of(folds[1])[0])["train"][:60]
    splits = [{"train": rows[:30], "val": rows[30:40], "test": rows[40:]}, {"train": rows[20:], "test": rows[:20]}]
    (tmp_path / "s.json").write_text(json.dumps(splits))
    dataset = {"split": "file", "split_file": str(tmp_path / "s.json")}
    result = train_all(small_config(dataset=dataset, trainer={"max_epochs": 1}), tmp_path / "run")
    assert {key.split("/")[0] for key in result.members["repeat_1"]} == {"train", "test"}
    key = next(key for key in result.metrics if key.startswith("val/mae"))
    assert result.metrics[key] == result.members["repeat_0"][key] and np.isnan(result.deviations[key])
    assert split_of(tmp_path / "run" / "repeat_1")["test"] == rows[:20]


@pytest.mark.parametrize(  # each fold has 12 batches
    "batches", [pytest.param(1, marks=pytest.mark.slow), pytest.param(13, marks=pytest.mark.slow), 20]
)
def test_an_interrupted_run_ends_as_if_it_had_not_been(batches, folds, tmp_path):
    config, whole, expected = folds
    with pytest.raises(KeyboardInterrupt):
        train_all(config, tmp_path / "run", [InterruptedAfter(batches)])
    kept = {path: path.stat().st_mtime_ns for path in (tmp_path / "run").glob("fold_*/result.json")}
    assert len(kept) == (batches > 12)
    assert not (tmp_path / "run" / "fold_2").exists()
    result = train_all(replace(config, resume=str(tmp_path / "run")), tmp_path / "run")
    assert {path: path.stat().st_mtime_ns for path in kept} == kept
    assert (result.metrics, result.deviations) == (expected.metrics, expected.deviations)
    for training in trainings_of(whole):
        assert_same_run(tmp_path / "run" / training.name, training)
        assert split_of(tmp_path / "run" / training.name) == split_of(training)


@pytest.mark.slow
def test_a_longer_training_goes_on_in_every_fold(folds, small_config, tmp_path):
    config, whole, _ = folds
    shutil.copytree(whole, tmp_path / "run")
    longer = replace(config, trainer={**config.trainer, "max_epochs": 3}, resume=str(tmp_path / "run"))
    assert train_all(longer, tmp_path / "run").epochs == 9
    assert train_all(longer, tmp_path / "run").epochs == 9  # nothing is left to do


def test_a_key_that_is_refused_changes_nothing(folds, tmp_path):
    config, whole, expected = folds
    shutil.copytree(whole, tmp_path / "run")
    shorter = replace(config, trainer={**config.trainer, "max_epochs": 1}, resume=str(tmp_path / "run"))
    with pytest.raises(UserError, match=r"fold_0: trainer\.max_epochs=1 is fewer than the 2 epochs"):
        train_all(shorter, tmp_path / "run")
    again = parse(Config, saved_config(tmp_path / "run", []))
    assert again == replace(config, resume=str(tmp_path / "run"))
    assert train_all(again, tmp_path / "run").metrics == expected.metrics


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"dataset": {**CV, "folds": 4}}, "dataset.folds=3, which cannot become 4"),
        ({"dataset": CV, "training": {"ensemble": 2}}, "this many"),
    ],
)
def test_what_a_resumed_run_consists_of_stays(changes, message, folds, small_config):
    _, folder, _ = folds
    with pytest.raises(UserError, match=message):
        train_all(replace(small_config(**changes), resume=str(folder)), folder)


def test_a_folder_that_holds_a_run_is_not_replaced(folds):
    config, folder, _ = folds
    with pytest.raises(UserError, match="already holds a run"):
        train_all(config, folder)


def test_a_mistake_names_the_fold(small_config, tmp_path):
    rows = [f"{'C' * n}O,{n if n < 3 else ''}" for n in range(1, 21)]
    (tmp_path / "few.csv").write_text("\n".join(["smiles,y", *rows]))
    dataset = {"name": "csv", "path": str(tmp_path / "few.csv"), "targets": ["y"], "subset": None, **CV}
    with pytest.raises(UserError, match=r"^(fold_\d: )?(Target 'y' has no value|No molecule of the validation part)"):
        train_all(small_config(dataset=dataset), tmp_path / "run")


def test_folds_are_not_evaluated_on_what_they_trained_on(folds):
    _, folder, _ = folds
    with pytest.raises(UserError, match="3 models have different training, validation and test parts"):
        evaluate(parse(EvaluateConfig, {"ckpt": str(folder), "device": "cpu"}))


def test_one_of_several_is_wanted_where_one_is_used(folds, small_config, tmp_path):
    _, folder, _ = folds
    with pytest.raises(UserError, match=r"ckpt_path=.*: the folder holds a run of 3 trainings. Name one of them, as in ckpt_path=.*fold_0"):
        train_all(small_config(ckpt_path=str(folder)), tmp_path / "run")


def test_an_incomplete_run_does_not_predict(folds, tmp_path):
    _, folder, _ = folds
    shutil.copytree(folder, tmp_path / "run")
    shutil.rmtree(tmp_path / "run" / "fold_2" / "checkpoints")
    with pytest.raises(UserError, match=r"fold_2 has no checkpoint.*resume="):
        Ensemble.load([tmp_path / "run"])


@pytest.mark.slow
def test_every_molecule_is_held_out_once_a_repeat(small_config, tmp_path):
    changes = {"dataset": {**CV, "folds": 2, "repeats": 2}, "training": {"report": True}, "trainer": {"max_epochs": 1}}
    result = train_all(small_config(**changes), tmp_path / "run")
    assert list(result.members) == [f"repeat_{repeat}/fold_{fold}" for repeat in range(2) for fold in range(2)]
    rows = rows_of(tmp_path / "run" / "predictions_test.csv")
    assert len(rows) == len({row["row"] for row in rows}) == 300
    found = {}
    for training in trainings_of(tmp_path / "run"):
        for row in rows_of(training / "predictions_test.csv"):
            found.setdefault(row["row"], []).append(float(row["logp predicted"]))
    assert {len(values) for values in found.values()} == {2}
    assert [float(row["logp predicted"]) for row in rows] == pytest.approx([np.mean(found[row["row"]]) for row in rows], rel=1e-6)
    page = (tmp_path / "run" / "report.html").read_text()
    assert "Below a value stands its 95 % interval" in page
    assert all(f'<a href="{name}/report.html">' in page and (tmp_path / "run" / name / "report.html").exists() for name in result.members)


@pytest.mark.slow
def test_folds_of_ensembles(small_config, tmp_path):
    """A fold's metrics are those of its models' mean."""
    config = small_config(dataset={**CV, "folds": 2}, training={"ensemble": 2}, trainer={"max_epochs": 1})
    result = train_all(config, tmp_path / "run")
    assert [training.parent.name for training in trainings_of(tmp_path / "run")] == ["fold_0", "fold_0", "fold_1", "fold_1"]
    models = load_models(config, tmp_path / "run", find_checkpoints(tmp_path / "run"))
    predicted = models.predicted("test")
    assert len(predicted.molecules) == 300
    errors = np.abs(predicted.values - predicted.targets)[:, 0]
    for data, metrics in zip(models.data[::2], result.members.values(), strict=True):
        assert errors[data.splits["test"]].mean() == pytest.approx(metrics["test/mae/logp"], rel=1e-5)


@pytest.mark.slow
def test_targets_of_several_tasks_have_the_metrics_of_their_own(small_config, tmp_path):
    rows = [f"{'C' * (n % 7 + 1)}O{'N' * (n % 3)},{n % 2},{n / 10}" for n in range(60)]
    (tmp_path / "x.csv").write_text("\n".join(["smiles,active,y", *rows]))
    tasks = {"active": "classification", "y": "regression"}
    dataset = {"name": "csv", "path": str(tmp_path / "x.csv"), "targets": ["active", "y"], "tasks": tasks, "subset": None, **CV, "folds": 2}
    config = small_config(dataset=dataset, trainer={"max_epochs": 1}, training={"report": True})
    result = train_all(config, tmp_path / "run")
    console = Console(width=200, record=True, file=io.StringIO())
    result.print(console)
    printed = console.export_text()
    assert "test ROC AUC" in printed and "test RMSE" in printed
    page = (tmp_path / "run" / "report.html").read_text()
    assert page.count('<a href="fold_0/report.html">') == 2  # a table a target
    assert {"test/roc_auc/active", "test/mae/y"} <= result.deviations.keys()


def test_repeats_draw_the_split_anew(small_config, tmp_path, caplog):
    caplog.set_level("INFO")
    result = train_all(small_config(dataset={"repeats": 2}, trainer={"max_epochs": 1}), tmp_path / "run")
    assert list(result.members) == ["repeat_0", "repeat_1"]
    first, second = (split_of(tmp_path / "run" / name) for name in result.members)
    assert first["test"] != second["test"] and len(first["test"]) == len(second["test"]) == 30
    assert {row for rows in first.values() for row in rows} == {row for rows in second.values() for row in rows}  # both share the subset
    shared = len({*first["test"]} & {*second["test"]}) / 30
    assert f"The test parts of two repeats share {shared:.0%} of their molecules" in caplog.text


def test_each_fold_is_a_run_of_the_group_on_the_dashboard(folds):
    _, folder, _ = folds
    saved = [OmegaConf.load(training / "config.yaml").logger for training in trainings_of(folder)]
    assert [(logger.group, logger.run_name) for logger in saved] == [("folds", f"folds fold_{fold}") for fold in range(3)]


def test_all_models_predict_what_they_have_not_seen(folds):
    config, folder, result = folds
    models = load_models(config, folder, find_checkpoints(folder))
    predicted = models.predicted("test")
    assert len(predicted.molecules) == 300
    errors = np.abs(predicted.values - predicted.targets)[:, 0]
    for data, metrics in zip(models.data, result.members.values(), strict=True):
        assert errors[data.splits["test"]].mean() == pytest.approx(metrics["test/mae/logp"], rel=1e-5)


def test_bounds_are_no_values_to_measure_by(small_config, tmp_path):
    rows = "".join(f"{'C' * (1 + row // 3)}{'ONF'[row % 3]},{'<200' if row % 4 == 0 else row}\n" for row in range(90))
    (tmp_path / "mine.csv").write_text(f"smiles,y\n{rows}")
    dataset = {"name": "csv", "path": str(tmp_path / "mine.csv"), "targets": ["y"], "subset": None, "bounded": True}
    config = small_config(dataset={**dataset, "cache_dir": str(tmp_path)}, training={"ensemble": 2, "report": True})
    result = train_all(config, tmp_path / "run")
    table = rows_of(tmp_path / "run" / "predictions_test.csv")
    exact = [abs(float(row["y"]) - float(row["y predicted"])) for row in table if not row["y"].startswith("<")]
    assert 0 < len(exact) < len(table)
    assert result.metrics["test/mae/y"] == pytest.approx(np.mean(exact), rel=1e-5)


def test_folds_of_all_other_molecules_and_too_few_to_calibrate_on(small_config, tmp_path):
    """Without a validation part folds still test, and widths that are infinite in every fold have no deviation."""
    changes = {
        "dataset": {"split": "cv", "folds": 2, "split_fractions": [1, 0, 0], "subset": 30, "calibration_fraction": 0.2},
        "training": {"ensemble": 2, "loss": "mve", "calibration": "auto"},
        "trainer": {"max_epochs": 1},
    }
    result = train_all(small_config(**changes), tmp_path / "run")
    assert result.parts == ["train", "test"] and np.isfinite(result.metrics["test/mae/logp"]) and result.best_loss is None
    assert np.isinf(result.metrics["test/conformal_width/logp"]) and np.isnan(result.deviations["test/conformal_width/logp"])
    assert np.isfinite(result.deviations["test/mae/logp"])
    assert [len(split_of(training)["test"]) for training in trainings_of(tmp_path / "run")] == [15, 15, 15, 15]
