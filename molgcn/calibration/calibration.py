"""The fitted calibration of a model, target by target, which a checkpoint holds as plain values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np
from pydantic import TypeAdapter, ValidationError

from molgcn.calibration.conformal import Conformal, Sets, score_of
from molgcn.calibration.curves import Isotonic, Platt, ZScaling
from molgcn.calibration.methods import can_learn, suits
from molgcn.calibration.outputs import Classes, Numbers, Output, outputs_of
from molgcn.errors import counted
from molgcn.tasks.base import Task

Part = Literal["calibration", "val", "file"]


@dataclass(frozen=True)
class TargetCalibration:
    """The calibration of one target, by the methods that were fitted to so many molecules; None for each other method.

    Each method is fitted to the model's own predictions, not to the result of another method.
    """

    molecules: int
    zscaling: ZScaling | None = None
    isotonic: Isotonic | None = None
    platt: Platt | None = None
    conformal: Conformal | None = None

    @classmethod
    def fit(cls, output: Output, true: np.ndarray, methods: Sequence[str], alpha: float, sets: Sets) -> TargetCalibration:
        """Fit methods that suit a target to true values or labels [n], NaN where missing; none where :func:`can_learn` says so.

        `alpha` is the share of molecules that conformal intervals or sets may miss; see :class:`Conformal` for `sets`.
        """
        known = ~np.isnan(true) & output.finite
        seen, true = output[known], true[known].astype(np.float64)
        methods = methods if can_learn(output, true) else ()
        return cls(
            int(known.sum()),
            ZScaling.fit(seen, true) if isinstance(seen, Numbers) and "zscaling" in methods else None,
            Isotonic.fit(seen, true) if isinstance(seen, Classes) and "isotonic" in methods else None,
            Platt.fit(seen, true) if isinstance(seen, Classes) and "platt" in methods else None,
            Conformal.fit(seen, true, alpha, sets) if "conformal" in methods else None,
        )

    def std(self, output: Output) -> np.ndarray | None:
        """Return calibrated standard deviations [M], or None where they were not calibrated."""
        return self.zscaling.std(output) if self.zscaling is not None and isinstance(output, Numbers) else None

    def probabilities(self, output: Output) -> np.ndarray | None:
        """Return calibrated probabilities [M, C], or None where they were not calibrated."""
        method = self.platt or self.isotonic
        return method.probabilities(output) if method is not None and isinstance(output, Classes) else None

    @property
    def fitted(self) -> bool:
        return any(one is not None for one in (self.zscaling, self.isotonic, self.platt, self.conformal))

    def fits(self, output: Output) -> bool:
        """Return whether the calibration is for predictions of this kind."""
        classes = output.probabilities.shape[1] if isinstance(output, Classes) else 0
        return (
            (self.zscaling is None or (isinstance(output, Numbers) and output.std is not None))
            and all(method is None or method.fits(classes) for method in (self.platt, self.isotonic))
            and (self.conformal is None or self.conformal.score in {score_of(output, sets) for sets in ("plain", "adaptive")})
        )


@dataclass(frozen=True)
class Calibration:
    """The calibration of a model."""

    # the part that it was fitted on. "calibration" is set aside from training for it. "val" has chosen the weights, so that the model errs
    # less there than elsewhere, and every coverage is approximate. "file" is another file than that of training
    part: Part
    alpha: float  # the share of molecules whose true value an interval or set may miss
    targets: list[TargetCalibration]  # the calibration of each target
    file: str = ""  # the name of the file, or ""

    @classmethod
    def fit(
        cls,
        task: Task,
        predictions: np.ndarray,
        targets: np.ndarray,
        methods: Sequence[str],
        alpha: float,
        sets: Sets,
        part: Part,
        file: str = "",
    ) -> Calibration:
        """Fit to each target the methods that suit it, on predictions [n, P] and true values [n, T]; see :meth:`TargetCalibration.fit`."""
        columns = zip(outputs_of(task, predictions), targets.T, strict=True)
        fitted = [
            TargetCalibration.fit(output, true, [name for name in methods if suits(name, output)], alpha, sets) for output, true in columns
        ]
        return cls(part, alpha, fitted, file)

    @property
    def approximate(self) -> bool:
        """Whether it was fitted on the validation part, which has chosen the weights."""
        return self.part == "val"

    @property
    def described(self) -> str:
        """A text that says what it was fitted on."""
        counts = sorted({target.molecules for target in self.targets if target.fitted} or {0})
        what = "validation molecule" if self.approximate else "molecule"
        number = ("" if len(counts) == 1 else f"{counts[0]:,} to ") + counted(counts[-1], what)
        if self.approximate:
            return f"calibrated on {number}, which chose the weights: approximate"
        return f"calibrated on {number} " + (f"of {self.file}" if self.part == "file" else "that training did not see")

    def to_values(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def of_values(cls, values: Any, task: Task) -> Calibration:
        """Make the calibration from what :meth:`to_values` returned; values that are damaged or of another task are a ValueError."""
        try:
            found = TypeAdapter(cls).validate_python(values)
        except ValidationError as error:
            raise ValueError(f"its calibration is damaged: {error.errors()[0]['msg']}") from error
        outputs = outputs_of(task, np.zeros((0, task.num_predictions)))
        if len(found.targets) != len(outputs) or not all(map(TargetCalibration.fits, found.targets, outputs)):
            raise ValueError("its calibration belongs to other targets")
        return found
