"""A row's contributions, and whether they add up."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import pairwise

import numpy as np

from molgcn.data.formats import Kind, Record
from molgcn.explain.config import ExplainConfig
from molgcn.explain.gradients import captum_attr, integrated_gradients
from molgcn.explain.masking import masking
from molgcn.explain.network import ExplainedNetwork, MoleculeGraph
from molgcn.screening.ensemble import Ensemble
from molgcn.screening.pipeline import NOT_FINITE, prepare_records
from molgcn.screening.stretch import Stretch

_FINER = 4, 16  # times as many steps, where those asked for do not add up


@dataclass(frozen=True)
class Parts:
    """What the atoms and bonds of a molecule contribute.

    Attributes:
        atoms: float64 [N].
        bonds: float64 [B], or [0] where the network does not see features of bonds.
        ends: int64 [B, 2], the atoms of every bond.
    """

    atoms: np.ndarray
    bonds: np.ndarray
    ends: np.ndarray

    @property
    def of_atoms(self) -> np.ndarray:
        """What a drawing shows, float64 [N]: the atoms', and of each bond half at either end."""
        values = self.atoms.copy()
        if len(self.bonds):
            np.add.at(values, self.ends, self.bonds[:, None] / 2)
        return values


@dataclass(frozen=True)
class Contributions(Parts):
    """What the atoms and bonds of a row contribute to the difference between its prediction and the baseline.

    Attributes:
        prediction: in the target's unit, or as a logit.
        baseline: the same graph's with all features zero.
        component: integer [N], which of the row's molecules an atom is of; None where a row is one.
    """

    prediction: float
    baseline: float
    component: np.ndarray | None = None

    @property
    def error(self) -> float:
        """The contributions' sum minus what they are to add up to."""
        return float(self.atoms.sum() + self.bonds.sum() - (self.prediction - self.baseline))

    @property
    def relative_error(self) -> float:
        """The error as a share of the sum of the contributions' sizes."""
        size = float(np.abs(self.atoms).sum() + np.abs(self.bonds).sum())
        return abs(self.error) / max(size, 1e-12)

    @property
    def of_molecules(self) -> list[Parts]:
        """The contributions of each of the row's molecules, whose atoms are counted from 0."""
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
class Explained(Stretch):
    """R rows with the contributions of those that have some, by their number in the stretch."""

    contributions: dict[int, Contributions]


Explain = Callable[[MoleculeGraph], Contributions]


def explainer(network: ExplainedNetwork, config: ExplainConfig) -> Explain:
    """Return what computes a row's contributions by the method that a configuration names.

    Raises:
        UserError: where the method's package is not installed.
    """
    if config.method == "masking":
        return lambda graph: _contributions(network, graph, partial(masking, network, graph, config.orders))
    captum_attr()

    def explain(graph: MoleculeGraph) -> Contributions:
        found = _contributions(network, graph, partial(integrated_gradients, network, graph, config.steps))
        for times in _FINER:
            if found.relative_error <= config.tolerance:
                break
            found = _contributions(network, graph, partial(integrated_gradients, network, graph, times * config.steps))
        return found

    return explain


def explain_records(
    explain: Explain, network: ExplainedNetwork, ensemble: Ensemble, records: Iterable[Record], kind: Kind, config: ExplainConfig
) -> Iterator[Explained]:
    """Compute the contributions of records, a stretch at a time; see :func:`molgcn.screening.pipeline.predict_records`."""
    for ready in prepare_records(ensemble, records, kind, config.batch_size, config.num_workers):
        errors, contributions = dict(ready.errors), {}
        if ready.molecules is not None:
            for place, graph in zip(ready.kept.tolist(), network.graphs(ready.molecules), strict=True):
                found = explain(graph)
                if np.isfinite([found.prediction, found.baseline, found.error]).all():
                    contributions[place] = found
                else:
                    errors[place] = NOT_FINITE
        yield Explained(ready.start, ready.records, ready.smiles, errors, contributions)


def _contributions(network: ExplainedNetwork, graph: MoleculeGraph, method: Callable[[], tuple[np.ndarray, np.ndarray]]) -> Contributions:
    component = None if graph.component is None else graph.component.cpu().numpy()
    return Contributions(*method(), graph.ends, *network.with_and_without(graph), component)
