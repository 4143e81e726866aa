"""The checked dataclass of benchmarks/conf/benchmark.yaml."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

import torch

from molgcn.data.config import DatasetConfig
from molgcn.errors import UserError
from molgcn.nn.backend import resolve_backend
from molgcn_benchmark.candidates import CAPTURED
from molgcn_benchmark.steps import WORKS

Part = Literal["steps", "published", "loaders", "epochs", "learning"]
CandidateName = Literal["fused", "fused_captured", "fused_99kb", "pyg", "pyg_hoisted", "pyg_compiled"]
Work = Literal["forward", "training_forward", "backward", "forward_backward", "step"]


@dataclass(frozen=True)
class StepsConfig:
    """The section `steps`, see :class:`molgcn_benchmark.steps.Grid`. `candidates=None` takes all uncompiled ones that the device has."""

    candidates: tuple[CandidateName, ...] | None = None
    works: tuple[Work, ...] = WORKS  # type: ignore[assignment]
    repeats: int = 7
    warm_up: int = 2


@dataclass(frozen=True)
class PublishedConfig:
    """The section `published`, the protocol of a published study, see :mod:`molgcn_benchmark.published`."""

    warm_up: int = 20
    iterations: int = 50
    repeats: int = 3


@dataclass(frozen=True)
class LoadersConfig:
    """The section `loaders`, see :mod:`molgcn_benchmark.loaders`."""

    batch_sizes: tuple[int, ...] = (128, 4096)
    workers: tuple[int, ...] = (0,)
    epochs: int = 5


@dataclass(frozen=True)
class EpochsConfig:
    """The section `epochs`, see :mod:`molgcn_benchmark.epochs`."""

    num_layers: tuple[int, ...] = (12,)
    batch_sizes: tuple[int, ...] = (128,)
    epochs: int = 3
    warm_up: int = 1
    rounds: int = 1
    workers: int = 0


@dataclass(frozen=True)
class LearningConfig:
    """The section `learning`, see :mod:`molgcn_benchmark.learning`."""

    num_layers: int = 12
    batch_size: int = 128
    epochs: int = 5
    seeds: tuple[int, ...] = (0, 1)
    lr: float = 1e-3


@dataclass(frozen=True)
class BenchmarkConfig:
    """The configuration of benchmarks/conf/benchmark.yaml."""

    dataset: DatasetConfig = field(default_factory=DatasetConfig)
    parts: tuple[Part, ...] = ("steps", "loaders", "epochs", "learning")
    device: Literal["auto", "cpu", "cuda"] = "auto"
    output: str = "benchmark"
    num_layers: tuple[int, ...] = (4, 12, 28)
    batch_sizes: tuple[int, ...] = (128, 1024)
    hidden_channels: int = 32
    norm: Literal["batch", "layer"] | None = None
    steps: StepsConfig = field(default_factory=StepsConfig)
    published: PublishedConfig = field(default_factory=PublishedConfig)
    loaders: LoadersConfig = field(default_factory=LoadersConfig)
    epochs: EpochsConfig = field(default_factory=EpochsConfig)
    learning: LearningConfig = field(default_factory=LearningConfig)

    def __post_init__(self) -> None:
        """Check what pydantic's types do not check."""
        positive: dict[str, int | Sequence[int]] = {
            "num_layers": self.num_layers,
            "batch_sizes": self.batch_sizes,
            "hidden_channels": self.hidden_channels,
            "steps.repeats": self.steps.repeats,
            "published.iterations": self.published.iterations,
            "published.repeats": self.published.repeats,
            "loaders.batch_sizes": self.loaders.batch_sizes,
            "loaders.epochs": self.loaders.epochs,
            "epochs.num_layers": self.epochs.num_layers,
            "epochs.batch_sizes": self.epochs.batch_sizes,
            "epochs.epochs": self.epochs.epochs,
            "epochs.rounds": self.epochs.rounds,
            "learning.num_layers": self.learning.num_layers,
            "learning.batch_size": self.learning.batch_size,
            "learning.epochs": self.learning.epochs,
        }
        counts: dict[str, int | Sequence[int]] = {
            "steps.warm_up": self.steps.warm_up,
            "published.warm_up": self.published.warm_up,
            "epochs.warm_up": self.epochs.warm_up,
            "epochs.workers": self.epochs.workers,
            "loaders.workers": self.loaders.workers,
            "learning.seeds": self.learning.seeds,
        }
        for lowest, values in ((1, positive), (0, counts)):
            for key, value in values.items():
                _at_least(key, value, lowest)
        if self.device == "cuda" and not torch.cuda.is_available():
            raise UserError("device=cuda, but torch sees no CUDA GPU. Use device=auto or device=cpu.")
        graphs = [name for name in self.steps.candidates or () if name in CAPTURED]
        if graphs and self.torch_device.type != "cuda":
            raise UserError(f"steps.candidates: {graphs[0]} is a CUDA graph and needs a GPU. Leave it out on a CPU.")
        if self.steps.candidates == ():
            raise UserError("steps.candidates is empty. Name at least one, as in steps.candidates=[fused,pyg], or null for all.")
        resolve_backend("fused")  # before anything is measured

    @property
    def torch_device(self) -> torch.device:
        """The device of all measurements; `device=auto` takes a GPU if there is one."""
        cuda = self.device == "cuda" or (self.device == "auto" and torch.cuda.is_available())
        return torch.device("cuda" if cuda else "cpu")

    @property
    def candidates(self) -> tuple[str, ...]:
        """The names of the candidates that `steps` compares."""
        if self.steps.candidates is not None:
            return self.steps.candidates
        captured = ("fused_captured",) if self.torch_device.type == "cuda" else ()
        return ("fused", *captured, "pyg", "pyg_hoisted")


def _at_least(key: str, value: int | Sequence[int], lowest: int) -> None:
    several = isinstance(value, Sequence)
    values = value if isinstance(value, Sequence) else (value,)
    if not values or min(values) < lowest:
        expected = f"a list of whole numbers of at least {lowest}" if several else f"a whole number of at least {lowest}"
        shown = list(values) if several else value
        raise UserError(f"{key}={shown} is not valid: expected {expected}.")
