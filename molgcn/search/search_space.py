"""Read the space of a search from `sweep.params`, and turn Optuna's suggestions into Hydra's overrides."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from molgcn.config.overrides import quote
from molgcn.errors import UserError, require

if TYPE_CHECKING:
    from optuna import Trial

_NOT_WORDS = ("null", "true", "false", "nan", "inf")
_INTERVAL = {"low", "high", "log", "step"}


def read_space(params: Mapping[str, Any], fixed: Collection[str] = ()) -> dict[str, Any]:
    """Return the space of a search, `sweep.params` without fixed keys, after a check.

    It has by dotted key a list of values, or a mapping with low, high and perhaps log or step.
    """
    space = {key: entry for key, entry in _leaves(params, "") if key not in fixed}
    if not space:
        raise UserError(
            "sweep.params is empty. Name what to vary, for example '+sweep.params.optimizer.lr={low:0.0001,high:0.01,log:true}'."
        )
    for key, entry in space.items():
        _check(key, entry)
    return space


def _leaves(node: Mapping[str, Any], path: str) -> Iterator[tuple[str, Any]]:
    for name, value in node.items():
        key = f"{path}.{name}" if path else str(name)
        if isinstance(value, Mapping) and not value.keys() & {"low", "high"}:
            yield from _leaves(value, key)
        elif value is not None:
            yield key, value


def _check(key: str, entry: Any) -> None:
    name = f"sweep.params.{key}"
    if isinstance(entry, list):
        single = not any(isinstance(value, (list, dict)) for value in entry)
        require(bool(entry) and single, name, entry, "a list of numbers, words, true, false or null")
        return
    known = isinstance(entry, Mapping) and {"low", "high"} <= entry.keys() <= _INTERVAL
    require(known, name, entry, "a list of values, or an interval such as {low: 0.1, high: 1.0, log: true}")
    low, high, step = entry["low"], entry["high"], entry.get("step")
    numbers = [value for value in (low, high, step) if value is not None]
    right = all(isinstance(value, (int, float)) and not isinstance(value, bool) for value in numbers) and low < high
    require(right, name, dict(entry), "numbers, low below high")
    if entry.get("log") and (low <= 0 or step is not None):
        raise UserError(f"{name}={dict(entry)} is not valid: a logarithmic interval begins above 0 and has no step.")
    require(step is None or step > 0, name, dict(entry), "a step above 0")


def suggest(trial: Trial, space: Mapping[str, Any]) -> dict[str, Any]:
    return {key: _suggest(trial, key, entry) for key, entry in space.items()}


def _suggest(trial: Trial, key: str, entry: Any) -> Any:
    if isinstance(entry, list):
        return trial.suggest_categorical(key, entry)
    low, high, log, step = entry["low"], entry["high"], bool(entry.get("log")), entry.get("step")
    if all(isinstance(value, int) for value in (low, high, step or 1)):
        return trial.suggest_int(key, low, high, step=step or 1, log=log)
    return trial.suggest_float(key, low, high, step=step, log=log)


def first_values(space: Mapping[str, Any]) -> dict[str, Any]:
    """Return the first value of each list and the lower end of each interval, with which a search checks its configuration at first."""
    return {key: entry[0] if isinstance(entry, list) else entry["low"] for key, entry in space.items()}


def as_overrides(values: Mapping[str, Any]) -> list[str]:
    """Return `key=value` overrides in Hydra's grammar, floats with six significant digits."""
    return [f"{key}={_literal(value)}" for key, value in values.items()]


def _literal(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return f"{value:.6g}"
    plain = not isinstance(value, str) or (value.isascii() and value.isidentifier() and value.lower() not in _NOT_WORDS)
    return str(value) if plain else quote(value)
