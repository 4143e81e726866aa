"""The table and the picture of a sweep."""

import csv
import json
import math
import re
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import matplotlib.image
import numpy as np
import psutil
import pytest
from omegaconf import OmegaConf
from waiting import wait_until

from molgcn.cli import run_app
from molgcn.errors import UserError
from molgcn.process.signals import Terminated
from molgcn.search.sweep import SweepRun, SweepTable, print_runs, show_sweep, table_rows
from molgcn.search.sweep_plot import plot_sweep
from molgcn.training.result import RunResult, save_failure


def result(value, rate=1000.0):
    return {"metrics": {"train/mae/gap": 1.0, "test/mae/gap": value}, "names": ["gap"], "units": ["eV"], "molecules_per_second": rate}


RUNS = [
    SweepRun("0", ["optimizer.lr=0.01"], 0.5, result=result(0.25)),
    SweepRun("1", ["optimizer.lr=0.1"], None, "failed", note="val/loss is nan"),
    SweepRun("2", ["optimizer.lr=0.001"], 0.3, "pruned", result=result(0.125)),
    SweepRun("3", ["optimizer.lr=1"], math.nan),
]


def test_rows_best_first():
    header, *rows = table_rows(RUNS, "val/loss")
    assert header == ["job", "state", "overrides", "val/loss", "test MAE gap [eV]", "molecules/s"]
    assert [row[0] for row in rows] == ["2", "0", "1", "3"]
    assert rows[0] == ["2", "pruned", "optimizer.lr=0.001", "0.3", "0.125", "1000"]
    assert rows[2] == ["1", "failed", "optimizer.lr=0.1 (val/loss is nan)", "-", "-", "-"]
    assert [row[0] for row in table_rows(RUNS, "val/r2/gap", maximize=True)[1:]] == ["0", "2", "1", "3"]


def test_no_column_of_states_where_all_are_complete():
    assert table_rows(RUNS[:1], "val/loss")[0][:2] == ["job", "overrides"]
    assert len(table_rows(RUNS[1:2], "val/loss")[0]) == 5


def test_nothing_is_cut_on_a_narrow_terminal(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "75")
    runs = [SweepRun(str(job), [f"optimizer.lr=0.00{job}5", "model=gin"], 0.25, result=result(0.5)) for job in range(3)]
    print_runs("3 runs", runs, "val/loss")
    printed = capsys.readouterr().out
    assert "\u2026" not in printed
    assert all(word in printed for word in ("molecules/s", "val/loss", "0.5", "1000"))
    assert all(f"0.00{job}5" in printed for job in range(3))


