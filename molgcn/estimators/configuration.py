"""Turn the parameters of an estimator into the configuration of a run."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from copy import deepcopy
from functools import lru_cache
from numbers import Integral
from pathlib import Path
from typing import Any

import numpy as np
from hydra.core.global_hydra import GlobalHydra
from sklearn.base import BaseEstimator
from sklearn.utils import check_random_state

from molgcn.cli import run_values
from molgcn.config.overrides import check_overrides, compose_config, quote
from molgcn.config.run import Config, parse
from molgcn.resources import resource

_KEYS = {  # parameters of estimators, and the keys of the configuration that they stand for
    "model": "model",
    "recipe": "recipe",
    "num_layers": "model.num_layers",
    "hidden_channels": "model.hidden_channels",
    "dropout": "model.dropout",
    "lr": "optimizer.lr",
    "batch_size": "dataset.batch_size",
    "max_epochs": "trainer.max_epochs",
    "loss": "training.loss",
    "ensemble": "training.ensemble",
}
_PLAIN = re.compile(r"[\w./:+-]+", re.ASCII)


def config_of(estimator: BaseEstimator, data: Path, count: int, targets: list[str], options: Mapping[str, Any]) -> Config:
    """Return the configuration of a run that an estimator asks for, on a file of so many different molecules with these columns of targets.

    `options` are further keys and their values, which no parameter changes. A key or value that does not exist is a UserError.
    """
    state = estimator.random_state
    seed = int(state) if isinstance(state, Integral) else int(check_random_state(state).randint(2**31))
    part = estimator.validation_fraction if count * estimator.validation_fraction >= 1 else 0
    if not isinstance(estimator.overrides, Mapping | None):
        raise TypeError(f"overrides={estimator.overrides!r} is no mapping. Expected keys and values, as in {{'trainer.max_epochs': 20}}.")
    given = {key: value for name, key in _KEYS.items() if (value := getattr(estimator, name)) is not None}
    wanted = {
        "dataset": "csv",
        "dataset.path": str(data),
        "dataset.cache_dir": str(data.parent / "cache"),
        "dataset.targets": targets,
        "dataset.split_fractions": [1 - part, part, 0],
        "dataset.split_seed": seed,
        "seed": seed,
        "logger": "csv",
        "trainer.accelerator": {"cuda": "gpu"}.get(estimator.device, estimator.device),
        "trainer.enable_progress_bar": bool(estimator.verbose),
        "training.report": False,
        "training.baseline": "none",
        "training.bootstrap": 0,
        **given,
        **(estimator.overrides or {}),
        **options,
    }
    places = {key: wanted.pop(f"dataset.{key}") for key in ("path", "cache_dir")}  # which no other fit has
    values = deepcopy(_composed(tuple(f"{key}={_as_override(value)}" for key, value in wanted.items())))
    values["dataset"] |= places
    return parse(Config, values)


@lru_cache(maxsize=64)
def _composed(arguments: tuple[str, ...]) -> dict[str, Any]:
    """Return the values of a run with these overrides, which are composed once for all parts of a cross-validation."""
    before = GlobalHydra.instance().hydra
    try:
        check_overrides(arguments, resource("conf"), "train")
        return run_values(compose_config(arguments, resource("conf"), "train"))
    finally:
        GlobalHydra.instance().hydra = before


def _as_override(value: Any) -> str:
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, Mapping):
        return "{" + ",".join(f"{_as_override(key)}:{_as_override(one)}" for key, one in value.items()) + "}"
    if isinstance(value, str):
        return value if _PLAIN.fullmatch(value) else quote(value)
    if isinstance(value, Sequence | np.ndarray):
        return "[" + ",".join(map(_as_override, value)) + "]"
    return repr(value.item() if isinstance(value, np.generic) else value)
