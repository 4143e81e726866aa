"""Trials of killed processes are noticed and their parameters tried again; trials of living ones are left alone."""

import os
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing
from functools import partial
from pathlib import Path

import psutil
import pytest
from studies import SPACE, study_in, table, trained
from waiting import wait_until

from molgcn.search.search import SearchConfig
from molgcn.search.search import search as search_and_train
from molgcn.search.study import next_trial

pytestmark = pytest.mark.usefixtures("blank_figures")
TRAIN = Path(__file__).parents[2] / "train.py"
search = partial(search_and_train, train=trained)


def states(study):
    return [trial.state.name for trial in study.trials]


def kill_within(folder, rate, reported=1e-4):
    """Leave a trial as a process does that is killed after a validation."""
    study = study_in(folder)
    study.enqueue_trial({"optimizer.lr": rate})
    trial = study.ask()
    trial.suggest_categorical("optimizer.lr", SPACE["optimizer"]["lr"])
    trial.report(reported, 0)


def test_a_killed_trial_is_marked_not_ranked_and_tried_again(tmp_path, compose, capsys):
    settings = SearchConfig(n_trials=1, params=SPACE)
    search(settings, compose, tmp_path)
    kill_within(tmp_path, 0.03)
    capsys.readouterr()
    search(SearchConfig(n_trials=3, params=SPACE), compose, tmp_path)
    study = study_in(tmp_path)
    assert states(study) == ["COMPLETE", "FAIL", "COMPLETE", "COMPLETE"]
    assert study.trials[2].params == study.trials[1].params == {"optimizer.lr": 0.03}
    rows = table(tmp_path)
    assert [row["job"] for row in rows][-1] == "1" and [row["state"] for row in rows] == [*["complete"] * 3, "interrupted"]
    assert rows[-1]["val/loss"] == "-"
    said = capsys.readouterr().out
    assert "3 trials, 1 interrupted in" in said
    search(SearchConfig(n_trials=4, params=SPACE), compose, tmp_path)
    assert states(study)[4:] == ["COMPLETE"]  # once


def test_parameters_that_end_each_process_are_given_up(tmp_path, compose):
    search(SearchConfig(n_trials=1, params=SPACE), compose, tmp_path)
    kill_within(tmp_path, 0.03)

    class Killed(BaseException):
        pass

    def dies(config, folder, watchers):
        raise Killed

    for _ in range(3):
        with pytest.raises(Killed):
            search(SearchConfig(n_trials=2, params=SPACE), compose, tmp_path, train=dies)
    search(SearchConfig(n_trials=2, params=SPACE), compose, tmp_path)
    study = study_in(tmp_path)
    assert states(study) == ["COMPLETE", *["FAIL"] * 4, "COMPLETE"]
    assert {trial.params["optimizer.lr"] for trial in study.trials[1:5]} == {0.03}
    assert "retry_of" not in study.trials[5].user_attrs


def test_a_trial_of_a_living_process_is_left_alone(tmp_path, compose, capsys):
    search(SearchConfig(n_trials=1, params=SPACE), compose, tmp_path)
    study = study_in(tmp_path)
    with next_trial(study, tmp_path) as living:
        search(SearchConfig(n_trials=3, params=SPACE), compose, tmp_path)
        assert states(study) == ["COMPLETE", "RUNNING", "COMPLETE", "COMPLETE"]
        assert "3 trials, 1 running in" in capsys.readouterr().out
        study.tell(living, 0.5)
    assert not list(tmp_path.glob(".trial-*"))


def stop_between_writes(process, database):
    """Stop a process at a moment when it does not write into the study, for which others would wait until it goes on."""
    while True:
        process.send_signal(signal.SIGSTOP)
        wait_until(lambda: psutil.Process(process.pid).status() == psutil.STATUS_STOPPED)
        with closing(sqlite3.connect(database, timeout=0)) as connection:
            try:
                connection.execute("BEGIN IMMEDIATE")
            except sqlite3.OperationalError:
                process.send_signal(signal.SIGCONT)
            else:
                return


@pytest.mark.slow
def test_a_process_that_is_stopped_goes_on_and_one_that_is_killed_is_noticed(tmp_path):
    """A second process joins in the meantime."""
    small = ["dataset.subset=200", "dataset.features=zinc", "model.num_layers=2", "model.hidden_channels=8", "logger=csv"]
    command = [sys.executable, str(TRAIN), "sweep=optuna", *small, "hydra.run.dir=study", "sweep.pruning=false"]
    command += ["trainer.max_epochs=300", "training.checkpoint_seconds=0"]

    def begin(trials):
        return subprocess.Popen(
            [*command, f"sweep.n_trials={trials}"], cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )

    killed = begin(1)
    wait_until((tmp_path / "study" / "0" / "checkpoints" / "last.ckpt").exists)
    killed.kill()
    killed.communicate()
    stopped = begin(2)
    wait_until((tmp_path / "study" / "1" / "checkpoints" / "last.ckpt").exists)
    stop_between_writes(stopped, tmp_path / "study" / "study.db")
    joined = begin(1)
    said, _ = joined.communicate(timeout=200)
    assert joined.returncode == 0 and "1 trial, 1 running, 1 interrupted in" in said, said
    study = study_in(tmp_path / "study", "optuna_builtin")
    assert states(study) == ["FAIL", "RUNNING", "COMPLETE"]
    assert study.trials[1].params == study.trials[0].params
    os.kill(stopped.pid, signal.SIGCONT)
    said, _ = stopped.communicate(timeout=200)
    assert stopped.returncode == 0, said
    assert states(study) == ["FAIL", "COMPLETE", "COMPLETE"]
