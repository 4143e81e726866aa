"""Mistakes on the command line end with a paragraph and exit code 2, never with a traceback."""

from __future__ import annotations

import csv
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from functools import partial
from importlib.metadata import version
from pathlib import Path

import pytest
import torch

from molgcn.cli import main
from molgcn.errors import UserError
from molgcn.training.result import RunResult

TRAIN = Path(__file__).parents[1] / "train.py"
FAST = [
    "dataset.subset=200",
    "dataset.features=zinc",
    "model.hidden_channels=8",
    "model.num_layers=2",
    "trainer.max_epochs=1",
    "logger=csv",
    "training.report=false",
]


def test_train_then_resume_for_longer(tmp_path, run_cli, cli):
    first = run_cli(*FAST)
    assert first.returncode == 0, first.stderr
    assert "test MAE" in first.stdout
    (folder,) = (tmp_path / "runs").iterdir()
    code, _, err = cli("resume=last", "trainer.max_epochs=3")
    assert code == 0, err
    assert list((tmp_path / "runs").iterdir()) == [folder]
    with open(folder / "metrics.csv", newline="") as file:
        assert {row["epoch"] for row in csv.DictReader(file)} == {"0", "1", "2"}
    assert json.loads((folder / "result.json").read_text())["overrides"] == [*FAST, "trainer.max_epochs=3"]