def test_runs_on_other_targets_are_in_order_with_their_own_metrics(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    herg = {"metrics": {"test/roc_auc/herg": 0.875, "test/f1/herg": 0.5}, "names": ["herg"], "units": [""], "molecules_per_second": 10.0}
    two = {"metrics": {"test/mae/a": 0.5, "test/mae/b": 0.25}, "names": ["a", "b"], "units": ["", "eV"], "molecules_per_second": None}
    sets = ["cyp2c9_substrate_carbonmangels", "herg", "two"]
    runs = [SweepRun(str(9 + job), [f"dataset.set={name}"], 0.25 * (3 - job), result=result(0.5)) for job, name in enumerate(sets)]
    runs = [runs[0], replace(runs[1], result=herg), replace(runs[2], result=two), SweepRun("2", ["dataset.set=x"], None, "failed")]
    header, *rows = table_rows(runs, "val/loss")
    assert header == ["job", "state", "overrides", "val/loss", "metric", "test", "molecules/s"]
    assert [[row[0], *row[4:6]] for row in rows] == [
        ["2", "-", "-"],
        ["9", "MAE", "0.5"],
        ["10", "ROC_AUC", "0.875"],
        ["11", "MAE", "0.375"],
    ]
    print_runs("4 runs", runs, "val/loss")
    printed = capsys.readouterr().out
    assert all(word in printed for word in ("molecules/s", "ROC_AUC", "complete", "0.875"))
    assert max(map(len, printed.splitlines())) <= 80
    assert printed.count("\n") < 20  # overrides have room


def test_a_table_that_needs_more_than_the_terminal_is_not_cut(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    names = [f"SIDER{number}" for number in range(27)]
    many = {"metrics": {f"test/mae/{name}": 0.125 for name in names}, "names": names, "units": [""] * 27, "molecules_per_second": 1000.0}
    print_runs("1 run", [SweepRun("0", ["model=gin"], 0.25, result=many)], "val/loss")
    printed = capsys.readouterr().out
    assert printed.count("0.125") == 27 and "molecules/s" in printed


def test_a_multirun_is_gathered(tmp_path, capsys):
    for job, value in enumerate((0.5, 0.25)):
        folder = tmp_path / str(job)
        folder.mkdir()
        overrides = [f"optimizer.lr={10**-job}", "trainer.max_epochs=1"]
        (folder / "result.json").write_text(
            json.dumps({**result(value), "folder": str(folder), "overrides": overrides, "best_loss": value})
        )
    SweepTable().on_multirun_end(OmegaConf.create({"hydra": {"sweep": {"dir": str(tmp_path)}}}))
    printed = " ".join(capsys.readouterr().out.split())
    assert "2 runs in" in printed
    assert re.search(
        r"all with trainer\.max_epochs=1 .*│ 1 │ optimizer\.lr=0\.1 │ 0\.25 .*│ 0 │ optimizer\.lr=1 │ 0\.5 ", printed
    )  # what differs
    with open(tmp_path / "results.csv", newline="") as file:
        rows = [(row["job"], row["overrides"]) for row in csv.DictReader(file)]
    assert rows == [("1", "optimizer.lr=0.1 trainer.max_epochs=1"), ("0", "optimizer.lr=1 trainer.max_epochs=1")]
    assert (tmp_path / "sweep.png").exists()


@pytest.mark.parametrize(
    ("of_jobs", "objective", "order"),
    [
        ([("val/r2", True, 0.2), ("val/r2", True, 0.7), ("val/r2", True, None)], "val/r2", ["1", "0", "2"]),
        ([("val/mae", False, 0.2), ("val/mae", False, 0.7)], "val/mae", ["0", "1"]),
        ([("val/r2", True, 0.2), ("val/mae", False, 0.1)], "val/loss", ["1", "0"]),  # not comparable
    ],
)
def test_a_multirun_is_ranked_by_its_monitor(of_jobs, objective, order, tmp_path):
    for job, (monitor, maximize, value) in enumerate(of_jobs):
        (tmp_path / str(job)).mkdir()
        chosen = {"monitor": monitor, "maximize": maximize, "best_value": value}
        RunResult(tmp_path / str(job), 0.9 - job / 10, 1, 1, {"test/mae/gap": 1.0}, ("gap",), ("eV",), 10.0, **chosen).save([])
    assert show_sweep(tmp_path)
    with open(tmp_path / "results.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["job"] for row in rows] == order and objective in rows[0]


def test_a_job_without_a_result_is_shown_and_makes_the_exit_code(tmp_path, capsys):
    """The process or machine of the job does not matter."""
    config = OmegaConf.create({"hydra": {"sweep": {"dir": str(tmp_path)}}})
    for job in range(2):
        (tmp_path / str(job)).mkdir()
        save_failure(tmp_path / str(job), [f"seed={job}"], UserError("nothing at x.csv"))
    done = RunResult(tmp_path / "1", 0.5, 0, 1, {"test/mae/gap": 1.0}, ("gap",), ("eV",), 10.0)
    done.save(["seed=1"])  # the second attempt, in the same folder
    with pytest.raises(SystemExit) as exit:
        SweepTable().on_multirun_end(config)
    assert exit.value.code == 2
    with open(tmp_path / "results.csv", newline="") as file:
        rows = [(row["job"], row["state"], row["overrides"]) for row in csv.DictReader(file)]
    assert rows == [("1", "complete", "seed=1"), ("0", "failed", "seed=0 (nothing at x.csv)")]
    assert "failed" in capsys.readouterr().out


def test_a_job_that_was_killed_is_shown(tmp_path, capsys):
    (tmp_path / "3" / ".hydra").mkdir(parents=True)
    (tmp_path / "3" / ".hydra" / "overrides.yaml").write_text("- seed=3\n")
    assert not show_sweep(tmp_path)
    with open(tmp_path / "results.csv", newline="") as file:
        assert [(row["job"], row["state"], row["overrides"]) for row in csv.DictReader(file)] == [("3", "unfinished", "seed=3")]


@pytest.mark.parametrize(("end", "code"), [(KeyboardInterrupt, 130), (Terminated, 143)])
def test_a_sweep_that_is_interrupted_is_shown(end, code, tmp_path, capsys, monkeypatch):
    def interrupted(**_):
        SweepTable().on_multirun_start(OmegaConf.create({"hydra": {"sweep": {"dir": str(tmp_path)}}}))
        raise end

    (tmp_path / "0").mkdir()
    RunResult(tmp_path / "0", 0.5, 0, 1, {"test/mae/gap": 1.0}, ("gap",), ("eV",), 10.0).save(["seed=0"])
    monkeypatch.setattr("sys.argv", ["train.py"])
    monkeypatch.setattr("molgcn.cli.hydra.main", interrupted)
    with pytest.raises(SystemExit) as exit:
        run_app("train", print)
    assert exit.value.code == code and (tmp_path / "results.csv").exists()
    assert "1 run in" in capsys.readouterr().out


@pytest.mark.slow
@pytest.mark.parametrize(
    ("number", "to_a_job", "code"), [(signal.SIGTERM, False, 143), (signal.SIGKILL, False, -signal.SIGKILL), (signal.SIGKILL, True, 2)]
)
def test_jobs_side_by_side_that_are_killed(tmp_path, number, to_a_job, code):
    """No job goes on when the sweep is ended, and no job is missing in the table when another one is ended."""
    small = ["dataset.subset=200", "dataset.features=zinc", "model.hidden_channels=8", "model.num_layers=2", "logger=csv"]
    endless = ["trainer.max_epochs=1000000", "trainer.accelerator=cpu", "launcher=joblib", "seed=0,1,2", "hydra.sweep.dir=sweep"]
    command = [sys.executable, str(Path(__file__).parents[2] / "train.py"), "--multirun", *small, *endless]
    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as sweep:
        wait_until(lambda: len(list(tmp_path.glob("sweep/*/metrics.csv"))) >= 2)
        jobs = [process for process in psutil.Process(sweep.pid).children() if "LokyProcess" in " ".join(process.cmdline())]
        assert len(jobs) == 2
        (jobs[0] if to_a_job else sweep).send_signal(number)
        _, errors = sweep.communicate(timeout=60)
    assert sweep.returncode == code
    assert not psutil.wait_procs(jobs, timeout=10)[1]
    if to_a_job:
        assert errors.count("A job of the sweep was killed") == 1 and "Traceback" not in errors
        with open(tmp_path / "sweep" / "results.csv", newline="") as file:
            assert {row["job"]: row["state"] for row in csv.DictReader(file)} == {"0": "unfinished", "1": "unfinished"}


def test_the_result_of_an_earlier_run_is_not_hidden(tmp_path):
    RunResult(tmp_path, 0.5, 0, 1, {"test/mae/gap": 1.0}, ("gap",), ("eV",), 10.0).save(["seed=1"])
    save_failure(tmp_path, ["seed=1"], UserError("already holds a run"))
    assert [path.name for path in tmp_path.iterdir()] == ["result.json"]


def test_numbers_among_overrides_are_numbers():
    run = SweepRun("0", ["+model.width=32", "scheduler='a b'", "optimizer.lr=1e-3"], 1.0)
    assert run.params == {"model.width": 32.0, "scheduler": "a b", "optimizer.lr": 1e-3}


@pytest.mark.parametrize("count", [0, 1, 2, 40])
def test_the_picture_of_any_number_of_runs(count, tmp_path):
    states = ["complete", "pruned", "failed", "complete"]
    runs = [
        SweepRun(
            str(i),
            [f"optimizer.lr={10.0 ** (-i % 5)}", f"model.norm={['batch', '$layer'][i % 2]}", "same=1.0"],
            None if states[i % 4] == "failed" else 1 / (i + 1),
            states[i % 4],
        )
        for i in range(count)
    ]
    plot_sweep(runs, tmp_path / "sweep.png", "val/loss", importances={"optimizer.lr": 0.8})
    picture = matplotlib.image.imread(tmp_path / "sweep.png")
    assert np.isfinite(picture).all()
    wide = picture.shape[1] / picture.shape[0]
    assert wide > 2 if count == 40 else wide > 0.8  # three panels beside one another
