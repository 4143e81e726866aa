"""`python -m molgcn.compare` says which of several runs is better, and which runs cannot be compared."""

import csv
import json
import shutil

import numpy as np
import pytest

from molgcn.compare import CompareConfig, compare, with_runs
from molgcn.errors import UserError


@pytest.fixture
def runs(trained_run, tmp_path):
    """Return copies of a run: a, and b, whose errors are half as large."""
    for name in "ab":
        shutil.copytree(trained_run.folder, tmp_path / name)
    change(tmp_path / "b", lambda row: row.__setitem__(3, repr((float(row[2]) + float(row[3])) / 2)))
    return tmp_path


def change(run, edit, header=None):
    """Edit every row of a run's predictions, and their header."""
    path = run / "predictions_test.csv"
    first, *rows = csv.reader(path.open())
    for row in rows:
        edit(row)
    with path.open("w", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows([header or first, *rows])


def folds_of(folder, run, count=3):
    """Make a run of cross-validation whose folds hold a run's test molecules between them."""
    header, *rows = csv.reader((run / "predictions_test.csv").open())
    for fold in range(count):
        shutil.copytree(run, folder / f"fold_{fold}")
        with (folder / f"fold_{fold}" / "predictions_test.csv").open("w", newline="") as file:
            csv.writer(file).writerows([header, *rows[fold::count]])
    (folder / "members.json").write_text(json.dumps([f"fold_{fold}" for fold in range(count)]))
    shutil.copy(run / "result.json", folder)
    return folder


def test_one_split(runs, capsys, trained_run):
    found = compare(CompareConfig([str(runs / "a"), str(runs / "b")], output=str(runs / "out")))
    assert list(found.values) == ["mae/logp", "mae/tpsa"]
    np.testing.assert_allclose(found.values["mae/logp"][0], trained_run.metrics["test/mae/logp"], rtol=1e-4)
    np.testing.assert_allclose(found.values["mae/logp"][1], found.values["mae/logp"][0] / 2, rtol=1e-4)
    better = {one.key: one.better(rising=False) for one in found.differences}
    assert better == {"mae/logp": 1, "mae/tpsa": None}
    printed = capsys.readouterr().out
    assert "20 test molecules, no common folds" in printed
    assert {path.name for path in (runs / "out").iterdir()} == {
        "comparison.md",
        "comparison.csv",
        "runs.csv",
        "comparison.svg",
        "comparison.png",
    }
    (row, _) = csv.DictReader((runs / "out" / "comparison.csv").open())
    assert (row["first"], row["second"], row["better"], row["p"]) == ("a", "b", "b", "")
    assert float(row["molecules high"]) < 0
    assert "## MAE of logp\n\n| run | all molecules |" in (runs / "out" / "comparison.md").read_text()


def test_folds(runs, capsys):
    folders = [folds_of(runs / f"cv_{name}", runs / name) for name in "ab"]
    found = compare(CompareConfig([str(folder) for folder in folders], metric="rmse", output=str(runs / "out")))
    assert found.scores["rmse/logp"].shape == (3, 2)
    one = found.differences[0]
    assert one.mean == pytest.approx(-found.scores["rmse/logp"][:, 1].mean(), rel=1e-3)
    assert one.folds.low < one.mean < one.folds.high
    assert "3 common folds" in capsys.readouterr().out
    assert next(csv.reader((runs / "out" / "runs.csv").open()))[5:] == ["fold 0", "fold 1", "fold 2"]


def test_other_folds_of_the_same_molecules_are_compared_by_molecule(runs):
    folders = [folds_of(runs / "cv_a", runs / "a"), folds_of(runs / "cv_b", runs / "b", count=2)]
    found = compare(CompareConfig([str(folder) for folder in folders]))
    assert found.scores["mae/logp"].shape == (0, 2)
    assert found.differences[0].better(rising=False) == 1


@pytest.mark.parametrize(
    ("edit", "header", "reason"),
    [
        (lambda row: row.__setitem__(1, "C" * 30), None, "they were tested on other molecules (20 and 20), of which only one has"),
        (lambda row: row.__setitem__(2, "3.5"), None, "the true values of .* differ"),
        (lambda row: row.__setitem__(2, "x"), None, "is not what a run wrote: could not convert"),
        (lambda row: None, ["a"] * 6, "is not what a run wrote"),
    ],
)
def test_what_cannot_be_compared(runs, edit, header, reason):
    change(runs / "b", edit, header)
    with pytest.raises(UserError, match=reason.replace("(", r"\(").replace(")", r"\)")) as caught:
        compare(CompareConfig([str(runs / "a"), str(runs / "b")]))
    assert str(runs / "b") in str(caught.value)


def test_other_targets_units_and_folders(runs, small_config, tmp_path, blank_figures):
    from molgcn.training.train import train

    train(small_config(training={"report": True, "bootstrap": 0}), tmp_path / "other").save([])
    with pytest.raises(UserError, match=r"a and .*other cannot be compared: their targets are logp, tpsa and logp"):
        compare(CompareConfig([str(runs / "a"), str(tmp_path / "other")]))
    (runs / "b" / "predictions_test.csv").unlink()
    with pytest.raises(UserError, match=r"b has no predictions_test\.csv"):
        compare(CompareConfig([str(runs / "a"), str(runs / "b")]))
    with pytest.raises(UserError, match="There is no folder"):
        compare(CompareConfig([str(runs / "a"), str(runs / "c")]))
    shutil.copytree(runs / "a", runs / "d")
    with pytest.raises(UserError, match="metric=mse is not a metric of task=regression"):
        compare(CompareConfig([str(runs / "a"), str(runs / "d")], metric="mse"))
    with pytest.raises(UserError, match="at least two different runs"):
        compare(CompareConfig([str(runs / "a")] * 2))


def test_folders_may_stand_alone_on_the_command_line():
    assert with_runs(["runs/a b", "metric=rmse", "runs/c"]) == ["metric=rmse", "runs=[runs/a b,runs/c]"]
    assert with_runs(["--help"]) == ["--help"]
