"""The names that the tables and the page of explanations show."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from molgcn.data.descriptors.generators import generated_names
from molgcn.explain.contributions import Contributions
from molgcn.screening.descriptors import DescriptorInput

GRAPH = "atoms and bonds"
_NAMES = re.compile(r"(.*[\s_.-])?(name|title|id)|.*(Name|Title|ID|Id)", re.DOTALL)


@dataclass(frozen=True)
class DescriptorGroups:
    """The names of a network's K descriptors, and the groups that they form: columns, a file, and what each generator computes.

    Attributes:
        names: the K names.
        places: the places of each group among the K descriptors, by the name of the group.
    """

    names: tuple[str, ...]
    places: dict[str, slice]

    @classmethod
    def of(cls, names: Sequence[str], wanted: DescriptorInput, components: Sequence[str]) -> DescriptorGroups:
        """Return the groups of a network's descriptors.

        Args:
            names: the names of all descriptors, in the order in which the network takes them.
            wanted: where they come from.
            components: the molecules of a row, of each of which generators compute descriptors. Empty where a row is one molecule.
        """
        sizes = {"columns": len(wanted.columns), "file": len(wanted.given) - len(wanted.columns)}
        for component in components or [""]:
            for generator in wanted.generators:
                sizes[".".join(filter(None, (component, generator)))] = len(generated_names([generator]))
        ends = np.cumsum([*sizes.values()]).tolist()
        places = {name: slice(end - size, end) for (name, size), end in zip(sizes.items(), ends, strict=True)}
        return cls(tuple(names), {names[place.start] if sizes[name] == 1 else name: place for name, place in places.items() if sizes[name]})

    def count(self, group: str) -> int:
        """Return the number of descriptors in a group, 0 where there is no such group."""
        places = self.places.get(group, slice(0, 0))
        return int(places.stop - places.start)

    def totals(self, found: Contributions) -> dict[str, float]:
        """Return the sum of the contributions of atoms and bonds, and that of each group of descriptors, by name."""
        return {GRAPH: found.of_graph} | {name: float(found.descriptors[places].sum()) for name, places in self.places.items()}

    def largest(self, found: Contributions, count: int) -> dict[str, dict[str, float]]:
        """Return the descriptors with the largest contributions of either sign.

        Args:
            found: the contributions of a row.
            count: how many descriptors.

        Returns:
            By name of the group, the contributions of those of its descriptors that are among the largest, the largest first, by name
            without that of the group. A group of one descriptor has none, as it has its name.
        """
        order = np.argsort(-np.abs(found.descriptors), kind="stable")[:count].tolist()
        return {
            group: {_short(self.names[place], group): float(found.descriptors[place]) for place in order if start <= place < end}
            for group, (start, end) in ((group, (places.start, places.stop)) for group, places in self.places.items())
            if end - start > 1
        }


def _short(name: str, group: str) -> str:
    """Return the name of a descriptor without that of its group, as in SlogP_VSA3, or with its generator where only a number is left."""
    short = name.removeprefix(f"{group}_")
    return f"{group.rpartition('.')[2]}_{short}" if short.isdigit() else short


@dataclass(frozen=True)
class Names:
    """The names that tables and the page show.

    Attributes:
        explained: the name of the explained output, with its unit.
        column: the header of the predictions, as `predict` writes it; the logit's name for classes.
        features: the name of the featuriser.
        standardize: the standard form of molecules.
        checkpoint: the checkpoint with the weights.
        components: the columns of the molecules of a row; empty where a row is one molecule.
        descriptors: the descriptors that the network takes.
    """

    explained: str
    column: str
    features: str
    standardize: str
    checkpoint: str
    components: Sequence[str]
    descriptors: DescriptorGroups


def name_column(columns: Sequence[str]) -> int | None:
    """Return the place of the first column that names molecules, such as name, Compound ID or mol_id; None where there is none."""
    return next((place for place, column in enumerate(columns) if _NAMES.fullmatch(column.strip())), None)
