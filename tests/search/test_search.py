"""sweep=optuna on a few hundred molecules: pruning, failures, continuing, and what lies in the folder."""

import csv
import math
import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import optuna
import pytest
from lightning import Trainer

from molgcn.config import Config, parse
from molgcn.data import load
from molgcn.errors import UserError
from molgcn.overrides import parse_override
from molgcn.search import search as search_module
from molgcn.search.pruning import Pruning
from molgcn.search.search import SearchConfig, prepare_search, search
from molgcn.signals import terminate

TRAIN = Path(__file__).parents[2] / "train.py"
SPACE = {"optimizer": {"lr": [1e-3, 1e-2, 3e-2]}}
FAST = [
    "dataset.subset=200",
    "dataset.features=zinc",
    "model.num_layers=2",
    "model.residual=false",
    "trainer.max_epochs=2",
    "logger=csv",
]


@pytest.fixture
def compose(small_config):
    """Composes as the command line does: overrides onto the small configuration."""

    def make(overrides):
        values = small_config().to_dict()
        for override in overrides:
            parsed = parse_override(override)
            *path, leaf = parsed.key_or_group.split(".")
            node = values
            for name in path:
                node = node[name]
            node[leaf] = parsed.value()
        return parse(Config, values)

    return make


def study_in(folder, name="optuna"):
    return optuna.load_study(study_name=name, storage=f"sqlite:///{folder / 'study.db'}")


def test_several_may_open_a_fresh_study(tmp_path, small_config):
    data = load.load_dataset(small_config().dataset)
    settings = parse(SearchConfig, {"params": SPACE}, "sweep")
    for folder in (tmp_path / name for name in "abc"):
        with ThreadPoolExecutor(8) as threads:
            opened = [threads.submit(search_module._open, settings, {}, small_config(), data, folder) for _ in range(8)]
        assert {one.result().study_name for one in opened} == {"optuna"}


def table(folder):
    with open(folder / "results.csv", newline="") as file:
        return list(csv.DictReader(file))


def test_a_search_and_its_continuation(tmp_path, compose, monkeypatch, capsys):
    loads = []
    real = load.load_or_pack
    monkeypatch.setattr(load, "load_or_pack", lambda *args: loads.append(args[0]) or real(*args))
    best = search(SearchConfig(n_trials=2, params=SPACE, pruning=False), compose, tmp_path)
    assert [trial.state.name for trial in study_in(tmp_path).trials] == ["COMPLETE"] * 2
    assert best == study_in(tmp_path).best_value
    again = search(SearchConfig(n_trials=4, params=SPACE, pruning=False), compose, tmp_path)
    study = study_in(tmp_path)
    assert len(study.trials) == 4
    assert again == study.best_value <= best
    search(SearchConfig(n_trials=4, params=SPACE, pruning=False), compose, tmp_path)
    assert len(study_in(tmp_path).trials) == 4
    rows = table(tmp_path)
    assert [float(row["val/loss"]) for row in rows] == sorted(float(row["val/loss"]) for row in rows)
    assert float(rows[0]["val/loss"]) == pytest.approx(study.best_value, rel=1e-4)
    assert all((tmp_path / str(number) / "metrics.csv").exists() for number in range(4))
    assert (tmp_path / "sweep.png").stat().st_size > 5_000
    assert "The best again: python train.py --config-dir=" in capsys.readouterr().out


def test_a_study_of_other_settings_is_refused(tmp_path, compose, small_config):
    search(SearchConfig(n_trials=1, params=SPACE), compose, tmp_path)
    with pytest.raises(UserError, match=r"different: space.*sweep\.study="):
        search(SearchConfig(n_trials=2, params={"seed": [1, 2]}), compose, tmp_path)
    other = small_config(model={"hidden_channels": 4})
    with pytest.raises(UserError, match=r"different: model\.hidden_channels\)"):
        search(SearchConfig(n_trials=2, params=SPACE), lambda overrides: other, tmp_path)


