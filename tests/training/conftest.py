"""Small configurations that train in a second or two."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from molgcn.config import Config, parse

BASE: dict[str, dict[str, Any]] = {
    "dataset": {"name": "builtin", "targets": ["logp"], "subset": 300, "batch_size": 32, "features": "zinc"},
    "model": {"hidden_channels": 8, "num_layers": 2},
    "backend": {"name": "pyg"},
    "trainer": {"max_epochs": 2, "accelerator": "cpu", "log_every_n_steps": 3, "num_sanity_val_steps": 0, "enable_model_summary": False},
    "logger": {"name": "csv"},
    "training": {"checkpoint_seconds": 60, "report": False},
}


@pytest.fixture(scope="session")
def small_config() -> Callable[..., Config]:
    """Makes a configuration: `small_config(model={"dropout": 0.1}, seed=1)` changes single keys."""

    def make(**changes: Any) -> Config:
        values: dict[str, Any] = {key: dict(value) for key, value in BASE.items()}
        for key, change in changes.items():
            values[key] = {**values.get(key, {}), **change} if isinstance(change, dict) else change
        return parse(Config, values)

    return make
