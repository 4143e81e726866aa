"""Optuna's study of a search, a file in its folder that several processes may share, and its trials.

Only a search with comparable trials may continue a study. Trials whose process was killed are noticed.
"""

from __future__ import annotations

import json
import logging
import sqlite3
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from molgcn.config.run import Config, parse
from molgcn.data.load import LoadedDataset
from molgcn.data.locks import exclusive, tried
from molgcn.errors import UserError
from molgcn.files.whole_file import remove_leftovers

if TYPE_CHECKING:
    from optuna import Study, Trial
    from optuna.trial import FrozenTrial

log = logging.getLogger(__name__)
T = TypeVar("T")

PATIENCE = 2.0  # seconds before a wait is announced
_RETRIES = 3  # most times that the parameters of an interrupted trial are tried again, since they may be what ends the process
_RETRY_OF = "retry_of"  # the attribute that holds the number of the interrupted trial


def open_study(folder: Path, name: str, about: Mapping[str, Any], config: Config, data: LoadedDataset) -> Study:
    """Return the study of a name in `folder`, which is made where there is none.

    It keeps what the search is `about`, its objective, direction and space, with the configuration that all trials share and the data.

    Raises:
        UserError: If the study was made with other settings or data, so that its trials cannot be compared with new ones.
    """
    import optuna
    from sqlalchemy.pool import NullPool

    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "study.db"
    engine = {"creator": partial(_connect, path), "poolclass": NullPool}
    with exclusive(path):  # Optuna makes its tables without a check whether another process does
        for place in (folder, folder / "experiment"):
            remove_leftovers(place, path.name)
        new = not path.exists()  # whose tables are of this version; the check loads all migrations between versions
        storage = optuna.storages.RDBStorage("sqlite://", engine, skip_compatibility_check=new)
    study = optuna.create_study(storage=storage, study_name=name, direction=about["direction"], load_if_exists=True)
    made_of = json.loads(json.dumps({**about, "data_hash": data.data_hash, **_what_matters(config)}))
    if "made_of" in study.user_attrs:
        _check_same(_up_to_date(study.user_attrs["made_of"], [*about, "data_hash"]), made_of, folder)
    study.set_user_attr("made_of", made_of)
    return study


def _what_matters(config: Config) -> dict[str, Any]:
    values = config.to_dict()
    return {key: value for key, value in values.items() if key not in ("logger", "resume")}


def _up_to_date(known: Mapping[str, Any], about: Collection[str]) -> dict[str, Any]:
    """Return the settings that a study saved, with the keys of the configuration that are newer than the study."""
    config = parse(Config, {key: value for key, value in known.items() if key not in about})
    up_to_date: dict[str, Any] = json.loads(json.dumps({**{key: known[key] for key in about}, **_what_matters(config)}))
    return up_to_date


def _check_same(known: dict[str, Any], made_of: dict[str, Any], folder: Path) -> None:
    changed = _differences(known, made_of)
    if changed == ["data_hash"]:
        before, now = (one["data_hash"][:12] for one in (known, made_of))
        raise UserError(
            f"The data has changed since the study in {folder} was made (hash {before}, now {now}), so that its trials cannot be compared "
            "with new ones. Restore the data, or begin a new study with sweep.study=<another name>."
        )
    if changed:
        keys = ", ".join(key for key in changed if key != "data_hash")
        raise UserError(
            f"The study in {folder} was made with other settings (different: {keys}), so that its trials cannot be compared with new "
            "ones. Give the command that began it, or choose another name with sweep.study=."
        )


def _differences(one: Mapping[str, Any], other: Mapping[str, Any]) -> list[str]:
    """Return the dotted keys whose values differ."""
    keys = []
    for key in sorted(one.keys() | other.keys()):
        mine, theirs = one.get(key), other.get(key)
        if isinstance(mine, Mapping) and isinstance(theirs, Mapping):
            keys += [f"{key}.{below}" for below in _differences(mine, theirs)]
        elif mine != theirs:
            keys.append(key)
    return keys


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
    before = trial.user_attrs.get(_RETRY_OF)
    return 0 if before is None else 1 + _retries(trials[before], trials)


def _lock_file(folder: Path, number: int) -> Path:
    return folder / f".trial-{number}.lock"


def _connect(path: Path) -> sqlite3.Connection:
    """Return a connection to a file that waits for a process that is writing, however long it takes.

    Such a process may have been stopped. SQLite's own wait ends in an error, and Ctrl-C does not end it.
    """
    return sqlite3.connect(path, timeout=PATIENCE, check_same_thread=False, factory=_Connection)


class _Cursor(sqlite3.Cursor):
    def execute(self, *arguments: Any) -> _Cursor:
        return _patiently(partial(super().execute, *arguments))

    def executemany(self, *arguments: Any) -> _Cursor:
        return _patiently(partial(super().executemany, *arguments))


class _Connection(sqlite3.Connection):
    def cursor(self, *arguments: Any) -> Any:
        return super().cursor(*(arguments or (_Cursor,)))

    def commit(self) -> None:
        _patiently(super().commit)


def _patiently(step: Callable[[], T]) -> T:
    """Take a step, again and again while another process has the file locked."""
    announced = False
    while True:
        try:
            return step()
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode != sqlite3.SQLITE_BUSY:
                raise
        if not announced:
            log.info("Waiting for another process that writes into the study")
            announced = True
