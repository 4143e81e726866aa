"""A run that is killed at any moment and resumed is bit for bit the same as an uninterrupted one."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from dataclasses import replace
from functools import partial
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
import torch
from lightning import Callback, Trainer
from rich.console import Console
from run_cases import assert_same_run, log_of, train_and_copy
from waiting import wait_until

from molgcn.errors import UserError
from molgcn.training.checkpoint_file import load_checkpoint
from molgcn.training.resume import prepare_resume
from molgcn.training.train import train

TRAIN = Path(__file__).parents[2] / "train.py"
VARIANTS: dict[str, dict[str, Any]] = {
    "rich": {
        "model": {"dropout": 0.2},
        "training": {"ema_decay": 0.9, "accumulate_batches": 2, "gradient_clip_norm": 1.0},
        "dataset": {"descriptors": ["tpsa"]},
        "scheduler": {"name": "plateau", "patience": 0},
    },
    "onecycle": {"scheduler": {"name": "onecycle"}, "model": {"norm": "layer", "dropout": 0.1}},
    "exponential": {"scheduler": {"name": "exponential", "warmup_epochs": 0.5, "start_lr": 1e-4, "min_lr": 1e-5}},
    "max_steps": {"trainer": {"max_steps": 17, "max_epochs": -1}, "model": {"dropout": 0.2}},
    "double": {"trainer": {"precision": "64-true"}, "training": {"ema_decay": 0.9}},
    "early_stopping": {"callbacks": {"early_stopping_patience": 1, "early_stopping_min_delta": 10.0}},
    "validation_within_epoch": {"trainer": {"val_check_interval": 3}, "scheduler": {"name": "plateau", "patience": 0}},
    "fused": {"backend": {"name": "fused"}, "model": {"dropout": 0.1}},
    "packed_loader": {"loader": {"name": "packed"}, "model": {"dropout": 0.1}},
    "warmup_sgd": {"optimizer": {"name": "sgd", "lr": 0.01, "momentum": 0.9}, "scheduler": {"name": "cosine", "warmup_epochs": 1.5}},
}


@pytest.mark.parametrize("variant", [pytest.param(name, marks=() if name == "rich" else pytest.mark.slow) for name in VARIANTS])
def test_every_checkpoint_leads_to_the_same_end(variant, tmp_path, small_config):
    changes = dict(VARIANTS[variant])
    changes["training"] = {"checkpoint_seconds": 0, **changes.get("training", {})}
    config = small_config(**changes)
    finished, copies = train_and_copy(config, tmp_path / "run")
    assert len(copies) >= 8
    for copy in copies:
        with open(copy / "metrics.csv", "a") as file:
            file.write("9,9,written after the checkpoint\n")
        resumed = train(replace(config, resume=str(copy)), copy)
        assert_same_run(copy, tmp_path / "run")
        assert resumed.metrics == pytest.approx(finished.metrics, abs=0, rel=0, nan_ok=True)
        assert resumed.epochs == finished.epochs


PACKED = {"loader": {"name": "packed"}, "training": {"ema_decay": 0.9}}


class StopsAfter(Callback):
    """A callback that stops after a number of batches, as Lightning's timer of `trainer.max_time` does."""

    def __init__(self, batches: int) -> None:
        self.left = batches

    def on_train_batch_end(self, trainer: Trainer, *args: Any) -> None:
        self.left -= 1
        trainer.should_stop = self.left == 0


@pytest.mark.parametrize(
    ("stops", "changes"),
    [
        ("max_steps", PACKED),
        pytest.param("max_time", {}, marks=pytest.mark.slow),
        pytest.param("max_steps", {}, marks=pytest.mark.slow),
        pytest.param("max_time", PACKED, marks=pytest.mark.slow),
    ],
    ids=str,
)
def test_a_run_that_ended_within_an_epoch_goes_on_there(stops, changes, tmp_path, small_config):
    changes = {**changes, "model": {"dropout": 0.2}, "scheduler": {"name": "constant"}}
    longer = small_config(**changes, trainer={"max_steps": 30, "max_epochs": -1})
    train(longer, tmp_path / "whole")
    shorter = small_config(**changes, trainer={"max_steps": 13 if stops == "max_steps" else 30, "max_epochs": -1})
    train(shorter, tmp_path / "run", [] if stops == "max_steps" else [StopsAfter(13)])
    assert load_checkpoint(tmp_path / "run" / "checkpoints" / "last.ckpt")["global_step"] == 13  # an epoch has eight
    resumed = [train(replace(config, resume=str(tmp_path / "run")), tmp_path / "run").epochs for config in (shorter, longer)]
    assert resumed == [2 if stops == "max_steps" else 4, 4]
    whole, run = (load_checkpoint(tmp_path / name / "checkpoints" / "last.ckpt") for name in ("whole", "run"))
    assert (run["global_step"], run["epoch"]) == (whole["global_step"], whole["epoch"]) == (30, 3)
    assert all(torch.equal(run["state_dict"][key], value) for key, value in whole["state_dict"].items())


