"""Ensembles of several trainings: their folder, their predictions, and a calibration of their mean."""

import io
import json
import shutil
from dataclasses import asdict

import numpy as np
import pytest
from rich.console import Console
from run_cases import check_columns, rows_of, split_of

from molgcn.config.run import parse
from molgcn.errors import UserError
from molgcn.evaluate import EvaluateConfig, evaluate
from molgcn.predict import predict_smiles
from molgcn.replicates.combine import load_models
from molgcn.replicates.run import train_all
from molgcn.screening.ensemble import Ensemble
from molgcn.training.members import trainings_of
from molgcn.training.restore import find_checkpoints

pytestmark = pytest.mark.usefixtures("empty_figures")


@pytest.fixture(scope="module")
def models(small_config, tmp_path_factory):
    """Return folder and result of two models on one split with a report."""
    folder = tmp_path_factory.mktemp("runs") / "models"
    result = train_all(small_config(training={"ensemble": 2, "report": True}), folder)
    return folder, result


def test_an_ensemble_predicts_by_its_mean(models):
    folder, result = models
    with pytest.raises(UserError, match=r"models=folds is of a cross-validation .* is an ensemble"):
        find_checkpoints(folder, models="folds")
    members = [rows_of(folder / f"member_{number}" / "predictions_test.csv") for number in range(2)]
    mean = np.mean([[float(row["logp predicted"]) for row in rows] for rows in members], axis=0)
    together = rows_of(folder / "predictions_test.csv")
    assert [float(row["logp predicted"]) for row in together] == pytest.approx(mean, rel=1e-6)
    true = np.array([float(row["logp"]) for row in together])
    assert result.metrics["test/mae/logp"] == pytest.approx(np.abs(mean - true).mean(), rel=1e-5)
    assert result.metrics["test/rmse/logp"] <= max(metrics["test/rmse/logp"] for metrics in result.members.values())
    interval = result.comparison.intervals["test/mae/logp"]
    assert interval.low < result.metrics["test/mae/logp"] < interval.high and "training mean" in result.comparison.baselines
    assert result.deviations == {}
    assert {json.dumps(split_of(training)) for training in trainings_of(folder)} == {json.dumps(split_of(folder / "member_0"))}


def test_predict_and_evaluate_take_the_run_s_folder(models, tmp_path):
    folder, result = models
    names = [str(folder / f"member_{number}") for number in range(2)]
    ours, theirs = (predict_smiles(Ensemble.load(paths), ["CCO", "CCCN"]) for paths in ([folder], names))
    assert ours.values.tolist() == theirs.values.tolist() and ours.deviation.tolist() == theirs.deviation.tolist()
    shutil.copytree(folder, tmp_path / "run")
    evaluated = evaluate(parse(EvaluateConfig, {"ckpt": str(tmp_path / "run"), "device": "cpu", "backend": {"name": "pyg"}}))
    assert evaluated.folder == tmp_path / "run" / "evaluation"
    assert evaluated.metrics == pytest.approx(result.metrics, rel=1e-5, abs=1e-7)
    intervals = json.loads((evaluated.folder / "metrics.json").read_text())["intervals"]
    assert intervals["test/mae/logp"] == pytest.approx(asdict(result.comparison.intervals["test/mae/logp"]), rel=1e-4)


@pytest.fixture(scope="module")
def calibrated(small_config, tmp_path_factory):
    """Return configuration, folder and result of two models on one split with a calibration part."""
    folder = tmp_path_factory.mktemp("runs") / "calibrated"
    training = {"ensemble": 2, "calibration": "conformal", "report": True, "baseline": "rf"}
    config = small_config(dataset={"calibration_fraction": 0.25}, training=training, trainer={"max_epochs": 1})
    return config, folder, train_all(config, folder)


def test_the_mean_of_an_ensemble_has_a_calibration_of_its_own(calibrated, tmp_path):
    """The threshold is the ceil(0.9 (n + 1))-th smallest error of the mean over n calibration molecules."""
    config, folder, result = calibrated
    predicted = load_models(config, folder, find_checkpoints(folder)).predicted("calibration")
    errors = np.sort(np.abs(predicted.values - predicted.targets)[:, 0])
    expected = errors[int(np.ceil(0.9 * (len(errors) + 1))) - 1]
    ensemble = Ensemble.load([folder])
    (target,) = ensemble.calibration.targets
    assert (target.conformal.threshold, target.molecules) == (pytest.approx(expected, rel=1e-5), len(errors))
    assert target.conformal.threshold not in {one.calibration.targets[0].conformal.threshold for one in ensemble.members}
    given = predict_smiles(ensemble, ["CCO"])
    np.testing.assert_allclose(given.beside["logp conformal upper"], given.values[:, 0] + target.conformal.threshold, rtol=1e-12)
    assert result.calibrated == ensemble.calibration.described
    page = (folder / "report.html").read_text()
    assert f"{result.metrics['test/conformal_coverage/logp']:.4g}" in page[page.index('id="uncertainty"') :]
    output = io.StringIO()
    result.print(Console(file=output, width=100))
    assert "test uncertainty" in output.getvalue() and result.calibrated in output.getvalue()
    values = {"ckpt": str(folder), "device": "cpu", "output": str(tmp_path), "dataset": {"cache_dir": config.dataset.cache_dir}}
    evaluated = evaluate(parse(EvaluateConfig, values))
    assert evaluated.metrics == pytest.approx(result.metrics, rel=1e-5)
    check_columns(folder, tmp_path, ["logp predicted", "logp predicted std", "logp conformal lower", "logp conformal upper"])
    forests = json.loads((tmp_path / "metrics.json").read_text())["baselines"], result.comparison.baselines
    assert forests[0]["random forest"] == pytest.approx(forests[1]["random forest"])


def test_a_calibration_is_of_the_models_that_it_was_fitted_on(calibrated, tmp_path):
    _, folder, _ = calibrated
    shutil.copytree(folder, tmp_path / "run")
    members = [tmp_path / "run" / f"member_{number}" for number in range(2)]
    assert Ensemble.load(members[::-1]).calibration == Ensemble.load([tmp_path / "run"]).calibration is not None
    assert Ensemble.load([tmp_path / "run", folder]).calibration is None
    shutil.copy(members[0] / "checkpoints" / "best.ckpt", members[1] / "checkpoints" / "best.ckpt")
    assert Ensemble.load([tmp_path / "run"]).calibration is None
    (folder_file := tmp_path / "run" / "calibration.json").write_text("{}")
    with pytest.raises(UserError, match=r"calibration\.json cannot be used"):
        Ensemble.load([tmp_path / "run"])
    folder_file.unlink()
    assert Ensemble.load([tmp_path / "run"]).calibration is None


def test_the_page_links_to_its_trainings(models):
    folder, result = models
    page = (folder / "report.html").read_text()
    for name, metrics in result.members.items():
        assert f'<a href="{name}/report.html">{name}</a>' in page
        assert f"{metrics['test/mae/logp']:.4g}" in page
    assert "the mean prediction of the 2" in page
