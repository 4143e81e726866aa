"""What the report's section about uncertainties shows."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Uncertainty:
    """What the section shows.

    Attributes:
        about: what the uncertainties were calibrated on, "" where they are as the network predicts them.
        approximate: whether that part has chosen the weights.
        missed: the share of molecules that intervals or sets may miss, or None.
        measures: of each target, by their titles: of the model's own uncertainties, and of calibrated ones; NaN where not measured.
        pictures: addresses of pictures, by target.
    """

    about: str
    approximate: bool
    missed: float | None
    measures: dict[str, dict[str, tuple[float, float]]]
    pictures: dict[str, str]