def test_a_run_in_double_precision_goes_on_in_it(tmp_path, small_config):
    changes = {"training": {"ema_decay": 0.9}, "scheduler": {"name": "constant"}}
    options = {"precision": "64-true", "max_epochs": -1}
    longer = small_config(**changes, trainer={**options, "max_steps": 14})
    train(longer, tmp_path / "whole")
    train(small_config(**changes, trainer={**options, "max_steps": 5}), tmp_path / "run")
    train(replace(longer, resume=str(tmp_path / "run")), tmp_path / "run")
    assert_same_run(tmp_path / "run", tmp_path / "whole")


def test_a_run_that_ended_between_two_optimiser_steps_goes_on_before(tmp_path, small_config):
    changes = {"training": {"accumulate_batches": 3, "checkpoint_seconds": 0}, "scheduler": {"name": "constant"}}
    config = small_config(**changes, trainer={"max_epochs": 3})
    train(config, tmp_path / "whole")
    train(config, tmp_path / "run", [StopsAfter(13)])  # an epoch has eight batches, and the optimiser steps after 3, 6 and 8
    assert load_checkpoint(tmp_path / "run" / "checkpoints" / "last.ckpt")["global_step"] == 4
    train(replace(config, resume=str(tmp_path / "run")), tmp_path / "run")
    assert_same_run(tmp_path / "run", tmp_path / "whole")


def test_a_run_that_stopped_early_within_an_epoch_stays_stopped(tmp_path, small_config):
    callbacks = {"early_stopping_patience": 1, "early_stopping_min_delta": 10.0}  # nothing is an improvement
    config = small_config(callbacks=callbacks, trainer={"max_epochs": 9, "val_check_interval": 3})
    stopped = train(config, tmp_path)
    resumed = train(replace(config, resume=str(tmp_path)), tmp_path)
    assert (resumed.epochs, resumed.metrics) == (stopped.epochs, stopped.metrics)


def start(folder: Path, *overrides: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, str(TRAIN), f"hydra.run.dir={folder}", *overrides]
    return subprocess.Popen(command, cwd=folder.parent, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)


KILLED = [
    "dataset.subset=600",
    "dataset.features=zinc",
    "dataset.batch_size=16",
    "model.dropout=0.1",
    "model.hidden_channels=8",
    "model.num_layers=2",
    "backend=pyg",
    "training.checkpoint_seconds=0",
    "training.report=false",
    "logger=csv",
    "trainer.max_epochs=4",
    "trainer.accelerator=cpu",
]


def grown(metrics, seen, process):
    """Whether a run has written a checkpoint and more metrics than before, or has ended."""
    last = metrics.parent / "checkpoints" / "last.ckpt"
    return process.poll() is not None or (last.exists() and metrics.stat().st_size != seen)


@pytest.mark.slow
@pytest.mark.parametrize("kills", [1, 6])
def test_sigkill(kills, tmp_path):
    whole = start(tmp_path / "whole", *KILLED)
    assert whole.wait() == 0, whole.stderr
    folder = tmp_path / "killed"
    metrics = folder / "metrics.csv"
    process = start(folder, *KILLED)
    for number in range(kills):
        seen = metrics.stat().st_size if metrics.exists() else 0
        wait_until(partial(grown, metrics, seen, process))
        time.sleep(0.013 * number)  # another moment each time
        process.send_signal(signal.SIGKILL)
        process.wait()
        process = subprocess.Popen([sys.executable, str(TRAIN), f"resume={folder}"], cwd=tmp_path, stderr=subprocess.PIPE)
    assert process.wait() == 0
    assert_same_run(folder, tmp_path / "whole")


def test_a_resumed_run_has_the_patience_that_it_is_given(tmp_path, small_config):
    def epochs(patience, **again):
        callbacks = {"early_stopping_patience": patience, "early_stopping_min_delta": 10.0}  # nothing is an improvement
        return train(small_config(callbacks=callbacks, trainer={"max_epochs": 9}, **again), tmp_path).epochs

    assert epochs(1) == 2
    assert [epochs(patience, resume=str(tmp_path)) for patience in (1, 3)] == [2, 4]


def test_patience_counts_on_over_several_resumptions(tmp_path, small_config):
    """The best value and the validations since are those of the whole run, not of its latest part."""
    changes = {"callbacks": {"early_stopping_patience": 2}, "optimizer": {"lr": 0.05}, "scheduler": {"name": "constant"}}
    changes["model"] = {"norm": None}  # gradients of biases before batch norms are rounding alone, of which Adam makes steps of any sign
    epochs = train(small_config(**changes, trainer={"max_epochs": 30}), tmp_path / "whole").epochs
    assert 3 < epochs < 30
    for number in (*range(1, epochs, 3), 30):
        resume = str(tmp_path / "parts") if number > 1 else None
        found = train(small_config(**changes, trainer={"max_epochs": number}, resume=resume), tmp_path / "parts")
    assert found.epochs == epochs
    assert log_of(tmp_path / "parts") == log_of(tmp_path / "whole")