def test_multirun_keeps_going_and_tabulates(tmp_path, cli):
    code, out, err = cli("--multirun", "model.num_layers=2,0,3", *FAST[:3], *FAST[4:])
    assert code == 2
    assert "model.num_layers=0" in err
    assert "Traceback" not in err
    (sweep,) = (tmp_path / "multirun").iterdir()
    with open(sweep / "results.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert {row["job"]: row["state"] for row in rows} == {"0": "complete", "1": "failed", "2": "complete"}
    assert "model.num_layers=0: expected at least 1" in rows[-1]["overrides"]
    assert "molecules packed" not in out.split("#1", 1)[1]  # loaded once in the process


@pytest.mark.parametrize("given", [["hydra.mode=MULTIRUN"], ["--config-dir=presets", "experiment=many"]])
def test_several_jobs_may_be_asked_for_by_a_key_or_in_a_preset(given, tmp_path, cli):
    (tmp_path / "presets/experiment").mkdir(parents=True)
    (tmp_path / "presets/experiment/many.yaml").write_text("# @package _global_\nhydra:\n  mode: MULTIRUN\n")
    seeds = []

    def train(config, folder):
        seeds.append(config.seed)
        raise UserError("It is known.")

    assert cli(*given, "seed=3,4", main=partial(main, train))[0] == 2
    assert seeds == [3, 4]


def test_an_error_of_ours_or_a_full_gpu_ends_only_its_job(tmp_path, cli):
    errors = iter([ValueError("a bug"), torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")])

    def train(config, folder):
        if config.seed < 2:
            raise next(errors)
        return RunResult(folder, 0.5, 0, 1, {}, (), (), 10.0)

    code, _, err = cli("--multirun", "seed=0,1,2", main=partial(main, train))
    assert code == 2
    assert "ValueError: a bug" in err
    assert "Error: Memory is full: CUDA out of memory. Tried to allocate 2.00 GiB. Lower the batch size" in err
    (table,) = tmp_path.glob("multirun/*/results.csv")
    with open(table, newline="") as file:
        assert {row["job"]: row["state"] for row in csv.DictReader(file)} == {"0": "failed", "1": "failed", "2": "complete"}


MISTAKES = {
    "no such file": (["dataset=csv", "dataset.path=nowhere.csv", "dataset.targets=[y]"], "nowhere.csv"),
    "empty file": (["dataset=csv", "dataset.path=empty.csv", "dataset.targets=[y]"], "empty.csv"),
    "wrong column": (["dataset=csv", "dataset.path=good.csv", "dataset.targets=[yy]"], "yy"),
    "text for a number": (["dataset=csv", "dataset.path=text.csv", "dataset.targets=[y]"], "row"),
    "all targets missing": (["dataset=csv", "dataset.path=missing.csv", "dataset.targets=[y]"], "y"),
    "one molecule": (["dataset=csv", "dataset.path=one.csv", "dataset.targets=[y]"], "split"),
    "bad SMILES": (["dataset=csv", "dataset.path=bad.csv", "dataset.targets=[y]"], "C1CC"),
    "unknown key": (["model.hiden_channels=3"], "Did you mean model.hidden_channels"),
    "unknown group option": (["dataset=qm"], "Did you mean qm9"),
    "key that is there, with a +": (["+trainer.limit_train_batches=2"], "Leave the + out: trainer.limit_train_batches=2"),
    "nothing to delete": (["~trainer.detect_anomaly"], "does not exist"),
    "bad type": (["optimizer.lr=fast"], "optimizer.lr"),
    "bad range": (["training.ema_decay=2"], "training.ema_decay"),
    "no write permission": (["hydra.run.dir=good.csv/run"], "hydra.run.dir"),
    "no place for folders": (["hydra.run.dir=/proc/run"], "hydra.run.dir"),
    "another task's loss": (
        ["task=classification", "training.loss=l1", "dataset=csv", "dataset.path=nowhere.csv", "dataset.targets=[y]"],
        "training.loss=l1 does not go with task=classification",
    ),
    "another task's metric": (
        ["task=regression", "training.metrics=[roc_auc]", "dataset=csv", "dataset.path=nowhere.csv", "dataset.targets=[y]"],
        "training.metrics names roc_auc, no metric of task=regression",
    ),
    "nothing to resume": (["resume=last"], "finds no run"),
    "no checkpoint": (["ckpt_path=nowhere.ckpt", FAST[0]], "nowhere.ckpt"),
    "not key=value": (["dataset"], "key=value"),
    "too large for any memory": (["model.hidden_channels=20000000", FAST[0]], "Memory is full"),
    "no seed": (["dataset.split_seed=-1"], "dataset.split_seed=-1"),
    "half an epoch": (["trainer.max_epochs=1.5"], "trainer.max_epochs=1.5 is not valid: expected a whole number"),
    "a number for a time": (["+trainer.max_time=5"], "as in '00:01:30:00'"),
    "no TPU": (["trainer.accelerator=tpu"], "torch_xla"),
    "a flag between": (["dataset=csv", "--multirun", "dataset.path=nowhere.csv", "dataset.targets=[y]"], "nowhere.csv"),
    "no YAML": (["--config-dir", "presets", "experiment=broken"], "broken.yaml"),
    "two folders of presets": (["--config-dir", "presets", "--config-dir=presets"], "given 2 times"),
    "another network's option": (
        ["model.heads=2"],
        "model.heads is not a key of the configuration. It is one with model=gat, model=gatv2.",
    ),
    "an option that a network cannot have": (["model=dmpnn", "model.norm=batch"], "model.norm=batch does not go with dmpnn"),
    "bonds without features": (["model=gine", "dataset.features=general:1", "dataset.subset=40"], "no features of bonds"),
}


@pytest.fixture
def files(tmp_path) -> Path:
    good = [f"{'C' * n}O,{n}" for n in range(1, 20)]
    contents = {
        "good": good,
        "empty": [],
        "text": [*good, "CC,much"],
        "missing": [f"{'C' * n}O," for n in range(1, 20)],
        "one": good[:1],
        "bad": [*good, "C1CC,3"],
    }
    for name, rows in contents.items():
        (tmp_path / f"{name}.csv").write_text("\n".join(["smiles,y", *rows]) + "\n" if rows else "")
    (tmp_path / "presets" / "experiment").mkdir(parents=True)
    (tmp_path / "presets" / "experiment" / "broken.yaml").write_text("model: [")
    return tmp_path


# Others are raised in the same places.
QUICK = ("no such file", "bad SMILES", "bad type", "a flag between", "no YAML", "two folders of presets")
QUICK += ("unknown key", "unknown group option", "key that is there, with a +", "nothing to delete", "nothing to resume", "no checkpoint")
QUICK += ("not key=value", "no write permission", "half an epoch", "no TPU", "no place for folders", "another task's loss")
QUICK += ("an option that a network cannot have",)


@pytest.mark.parametrize("name", [name if name in QUICK else pytest.param(name, marks=pytest.mark.slow) for name in MISTAKES])
def test_mistakes_end_in_a_paragraph(name, files, cli):
    arguments, expected = MISTAKES[name]
    code, out, err = cli(*arguments)
    assert code == 2, out + err
    assert "Traceback" not in err
    message = err.split("Error: ", 1)[1]
    assert expected in message
    assert "\n" not in message.strip()


def test_submitit_needs_slurm(files, cli, monkeypatch):
    monkeypatch.setenv("PATH", str(files))
    code, _, err = cli("--multirun", "launcher=submitit", "seed=0,1")
    assert code == 2
    assert "hydra/launcher=submitit_local" in err


def test_jobs_that_slurm_refuses_end_in_a_paragraph(files, cli, monkeypatch):
    for name in ("srun", "sbatch"):
        (files / name).write_text(f"#!/bin/sh\necho '{name}: error: Invalid generic resource (gres) specification' >&2\nexit 1\n")
        (files / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(files), prepend=os.pathsep)
    code, out, err = cli("--multirun", "launcher=submitit", "seed=0,1")
    assert code == 2, out + err
    assert "Traceback" not in err
    assert "SLURM refused the jobs of the sweep: Invalid generic resource (gres) specification. Change" in err


def test_skip_leaves_bad_rows_out_and_lists_them(files, cli):
    code, _, err = cli(
        "dataset=csv", "dataset.path=bad.csv", "dataset.targets=[y]", "dataset.on_error=skip", "hydra.run.dir=run", *FAST[2:]
    )
    assert code == 0, err
    assert "C1CC" in (files / "run" / "skipped.csv").read_text()


@pytest.mark.parametrize(
    "name", ["a, (b)", *(pytest.param(name, marks=pytest.mark.slow) for name in ("with space", "a=b", "it's", "x%y", "ünïcode"))]
)
def test_paths_of_every_kind_work(name, files, cli):
    folder = files / name
    folder.mkdir()
    os.rename(files / "good.csv", folder / "good.csv")
    code, _, err = cli("dataset=csv", f"dataset.path={name}/good.csv", "dataset.targets=[y]", f"hydra.run.dir={name}/run", *FAST[2:])
    assert code == 0, err
    assert (folder / "run" / "metrics.csv").exists()
    code, _, err = cli(f"resume={name}/run", "trainer.max_epochs=2")
    assert code == 0, err
    assert len((folder / "run" / "metrics.csv").read_text().splitlines()) == 5


def test_cfg_prints_the_configuration(cli, tmp_path):
    code, out, _ = cli("--cfg", "job", "model.num_layers=7")
    assert code == 0
    assert "num_layers: 7" in out
    assert list(tmp_path.iterdir()) == []


def test_a_log_that_cannot_be_written(files, cli):
    (files / "run").mkdir()
    (files / "run" / "train.log").symlink_to(files / "good.csv" / "train.log")  # no folder
    code, _, err = cli("hydra.run.dir=run", "logger=csv")
    assert code == 2
    assert re.search(r"Writing failed at \S*run/train\.log: ", err) and "Traceback" not in err


@pytest.mark.parametrize(("folder", "reason"), [("x" * 300, "File name too long"), ("good.csv", "File exists")])
def test_a_folder_that_cannot_be_made(files, cli, folder, reason):
    """A full disk is not the reason."""
    code, _, err = cli(f"hydra.run.dir={folder}", "logger=csv")
    assert code == 2
    assert "Writing failed at" in err and f"{reason}. Choose a folder that can be written" in err and "Traceback" not in err


def test_a_link_to_a_folder_that_is_not_there(tmp_path, cli):
    (tmp_path / "runs").symlink_to(tmp_path / "scratch" / "runs")
    code, _, err = cli("logger=csv")
    assert code == 2
    assert "Writing failed at runs: it links to a folder that is not there." in err
    assert "Traceback" not in err


def test_the_garbage_collector_rests_only_while_modules_are_imported(tmp_path):
    (tmp_path / "slow.py").write_text("import gc\nprint(gc.isenabled())\n")
    body = "import gc; print(gc.isenabled(), gc.get_freeze_count() > 0)"
    (tmp_path / "job.py").write_text(
        f"from molgcn.cli import run_app\ndef job(config):\n    {body}\nrun_app('predict', job, imports=['slow'])\n"
    )
    done = subprocess.run([sys.executable, "-m", "job"], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "True", "True"]


@pytest.mark.parametrize("body", ["raise KeyboardInterrupt", "exec('raise KeyboardInterrupt')"])
def test_an_interrupt_ends_with_130(tmp_path, body):
    """This also holds for an interrupt while Python executes a string, as dataclasses do when they are made."""
    (tmp_path / "job.py").write_text(f"from molgcn.cli import run_app\ndef job(config):\n    {body}\nrun_app('predict', job)\n")
    ended = subprocess.run([sys.executable, "-m", "job"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert ended.returncode == 130
    assert ended.stderr.endswith("Interrupted.\n")


@pytest.mark.slow
def test_an_interrupt_while_modules_are_imported_is_one_line(tmp_path):
    """Imports take seconds, within libraries that mistake a KeyboardInterrupt for a failure of their own."""
    command = [sys.executable, str(TRAIN), *FAST[:4], "trainer.max_epochs=100000", "logger=csv"]
    for delay in (0.3, 0.6, 1.0, 1.5, 2.0, 2.5, 3.0):
        listens = {"preexec_fn": lambda: signal.signal(signal.SIGINT, signal.default_int_handler)}
        with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, **listens) as process:
            time.sleep(delay)
            process.send_signal(signal.SIGINT)
            printed = process.communicate(timeout=60)[1]
        assert process.returncode == 130, printed
        assert re.fullmatch(r"\nInterrupted\.( Continue with resume=\S+\.)?\n", printed)


def test_a_terminated_run_ends_with_143(tmp_path):
    """A script must not mistake it for a finished run."""
    command = [sys.executable, str(TRAIN), *FAST[:4], "trainer.max_epochs=100000", *FAST[5:]]
    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout and process.stderr
        for line in process.stdout:
            if line.startswith("epoch 1 "):
                process.terminate()
                break
        process.stdout.read()
        printed = process.stderr.read()
        assert process.wait(60) == 143, printed
        assert re.search(r"\nTerminated\.( Continue with resume=\S+\.)?\n$", printed)


def test_damaged_notes_of_a_run_are_noticed_before_it_goes_on(trained_run, tmp_path, cli):
    shutil.copytree(trained_run.folder, tmp_path / "run")
    (tmp_path / "run" / ".hydra").mkdir()
    (tmp_path / "run" / ".hydra" / "overrides.yaml").write_text("- [")
    before = (tmp_path / "run" / "metrics.csv").read_bytes()
    code, _, errors = cli("resume=run", "trainer.max_epochs=3")
    assert code == 2
    assert "overrides.yaml is damaged or cannot be read" in errors
    assert (tmp_path / "run" / "metrics.csv").read_bytes() == before


def test_the_version_is_that_of_molgcn(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["train.py", "--version"])
    main()
    assert capsys.readouterr().out == f"molgcn {version('molgcn')}\n"
