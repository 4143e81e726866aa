"""Search hyperparameters with Optuna (`python train.py sweep=optuna`); all trials run in this process and share the loaded data."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import torch
from lightning import Callback

from molgcn.config.overrides import parse_override, values_of
from molgcn.config.run import Config
from molgcn.data.datamodule import load_once
from molgcn.errors import UserError, counted, require
from molgcn.process.signals import SignalsLater, Terminated, exit_interrupted
from molgcn.replicates.plan import first_training
from molgcn.replicates.run import train_all
from molgcn.search.pruning import Pruning
from molgcn.search.search_report import print_table, write_reports
from molgcn.search.search_space import as_overrides, first_values, read_space, suggest
from molgcn.search.study import next_trial, open_study, requeue_interrupted, was_interrupted
from molgcn.tasks.choice import choose_task
from molgcn.tasks.registry import learned_with, settled
from molgcn.training.monitor import LOSS, Monitor
from molgcn.training.result import RunResult

if TYPE_CHECKING:
    from optuna import Study, Trial

log = logging.getLogger(__name__)
NO_OPTUNA = (
    "sweep=optuna needs the package optuna: pip install molgcn[sweep]. A plain grid needs none: --multirun optimizer.lr=0.001,0.0003."
)
Compose = Callable[[list[str]], Config]
Train = Callable[[Config, Path, Sequence[Callback]], RunResult]


@dataclass(frozen=True)
class SearchConfig:
    """The options of a search; conf/sweep/optuna.yaml says what each key means."""

    study: str = "optuna"
    n_trials: int = 20
    timeout: float | None = None
    objective: str = LOSS
    direction: Literal["auto", "minimize", "maximize"] = "auto"
    pruning: bool = True
    pruning_startup_trials: int = 5
    pruning_warmup: int = 3
    params: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name, least in (("n_trials", 1), ("pruning_startup_trials", 0), ("pruning_warmup", 0)):
            require(getattr(self, name) >= least, f"sweep.{name}", getattr(self, name), f"at least {least}")
        require(self.timeout is None or self.timeout > 0, "sweep.timeout", self.timeout, "seconds above 0, or null for no limit")


def prepare_search(arguments: list[str]) -> list[str]:
    """Return a command line with `sweep=optuna` after a check, as one job for Hydra; other command lines are returned as they are.

    Lists of values, a launcher or `resume=` beside it are errors.
    """
    if values_of("sweep", arguments)[-1:] != ["optuna"]:
        return arguments
    for argument in arguments:
        key = argument.partition("=")[0]
        if key in ("launcher", "hydra/launcher"):
            raise UserError(
                f"{argument} does not go with sweep=optuna, whose trials share this process. Leave it out; it is for --multirun."
            )
        if key == "resume":
            raise UserError("resume= does not go with sweep=optuna: give the search's own command again and the study continues.")
        if "=" in argument and not argument.startswith("-") and parse_override(argument).is_sweep_override():
            raise UserError(f"{argument} lists values, but sweep=optuna takes them from sweep.params. Use '+sweep.params.{key}=[...]'.")
    return [argument for argument in arguments if argument not in ("-m", "--multirun")]


def search(settings: SearchConfig, compose: Compose, folder: Path, fixed: Collection[str] = (), train: Train = train_all) -> float:
    """Run the trials that the study in `folder` still lacks, and return the best value of the objective.

    The folder gets study.db, results.csv, sweep.png, experiment/best.yaml and a folder for each trial.

    Args:
        settings: the options of the search.
        compose: returns the configuration with further overrides.
        folder: the folder of the study.
        fixed: keys to which the command line gives a value. They are not varied.
        train: trains a trial in a folder, with callbacks of each of its trainings.

    Raises:
        UserError: If every trial would meet the same mistake, the study is of other settings or data, or no trial succeeds.
    """
    try:
        import optuna
    except ImportError:
        raise UserError(NO_OPTUNA) from None
    space = read_space(settings.params, fixed)
    compose = partial(_ranked_by, settings.objective, "training.monitor" in {*fixed, *space}, compose)
    config = compose(as_overrides(first_values(space)))
    if config.trainer.get("devices", 1) not in (1, "1", "auto"):
        raise UserError(f"trainer.devices={config.trainer['devices']} does not go with sweep=optuna. Use trainer.devices=1.")
    data = load_once(first_training(config).dataset)
    if "val" not in data.parts:
        raise UserError(
            f"sweep.objective={settings.objective} is a metric of the validation part, and the split has none. Give it some molecules with "
            "dataset.split_fractions=."
        )
    optuna.logging.set_verbosity(optuna.logging.ERROR)  # `_after` reports trials that fail
    composed = compose([])
    task = choose_task(composed.task, data, composed.dataset, composed.training.loss)
    named = settled(composed, task)
    objective = Monitor.of(settings.objective, learned_with(task, config.training), "sweep.objective")
    about = {"objective": objective.key, "direction": _direction(settings.direction, objective), "space": space}
    study = open_study(folder, settings.study, about, named, data)
    requeue_interrupted(study, folder)
    before = _finished(study)
    if before:
        log.info("Study %s continues: %d of %d trials are done", settings.study, before, settings.n_trials)
    study.sampler = optuna.samplers.TPESampler(seed=config.seed + len(study.trials))
    warmup = settings.pruning_warmup
    median = optuna.pruners.MedianPruner(n_startup_trials=settings.pruning_startup_trials, n_warmup_steps=warmup)
    study.pruner = median if settings.pruning else optuna.pruners.NopPruner()
    limit = math.inf if settings.timeout is None else time.monotonic() + settings.timeout
    try:
        with SignalsLater() as signals:  # so that the end of the interrupted trial is recorded
            while _finished(study) < settings.n_trials and time.monotonic() < limit:
                with next_trial(study, folder) as trial:
                    _run(study, trial, partial(_objective, trial, settings, objective, space, compose, folder, train, signals))
                _after(study, trial.number, settings, compose, folder, signals)
    except (KeyboardInterrupt, SystemExit) as stop:  # SystemExit is Terminated, or what Lightning raises on Ctrl-C
        write_reports(study, settings.objective, _preset(study, compose), folder)
        log.info("\nInterrupted after %s, which %s keeps. The same command continues.", counted(_finished(study), "trial"), folder)
        if isinstance(stop, Terminated):
            raise
        exit_interrupted()
    requeue_interrupted(study, folder)
    return _end(study, settings, compose, folder)


def _run(study: Study, trial: Trial, objective: Callable[[], float]) -> None:
    """Run a trial to its end, which the study records. What stops the search is raised."""
    from optuna import TrialPruned
    from optuna.trial import TrialState

    value, state = None, TrialState.FAIL
    try:
        value, state = objective(), TrialState.COMPLETE
    except TrialPruned:
        state = TrialState.PRUNED
    except (UserError, torch.OutOfMemoryError):
        pass
    finally:
        study.tell(trial, value, state)


def _ranked_by(objective: str, taken: bool, compose: Compose, overrides: list[str]) -> Config:
    """Return the configuration with further overrides, in which the objective also chooses each training's best weights.

    It is an error if `training.monitor` has been `taken` for another value.
    """
    config = compose(overrides)
    monitor = config.training.monitor
    if taken and monitor != objective:
        raise UserError(
            f"training.monitor={monitor} would choose the weights of each trial by another value than sweep.objective={objective}, which "
            "ranks the trials. Leave one of the two out."
        )
    return replace(config, training=replace(config.training, monitor=objective))


def _direction(given: str, objective: Monitor) -> str:
    """Return the direction of the objective, "minimize" or "maximize", which `sweep.direction` must not contradict."""
    right, better = ("maximize", "more") if objective.maximize else ("minimize", "less")
    if given not in ("auto", right):
        raise UserError(
            f"sweep.direction={given} would look for the worst trial: of sweep.objective={objective.key}, {better} is better. Leave "
            "sweep.direction out, which follows from the objective."
        )
    return right


def _objective(
    trial: Trial,
    settings: SearchConfig,
    objective: Monitor,
    space: dict[str, Any],
    compose: Compose,
    folder: Path,
    train: Train,
    signals: SignalsLater,
) -> float:
    import optuna

    overrides = as_overrides(suggest(trial, space))
    trial.set_user_attr("overrides", overrides)
    log.info("Trial %d (of %d): %s", trial.number, settings.n_trials, " ".join(overrides))
    pruning = Pruning(trial, objective)
    try:
        config = compose(overrides)
        logger = replace(config.logger, group=config.logger.group or settings.study, run_name=f"{settings.study}-{trial.number}")
        with signals.now():
            result = train(replace(config, logger=logger), folder / str(trial.number), [pruning])
    except (UserError, torch.OutOfMemoryError) as error:
        trial.set_user_attr("error", " ".join(str(error).split()))
        raise
    result.save(overrides)
    if pruning.pruned:
        raise optuna.TrialPruned
    if pruning.best is None:
        raise UserError(
            f"No validation took place, or none defined {objective.key}, so there is nothing to search for. Lower "
            "trainer.check_val_every_n_epoch, or use another sweep.objective or split."
        )
    return pruning.best


def _after(study: Study, number: int, settings: SearchConfig, compose: Compose, folder: Path, signals: SignalsLater) -> None:
    trial = study.trials[number]
    state = trial.state.name.lower()
    value = "-" if trial.value is None else f"{trial.value:.5g}"
    detail = trial.user_attrs.get("error", f"{settings.objective} {value}")
    log.info("Trial %d %s: %s", trial.number, {"fail": "failed"}.get(state, state), detail)
    with signals.now():
        write_reports(study, settings.objective, _preset(study, compose), folder)


def _end(study: Study, settings: SearchConfig, compose: Compose, folder: Path) -> float:
    write_reports(study, settings.objective, _preset(study, compose), folder)
    print_table(study, settings.objective, folder)
    if not _completed(study):
        reasons = [trial.user_attrs["error"] for trial in study.trials if "error" in trial.user_attrs]
        raise UserError(f"No trial in {folder} is complete." + (f" The last one failed: {reasons[-1]}" if reasons else ""))
    return study.best_value


def _preset(study: Study, compose: Compose) -> dict[str, Any] | None:
    if not _completed(study):
        return None
    values = asdict(compose(study.best_trial.user_attrs["overrides"]))
    values["training"]["report"] = True
    return {key: value for key, value in values.items() if key not in ("resume", "ckpt_path")}


def _completed(study: Study) -> Sequence[Any]:
    return [trial for trial in study.trials if trial.state.name == "COMPLETE"]


def _finished(study: Study) -> int:
    """Return the number of trials that are complete, pruned or failed; interrupted ones do not count and are replaced by new ones."""
    return sum(trial.state.is_finished() and not was_interrupted(trial) for trial in study.trials)