@pytest.fixture
def on_a_file(tmp_path, compose):
    """Composes for a CSV that may be changed in place."""
    path = tmp_path / "x.csv"

    def write(sign=1, copies=False):
        smiles = [f"{'C' * n}{end}" for n in range(1, 13) for end in ("F", "O")] + ["FC", "OC"] * copies
        path.write_text("smiles,y\n" + "".join(f"{text},{sign * len(text)}\n" for text in smiles))

    write()
    options = ["dataset.name=csv", f"dataset.path={path}", "dataset.targets=[y]", "dataset.features=general", "dataset.subset=null"]
    return lambda overrides: compose([*options, *overrides]), write


def test_a_study_of_other_data_is_refused(tmp_path, on_a_file):
    """Labels negated in place: the old trials say nothing of them."""
    composed, write = on_a_file
    search(SearchConfig(n_trials=1, params=SPACE), composed, tmp_path / "a")
    write(sign=-1)
    with pytest.raises(UserError, match=r"The data has changed since the study in .* \(hash \w{12}, now \w{12}\).*sweep\.study=") as error:
        search(SearchConfig(n_trials=2, params=SPACE), composed, tmp_path / "a")
    assert "\n" not in str(error.value)
    write()
    search(SearchConfig(n_trials=2, params=SPACE), composed, tmp_path / "a")
    assert len(study_in(tmp_path / "a").trials) == 2


@pytest.mark.parametrize("copies", [False, True])
def test_a_study_of_an_earlier_version_continues_with_its_split(tmp_path, on_a_file, copies):
    """It noted neither its data nor the keys that came later, and drew splits without regard to copies."""
    composed, write = on_a_file
    write(copies=copies)
    divided = lambda overrides: composed(["dataset.group_duplicates=false", *overrides])  # noqa: E731
    settings = SearchConfig(n_trials=1, params=SPACE)
    search(settings, divided, tmp_path / "a")
    study = study_in(tmp_path / "a")
    made_of = study.user_attrs["made_of"]
    del made_of["data_hash"], made_of["dataset"]["group_duplicates"], made_of["dataset"]["duplicates"]
    study.set_user_attr("made_of", made_of)
    if copies:
        with pytest.raises(UserError, match=r"different: dataset\.group_duplicates\)"):
            search(settings, composed, tmp_path / "a")
    search(settings, divided if copies else composed, tmp_path / "a")
    write(sign=-1, copies=copies)
    with pytest.raises(UserError, match="The data has changed"):
        search(settings, divided if copies else composed, tmp_path / "a")


def test_failures_are_recorded_and_the_search_goes_on(tmp_path, compose):
    settings = SearchConfig(n_trials=6, params={"scheduler": {"factor": [0.5, 2.0]}}, pruning=False)

    def only_later(overrides):
        if "scheduler.factor=2" in overrides and not asked:
            asked.append(True)  # the check before the first trial
        return compose(overrides)

    asked: list[bool] = []
    search(settings, only_later, tmp_path)
    states = [trial.state.name for trial in study_in(tmp_path).trials]
    assert len(states) == 6
    assert set(states) == {"COMPLETE", "FAIL"}
    failed = [row for row in table(tmp_path) if row["state"] == "failed"]
    assert failed
    assert all("scheduler.factor=2" in row["overrides"] and "between 0 and 1" in row["overrides"] for row in failed)


def test_a_search_in_which_all_fail_says_why(tmp_path, compose):
    diverging = {"optimizer": {"lr": {"low": 1e30, "high": 1e35, "log": True}}, "model": {"norm": [None]}}
    with pytest.raises(UserError, match=r"No trial of .* The last one failed: The training loss is not finite in .* diverged"):
        search(SearchConfig(n_trials=2, params=diverging), lambda overrides: compose(["optimizer.name=sgd", *overrides]), tmp_path)


def test_a_mistake_of_all_trials_comes_before_the_first(tmp_path, compose):
    with pytest.raises(UserError, match="nowhere"):
        search(SearchConfig(params=SPACE), lambda overrides: compose(["dataset.name=csv", "dataset.path=nowhere.csv"]), tmp_path)
    assert not (tmp_path / "study.db").exists()
    with pytest.raises(UserError, match=r"trainer\.devices=2"):
        search(SearchConfig(params=SPACE), lambda overrides: _with_devices(compose(overrides)), tmp_path)
    with pytest.raises(UserError, match=r"not a metric of the validation.*val/mae/logp"):
        search(SearchConfig(n_trials=1, params=SPACE, objective="val/mse"), compose, tmp_path / "other")