@pytest.mark.slow
def test_an_interrupt_ends_with_130_and_a_run_to_go_on_with(tmp_path):
    command = [sys.executable, str(TRAIN), f"hydra.run.dir={tmp_path / 'run'}", *KILLED, "trainer.max_epochs=4000"]
    process = subprocess.Popen(
        command,
        cwd=tmp_path,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),  # jobs in a shell's background ignore it
    )
    wait_until((tmp_path / "run" / "checkpoints" / "last.ckpt").exists)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert process.returncode in (130, -signal.SIGINT)
    assert f"Interrupted. Continue with resume={tmp_path / 'run'}." in errors and "Traceback" not in errors


def test_fewer_epochs_than_are_done(tmp_path, small_config):
    train(small_config(trainer={"max_epochs": 2}), tmp_path / "run")
    again = {"resume": str(tmp_path / "run")}
    with pytest.raises(UserError, match=r"max_epochs=1 is fewer than the 2 epochs .*best\.ckpt"):
        train(small_config(trainer={"max_epochs": 1}, **again), tmp_path / "run")
    done = train(small_config(trainer={"max_epochs": 2}, **again), tmp_path / "run")
    assert done.epochs == 2 and done.molecules_per_second is None
    done.print(console := Console(file=StringIO()))
    assert "nothing was left to train" in console.file.getvalue()
    assert train(small_config(trainer={"max_epochs": 3}, **again), tmp_path / "run").epochs == 3


def test_best_weights_that_are_gone_are_not_claimed(tmp_path, small_config, caplog):
    train(small_config(trainer={"max_epochs": 2}), tmp_path / "run")
    (tmp_path / "run" / "checkpoints" / "best.ckpt").unlink()
    done = train(small_config(trainer={"max_epochs": 3}, resume=str(tmp_path / "run")), tmp_path / "run")
    assert done.best_epoch == 3
    assert "best.ckpt is missing, the best weights so far (epoch" in caplog.text


def test_a_folder_with_a_run_is_not_overwritten(tmp_path, small_config):
    config = small_config(trainer={"max_epochs": 1})
    train(config, tmp_path / "run")
    last = tmp_path / "run" / "checkpoints" / "last.ckpt"
    before = last.read_bytes()
    with pytest.raises(UserError, match="already holds a run"):
        train(config, tmp_path / "run")
    assert last.read_bytes() == before
    asked = [f"hydra.run.dir={tmp_path / 'run'}", "model.num_layers=3"]
    for flags in ([], ["-cd=presets"]):
        with pytest.raises(UserError, match="already holds a run"):  # before Hydra writes there
            prepare_resume([*flags, *asked])
    for flag in ("--cfg=job", "--help", "-m"):
        assert prepare_resume([flag, *asked]) == [flag, *asked]


def test_another_architecture_is_refused(tmp_path, small_config):
    train(small_config(trainer={"max_epochs": 1}), tmp_path / "run")
    checkpoint = tmp_path / "run" / "checkpoints" / "best.ckpt"
    with pytest.raises(UserError, match=r"another architecture.*Give model\.hidden_channels=8"):
        train(small_config(model={"hidden_channels": 16}, ckpt_path=str(checkpoint)), tmp_path / "other")
    for number, path in enumerate((checkpoint, tmp_path / "run")):
        started = train(small_config(ckpt_path=str(path), trainer={"max_epochs": 1}, optimizer={"lr": 1e-12}), tmp_path / f"new-{number}")
        assert started.epochs == 1
    with pytest.raises(UserError, match=r"ckpt_path=.*: the folder holds neither checkpoints/best\.ckpt nor"):
        train(small_config(ckpt_path=str(tmp_path)), tmp_path / "new")


@pytest.mark.slow
def test_a_set_whose_molecules_are_drawn_goes_on_with_the_same(tmp_path, small_config):
    """ZINC's 12,000 molecules are drawn from a list by the name of the split that the run began with."""
    (tmp_path / "zinc.smi").write_text("\n".join("C" * (number % 9 + 2) for number in range(12_500)))
    dataset = {"name": "zinc", "path": str(tmp_path / "zinc.smi"), "targets": None, "subset": "12k", "batch_size": 1024}
    config = small_config(dataset=dataset, trainer={"max_epochs": 1})
    train(config, tmp_path / "run")
    longer = replace(config, resume=str(tmp_path / "run"), trainer={**config.trainer, "max_epochs": 2})
    assert train(longer, tmp_path / "run").epochs == 2
