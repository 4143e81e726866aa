"""The names that the tables and the page of explanations show, and the shares of the groups of inputs that they name."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from molgcn.data.descriptors.generators import generated_names
from molgcn.explain.contributions import Contributions
from molgcn.screening.descriptors import DescriptorInput

GRAPH = "atoms and bonds"
SMALL = 0.5  # the share of atoms and bonds, which pictures show, below which a warning says so
_NAMES = re.compile(r"(.*[\s_.-])?(name|title|id)|.*(Name|Title|ID|Id)", re.DOTALL)


@dataclass(frozen=True)
class DescriptorGroups:
    """The names of a network's K descriptors, and the groups that they form: columns, a file, and what each generator computes."""

    names: tuple[str, ...]  # the K names
    places: dict[str, slice]  # the places of each group among the K descriptors, by the name of the group

    @classmethod
    def of(cls, names: Sequence[str], wanted: DescriptorInput, components: Sequence[str]) -> DescriptorGroups:
        """Return the groups of descriptors with these names, in the order in which the network takes them.

        `wanted` says where they come from. Generators compute descriptors of each of the components of a row.
        """
        sizes = {"columns": len(wanted.columns), "file": wanted.num_of_file, **_generated(wanted.generators, components)}
        ends = np.cumsum([*sizes.values()]).tolist()
        places = {name: slice(end - size, end) for (name, size), end in zip(sizes.items(), ends, strict=True)}
        return cls(tuple(names), {names[place.start] if sizes[name] == 1 else name: place for name, place in places.items() if sizes[name]})

    def with_trees(self, names: Sequence[str], generators: Sequence[str], components: Sequence[str]) -> DescriptorGroups:
        """Return the groups with those of the descriptors that only trees take, behind the others."""
        places, start = dict(self.places), len(self.names)
        for group, size in _generated(generators, components).items():
            places[f"{group} of trees" if group in self.places else group] = slice(start, start + size)
            start += size
        return DescriptorGroups((*self.names, *names), places)

    def count(self, group: str) -> int:
        """Return the number of descriptors in a group, 0 where there is no such group."""
        places = self.places.get(group, slice(0, 0))
        return int(places.stop - places.start)

    def totals(self, found: Contributions) -> dict[str, float]:
        """Return the sum of the contributions of atoms and bonds, and that of each group of descriptors, by name."""
        return {GRAPH: found.of_graph} | {name: float(found.descriptors[places].sum()) for name, places in self.places.items()}

    def largest(self, found: Contributions, count: int) -> dict[str, dict[str, float]]:
        """Return the `count` largest contributions of either sign, by group and by name without that of the group, the largest first.

        A group of one descriptor has none, as it has its name.
        """
        order = np.argsort(-np.abs(found.descriptors), kind="stable")[:count].tolist()
        largest: dict[str, dict[str, float]] = {}
        for group, places in self.places.items():
            if self.count(group) > 1:
                own = [place for place in order if places.start <= place < places.stop]
                largest[group] = {_short(self.names[place], group): float(found.descriptors[place]) for place in own}
        return largest


def _generated(generators: Sequence[str], components: Sequence[str]) -> dict[str, int]:
    """Return the number of descriptors that each generator computes of each component of a row, by name."""
    counts = {generator: len(generated_names([generator])) for generator in generators}
    return {".".join(filter(None, (one, generator))): count for one in components or [""] for generator, count in counts.items()}


def _short(name: str, group: str) -> str:
    """Return the name of a descriptor without that of its group, as in SlogP_VSA3, or with its generator where only a number is left."""
    short = name.removeprefix(f"{group}_")
    return f"{group.rpartition('.')[2]}_{short}" if short.isdigit() else short


@dataclass(frozen=True)
class Names:
    """The names that tables and the page show."""

    explained: str  # the name of the explained output, with its unit
    column: str  # the header of the predictions, as `predict` writes it; the logit's name for classes
    features: str  # the name of the featuriser
    standardize: str  # the standard form of molecules
    checkpoint: str  # the checkpoint with the weights
    components: Sequence[str]  # the columns of the molecules of a row; empty where a row is one molecule
    descriptors: DescriptorGroups  # the descriptors that the network takes, and those of the trees that predict together with it
    share: float = 1.0  # the network's share of the prediction, 1 without trees


def name_column(columns: Sequence[str]) -> int | None:
    """Return the place of the first column that names molecules, such as name, Compound ID or mol_id; None where there is none."""
    return next((place for place, column in enumerate(columns) if _NAMES.fullmatch(column.strip())), None)


def shares_of(sizes: Mapping[str, float]) -> dict[str, float]:
    """Return each size as a share of all, where a size is the sum over the rows of the absolute value of what a part contributes."""
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
        f"({listed}): pictures show the smaller part, bars all of it. Training without trees and descriptors (training.blend=none "
        "dataset.descriptor_generators=null) gives a network that pictures explain"
    )


def _percent(share: float) -> str:
    return "less than 1 %" if 0 < share < 0.005 else f"{100 * share:.0f} %"
