"""`training.metrics` chooses what validations compute and tables show."""

import csv
from dataclasses import replace
from io import StringIO

import pytest
from rich.console import Console

from molgcn.errors import UserError
from molgcn.evaluate import evaluate
from molgcn.evaluation.config import EvaluateConfig
from molgcn.replicates.run import train_all
from molgcn.training.result import RunResult
from molgcn.training.train import train


@pytest.fixture(scope="module")
def run(small_config, tmp_path_factory):
    """Return the configuration and the result of a run with two chosen metrics."""
    config = small_config(training={"metrics": ["spearman", "rmse"]}, trainer={"max_epochs": 1})
    result = train(config, tmp_path_factory.mktemp("chosen"))
    result.save([])
    return config, result


def test_validations_compute_them(run):
    with open(run[1].folder / "metrics.csv", newline="") as file:
        columns = next(csv.reader(file))
    assert [column for column in columns if column.startswith("val/")] == ["val/loss", "val/rmse/logp", "val/spearman/logp"]


def test_the_line_of_an_epoch_has_the_first(small_config, tmp_path, capsys):
    train(small_config(training={"metrics": ["r2", "mae"]}, trainer={"max_epochs": 1}), tmp_path)
    assert "val R2 logp" in capsys.readouterr().out


@pytest.mark.parametrize("loaded", [False, True])
def test_the_table_shows_them_and_the_result_has_all(run, loaded):
    result = RunResult.load(run[1].folder) if loaded else run[1]
    text = StringIO()
    result.print(Console(file=text, width=200))
    header = next(line for line in text.getvalue().splitlines() if "target" in line)
    assert [cell.strip() for cell in header.strip("\u2503").split("\u2503")] == [
        *("target", "unit", "train Spearman", "val Spearman", "test Spearman", "test RMSE"),
    ]
    assert {"test/mae/logp", "test/pearson/logp", "val/mape/logp"} <= result.metrics.keys()


def test_a_resumed_run_keeps_them(run):
    config, result = run
    changed = replace(config, resume=str(result.folder), training=replace(config.training, metrics=["mae"]))
    with pytest.raises(UserError, match=r"training\.metrics=\['spearman', 'rmse'\], which cannot become \['mae'\]"):
        train(changed, result.folder)


def test_the_head_of_a_run_with_other_metrics_is_taken(run, small_config, tmp_path, caplog):
    caplog.set_level("INFO", "molgcn")
    train(small_config(ckpt_path=str(run[1].folder), trainer={"max_epochs": 1}), tmp_path)
    assert "are taken; the head" not in caplog.text and "and the head's" in caplog.text


@pytest.fixture(scope="module")
def bounded(small_config, tmp_path_factory):
    """Return the result of a run with bounds among its true values, and a class beside them."""
    folder = tmp_path_factory.mktemp("bounded")
    rows = [f"{'C' * (n % 15 + 1)}{'ON'[n % 2]},{'<>'[n % 8 // 4] if n % 4 == 0 else ''}{n % 15 + n / 100},{n % 2}" for n in range(90)]
    (folder / "x.csv").write_text("\n".join(["smiles,y,kind", *rows]) + "\n")
    dataset = {"name": "csv", "path": str(folder / "x.csv"), "targets": ["y", "kind"], "bounded": True, "subset": None}
    training = {"metrics": ["bounded_rmse", "rmse", "bounded_r2"], "monitor": "val/bounded_rmse", "ensemble": 2, "bootstrap": 20}
    config = small_config(
        dataset={**dataset, "features": "general", "tasks": {"kind": "classification"}},
        task="mixed",
        training=training,
        trainer={"max_epochs": 2},
    )
    result = train_all(config, folder / "run")
    result.save([])
    return result


def test_bounded_metrics_count_the_bounds_too(bounded):
    metrics = bounded.metrics
    assert metrics["test/bounded_rmse/y"] != pytest.approx(metrics["test/rmse/y"])
    assert "test/bounded_mae/y" not in metrics and "test/bounded_rmse/kind" not in metrics
    assert "test/roc_auc/kind" in metrics
    member = RunResult.load(bounded.folder / "member_0")
    assert (member.monitor, member.best_value) == ("val/bounded_rmse", pytest.approx(member.metrics["val/bounded_rmse/y"], rel=1e-6))
    interval = bounded.comparison.intervals["test/bounded_rmse/y"]
    assert interval.low <= metrics["test/bounded_rmse/y"] <= interval.high
    assert bounded.comparison.baselines["training mean"]["test/bounded_rmse/y"] > 0
    text = StringIO()
    member.print(Console(file=text, width=200))
    assert "test BOUNDED RMSE" in text.getvalue() and "test ROC AUC" in text.getvalue()


@pytest.mark.usefixtures("blank_figures")
def test_an_evaluation_has_the_same(bounded, tmp_path):
    found = evaluate(EvaluateConfig(ckpt=str(bounded.folder), output=str(tmp_path), bootstrap=0, device="cpu"))
    for metric in ("bounded_rmse", "rmse", "bounded_r2"):
        assert found.metrics[f"test/{metric}/y"] == pytest.approx(bounded.metrics[f"test/{metric}/y"], rel=1e-5, abs=1e-6)


@pytest.mark.parametrize(
    ("metrics", "message"),
    [
        (["rsme"], r"training\.metrics names rsme, no metric of task=regression\. Did you mean 'rmse'\?"),
        (["roc_auc"], r"training\.metrics names roc_auc, no metric of task=regression"),
        (["mae", "mae"], r"training\.metrics=\['mae', 'mae'\] is not valid"),
        ([], r"training\.metrics=\[\] is not valid"),
    ],
)
def test_what_is_no_metric(metrics, message, small_config, tmp_path):
    with pytest.raises(UserError, match=message):
        train(small_config(training={"metrics": metrics}), tmp_path)
