import pytest
from lightning.pytorch.callbacks import LambdaCallback

from molgcn.training.loggers import MetricsCSV
from molgcn.training.trainer import build_trainer
from molgcn_benchmark.epochs import KEY, PAIRS, EpochClock, measure, prepare
from molgcn_benchmark.results import Table

TINY = {
    "dataset": {"name": "builtin", "targets": ["logp"], "subset": 200, "features": "zinc", "batch_size": 64},
    "model": {"hidden_channels": 8, "num_layers": 2, "norm": None},
    "trainer": {"accelerator": "cpu"},
}


def test_one_row_a_backend_and_loader_with_everything_measured(tmp_path):
    path = tmp_path / "epochs.csv"
    rows = list(measure([TINY], [PAIRS[0], PAIRS[2]], "builtin", Table(path, KEY), epochs=2, warm_up=1, rounds=2))
    assert [(row["backend"], row["loader"]) for row in rows] == [("fused", "packed"), ("pyg", "pyg")]
    for row in rows:
        assert row["molecules"] == 160 and 0 < row["epoch_ms"] < 60_000
        assert row["step_ms"] == pytest.approx(row["epoch_ms"] / 3, rel=1e-3)  # 160 molecules in batches of 64
        assert row["molecules_per_second"] == pytest.approx(160e3 / row["epoch_ms"], rel=1e-2)
        assert 0 <= row["data_wait"] <= 1 and row["memory_mb"] > 10
        assert row["validation_ms"] > 0 and row["checkpoint_ms"] > 0 and row["start_up_s"] > 0
    again = list(measure([TINY], PAIRS, "builtin", Table(path, KEY), epochs=1, warm_up=0))
    assert [(row["backend"], row["loader"]) for row in again] == [("pyg", "packed")]


def test_the_median_round_counts():
    times = iter([5.0, 1.0, 3.0])
    (row,) = measure([TINY], [PAIRS[0]], "builtin", Table(None, KEY), rounds=3, train=lambda *_: {"epoch_ms": next(times)})
    assert row["epoch_ms"] == 3.0


def test_workers_are_those_of_pyg_s_loader():
    seen = []

    def train(values, epochs, warm_up):
        seen.append(values["loader"]["num_workers"])
        return {"epoch_ms": 1.0}

    rows = list(measure([TINY], PAIRS, "builtin", Table(None, KEY), workers=3, train=train))
    assert seen == [row["workers"] for row in rows] == [0, 0, 3]


def test_training_stops_at_the_start_of_the_epoch_after_the_last_timed_one(tmp_path):
    batches = []
    count = LambdaCallback(on_train_batch_start=lambda trainer, *_: batches.append(trainer.current_epoch))
    config, data, build = prepare(TINY, {"max_epochs": 9, "limit_val_batches": 0})
    module = build()
    logger = MetricsCSV(tmp_path / "metrics.csv", module.task.keys("val"))
    clock = EpochClock(epochs=3)
    trainer = build_trainer(config.trainer, [clock, count], [logger], tmp_path)
    trainer.fit(module, datamodule=data)
    assert clock.first_step is not None and clock.starts[0] < clock.first_step < clock.starts[1]
    assert len(trainer.callbacks) == 2  # none that listens to later steps
    assert batches == [0] * 3 + [1] * 3 + [2] * 3


def test_epochs_last_from_one_start_to_the_next():
    clock = EpochClock()
    clock.starts = [0.0, 10.0, 11.0, 13.0]
    assert clock.durations(1) == [1.0, 2.0]
