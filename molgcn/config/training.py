"""The group conf/training as a checked dataclass."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal, NamedTuple

from molgcn.data.column_names import ByColumn
from molgcn.data.column_names import ColumnNames as Metrics
from molgcn.errors import require, shown

CalibrationMethod = Literal["zscaling", "isotonic", "platt", "conformal"]
CalibrationMethods = Literal["none", "auto", "zscaling", "isotonic", "platt", "conformal"]


@dataclass(frozen=True)
class TrainingConfig:
    """The group conf/training: the loss, the optimizer step and what a run writes."""

    captured: Literal["auto"] | bool = "auto"
    loss: Literal["auto", "mse", "l1", "huber", "mve", "evidential", "quantile", "bce", "ce", "focal"] = "auto"
    huber_delta: float = 1.0
    evidential_regularization: float = 0.2
    quantile_alpha: float = 0.1
    focal_gamma: float = 2.0
    class_weights: Literal["balanced"] | None = None
    task_weights: ByColumn[float] | None = None
    metrics: Metrics | None = None
    monitor: str = "val/loss"
    gradient_clip_norm: float | None = None
    accumulate_batches: int = 1
    ema_decay: float | None = None
    ensemble: int = 1
    refit: bool = False
    blend: Literal["none", "trees", "auto"] = "none"
    freeze: Literal["encoder"] | int | None = None
    freeze_head: int = 0
    unfreeze: dict[int, Literal["head", "all"] | int] | None = None
    checkpoint_seconds: float = 60.0
    report: bool = True
    bootstrap: int = 1000
    baseline: Literal["none", "simple", "rf"] = "simple"
    calibration: CalibrationMethods | list[CalibrationMethod] = "none"
    calibration_alpha: float = 0.1
    calibration_on_validation: bool = False
    conformal_sets: Literal["plain", "adaptive"] = "plain"
    domain_index: Literal["none", "run", "checkpoint"] = "none"

    def __post_init__(self) -> None:
        require(self.huber_delta > 0, "training.huber_delta", self.huber_delta, "a number above 0")
        weight = self.evidential_regularization
        require(weight >= 0, "training.evidential_regularization", weight, "a number of at least 0")
        require(0 < self.quantile_alpha < 1, "training.quantile_alpha", self.quantile_alpha, "a number between 0 and 1")
        require(self.focal_gamma >= 0, "training.focal_gamma", self.focal_gamma, "a number of at least 0")
        for name, weight in (self.task_weights or {}).items():
            require(0 <= weight < math.inf, f"training.task_weights={{{shown(name)}}}", weight, "a number of at least 0")
        clip = self.gradient_clip_norm
        require(clip is None or clip > 0, "training.gradient_clip_norm", clip, "a number above 0, or null for no clipping")
        require(self.accumulate_batches >= 1, "training.accumulate_batches", self.accumulate_batches, "at least 1")
        twice = self.metrics is None or len(set(self.metrics)) == len(self.metrics) > 0
        require(twice, "training.metrics", self.metrics, "names of metrics, each once, as in [rmse,r2], or null for those of the task")
        ema = self.ema_decay
        require(ema is None or 0 < ema < 1, "training.ema_decay", ema, "a number between 0 and 1, or null for no averaging")
        require(self.ensemble >= 1, "training.ensemble", self.ensemble, "models to train, at least 1")
        some = self.freeze in (None, "encoder") or self.freeze >= 1  # type: ignore[operator]
        require(some, "training.freeze", self.freeze, "encoder, or a number of layers of at least 1")
        require(self.freeze_head >= 0, "training.freeze_head", self.freeze_head, "a number of layers of at least 0")
        only = self.freeze_head == 0 or self.freeze == "encoder"
        require(only, "training.freeze_head", self.freeze_head, "0 without training.freeze=encoder, behind which the head stands")
        self._check_unfreeze()
        require(self.checkpoint_seconds >= 0, "training.checkpoint_seconds", self.checkpoint_seconds, "seconds, 0 for every batch")
        require(self.bootstrap >= 0, "training.bootstrap", self.bootstrap, "a number of resamples, 0 for no intervals")
        alpha = self.calibration_alpha
        require(0 < alpha < 1, "training.calibration_alpha", alpha, "a number between 0 and 1")

    @property
    def stages(self) -> dict[int, Frozen]:
        """What does not learn, by the number of epochs after which this holds, in order; what `freeze` says holds from 0 on."""
        later = {"head": Frozen("encoder", 0), "all": Frozen(None, 0)}
        stages = {0: Frozen(self.freeze, self.freeze_head)}
        for epochs, learns in sorted((self.unfreeze or {}).items()):
            stages[epochs] = later.get(learns) or Frozen(learns, 0)  # type: ignore[arg-type]  # a number is no key
        return stages

    def _check_unfreeze(self) -> None:
        sizes = [frozen.size for frozen in self.stages.values()]
        for epochs, learns in (self.unfreeze or {}).items():
            positive = epochs >= 1 and (isinstance(learns, str) or learns >= 1)
            require(positive, "training.unfreeze", {epochs: learns}, "epochs and layers of at least 1, as in {10: head, 30: all}")
        more = all(later < before for before, later in pairwise(sizes))
        said = "stages of which each lets more learn than training.freeze and the stage before, as in {10: head, 30: all}"
        require(more, "training.unfreeze", self.unfreeze, said)


class Frozen(NamedTuple):
    """What of a network does not learn."""

    # "encoder", all but the head; a number of layers, the first ones with the embeddings before them; or None, nothing
    freeze: Literal["encoder"] | int | None
    head: int = 0  # the number of the head's first layers that do not learn either

    @property
    def size(self) -> tuple[float, int]:
        """A key that orders by how much is frozen."""
        return (math.inf if self.freeze == "encoder" else self.freeze or 0, self.head)
