import itertools
import json
import re
import sys
import threading
from types import SimpleNamespace

from molgcn.training import progress
from molgcn.training.train import train


def test_people_count_epochs_from_1(small_config, tmp_path, monkeypatch, capsys):
    """Epochs count from 1 in lines, bars, the result's table and result.json; metrics.csv counts as Lightning does."""
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("TERM", "xterm")
    result = train(small_config(dataset={"subset": 100}), tmp_path)
    result.save([])
    result.print()
    printed = capsys.readouterr().out
    assert re.findall(r"epoch (\d+)  val/loss", printed) == ["1", "2"]
    assert set(re.findall(r"Epoch (\d/\d)", printed)) == {"1/2", "2/2"}
    assert "Measuring" in printed and "Testing" not in printed
    losses = [float(loss) for loss in re.findall(r"val/loss ([\d.]+)", printed)]
    best = 1 + losses.index(min(losses))
    assert f"best epoch {best} of 2" in printed
    assert json.loads((tmp_path / "result.json").read_text())["best_epoch"] == result.best_epoch == best
    assert {row.split(",")[0] for row in (tmp_path / "metrics.csv").read_text().splitlines()[1:]} == {"0", "1"}


def test_the_line_shows_the_metric_that_stands_first_in_the_tables(small_config, tmp_path, capsys):
    config = small_config(dataset={"subset": 100}, training={"monitor": "val/spearman"}, trainer={"max_epochs": 1})
    (name, *_) = train(config, tmp_path).names
    assert re.search(rf"epoch 1  val/loss [\d.]+  val Spearman {name} -?[\d.]+  ", capsys.readouterr().out)


def test_an_epoch_that_a_resumed_run_completes_counts_from_its_start(monkeypatch):
    """Lightning does not say that such an epoch begins."""
    printed, seconds = [], iter([10.0, 12.5, 20.0, 20.0221])
    monkeypatch.setattr(progress, "time", SimpleNamespace(perf_counter=lambda: next(seconds)))
    trainer = SimpleNamespace(
        is_global_zero=True, callback_metrics={}, current_epoch=3, print=lambda text, flush: printed.append(text), loggers=[]
    )
    line = progress.EpochLine()
    line.on_train_start(trainer, None)
    line.on_train_epoch_end(trainer, None)
    line.on_train_epoch_start(trainer, None)
    line.on_train_epoch_end(trainer, None)
    assert printed == ["epoch 4  2.5 s", "epoch 4  22 ms"]


def test_a_bar_is_drawn_at_most_ten_times_a_second_and_at_the_end(monkeypatch):
    """Steps of a millisecond are not to wait for a terminal."""
    moved, clock = [], itertools.count(step=0.001)
    monkeypatch.setattr(progress, "time", SimpleNamespace(perf_counter=lambda: next(clock)))
    monkeypatch.setattr(
        progress.RichProgressBar, "on_train_batch_end", lambda self, trainer, module, outputs, batch, place: moved.append(place)
    )
    bar = progress.EpochBar()
    for place in range(1000):
        bar.on_train_batch_end(SimpleNamespace(is_last_batch=place == 999), None, None, None, place)
    assert moved == [*range(0, 1000, 100), 999]


def test_training_draws_no_bar_itself():
    """What a bar shows changes at once, and its thread draws it."""
    bar = progress.EpochBar()
    bar._trainer = SimpleNamespace(max_epochs=3, num_training_batches=5, progress_bar_callback=bar, state=SimpleNamespace(fn=""))
    bar._init_progress(bar._trainer)
    drawn = []
    try:
        bar.on_train_epoch_start(SimpleNamespace(current_epoch=0), None)
        bar.progress.live.refresh = lambda: drawn.append(threading.current_thread())
        bar.on_train_epoch_start(SimpleNamespace(current_epoch=1), None)
        (task,) = bar.progress.tasks
        assert "Epoch 2/3" in task.description and task.total == 5
        for _ in range(100):
            if drawn:
                break
            threading.Event().wait(0.05)
    finally:
        thread = bar.progress.live._refresh_thread
        bar._stop_progress()
    assert thread in drawn and threading.main_thread() not in drawn[:1]
