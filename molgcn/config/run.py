"""The typed form of the configuration: one dataclass per group, checked before anything is loaded.

The defaults are those of conf/**/*.yaml, where every key is documented. A test compares the two.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, is_dataclass, replace
from functools import cache
from typing import Any, Literal, TypeVar, get_type_hints

from pydantic import TypeAdapter, ValidationError

from molgcn.config.layer_settings import Activation, LayerSettings
from molgcn.config.strategies import Strategy
from molgcn.config.training import TrainingConfig
from molgcn.data.benchmark_sets import BENCHMARK_SETS
from molgcn.data.config import AUTO, DatasetConfig, LoaderConfig
from molgcn.errors import UserError, nearest, require

WhichModels = Literal["auto", "folds", "refit"]
"""Which models a cross-validation stands for: the one trained on all molecules, those of the folds, or the former where there is one."""

T = TypeVar("T")


@dataclass(frozen=True)
class BackendConfig:
    """The group conf/backend, which says what computes the layers."""

    name: Literal["auto", "fused", "pyg", "reference"] = "auto"
    strategy: Strategy = "auto"
    recompute: bool = False


@dataclass(frozen=True)
class EncodingsConfig:
    """The section model.encodings: encodings of atoms and bonds by random walks."""

    rwse: int = 0
    rwse_dim: int = 16
    bond_rw: int = 0


@dataclass(frozen=True)
class ModelConfig(LayerSettings):
    """The group conf/model; see :class:`molgcn.nn.MoleculeNet` for its keys.

    The defaults here are those of conf/model/gcn.yaml. MoleculeNet's own defaults describe the plain network.

    `settings` holds the options of a layer from another package. Layers of this package have keys of their own (:class:`LayerSettings`).
    """

    name: str = "gcn"
    hidden_channels: int = 64
    num_layers: int = 6
    activation: Activation = "relu"
    residual: bool = True
    norm: Literal["batch", "layer"] | None = "batch"
    dropout: float = 0.0
    feed_forward: bool = False
    feed_forward_norm: Literal["batch", "layer"] | None = "batch"
    pool: Literal["mean", "sum", "max", "norm", "attention"] = "mean"
    readout: Literal["last", "all"] = "last"
    bonds: bool = False
    embed: bool = False
    embed_bonds: bool = False
    shared_encoder: bool = True
    encodings: EncodingsConfig = field(default_factory=EncodingsConfig)
    last_activation: bool = True
    head_layers: int | None = 1
    head_channels: tuple[int, ...] | None = None
    descriptor_limit: float | None = None
    init: Literal["glorot", "kaiming"] | None = "glorot"
    settings: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class OptimizerConfig:
    """The group conf/optimizer."""

    name: Literal["adam", "adamw", "sgd"] = "adam"
    lr: float = 1e-3
    weight_decay: float = 0.0
    betas: tuple[float, float] = (0.9, 0.999)
    eps: float = 1e-8
    momentum: float = 0.0
    nesterov: bool = False
    head_lr: float | None = None

    def __post_init__(self) -> None:
        require(self.lr > 0, "optimizer.lr", self.lr, "a number above 0")
        require(self.head_lr is None or self.head_lr > 0, "optimizer.head_lr", self.head_lr, "a number above 0, or null for optimizer.lr")
        require(self.weight_decay >= 0, "optimizer.weight_decay", self.weight_decay, "a number of at least 0")
        require(all(0 <= beta < 1 for beta in self.betas), "optimizer.betas", list(self.betas), "two numbers of at least 0 and below 1")
        require(self.eps >= 0, "optimizer.eps", self.eps, "a number of at least 0")
        require(self.momentum >= 0, "optimizer.momentum", self.momentum, "a number of at least 0")
        require(not self.nesterov or self.momentum > 0, "optimizer.nesterov", self.nesterov, "optimizer.momentum above 0 with it")


@dataclass(frozen=True)
class SchedulerConfig:
    """The group conf/scheduler.

    The schedules constant, cosine and exponential start with a linear rise from `start_lr` over `warmup_epochs`.
    """

    name: Literal["constant", "cosine", "exponential", "plateau", "onecycle"] = "cosine"
    warmup_epochs: float = 0.0
    start_lr: float = 0.0
    min_lr: float = 0.0
    factor: float = 0.5
    patience: int = 10
    pct_start: float = 0.3

    def __post_init__(self) -> None:
        require(self.warmup_epochs >= 0, "scheduler.warmup_epochs", self.warmup_epochs, "a number of at least 0")
        require(self.start_lr >= 0, "scheduler.start_lr", self.start_lr, "a number of at least 0")
        warms = self.start_lr == 0 or self.warmup_epochs > 0
        require(warms, "scheduler.start_lr", self.start_lr, "0 without scheduler.warmup_epochs, in which the rate rises from it")
        require(self.min_lr >= 0, "scheduler.min_lr", self.min_lr, "a number of at least 0")
        falls = self.name != "exponential" or self.min_lr > 0
        require(falls, "scheduler.min_lr", self.min_lr, "a number above 0 with scheduler=exponential, which never falls to 0")
        require(self.patience >= 0, "scheduler.patience", self.patience, "a whole number of at least 0")
        require(0 < self.factor < 1, "scheduler.factor", self.factor, "a number between 0 and 1")
        require(0 < self.pct_start < 1, "scheduler.pct_start", self.pct_start, "a number between 0 and 1")
        if self.warmup_epochs and self.name in ("onecycle", "plateau"):
            raise UserError(
                f"scheduler.warmup_epochs does not go with scheduler={self.name}. Use scheduler=cosine, exponential or warmup; "
                "onecycle warms up by itself over scheduler.pct_start of the run."
            )


@dataclass(frozen=True)
class CallbacksConfig:
    """The group conf/callbacks, which says when to stop early.

    `early_stopping_patience="auto"` is 20 where the run validates, and else None. `stop_below_lr` ends training once the schedule has taken
    the learning rate below it.
    """

    early_stopping_patience: int | Literal["auto"] | None = None
    early_stopping_min_delta: float = 0.0
    stop_below_lr: float | None = None

    def __post_init__(self) -> None:
        patience, rate = self.early_stopping_patience, self.stop_below_lr
        waits = patience is None or patience == "auto" or patience >= 0
        require(waits, "callbacks.early_stopping_patience", patience, "validations, auto, or null to train on")
        require(self.early_stopping_min_delta >= 0, "callbacks.early_stopping_min_delta", self.early_stopping_min_delta, "at least 0")
        require(rate is None or rate > 0, "callbacks.stop_below_lr", rate, "a number above 0, or null")


@dataclass(frozen=True)
class LoggerConfig:
    """The group conf/logger. metrics.csv is always written, and `name` chooses a logger besides it."""

    name: Literal["csv", "wandb", "tensorboard"] = "wandb"
    project: str = "molgcn"
    run_name: str | None = None
    group: str | None = None
    tags: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Config:
    """The whole configuration of a training run. `trainer` goes to Lightning's Trainer as it is."""

    dataset: DatasetConfig
    task: Literal["auto", "regression", "classification", "multiclass", "mixed"] = "auto"
    loader: LoaderConfig = field(default_factory=LoaderConfig)
    model: ModelConfig = field(default_factory=ModelConfig)
    backend: BackendConfig = field(default_factory=BackendConfig)
    optimizer: OptimizerConfig = field(default_factory=OptimizerConfig)
    scheduler: SchedulerConfig = field(default_factory=SchedulerConfig)
    training: TrainingConfig = field(default_factory=TrainingConfig)
    callbacks: CallbacksConfig = field(default_factory=CallbacksConfig)
    logger: LoggerConfig = field(default_factory=LoggerConfig)
    trainer: dict[str, Any] = field(default_factory=dict)
    seed: int = 0
    resume: str | None = None
    ckpt_path: str | None = None
    ckpt_head: Literal["auto", "checkpoint", "fresh"] = "auto"

    def __post_init__(self) -> None:
        """Check the seed, and the learning rates against each other, and choose the descriptors of trees and the monitor."""
        require(0 <= self.seed < 2**32, "seed", self.seed, "a whole number from 0 to 4294967295")
        lr, start, least = self.optimizer.lr, self.scheduler.start_lr, self.scheduler.min_lr
        require(start <= lr, "scheduler.start_lr", start, f"at most optimizer.lr={lr:g}, to which the schedule rises")
        require(least <= lr, "scheduler.min_lr", least, f"at most optimizer.lr={lr:g}, from which the schedule descends")
        dataset = self.dataset
        if self.training.monitor == "auto":
            chosen = "loss" if dataset.set is None else BENCHMARK_SETS[dataset.name][dataset.set].metric
            object.__setattr__(self, "training", replace(self.training, monitor=f"val/{chosen}"))
        if dataset.levels:
            self._check_levels(" and ".join(f"{of}s" for of in dataset.levels))
        if self.training.blend != "none" and dataset.tree_generators is None:
            dataset.tree_generators = [AUTO] if self.training.blend == "auto" else dataset.default_tree_generators
        if self.training.blend == "none" and dataset.tree_generators is not None:
            raise UserError(
                f"dataset.tree_generators={dataset.tree_generators} are for trees, and training.blend=none has none. Leave it out, "
                "or use training.blend=trees."
            )

    def _check_levels(self, of: str) -> None:
        """Refuse what does not go with targets of atoms and bonds, and train without trees where these are left to the program."""
        if self.training.blend == "auto":
            object.__setattr__(self, "training", replace(self.training, blend="none"))
        refused = {
            "training.blend=trees": (self.training.blend == "trees", "trees predict molecules; use training.ensemble"),
            "training.baseline=rf": (self.training.baseline == "rf", "the forest predicts molecules; use training.baseline=simple"),
            "training.calibration": (self.training.calibration not in ("none", []), "use training.loss=mve or training.ensemble"),
        }
        for key, (given, instead) in refused.items():
            if given:
                raise UserError(f"{key} does not go with targets of {of}: leave it out; {instead}.")

    def to_dict(self) -> dict[str, Any]:
        """Return plain dicts, lists and scalars, as a checkpoint or a YAML file takes them."""
        return asdict(self)


