"""The contributions of the atoms, bonds and descriptors of a row, and how exactly they add up."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from molgcn.data.formats import Kind, Record
from molgcn.explain.config import ExplainConfig
from molgcn.explain.methods import Found, captum_attr, integrated_gradients, masking
from molgcn.explain.network import ExplainedNetwork, MoleculeGraph
from molgcn.screening.chunk import Chunk
from molgcn.screening.ensemble import Ensemble
from molgcn.screening.pipeline import NOT_FINITE
from molgcn.screening.ready import prepare_records

if TYPE_CHECKING:
    from molgcn.explain.trees import BlendedTrees

_FINER = 1, 4, 16  # factors for the number of steps, tried in turn until contributions add up


@dataclass(frozen=True)
class Parts:
    """The contributions of the atoms and bonds of a molecule.

    Attributes:
        atoms: float64 [N], the contribution of each atom.
        bonds: float64 [B], the contribution of each bond, or [0] where the network does not use features of bonds.
        ends: int64 [B, 2], the two atoms of each bond.
    """

    atoms: np.ndarray
    bonds: np.ndarray
    ends: np.ndarray

    @property
    def of_atoms(self) -> np.ndarray:
        """The contributions that a drawing shows, float64 [N]: those of the atoms, with half of each bond's added to either end."""
        values = self.atoms.copy()
        if len(self.bonds):
            np.add.at(values, self.ends, self.bonds[:, None] / 2)
        return values


@dataclass(frozen=True)
class Contributions(Parts):
    """The contributions of the atoms, bonds and descriptors of a row to its prediction minus the baseline.

    Attributes:
        descriptors: float64 [K], the contribution of each descriptor, or [0] where the network takes none.
        prediction: the prediction, in the target's unit or as a logit.
        baseline: the prediction for the same graph with all features zero, and with the mean descriptors of the training part.
        component: integer [N], the molecule of the row that each atom belongs to. None where a row is one molecule.
    """

    descriptors: np.ndarray
    prediction: float
    baseline: float
    component: np.ndarray | None = None

    @property
    def error(self) -> float:
        """The sum of the contributions minus (prediction - baseline), which is 0 where they add up."""
        return float(self.of_graph + self.descriptors.sum() - (self.prediction - self.baseline))

    @property
    def of_graph(self) -> float:
        return float(self.atoms.sum() + self.bonds.sum())

    @property
    def relative_error(self) -> float:
        """The absolute error, divided by the sum of the absolute contributions."""
        size = float(sum(np.abs(one).sum() for one in (self.atoms, self.bonds, self.descriptors)))
        return abs(self.error) / max(size, 1e-12)

    @property
    def of_molecules(self) -> list[Parts]:
        """The contributions of each molecule of the row, with atoms numbered from 0 in each."""
        if self.component is None:
            return [self]
        starts = np.searchsorted(self.component, np.arange(int(self.component[-1]) + 2))
        found = []
        for start, end in pairwise(starts.tolist()):
            inside = (self.ends[:, 0] >= start) & (self.ends[:, 0] < end)
            bonds = self.bonds[inside] if len(self.bonds) else self.bonds
            found.append(Parts(self.atoms[start:end], bonds, self.ends[inside] - start))
        return found


@dataclass(frozen=True)
class Explained(Chunk):
    """R rows with their contributions, by the number of the row in the chunk. Rows with an error have none."""

    contributions: dict[int, Contributions]


Explain = Callable[[MoleculeGraph], Contributions]


def explainer(network: ExplainedNetwork, config: ExplainConfig) -> Explain:
    """Return the function that computes the contributions of a row by the method that the configuration names."""
    if config.method == "masking":
        return lambda graph: _contributions(network, graph, masking(network, graph, config.orders))
    captum_attr()

    def explain(graph: MoleculeGraph) -> Contributions:
        for times in _FINER:
            found = _contributions(network, graph, integrated_gradients(network, graph, times * config.steps))
            if found.relative_error <= config.tolerance:
                break
        return found

    return explain


def explain_records(
    explain: Explain,
    network: ExplainedNetwork,
    trees: BlendedTrees | None,
    ensemble: Ensemble,
    records: Iterable[Record],
    kind: Kind,
    config: ExplainConfig,
) -> Iterator[Explained]:
    """Compute the contributions of records of a format, a chunk of rows at a time, by a function from :func:`explainer`.

    The ensemble is that of the network alone, for which records are featurised. `trees` predict together with the network, or are None.
    """
    generators = () if trees is None else ensemble.tree_generators
    for ready in prepare_records(ensemble.inputs, records, kind, config.batch_size, config.num_workers, tree_generators=generators):
        errors, contributions = dict(ready.errors), {}
        if ready.molecules is not None:
            for number, (place, graph) in enumerate(zip(ready.kept.tolist(), network.graphs(ready.molecules), strict=True)):
                found = explain(graph)
                if trees is not None:
                    found = trees.added_to(found, ready.molecules[[number]])
                if np.isfinite([found.prediction, found.baseline, found.error]).all():
                    contributions[place] = found
                else:
                    errors[place] = NOT_FINITE
        yield Explained(ready.start, ready.records, ready.smiles, errors, contributions)


def _contributions(network: ExplainedNetwork, graph: MoleculeGraph, found: Found) -> Contributions:
    component = None if graph.component is None else graph.component.cpu().numpy()
    atoms, bonds, descriptors = found
    return Contributions(atoms, bonds, graph.ends, descriptors, *network.with_and_without(graph), component)
