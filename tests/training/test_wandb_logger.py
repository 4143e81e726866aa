import csv
import logging
import os
from pathlib import Path
from types import SimpleNamespace

import pytest
import wandb

from molgcn.config import LoggerConfig
from molgcn.errors import UserError
from molgcn.training.train import train
from molgcn.training.wandb_logger import Wandb, wandb_mode


class FakeRun:
    """Stands for `wandb.Run`: keeps what it is told, and fails from the `fail_from`-th call to `log` on."""

    def __init__(self, options, fail_from=None):
        self.options = options
        self.id = options["id"]
        self.settings = SimpleNamespace(sync_dir=f"{options['dir']}/wandb/offline-run-1-{self.id}")
        self.fail_from = fail_from
        self.logged = []
        self.summary = {}
        self.exit_code = None

    def define_metric(self, *args, **kwargs):
        pass

    def log(self, values):
        if self.fail_from is not None and len(self.logged) >= self.fail_from:
            raise ConnectionError("the service is gone")
        self.logged.append(values)

    def finish(self, exit_code):
        self.exit_code = exit_code


@pytest.fixture(autouse=True)
def alone(monkeypatch, tmp_path):
    """No key, no configured mode and no network, whatever the machine has."""
    for name in [name for name in os.environ if name.startswith("WANDB_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    monkeypatch.setenv("WANDB_CONFIG_DIR", str(tmp_path / "wandb-config"))
    monkeypatch.setenv("WANDB_CACHE_DIR", str(tmp_path / "wandb-cache"))

    monkeypatch.setenv("WANDB_BASE_URL", "http://127.0.0.1:9")  # nobody listens there
    wandb.teardown()  # forgets credentials that another test has loaded
    yield
    wandb.teardown()


@pytest.fixture
def runs(monkeypatch):
    """Replaces `wandb.init`; the list fills with the runs it started."""
    started = []

    def init(**options):
        started.append(FakeRun(options))
        return started[-1]

    monkeypatch.setattr(wandb, "init", init)
    return started


@pytest.mark.parametrize("mode", ["online", "offline", "disabled"])
def test_the_environment_decides_first(monkeypatch, mode):
    monkeypatch.setenv("WANDB_MODE", mode)
    monkeypatch.setattr(wandb, "login", lambda **_: pytest.fail("asked for a key"))
    assert wandb_mode() == mode


def test_dryrun_is_offline(monkeypatch):
    monkeypatch.setenv("WANDB_MODE", "dryrun")
    assert wandb_mode() == "offline"


def test_without_a_key_it_is_offline_and_nobody_is_asked(monkeypatch):
    monkeypatch.setattr("builtins.input", lambda *_: pytest.fail("a prompt"))
    assert wandb_mode() == "offline"


def test_with_a_key_in_the_environment_it_is_online(monkeypatch):
    monkeypatch.setenv("WANDB_API_KEY", "0123456789" * 4)
    assert wandb_mode() == "online"


def test_with_a_key_in_netrc_it_is_online(monkeypatch, tmp_path):
    (tmp_path / "netrc").write_text(f"machine 127.0.0.1:9\n  login user\n  password {'0123456789' * 4}\n")
    (tmp_path / "netrc").chmod(0o600)
    assert wandb_mode() == "online"


def test_a_key_that_is_none_is_said_and_does_not_stop_the_run(monkeypatch, tmp_path, caplog):
    monkeypatch.setenv("WANDB_API_KEY", "too short")
    logger = Wandb(tmp_path, LoggerConfig(), {})
    assert logger.mode == "offline"
    assert "W&B stays offline: WANDB_API_KEY invalid" in caplog.text
    logger.finish(failed=False)
    assert list(tmp_path.glob("wandb/offline-run-*/*.wandb"))


def test_what_a_run_sends(monkeypatch, runs, small_config, tmp_path):
    monkeypatch.setattr(wandb, "login", lambda **_: True)
    changes = {"logger": {"name": "wandb", "project": "p", "group": "g", "tags": ["a"]}, "training": {"report": True}}
    result = train(small_config(**changes), tmp_path / "my run")
    (run,) = runs
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
    caplog.set_level(logging.INFO)
    train(small_config(logger={"name": "wandb"}, trainer={"max_epochs": 1}), tmp_path / "run")
    (line,) = [record.message for record in caplog.records if "wandb sync" in record.message]
    folder = Path(line.split("wandb sync ")[1])
    assert folder.is_relative_to(tmp_path / "run")
    assert list(folder.glob("*.wandb"))
    assert wandb.run is None


@pytest.mark.slow
def test_a_key_without_a_network_ends_offline(monkeypatch, tmp_path):
    """The real client gives up after 30 s and the run is kept on disk."""
    monkeypatch.setenv("WANDB_API_KEY", "0123456789" * 4)
    logger = Wandb(tmp_path, LoggerConfig(), {})
    assert logger.mode == "offline"
    logger.log_metrics({"train/loss": 1.0}, step=1)
    logger.finish(failed=False)
    assert list(tmp_path.glob("wandb/offline-run-*/*.wandb"))


def test_disabled_is_no_run_at_all(monkeypatch, runs, tmp_path):
    monkeypatch.setenv("WANDB_MODE", "disabled")
    logger = Wandb(tmp_path, LoggerConfig(), {})
    logger.log_metrics({"a": 1.0}, 1)
    logger.finish(failed=False)
    assert runs == []
    assert not (tmp_path / "wandb_id.txt").exists()


def test_a_service_that_fails_midway_does_not_stop_training(monkeypatch, small_config, tmp_path, caplog):
    monkeypatch.setattr(wandb, "init", lambda **options: FakeRun(options, fail_from=2))
    result = train(small_config(logger={"name": "wandb"}, training={"report": True}), tmp_path)
    assert result.epochs == 2
    assert len([record for record in caplog.records if "W&B failed" in record.message]) == 1
    with open(tmp_path / "metrics.csv") as file:
        assert sum(bool(row["val/loss"]) for row in csv.DictReader(file)) == 2


def test_a_service_that_does_not_start_does_not_stop_training(monkeypatch, small_config, tmp_path, caplog):
    modes = []

    def init(**options):
        modes.append(options["mode"])
        raise wandb.errors.CommError("no service")

    monkeypatch.setattr(wandb, "login", lambda **_: True)
    monkeypatch.setattr(wandb, "init", init)
    assert train(small_config(logger={"name": "wandb"}, trainer={"max_epochs": 1}), tmp_path).epochs == 1
    assert modes == ["online", "offline"]
    assert "no service" in caplog.text


def test_runs_of_one_process_are_apart_and_finished(runs, small_config, tmp_path):
    """As in a multirun: the first is finished before the second starts, a failed one as failed."""
    config = small_config(logger={"name": "wandb"}, trainer={"max_epochs": 1})
    train(config, tmp_path / "0")
    assert runs[0].exit_code == 0
    with pytest.raises(UserError):
        train(small_config(logger={"name": "wandb"}, trainer={"precision": "8"}), tmp_path / "1")
    train(config, tmp_path / "2")
    assert [run.exit_code for run in runs] == [0, 1, 0]
    assert len({run.id for run in runs}) == 3


def test_a_resumed_run_continues_its_own(runs, small_config, tmp_path, monkeypatch):
    monkeypatch.setattr(wandb, "login", lambda **_: True)
    train(small_config(logger={"name": "wandb"}, trainer={"max_epochs": 1}), tmp_path)
    train(small_config(logger={"name": "wandb"}, resume=str(tmp_path)), tmp_path)
    first, second = runs
    assert first.id == second.id == (tmp_path / "wandb_id.txt").read_text()
    assert second.options["resume"] == "allow"
    steps = [row["trainer/global_step"] for run in runs for row in run.logged if "val/loss" in row]
    assert len(steps) == 2
    assert steps == sorted(steps)
