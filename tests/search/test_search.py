"""sweep=optuna on a few hundred molecules survives failures and interrupts, continues, and leaves a complete folder."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from matplotlib.figure import Figure
from studies import SPACE, study_in, table, trained

from molgcn.config.run import Config, parse
from molgcn.errors import UserError
from molgcn.files.json_file import read_json
from molgcn.process.signals import terminate
from molgcn.search.search import SearchConfig, prepare_search, search

pytestmark = pytest.mark.usefixtures("empty_figures")
TRAIN = Path(__file__).parents[2] / "train.py"
FAST = [
    "dataset.subset=200",
    "dataset.features=zinc",
    "model.num_layers=2",
    "model.residual=false",
    "trainer.max_epochs=2",
    "logger=csv",
    "training.report=false",
]


def test_a_search_and_its_continuation(tmp_path, compose, capsys, empty_figures, monkeypatch):
    monkeypatch.setattr(Figure, "savefig", empty_figures)
    best = search(SearchConfig(n_trials=1, params=SPACE, pruning=False), compose, tmp_path)
    assert [trial.state.name for trial in study_in(tmp_path).trials] == ["COMPLETE"]
    assert best == study_in(tmp_path).best_value
    again = search(SearchConfig(n_trials=3, params=SPACE, pruning=False), compose, tmp_path)
    study = study_in(tmp_path)
    assert len(study.trials) == 3
    assert again == study.best_value <= best
    search(SearchConfig(n_trials=3, params=SPACE, pruning=False), compose, tmp_path)
    assert len(study_in(tmp_path).trials) == 3
    rows = table(tmp_path)
    assert [float(row["val/loss"]) for row in rows] == sorted(float(row["val/loss"]) for row in rows)
    assert float(rows[0]["val/loss"]) == pytest.approx(study.best_value, rel=1e-4)
    assert all((tmp_path / str(number) / "metrics.csv").exists() for number in range(3))
    assert (tmp_path / "sweep.png").stat().st_size > 5_000
    assert "The best again: python train.py --config-dir=" in capsys.readouterr().out


def test_a_trial_of_folds_counts_by_their_mean(tmp_path, compose):
    folds = lambda overrides: compose(["dataset.split=cv", "dataset.folds=2", "dataset.subset=100", *overrides])  # noqa: E731
    best = search(SearchConfig(n_trials=1, params=SPACE), folds, tmp_path)
    losses = [read_json(tmp_path / "0" / f"fold_{fold}" / "result.json")["best_loss"] for fold in range(2)]
    assert best == pytest.approx(sum(losses) / 2, rel=1e-12)
    assert read_json(tmp_path / "0" / "result.json")["best_loss"] == pytest.approx(best, rel=1e-12)
    assert [float(row["val/loss"]) for row in table(tmp_path)] == pytest.approx([best], rel=1e-4)


def test_failures_are_recorded_and_the_search_goes_on(tmp_path, compose):
    settings = SearchConfig(n_trials=6, params={"scheduler": {"factor": [0.5, 2.0]}}, pruning=False)

    def only_later(overrides):
        if "scheduler.factor=2" in overrides and not asked:
            asked.append(True)  # the check before the first trial
        return compose(overrides)

    asked: list[bool] = []
    search(settings, only_later, tmp_path, train=trained)
    states = [trial.state.name for trial in study_in(tmp_path).trials]
    assert len(states) == 6
    assert set(states) == {"COMPLETE", "FAIL"}
    failed = [row for row in table(tmp_path) if row["state"] == "failed"]
    assert failed
    assert all("scheduler.factor=2" in row["overrides"] and "between 0 and 1" in row["overrides"] for row in failed)


def test_a_search_in_which_all_fail_says_why(tmp_path, compose):
    diverging = {"optimizer": {"lr": {"low": 1e30, "high": 1e35, "log": True}}, "model": {"norm": [None]}}
    with pytest.raises(UserError, match=r"No trial in .* The last one failed: The training loss is not finite in .* diverged"):
        search(SearchConfig(n_trials=2, params=diverging), lambda overrides: compose(["optimizer.name=sgd", *overrides]), tmp_path)


def test_a_mistake_of_all_trials_comes_before_the_first(tmp_path, compose):
    with pytest.raises(UserError, match="nowhere"):
        search(SearchConfig(params=SPACE), lambda overrides: compose(["dataset.name=csv", "dataset.path=nowhere.csv"]), tmp_path)
    with pytest.raises(UserError, match=r"trainer\.devices=2"):
        search(SearchConfig(params=SPACE), lambda overrides: _with_devices(compose(overrides)), tmp_path)
    with pytest.raises(UserError, match=r"sweep\.objective=val/mse is not a value that a validation computes.*val/mae/logp"):
        search(SearchConfig(params=SPACE, objective="val/mse"), compose, tmp_path)
    assert not (tmp_path / "study.db").exists()


def _with_devices(config):
    return parse(Config, {**config.to_dict(), "trainer": {**config.trainer, "devices": 2}})


@pytest.mark.parametrize(
    ("objective", "best_of"), [("val/r2/logp", max), pytest.param("val/spearman", max, marks=pytest.mark.slow), ("val/rmse", min)]
)
def test_the_direction_follows_from_the_objective(objective, best_of, tmp_path, compose, capsys):
    best = search(SearchConfig(n_trials=2, params=SPACE, objective=objective), compose, tmp_path)
    values = [trial.value for trial in study_in(tmp_path).trials]
    assert len(set(values)) == 2 and best == best_of(values)
    assert [float(row[objective]) for row in table(tmp_path)] == pytest.approx(sorted(values, reverse=best_of is max), rel=1e-4)
    number = values.index(best)
    assert f"# Trial {number} of " in (tmp_path / "experiment" / "best.yaml").read_text()
    kept = read_json(tmp_path / str(number) / "result.json")  # the objective chose the weights of the trial, too
    assert (kept["monitor"], kept["maximize"], kept["best_value"]) == (objective, best_of is max, best)


@pytest.mark.parametrize(
    ("settings", "fixed", "message"),
    [
        ({"objective": "val/r2", "direction": "minimize"}, [], r"sweep\.direction=minimize would look for the worst trial.*more is better"),
        ({"direction": "maximize"}, [], r"sweep\.objective=val/loss, less is better. Leave sweep\.direction out"),
        ({"objective": "val/r2"}, ["training.monitor"], r"training\.monitor=val/loss would choose.*sweep\.objective=val/r2"),
        ({"objective": "val/r2", "params": {"training": {"monitor": ["val/mae"]}}}, [], r"training\.monitor=val/mae would choose"),
    ],
)
def test_contradicting_rankings_are_refused(settings, fixed, message, tmp_path, compose):
    with pytest.raises(UserError, match=message):
        search(SearchConfig(**{"params": SPACE, **settings}), compose, tmp_path, fixed)
    assert not (tmp_path / "study.db").exists()


def test_the_objective_is_the_monitor_of_the_command_line(cli, tmp_path):
    code, said, errors = cli("sweep=optuna", "training.monitor=val/r2", "sweep.direction=minimize", *FAST)
    assert code == 2 and "sweep.objective=val/r2, more is better" in errors, said + errors


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


@pytest.mark.parametrize("change", [{"n_trials": 0}, {"timeout": -1}, {"direction": "up"}], ids=str)
def test_wrong_settings(change):
    with pytest.raises(UserError, match=f"sweep.{next(iter(change))}"):
        parse(SearchConfig, change, "sweep")


def test_trials_are_a_group_on_the_dashboard(tmp_path, compose):
    seen = []

    def train(config, folder, watchers):
        seen.append((config.logger.group, config.logger.run_name))
        return trained(config, folder, watchers)

    search(SearchConfig(study="mine", n_trials=1, params=SPACE), compose, tmp_path / "a", train=train)
    search(SearchConfig(n_trials=1, params=SPACE), lambda given: compose(["logger.group=ours", *given]), tmp_path / "b", train=train)
    assert seen == [("mine", "mine-0"), ("ours", "optuna-0")]


def test_without_optuna(tmp_path, compose, monkeypatch):
    monkeypatch.setitem(sys.modules, "optuna", None)
    with pytest.raises(UserError, match=r"pip install molgcn\[sweep\]"):
        search(SearchConfig(params=SPACE), compose, tmp_path)


@pytest.fixture
def handlers():
    """Install the signal handlers of a command, whatever started the tests."""
    before = [
        (signal.SIGINT, signal.signal(signal.SIGINT, signal.default_int_handler)),
        (signal.SIGTERM, signal.signal(signal.SIGTERM, terminate)),
    ]
    yield
    for number, handler in before:
        signal.signal(number, handler)


COMPOSED = {"before the training": 3, "after it": 4}  # first for a look at all trials, then for the study, then in each


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
@pytest.mark.parametrize(
    ("moment", "states"), [("before the training", ["FAIL"]), ("in the training", ["FAIL"]), ("after it", ["COMPLETE"])]
)
def test_an_end_at_any_moment_is_recorded(number, code, moment, states, tmp_path, compose, handlers):
    """Within Optuna's own work a trial could be left in the state of a running one."""
    composed = []

    def composing(overrides):
        composed.append(overrides)
        if len(composed) == COMPOSED.get(moment):
            signal.raise_signal(number)
        return compose(overrides)

    def train(config, folder, watchers):
        if moment == "in the training":
            signal.raise_signal(number)
        return trained(config, folder, watchers)

    with pytest.raises(SystemExit) as end:
        search(SearchConfig(n_trials=3, params=SPACE), composing, tmp_path, train=train)
    assert end.value.code == code
    assert [trial.state.name for trial in study_in(tmp_path).trials] == states


# --- on the command line ---
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
    assert not (tmp_path / "runs").exists()  # its trials have folders in the study's
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
