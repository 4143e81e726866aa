"""The contributions of the atoms, bonds and descriptors of a row, the methods that compute them, and how exactly they add up."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from molgcn.data.formats import Kind, Record
from molgcn.errors import UserError
from molgcn.explain.attention import rollout
from molgcn.explain.config import ExplainConfig
from molgcn.explain.network import ExplainedNetwork, MoleculeGraph
from molgcn.nn.attention_weights import check_attention
from molgcn.screening.chunk import Chunk
from molgcn.screening.ensemble import Ensemble
from molgcn.screening.pipeline import NOT_FINITE
from molgcn.screening.ready import prepare_records

if TYPE_CHECKING:
    from molgcn.explain.trees import BlendedTrees

_FINER = 1, 4, 16  # factors for the number of steps, tried in turn until contributions add up
# the contributions of N atoms, float64 [N], of B bonds, float64 [B] or [0] without features of bonds, and of K descriptors, float64 [K]
Found = tuple[np.ndarray, np.ndarray, np.ndarray]
_ATOMS = 20_000  # atoms in the copies of a molecule that are computed at once


@dataclass(frozen=True)
class Parts:
    """The contributions of the atoms and bonds of a molecule."""

    atoms: np.ndarray  # float64 [N], the contribution of each atom
    bonds: np.ndarray  # float64 [B], the contribution of each bond, or [0] where the network does not use features of bonds
    ends: np.ndarray  # int64 [B, 2], the two atoms of each bond
    bonds_drawn: bool = field(default=True, kw_only=True)  # whether a drawing shows what bonds contribute

    @property
    def of_atoms(self) -> np.ndarray:
        """The contributions that a drawing shows, float64 [N]: those of the atoms, with half of each bond's added to either end."""
        values = self.atoms.copy()
        if self.bonds_drawn and len(self.bonds):
            np.add.at(values, self.ends, self.bonds[:, None] / 2)
        return values


@dataclass(frozen=True)
class Contributions(Parts):
    """The contributions of the atoms, bonds and descriptors of a row to its prediction minus the baseline."""

    descriptors: np.ndarray  # float64 [K], the contribution of each descriptor, or [0] where the network takes none
    prediction: float  # the prediction, in the target's unit or as a logit
    baseline: float  # the prediction for the same graph with all features zero, and with the mean descriptors of the training part
    component: np.ndarray | None = None  # integer [N], the molecule of the row that each atom belongs to. None where a row is one molecule

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
            found.append(Parts(self.atoms[start:end], bonds, self.ends[inside] - start, bonds_drawn=self.bonds_drawn))
        return found


@dataclass(frozen=True)
class Explained(Chunk):
    """R rows with their contributions, by the number of the row in the chunk. Rows with an error have none."""

    contributions: dict[int, Contributions]


Explain = Callable[[MoleculeGraph], Contributions]


def explainer(network: ExplainedNetwork, config: ExplainConfig) -> Explain:
    """Return the function that computes the contributions of a row by the method that the configuration names."""
    if config.method == "attention":
        check_attention(network.model)
        return lambda graph: replace(_contributions(network, graph, rollout(network.model, graph)), bonds_drawn=False)
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
                    blended = trees.added_to(found, ready.molecules[[number]])
                    found = blended if config.adds_up else replace(found, prediction=blended.prediction)
                if np.isfinite([found.prediction, found.baseline, found.error]).all():
                    contributions[place] = found
                else:
                    errors[place] = NOT_FINITE
        yield Explained(ready.start, ready.records, ready.smiles, errors, contributions)


def _contributions(network: ExplainedNetwork, graph: MoleculeGraph, found: Found) -> Contributions:
    component = None if graph.component is None else graph.component.cpu().numpy()
    atoms, bonds, descriptors = found
    return Contributions(atoms, bonds, graph.ends, descriptors, *network.with_and_without(graph), component)


def integrated_gradients(network: ExplainedNetwork, graph: MoleculeGraph, steps: int) -> Found:
    """Compute contributions by integrated gradients (Sundararajan, Taly and Yan, ICML 2017).

    The gradient is integrated along the straight line from the baseline to the molecule: all features of atoms and bonds from zero to their
    own, all descriptors from the training part's mean to their own. The contribution of an atom is the sum over its features of mean
    gradient times difference. The contribution of a bond is the sum for its two directions. `steps` is the number of points of the
    Gauss-Legendre rule.
    """
    features = graph.features
    with torch.enable_grad():
        found: tuple[Tensor, ...] = (
            captum_attr()
            .IntegratedGradients(lambda *values: network(graph, **dict(zip(features, values, strict=True))))
            .attribute(
                *(tuple(values) for values in zip(*features.values(), strict=True)),
                n_steps=steps,
                method="gausslegendre",
                internal_batch_size=max(_ATOMS // graph.x.shape[0], 1),
            )
        )
    each = {name: one[0].detach() for name, one in zip(features, found, strict=True)}
    bonds = graph.x.new_zeros(graph.num_bonds_read)
    if "edge_attr" in each:
        bonds.index_add_(0, graph.bond_of, each["edge_attr"].sum(dim=1))
    descriptors = each.get("descriptors", graph.x.new_zeros(0))
    return each["x"].sum(dim=1).cpu().numpy(), bonds.cpu().numpy(), descriptors.cpu().numpy()


def captum_attr() -> Any:
    """Return the module `captum.attr`, or raise a UserError where Captum is not installed."""
    try:
        from captum import attr
    except ImportError as error:
        raise UserError(
            "method=integrated_gradients needs the package captum. Run `pip install molgcn[explain]`, or use method=masking."
        ) from error
    return attr


@torch.no_grad()
def masking(network: ExplainedNetwork, graph: MoleculeGraph, orders: int) -> Found:
    """Compute contributions as sampled Shapley values (Strumbelj and Kononenko, 2010) over a number of orders.

    Atoms, bonds and descriptors are masked one after the other in a random order. The contribution of each is the mean, over the orders, of
    how much its step lowers the prediction. To mask an atom or a bond is to set its features to zero, for a bond those of both directions.
    To mask a descriptor is to set it to the training part's mean. The graph and its encodings by random walks stay as they are. Every order
    leads from the prediction to the baseline, so that contributions add up to the difference of the two for any number of orders. Every
    second order is the one before it reversed.
    """
    atoms, bonds, rng = graph.x.shape[0], graph.num_bonds_read, np.random.default_rng(0)
    players = atoms + bonds + graph.num_descriptors
    contributions, order = np.zeros(players), np.arange(players)

    def values(kept: Tensor) -> Tensor:
        """Return the explained output for K masks [K, players], 1 for what keeps its features and 0 for what is masked."""
        of_atoms, of_bonds, of_descriptors = kept.split([atoms, bonds, graph.num_descriptors], dim=1)
        masks = {"x": of_atoms[:, :, None], "descriptors": of_descriptors}
        if bonds:
            masks["edge_attr"] = of_bonds[:, graph.bond_of, None]
        return network(graph, **{name: base + masks[name] * (own - base) for name, (own, base) in graph.features.items()})

    for number in range(orders):
        order = order[::-1] if number % 2 else rng.permutation(players)
        place = np.argsort(order)
        kept = torch.from_numpy(np.arange(players + 1)[:, None] <= place[None]).to(graph.x)  # one row per number of steps done
        steps = torch.cat([values(part) for part in kept.split(max(_ATOMS // atoms, 1))]).cpu().numpy()
        contributions[order] -= np.diff(steps)
    of_atoms, of_bonds, of_descriptors = np.split(contributions / orders, [atoms, atoms + bonds])
    return of_atoms, of_bonds, of_descriptors