def parse(cls: type[T], values: Mapping[str, Any], prefix: str = "") -> T:
    """Build a config dataclass from plain values.

    Args:
        cls: the dataclass.
        values: the values by key.
        prefix: what to put before a key in a message, for example "dataset".

    Raises:
        UserError: for an unknown key or an invalid value. It names the key, the value and what was expected.
    """
    _check(cls, values, prefix)
    try:
        return _adapter(cls).validate_python(dict(values))  # type: ignore[arg-type]  # mypy takes the hash of instances for the class's
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(([prefix] if prefix else []) + _keys(cls, first["loc"]))
        expected = " or ".join(
            dict.fromkeys(one["msg"][0].lower() + one["msg"][1:] for one in error.errors() if one["loc"][0] == first["loc"][0])
        )
        literal = all(one["type"] == "literal_error" for one in error.errors() if one["loc"][0] == first["loc"][0])
        if literal and isinstance(first["input"], str):
            choices = re.findall("'([^']*)'", first["ctx"]["expected"])
            raise UserError(f"{key}={first['input']!r} is not valid.{nearest(first['input'], choices)}") from None
        if first["type"] == "string_type":
            quoted = f"'{first['input']}'"
            in_list = isinstance(first["loc"][-1], int)
            expected += f', in quotes of its own: "{key}={f"[{quoted}]" if in_list else quoted}"'
        raise UserError(
            f"{key}={first['input']!r} is not valid: {expected}. Correct the value or leave the key out for its default."
        ) from None


