"""Open Optuna's study of a search, a file in its folder; only a search with comparable trials may continue it."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from molgcn.config.run import Config, parse
from molgcn.data.load import LoadedDataset
from molgcn.data.locks import exclusive
from molgcn.errors import UserError

if TYPE_CHECKING:
    from optuna import Study

log = logging.getLogger(__name__)


def open_study(folder: Path, name: str, about: Mapping[str, Any], config: Config, data: LoadedDataset) -> Study:
    """Return the study in `folder`, which is made where there is none.

    Args:
        folder: the folder of the search, which holds study.db.
        name: the name of the study.
        about: the search's objective, direction and space.
        config: the configuration that all trials share.
        data: the data set on which trials are trained.

    Raises:
        UserError: If the study was made with other settings or data, so that its trials cannot be compared with new ones.
    """
    import sqlite3

    import optuna
    from sqlalchemy.pool import NullPool

    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "study.db"
    engine = {"creator": lambda: sqlite3.connect(path, timeout=60, check_same_thread=False), "poolclass": NullPool}
    with exclusive(path):  # Optuna makes its tables without a check whether another process does
        storage = optuna.storages.RDBStorage("sqlite://", engine)
    study = optuna.create_study(storage=storage, study_name=name, direction=about["direction"], load_if_exists=True)
    made_of = json.loads(json.dumps({**about, "data_hash": data.data_hash, **_what_matters(config)}))
    if "made_of" in study.user_attrs:
        known = _up_to_date(study.user_attrs["made_of"], made_of, about, data)
        _check_same(known, made_of, folder)
    study.set_user_attr("made_of", made_of)
    return study


def _what_matters(config: Config) -> dict[str, Any]:
    values = config.to_dict()
    return {key: value for key, value in values.items() if key not in ("logger", "resume")}


def _up_to_date(known: dict[str, Any], made_of: dict[str, Any], about: Iterable[str], data: LoadedDataset) -> dict[str, Any]:
    """Return the settings that a study saved, with the keys that are newer than the study.

    An earlier version did not save the hash of the data, which is then taken to be unchanged.
    """
    beside = {"data_hash": made_of["data_hash"], **{key: known[key] for key in (*about, "data_hash") if key in known}}
    values = _what_matters(parse(Config, {key: value for key, value in known.items() if key not in beside}))
    if "data_hash" not in known:
        log.info("The study was made by an earlier version, which did not save the hash of its data; today's hash is saved now")
        hashes = data.molecules.hashes
        if hashes is not None and len(np.unique(hashes)) == len(hashes):  # without duplicates the key does not change the split
            values["dataset"]["group_duplicates"] = made_of["dataset"]["group_duplicates"]
    up_to_date: dict[str, Any] = json.loads(json.dumps({**beside, **values}))
    return up_to_date


def _check_same(known: dict[str, Any], made_of: dict[str, Any], folder: Path) -> None:
    """Raise UserError unless trials with the settings `known` can be compared with trials with the settings `made_of`."""
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