def _with_devices(config):
    return parse(Config, {**config.to_dict(), "trainer": {**config.trainer, "devices": 2}})


def test_other_objectives(tmp_path, compose):
    settings = SearchConfig(n_trials=2, params=SPACE, objective="val/r2/logp", direction="maximize", pruning=False)
    best = search(settings, compose, tmp_path)
    values = [trial.value for trial in study_in(tmp_path).trials]
    assert best == max(values)
    assert all(value < 1 for value in values)
    assert float(table(tmp_path)[0]["val/r2/logp"]) == pytest.approx(best, rel=1e-4)


def test_worse_than_the_median_is_pruned(tmp_path, compose):
    """Two good trials are enqueued by hand, then one whose rate is far too small."""
    space = {"optimizer": {"lr": {"low": 1e-7, "high": 0.1, "log": True}}}
    settings = SearchConfig(n_trials=3, params=space, pruning_startup_trials=2, pruning_warmup=1)
    longer = lambda overrides: compose(["trainer.max_epochs=6", *overrides])  # noqa: E731
    search(SearchConfig(n_trials=1, params=space), longer, tmp_path)
    study = study_in(tmp_path)
    first = study.trials[0].intermediate_values
    assert list(first) == list(range(6))
    for rate in (0.01, 1e-7):
        study.enqueue_trial({"optimizer.lr": rate})
    search(settings, longer, tmp_path)
    last = study_in(tmp_path).trials[-1]
    assert last.params == {"optimizer.lr": 1e-7}
    assert last.state.name == "PRUNED"
    assert len(last.intermediate_values) < 6
    assert (tmp_path / "2" / "result.json").exists()
    assert "pruned" in {row["state"] for row in table(tmp_path)}


def test_the_callback_reports_and_stops():
    trial = optuna.create_study().ask()
    callback = Pruning(trial, "val/loss", maximize=False)
    trainer = Trainer(logger=False, enable_checkpointing=False, accelerator="cpu")
    trainer.callback_metrics["val/loss"] = 0.7
    callback.on_validation_end(trainer, None)
    trainer.callback_metrics["val/loss"] = 0.9
    callback.on_validation_end(trainer, None)
    assert callback.best == 0.7
    assert trial.storage.get_trial(trial._trial_id).intermediate_values == {0: 0.7, 1: 0.9}
    trainer.callback_metrics["val/loss"] = math.nan
    with pytest.raises(UserError, match="diverged"):
        callback.on_validation_end(trainer, None)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["sweep=optuna", "launcher=joblib"], "shares? this process"),
        (["sweep=optuna", "resume=last"], "give the search's own command again"),
        (["sweep=optuna", "optimizer.lr=1,2"], r"sweep\.params\.optimizer\.lr"),
        (["--multirun", "sweep=optuna,depth"], "lists values"),
    ],
)
def test_what_does_not_go_with_it(arguments, message):
    if "sweep=optuna" in arguments:
        with pytest.raises(UserError, match=message):
            prepare_search(arguments)
    else:
        assert prepare_search(arguments) == arguments


def test_multirun_is_not_needed():
    assert prepare_search(["--multirun", "sweep=optuna", "seed=1"]) == ["sweep=optuna", "seed=1"]
    assert prepare_search(["--multirun", "sweep=depth"]) == ["--multirun", "sweep=depth"]


@pytest.mark.parametrize("change", [{"n_trials": 0}, {"timeout": -1}, {"objective": "loss"}, {"direction": "up"}], ids=str)
def test_wrong_settings(change):
    with pytest.raises(UserError, match=f"sweep.{next(iter(change))}"):
        parse(SearchConfig, change, "sweep")


def test_trials_are_a_group_on_the_dashboard(tmp_path, compose, monkeypatch):
    seen = []
    real = search_module.train
    monkeypatch.setattr(search_module, "train", lambda config, *rest: seen.append(config.logger) or real(config, *rest))
    search(SearchConfig(study="mine", n_trials=1, params=SPACE), compose, tmp_path / "a")
    search(SearchConfig(n_trials=1, params=SPACE), lambda given: compose(["logger.group=ours", *given]), tmp_path / "b")
    assert [(logger.group, logger.run_name) for logger in seen] == [("mine", "mine-0"), ("ours", "optuna-0")]