@cache
def _adapter(cls: type) -> TypeAdapter[Any]:
    """Return the validator of a dataclass, which takes 10 ms to build."""
    return TypeAdapter(cls)


def _keys(cls: Any, location: Sequence[str | int]) -> list[str]:
    """Return the keys at the start of an error's location, which may end with branches of a Union or positions in a list."""
    keys: list[str] = []
    for part in location:
        if (types := _types(cls)) is None:
            break
        keys.append(str(part))
        cls = types.get(str(part))
    return keys


@cache
def _types(cls: Any) -> dict[str, Any] | None:
    """Return the types of a dataclass's keys, which Python compiles from their text: 50 ms for those of a run; None for other types."""
    return get_type_hints(cls) if is_dataclass(cls) else None


def _check(cls: Any, values: Mapping[str, Any], prefix: str) -> None:
    """Refuse keys that a dataclass does not have, in any section, and numbers that are not finite."""
    known = _types(cls)
    for key, value in values.items():
        name = f"{prefix}.{key}" if prefix else key
        if known is not None and key not in known:
            header = " A preset in experiment/ begins with the line `# @package _global_`." if name == "experiment" else ""
            raise UserError(f"{name} is not a known key.{header}{nearest(str(key), [*known])}")
        if isinstance(value, Mapping):
            _check(known and known[key], value, name)
        elif isinstance(value, float):
            require(math.isfinite(value), name, value, "a finite number")
