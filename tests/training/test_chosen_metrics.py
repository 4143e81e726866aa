"""`training.metrics` chooses what validations compute and tables show."""

import csv
from dataclasses import replace
from io import StringIO

import pytest
from rich.console import Console

from molgcn.errors import UserError
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
