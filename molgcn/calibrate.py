"""The command `python -m molgcn.calibrate`: it calibrates a trained model on a file of molecules with true values."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from molgcn.cli import run_command
from molgcn.config.run import BackendConfig, WhichModels
from molgcn.config.training import CalibrationMethod
from molgcn.errors import require
from molgcn.evaluation.config import LabelledDataConfig

if TYPE_CHECKING:
    from molgcn.calibration.calibration import Calibration


@dataclass(frozen=True)
class CalibrateConfig:
    """The keys of conf/calibrate.yaml."""

    ckpt: str | None = None
    models: WhichModels = "auto"
    input: str | None = None
    dataset: LabelledDataConfig = field(default_factory=LabelledDataConfig)
    calibration: Literal["auto"] | CalibrationMethod | list[CalibrationMethod] = "auto"
    calibration_alpha: float = 0.1
    conformal_sets: Literal["plain", "adaptive"] = "plain"
    known: Literal["raise", "skip"] = "raise"
    backend: BackendConfig = field(default_factory=BackendConfig)
    device: str = "auto"

    def __post_init__(self) -> None:
        require(0 < self.calibration_alpha < 1, "calibration_alpha", self.calibration_alpha, "a number between 0 and 1")


def main() -> None:
    run_command("calibrate", calibrate, CalibrateConfig, imports=["molgcn.training.restore"])


def calibrate(config: CalibrateConfig) -> Calibration:
    """Calibrate what a model predicts of the molecules of a file, and store that where `predict` and `evaluate` find it.

    Returns:
        The calibration.

    Raises:
        UserError: For every mistake in the configuration, the checkpoint or the file, and for molecules that do not suffice.
    """
    from molgcn.evaluation.calibrating import run  # takes seconds to import, and `--help` or a misspelt key does not need it

    return run(config)


if __name__ == "__main__":
    main()
