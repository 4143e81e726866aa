"""`training.refit` trains on all molecules after the folds, goes on after an interruption, and predicts unless the folds are asked for."""

import json
import shutil
from dataclasses import replace

import numpy as np
import pytest
from run_cases import InterruptedAfter, assert_same_run, split_of

import molgcn
from molgcn.errors import UserError
from molgcn.evaluate import EvaluateConfig, evaluate
from molgcn.evaluation.config import EvaluationDataConfig
from molgcn.replicates.plan import refit_of
from molgcn.replicates.run import train_all
from molgcn.training.members import trainings_of
from molgcn.training.restore import find_checkpoint, find_checkpoints

pytestmark = pytest.mark.usefixtures("empty_figures")
CV = {"split": "cv", "folds": 2}


@pytest.fixture(scope="module")
def refitted(small_config, tmp_path_factory):
    """Return configuration, folder and result of a run of two folds and a training on all molecules."""
    config = small_config(dataset=CV, training={"checkpoint_seconds": 0, "refit": True, "report": True, "bootstrap": 0})
    folder = tmp_path_factory.mktemp("runs") / "refitted"
    result = train_all(config, folder)
    result.save([])
    return config, folder, result


def noted(folder, **changes):
    """Write results of trainings with other best epochs."""
    values = json.loads((folder / "result.json").read_text())
    (folder / "result.json").write_text(json.dumps({**values, **changes}))


def test_all_molecules_train_for_the_median_of_the_best_epochs(refitted, tmp_path):
    config, folder, result = refitted
    split = split_of(folder / "refit")
    assert (len(split["train"]), split["val"], split["test"]) == (300, [], [])
    best = [json.loads((fold / "result.json").read_text())["best_epoch"] for fold in trainings_of(folder)]
    assert result.refit_epochs == int(np.median(best) + 0.5)
    assert json.loads((folder / "refit" / "result.json").read_text())["epochs"] == result.refit_epochs
    copies = []
    for number, epoch in enumerate((3, 8, 5, None)):  # the last has trained 2 epochs without validation
        copies.append(shutil.copytree(folder / "fold_0", tmp_path / str(number)))
        noted(copies[-1], best_epoch=epoch)
    assert refit_of(config, copies[:3]).config.trainer["max_epochs"] == 5
    assert refit_of(config, copies).config.trainer["max_epochs"] == 4


def test_the_folder_says_what_it_holds(refitted, capsys):
    _, folder, result = refitted
    result.print()
    sentence = f"refit/ holds a model of all molecules, trained for {result.refit_epochs} epoch"
    assert sentence in " ".join(capsys.readouterr().out.split())
    assert sentence in (folder / "report.html").read_text()
    assert json.loads((folder / "result.json").read_text())["refit_epochs"] == result.refit_epochs
    assert [path.name for path in trainings_of(folder)] == ["fold_0", "fold_1"]  # metrics are those of the folds


def test_predictions_are_those_of_the_models_that_are_asked_for(refitted, tmp_path, caplog):
    _, folder, _ = refitted
    refit, folds = molgcn.load(folder), molgcn.load(folder, models="folds")
    assert (len(refit.ensemble.members), len(folds.ensemble.members)) == (1, 2)
    np.testing.assert_array_equal(refit.predict(["CCO"]).values, molgcn.load(folder / "refit", models="auto").predict(["CCO"]).values)
    assert find_checkpoint(folder) == folder / "refit" / "checkpoints" / "last.ckpt"
    with pytest.raises(UserError, match="holds a run of 2 trainings"):
        find_checkpoint(folder, models="folds")
    (tmp_path / "x.csv").write_text("smiles,logp,tpsa\nCCO,1,2\nCCN,2,3\n")
    given = {"dataset": EvaluationDataConfig(path=str(tmp_path / "x.csv")), "device": "cpu", "bootstrap": 0, "ckpt": str(folder)}
    for models, one in (("auto", refit), ("folds", folds)):
        found = evaluate(EvaluateConfig(**given, models=models, output=str(tmp_path / models))).metrics["all/mae/logp"]
        assert found == pytest.approx(np.abs(one.predict(["CCO", "CCN"]).values[:, 0] - [1, 2]).mean(), rel=1e-6)
    evaluate(EvaluateConfig(ckpt=str(folder), device="cpu", bootstrap=0, output=str(tmp_path / "own")))
    assert "molecules of 'train' are in the training part of" in caplog.text
    for models in ("refit", "folds"):
        with pytest.raises(UserError, match=rf"models={models} is of a cross-validation .*fold_0 is one model\. Leave it out"):
            find_checkpoints(folder / "fold_0", models=models)
    other = tmp_path / "other"
    shutil.copytree(folder, other)
    (other / "refit" / "result.json").unlink()
    assert len(find_checkpoints(other)) == 2
    with pytest.raises(UserError, match=r"models=refit: ckpt=.*other has no complete training on all molecules"):
        find_checkpoints(other, models="refit")


def test_an_interrupted_refit_ends_as_if_it_had_not_been(refitted, tmp_path):
    config, whole, expected = refitted
    shutil.copytree(whole, tmp_path / "run")
    shutil.rmtree(tmp_path / "run" / "refit")
    again = replace(config, resume=str(tmp_path / "run"))
    kept = {path: path.stat().st_mtime_ns for path in (tmp_path / "run").glob("fold_*/result.json")}
    with pytest.raises(KeyboardInterrupt):
        train_all(again, tmp_path / "run", [InterruptedAfter(5)])
    begun = (tmp_path / "run" / "refit" / "provenance.json").stat().st_mtime_ns
    assert train_all(again, tmp_path / "run").metrics == expected.metrics
    assert {path: path.stat().st_mtime_ns for path in kept} == kept
    assert (tmp_path / "run" / "refit" / "provenance.json").stat().st_mtime_ns == begun  # it went on, and did not start anew
    assert_same_run(tmp_path / "run" / "refit", whole / "refit", ["last.ckpt"])


def test_a_changed_key_trains_it_anew(refitted, tmp_path):
    config, whole, _ = refitted
    shutil.copytree(whole, tmp_path / "run")
    with pytest.raises(UserError, match=r"fold_0: trainer\.max_epochs=1 is fewer"):
        train_all(replace(config, trainer={**config.trainer, "max_epochs": 1}, resume=str(tmp_path / "run")), tmp_path / "run")
    assert find_checkpoint(tmp_path / "run" / "refit").is_file()  # a key that is refused loses nothing
    assert len(find_checkpoints(tmp_path / "run")) == 2  # but until the run has gone on, it counts as not complete
    begun = (tmp_path / "run" / "refit" / "provenance.json").stat().st_mtime_ns
    longer = replace(config, trainer={**config.trainer, "max_epochs": 3}, resume=str(tmp_path / "run"))
    result = train_all(longer, tmp_path / "run")
    assert (tmp_path / "run" / "refit" / "provenance.json").stat().st_mtime_ns > begun
    assert json.loads((tmp_path / "run" / "refit.json").read_text())["epochs"] == result.refit_epochs


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"dataset": {"split": "random"}}, "training.refit=true follows a whole cross-validation"),
        ({"dataset": {**CV, "fold": 1}}, "without dataset.fold and dataset.repeat"),
        ({"dataset": CV, "scheduler": {"name": "plateau"}}, "does not go with scheduler=plateau"),
    ],
)
def test_what_cannot_be_refitted(changes, message, small_config, tmp_path):
    with pytest.raises(UserError, match=message):
        train_all(small_config(**changes, training={"refit": True}), tmp_path / "run")
    assert not (tmp_path / "run").exists()