def test_without_optuna(tmp_path, compose, monkeypatch):
    monkeypatch.setitem(sys.modules, "optuna", None)
    with pytest.raises(UserError, match=r"pip install molgcn\[sweep\]"):
        search(SearchConfig(params=SPACE), compose, tmp_path)


@pytest.fixture
def handlers():
    """A command's own, whatever started the tests."""
    before = [
        (signal.SIGINT, signal.signal(signal.SIGINT, signal.default_int_handler)),
        (signal.SIGTERM, signal.signal(signal.SIGTERM, terminate)),
    ]
    yield
    for number, handler in before:
        signal.signal(number, handler)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
@pytest.mark.parametrize(("moment", "states"), [("suggest", ["FAIL"]), ("train", ["FAIL"]), ("_after", ["COMPLETE"])])
def test_an_end_at_any_moment_is_recorded(number, code, moment, states, tmp_path, compose, monkeypatch, handlers):
    """In the midst of Optuna's own work a trial would be left as if it still ran."""
    real = getattr(search_module, moment)

    def ended(*args):
        signal.raise_signal(number)
        return real(*args)

    monkeypatch.setattr(search_module, moment, ended)
    with pytest.raises(SystemExit) as end:
        search(SearchConfig(n_trials=3, params=SPACE), compose, tmp_path)
    assert end.value.code == code
    assert [trial.state.name for trial in study_in(tmp_path).trials] == states


# --- as it is typed ---
@pytest.mark.slow
def test_from_the_command_line_and_its_best_again(run_cli, tmp_path):
    command = ["sweep=optuna", "sweep.n_trials=2", "+sweep.params.scheduler=[cosine,plateau]", "~sweep.params.model.dropout", *FAST]
    done = run_cli(*command)
    assert done.returncode == 0, done.stderr
    folder = tmp_path / "multirun" / "optuna_builtin"
    rows = table(folder)
    assert len(rows) == 2
    assert "scheduler=" in rows[0]["overrides"]
    assert done.stdout.count("molecules packed") <= 1
    again = run_cli("--config-dir", str(folder), "experiment=best", "trainer.max_epochs=1", "hydra.run.dir=best")
    assert again.returncode == 0, again.stderr
    assert (tmp_path / "best" / "parity.png").exists()
    assert not list(folder.glob("*/parity.png"))
    best = study_in(folder, "optuna_builtin").best_trial.params
    config = (tmp_path / "best" / "config.yaml").read_text()
    assert f"hidden_channels: {best['model.hidden_channels']}" in config
    assert "model.num_layers" not in best  # fixed by the command line
    assert "num_layers: 2\n" in config
    wrong = run_cli("sweep=optuna", "+sweep.params.modle.width=[1,2]", *FAST)
    assert wrong.returncode == 2
    assert "modle.width is not a key" in wrong.stderr
    missing = run_cli("--config-dir=nowhere", "experiment=best")
    assert missing.returncode == 2
    assert "--config-dir=nowhere is not a folder" in missing.stderr


@pytest.mark.slow
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_an_end_from_outside_keeps_the_study(number, code, tmp_path):
    command = [sys.executable, str(TRAIN), "sweep=optuna", "sweep.n_trials=3", *FAST[:4], *FAST[5:], "trainer.max_epochs=6"]
    process = subprocess.Popen(
        command,
        cwd=tmp_path,
        env={**os.environ},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    assert process.stdout is not None
    lines = []
    for line in process.stdout:
        lines.append(line)
        if "Trial 1 (of 3)" in line:
            process.send_signal(number)
    assert process.wait(60) == code, "".join(lines)
    assert "The same command continues" in "".join(lines)
    assert "Traceback" not in "".join(lines)
    folder = tmp_path / "multirun" / "optuna_builtin"
    assert [trial.state.name for trial in study_in(folder, "optuna_builtin").trials] == ["COMPLETE", "FAIL"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    states = [trial.state.name for trial in study_in(folder, "optuna_builtin").trials]
    assert len(states) == 4
    assert states.count("FAIL") == 1
