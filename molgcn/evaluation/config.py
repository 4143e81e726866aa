"""The configuration of `python -m molgcn.evaluate` as checked dataclasses."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from molgcn.config.run import BackendConfig, WhichModels
from molgcn.data.column_names import ColumnNames, SmilesColumns
from molgcn.errors import require


@dataclass(frozen=True)
class LabelledDataConfig:
    """The section `dataset` of commands that read molecules with true values. None means the run's own choice."""

    name: Literal["builtin", "csv", "qm9", "zinc"] | None = None
    header: bool = True
    smiles: SmilesColumns | None = None
    targets: ColumnNames | None = None
    descriptors_path: str | None = None
    atom_features_path: str | None = None
    bond_features_path: str | None = None
    on_error: Literal["raise", "skip"] | None = None
    batch_size: int = 1024
    num_workers: int | None = None
    cache_dir: str | None = None


@dataclass(frozen=True)
class EvaluationDataConfig(LabelledDataConfig):
    """The section `dataset` of conf/evaluate.yaml, which says what to evaluate on."""

    path: str | None = None
    atom_targets_path: str | None = None
    bond_targets_path: str | None = None
    split_file: str | None = None


@dataclass(frozen=True)
class EvaluateConfig:
    """The keys of conf/evaluate.yaml."""

    ckpt: str | None = None
    models: WhichModels = "auto"
    split: Literal["train", "val", "test", "all"] | None = None
    dataset: EvaluationDataConfig = field(default_factory=EvaluationDataConfig)
    output: str | None = None
    members: bool = False
    bootstrap: int = 1000
    baseline: Literal["none", "simple", "rf"] | None = None
    backend: BackendConfig = field(default_factory=BackendConfig)
    device: str = "auto"

    def __post_init__(self) -> None:
        require(self.bootstrap >= 0, "bootstrap", self.bootstrap, "a number of resamples, 0 for no intervals")
