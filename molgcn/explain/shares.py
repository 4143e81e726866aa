"""Where predictions come from: the shares of atoms and bonds, which pictures show, and of descriptors, which they do not."""

from __future__ import annotations

from collections.abc import Mapping

from molgcn.explain.names import GRAPH

SMALL = 0.5  # the share of atoms and bonds below which a warning says so


def shares_of(sizes: Mapping[str, float]) -> dict[str, float]:
    """Return each size as a share of all.

    Args:
        sizes: by name of a part, the sum over the rows of the absolute value of what it contributes in all.
    """
    total = sum(sizes.values()) or 1.0
    return {name: size / total for name, size in sizes.items()}


def small_share(shares: Mapping[str, float]) -> str:
    """Return a warning where atoms and bonds have a small share, else ""."""
    others = {name: share for name, share in shares.items() if name != GRAPH}
    if not others or shares[GRAPH] >= SMALL:
        return ""
    listed = ", ".join(f"{name} {_percent(share)}" for name, share in sorted(others.items(), key=lambda item: -item[1]))
    return (
        f"Atoms and bonds make up {_percent(shares[GRAPH])} of what moves these predictions from their baseline, and descriptors the rest "
        f"({listed}): pictures show the smaller part, bars all of it. Training without descriptors (dataset.descriptor_generators=null) "
        "gives a network that pictures explain"
    )


def _percent(share: float) -> str:
    return "less than 1 %" if 0 < share < 0.005 else f"{100 * share:.0f} %"
