"""Open Optuna's study of a search, a file in its folder; only a search with comparable trials may continue it."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from molgcn.config.run import Config, parse
from molgcn.data.load import LoadedDataset
from molgcn.data.locks import exclusive
from molgcn.errors import UserError
from molgcn.files.whole_file import remove_leftovers
from molgcn.search.sqlite import connect

if TYPE_CHECKING:
    from optuna import Study


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
    import optuna
    from sqlalchemy.pool import NullPool

    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "study.db"
    engine = {"creator": partial(connect, path), "poolclass": NullPool}
    with exclusive(path):  # Optuna makes its tables without a check whether another process does
        for place in (folder, folder / "experiment"):
            remove_leftovers(place, path.name)
        storage = optuna.storages.RDBStorage("sqlite://", engine)
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
