"""The values that the report's section about uncertainties shows."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Uncertainty:
    """The values of the section about uncertainties.

    Attributes:
        about: what the uncertainties were calibrated on; "" where they are not calibrated.
        approximate: whether the weights were chosen on the molecules that calibration used.
        missed: the share of molecules that intervals or sets may miss, or None where there are none.
        measures: by target and title, each measure before and after calibration; NaN where it was not measured.
        pictures: by target, the `data:` URL of its picture.
    """

    about: str
    approximate: bool
    missed: float | None
    measures: dict[str, dict[str, tuple[float, float]]]
    pictures: dict[str, str]
