"""A run of several trainings takes one command, and gives one folder and one table."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from molgcn.training.members import trainings_of

TRAIN = Path(__file__).parents[2] / "train.py"
SMALL = [
    *("dataset.subset=120", "dataset.batch_size=32", "dataset.features=zinc", "model.hidden_channels=8", "model.num_layers=2"),
    *("backend=pyg", "trainer.max_epochs=2", "trainer.accelerator=cpu", "training.report=false", "logger=csv"),
]


def metrics_of(folder):
    return json.loads((folder / "result.json").read_text())["metrics"]


def test_a_mistake_leaves_nothing_behind(cli, tmp_path):
    code, _, err = cli(*SMALL, "dataset.split=cv", "dataset.folds=200", "hydra.run.dir=run")
    assert code == 2
    assert "Error: dataset.folds=200 is more than the set has: 120 molecules" in err and "Traceback" not in err
    assert not (tmp_path / "run" / "members.json").exists()


@pytest.mark.slow
def test_jobs_of_a_sweep_may_be_cross_validations(cli, tmp_path):
    code, out, err = cli(*SMALL, "-m", "dataset.split=cv", "dataset.folds=2", "optimizer.lr=0.001,0.01", "hydra.sweep.dir=grid")
    assert code == 0, err
    assert "2 runs in grid" in out
    for job in ("0", "1"):
        folder = tmp_path / "grid" / job
        assert [training.name for training in trainings_of(folder)] == ["fold_0", "fold_1"]
        folds = [metrics_of(training)["test/mae/logp"] for training in trainings_of(folder)]
        assert metrics_of(folder)["test/mae/logp"] == pytest.approx(sum(folds) / 2)


@pytest.mark.slow
def test_a_run_that_is_ended_goes_on(cli, tmp_path):
    command = [*SMALL, "dataset.split=cv", "dataset.folds=3", "training.checkpoint_seconds=0"]
    code, _, err = cli(*command, "hydra.run.dir=whole")
    assert code == 0, err
    with subprocess.Popen(
        [sys.executable, str(TRAIN), *command, "hydra.run.dir=runs/ended"],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout and process.stderr
        lines = []
        for line in process.stdout:
            lines.append(line)
            if line.startswith("epoch 1 ") and any("fold_1" in before for before in lines):
                process.terminate()
        errors = process.stderr.read()
    assert "Terminated. Continue with resume=" in errors
    assert [(tmp_path / "runs" / "ended" / f"fold_{fold}" / "result.json").exists() for fold in range(3)] == [True, False, False]
    code, out, err = cli("resume=last")
    assert code == 0, err
    assert "fold_0 (1 of 3) is complete" in out + err
    assert metrics_of(tmp_path / "runs" / "ended") == metrics_of(tmp_path / "whole")
