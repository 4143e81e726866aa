import sys

import pytest

from molgcn.errors import UserError
from molgcn.nn.backend import resolve_backend
from molgcn.tasks.regression import Regression
from molgcn.training.loggers import MetricsCSV, build_loggers
from molgcn.training.train import train

TASK = Regression(["logp"], [""])


def test_tensorboard_events_can_be_read_back(small_config, tmp_path):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    result = train(small_config(logger={"name": "tensorboard"}), tmp_path)
    events = EventAccumulator(str(tmp_path / "tensorboard"))
    events.Reload()
    scalars = events.Tags()["scalars"]
    assert {"train/loss", "val/loss", "val/mae/logp", "lr", "throughput/molecules_per_second", "throughput/data_wait"} <= set(scalars)
    losses = events.Scalars("val/loss")
    assert len(losses) == result.epochs == 2
    assert min(event.value for event in losses) == pytest.approx(result.best_loss, rel=1e-6)
    assert losses[0].step == -(-240 // 32)  # 300 molecules, 0.8 of them in training, 32 per batch
    assert (tmp_path / "metrics.csv").is_file()


@pytest.mark.parametrize("name", ["csv", "tensorboard", "wandb"])
def test_metrics_csv_is_always_there(small_config, tmp_path, name):
    loggers = build_loggers(small_config(logger={"name": name}), tmp_path, TASK.keys("val"))
    assert isinstance(loggers[0], MetricsCSV)
    assert len(loggers) == (1 if name == "csv" else 2)
    assert (tmp_path / "metrics.csv").read_text().startswith("epoch,step,train/loss,val/loss")


def test_without_tensorboard_the_message_names_the_extra(small_config, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "tensorboard", None)
    with pytest.raises(UserError, match=r"pip install molgcn\[tensorboard\]"):
        build_loggers(small_config(logger={"name": "tensorboard"}), tmp_path, TASK.keys("val"))


def test_the_dashboard_is_told_what_auto_takes(small_config, tmp_path, wandb_runs):
    build_loggers(small_config(logger={"name": "wandb"}, backend={"name": "auto"}), tmp_path, TASK.keys("val"))
    (run,) = wandb_runs
    assert run.options["config"]["backend"]["name"] == resolve_backend("auto").name
