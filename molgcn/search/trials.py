"""Begin the trials of a study that several processes may share, and notice the trials whose process was killed."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from molgcn.data.locks import exclusive, tried

if TYPE_CHECKING:
    from optuna import Study, Trial
    from optuna.trial import FrozenTrial

log = logging.getLogger(__name__)
_RETRIES = 3  # most times that the parameters of an interrupted trial are tried again, since they may be what ends the process
_RETRY_OF = "retry_of"  # the attribute that holds the number of the interrupted trial


@contextmanager
def next_trial(study: Study, folder: Path) -> Iterator[Trial]:
    """Yield a new trial, which the caller ends within the block.

    A lock file, which the system frees when the process dies, says that the trial lives. Optuna's heartbeat would take a process for dead
    that is stopped, or whose machine sleeps, and goes on later.
    """
    with ExitStack() as ending:
        with exclusive(folder / "study.db"):  # no other process sees the trial before it has its lock
            _requeue(study, folder)
            trial = study.ask()
            file = _lock_file(folder, trial.number)
            ending.callback(file.unlink, missing_ok=True)
            ending.enter_context(tried(file))
        yield trial


def requeue_interrupted(study: Study, folder: Path) -> None:
    """Record the end of trials whose process was killed, and queue the parameters of interrupted trials to be tried again."""
    with exclusive(folder / "study.db"):
        _requeue(study, folder)


def was_interrupted(trial: FrozenTrial) -> bool:
    """Return whether a trial has ended without a result or a reason."""
    return trial.state.name == "FAIL" and "error" not in trial.user_attrs


def _requeue(study: Study, folder: Path) -> None:
    from optuna.trial import TrialState

    for trial in study.get_trials(deepcopy=False, states=[TrialState.RUNNING]):
        file = _lock_file(folder, trial.number)
        with tried(file) as free:
            if free:  # and not None, where there are no locks
                with suppress(ValueError):  # it has ended since
                    study.tell(trial.number, state=TrialState.FAIL)
                file.unlink(missing_ok=True)
    trials = study.get_trials(deepcopy=False)
    retried = {trial.user_attrs.get(_RETRY_OF) for trial in trials}
    for trial in trials:
        if was_interrupted(trial) and trial.params and trial.number not in retried and _retries(trial, trials) < _RETRIES:
            log.info("Trial %d was interrupted: its parameters are tried again", trial.number)
            study.enqueue_trial(trial.params, user_attrs={_RETRY_OF: trial.number})


def _retries(trial: FrozenTrial, trials: Sequence[FrozenTrial]) -> int:
    """Return how often the parameters of a trial had been tried before it."""
    before = trial.user_attrs.get(_RETRY_OF)
    return 0 if before is None else 1 + _retries(trials[before], trials)


def _lock_file(folder: Path, number: int) -> Path:
    return folder / f".trial-{number}.lock"
