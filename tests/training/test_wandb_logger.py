import csv
import logging
import shlex
import subprocess
import sys

import pytest
from fake_wandb import FakeRun

from molgcn.config.run import LoggerConfig
from molgcn.errors import UserError
from molgcn.training.train import train
from molgcn.training.wandb_logger import Wandb, wandb_mode

KEY = "0123456789" * 4

pytestmark = pytest.mark.usefixtures("no_wandb", "empty_figures")


@pytest.fixture
def logged_in(monkeypatch):
    """Set a key that the client accepts without the process that would check it."""
    monkeypatch.setattr("wandb.login", lambda **_: True)


@pytest.mark.parametrize("mode", ["online", "offline", "disabled"])
@pytest.mark.parametrize("key", [None, KEY])
def test_the_environment_decides_first(monkeypatch, mode, key):
    monkeypatch.setenv("WANDB_MODE", mode)
    if key is not None:
        monkeypatch.setenv("WANDB_API_KEY", key)
    assert wandb_mode() == mode


def test_dryrun_is_offline(monkeypatch):
    monkeypatch.setenv("WANDB_MODE", "dryrun")
    assert wandb_mode() == "offline"


def test_without_a_key_it_is_offline_and_nobody_is_asked(caplog, capfd):
    assert wandb_mode() == "offline"
    assert caplog.messages == []  # a prompt would fail, since there is nobody at the terminal, and that would be told
    assert capfd.readouterr() == ("", "")


def test_with_a_key_in_the_environment_it_is_online(monkeypatch):
    monkeypatch.setenv("WANDB_API_KEY", KEY)
    assert wandb_mode() == "online"


@pytest.mark.slow
def test_with_a_key_in_netrc_it_is_online(monkeypatch, tmp_path):
    (tmp_path / "netrc").write_text(f"machine 127.0.0.1:9\n  login user\n  password {KEY}\n")
    (tmp_path / "netrc").chmod(0o600)
    assert wandb_mode() == "online"


def test_a_key_that_is_none_is_said_and_does_not_stop_the_run(monkeypatch, tmp_path, caplog):
    monkeypatch.setenv("WANDB_API_KEY", "too short")
    logger = Wandb(tmp_path, LoggerConfig(), {})
    assert logger.mode == "offline"
    assert "W&B stays offline: WANDB_API_KEY invalid" in caplog.text
    logger.finish(failed=False)
    assert list(tmp_path.glob("wandb/offline-run-*/*.wandb"))


def test_what_a_run_sends(logged_in, wandb_runs, small_config, tmp_path):
    changes = {"logger": {"name": "wandb", "project": "p", "group": "g", "tags": ["a"]}, "training": {"report": True}}
    result = train(small_config(**changes), tmp_path / "my run")
    (run,) = wandb_runs
    options = run.options
    assert (options["mode"], options["project"], options["group"], options["tags"]) == ("online", "p", "g", ["a"])
    assert options["name"] == "my run"
    assert options["config"]["model"]["hidden_channels"] == 8
    names = {name for row in run.logged for name in row}
    assert {"train/loss", "val/loss", "val/mae/logp", "throughput/molecules_per_second", "lr", "parity", "learning_curve"} <= names
    assert all(row["trainer/global_step"] > 0 for row in run.logged if "val/loss" in row)
    assert run.summary == result.metrics
    assert run.exit_code == 0


def test_a_real_offline_run_ends_with_the_line_that_uploads_it(small_config, tmp_path, caplog):
    import wandb

    caplog.set_level(logging.INFO)
    folder = tmp_path / "a run"
    for epochs, resume in ((1, None), (2, str(folder))):
        train(small_config(logger={"name": "wandb"}, trainer={"max_epochs": epochs}, resume=resume), folder)
        assert wandb.run is None
    line, same = [record.message for record in caplog.records if "wandb sync" in record.message]
    assert line == same
    command = [sys.executable, "-m", *shlex.split(line.split("this run: ")[1]), "--dry-run"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "Would sync 2 run(s)" in done.stderr  # W&B uploads the parts of a run in the order of their times


@pytest.mark.slow
def test_a_key_without_a_network_ends_offline(monkeypatch, tmp_path):
    """The real client gives up after 30 s and the run is kept on disk."""
    monkeypatch.setenv("WANDB_API_KEY", KEY)
    logger = Wandb(tmp_path, LoggerConfig(), {})
    assert logger.mode == "offline"
    logger.log_metrics({"train/loss": 1.0}, step=1)
    logger.finish(failed=False)
    assert list(tmp_path.glob("wandb/offline-run-*/*.wandb"))


def test_disabled_is_no_run_at_all(monkeypatch, wandb_runs, tmp_path):
    monkeypatch.setenv("WANDB_MODE", "disabled")
    logger = Wandb(tmp_path, LoggerConfig(), {})
    logger.log_metrics({"a": 1.0}, 1)
    logger.finish(failed=False)
    assert wandb_runs == []
    assert not (tmp_path / "wandb_id.txt").exists()


def test_a_service_that_fails_midway_does_not_stop_training(monkeypatch, small_config, tmp_path, caplog):
    monkeypatch.setattr("wandb.init", lambda **options: FakeRun(options, fail_from=2))
    result = train(small_config(logger={"name": "wandb"}, training={"report": True}), tmp_path)
    assert result.epochs == 2
    assert len([record for record in caplog.records if "W&B failed" in record.message]) == 1
    with open(tmp_path / "metrics.csv") as file:
        assert sum(bool(row["val/loss"]) for row in csv.DictReader(file)) == 2


def test_a_service_that_does_not_start_does_not_stop_training(logged_in, monkeypatch, small_config, tmp_path, caplog):
    import wandb

    modes = []

    def init(**options):
        modes.append(options["mode"])
        raise wandb.errors.CommError("no service")

    monkeypatch.setattr("wandb.init", init)
    assert train(small_config(logger={"name": "wandb"}, trainer={"max_epochs": 1}), tmp_path).epochs == 1
    assert modes == ["online", "offline"]
    assert "no service" in caplog.text


def test_runs_of_one_process_are_apart_and_finished(wandb_runs, small_config, tmp_path):
    """In a multirun the first run is finished before the second starts, a failed one as failed."""
    config = small_config(logger={"name": "wandb"}, trainer={"max_epochs": 1})
    train(config, tmp_path / "0")
    assert wandb_runs[0].exit_code == 0
    with pytest.raises(UserError):
        train(small_config(logger={"name": "wandb"}, optimizer={"lr": 1e30}), tmp_path / "1")
    train(config, tmp_path / "2")
    assert [run.exit_code for run in wandb_runs] == [0, 1, 0]
    assert len({run.id for run in wandb_runs}) == 3


def test_a_resumed_run_continues_its_own(logged_in, wandb_runs, small_config, tmp_path):
    train(small_config(logger={"name": "wandb"}, trainer={"max_epochs": 1}), tmp_path)
    train(small_config(logger={"name": "wandb"}, resume=str(tmp_path)), tmp_path)
    first, second = wandb_runs
    assert first.id == second.id == (tmp_path / "wandb_id.txt").read_text()
    assert second.options["resume"] == "allow"
    steps = [row["trainer/global_step"] for run in wandb_runs for row in run.logged if "val/loss" in row]
    assert len(steps) == 2
    assert steps == sorted(steps)
