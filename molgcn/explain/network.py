"""The explained network: one column of predictions as a function of the features of atoms and bonds, and of descriptors."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from molgcn.data.encodings import batch_encodings
from molgcn.data.packed import PackedMolecules
from molgcn.nn import forward
from molgcn.nn.graph_inputs import GraphInputs
from molgcn.nn.reference import REDUCTIONS
from molgcn.training.module import MoleculeModule


@dataclass(frozen=True)
class MoleculeGraph:
    """The graph of a row, which is one or several molecules, with N atoms and B bonds.

    Every bond is two directed edges, E = 2 B.

    Attributes:
        x: float64 [N, F], the features of the atoms.
        edge_index: int64 [2, E], the source and the target of every edge.
        edge_attr: float64 [E, D], the features of the bonds. None where the network does not use them, or there are no bonds.
        rwse: float64 [N, k], the random walk encoding of the atoms, or None.
        bond_rw: float64 [E, k], the random walk encoding of the bonds, or None.
        descriptors: float64 [1, K], the descriptors of the row. None where the network takes none.
        mean_descriptors: float64 [1, K], the mean descriptors of the training part, or None.
        component: integer [N], the molecule that each atom belongs to, in ascending order. None where the row is one molecule.
        ends: int64 [B, 2], the two atoms of each bond, the smaller index first.
        bond_of: int64 [E], the bond of every edge.
    """

    x: Tensor
    edge_index: Tensor
    edge_attr: Tensor | None
    rwse: Tensor | None
    bond_rw: Tensor | None
    descriptors: Tensor | None
    mean_descriptors: Tensor | None
    component: Tensor | None
    ends: np.ndarray
    bond_of: Tensor

    @property
    def num_bonds(self) -> int:
        """The number of bonds whose features the network uses; 0 where it uses none."""
        return 0 if self.edge_attr is None else len(self.ends)

    @property
    def num_descriptors(self) -> int:
        """The number of descriptors that the network takes, K."""
        return 0 if self.descriptors is None else self.descriptors.shape[1]

    @property
    def features(self) -> dict[str, tuple[Tensor, Tensor]]:
        """What is explained: the features of atoms and bonds and the descriptors, each with its value in the baseline.

        The names are arguments of :class:`ExplainedNetwork`. The tensors have a first dimension of size 1, for copies of the molecule.
        """
        found = {"x": (self.x[None], torch.zeros_like(self.x[None]))}
        if self.edge_attr is not None:
            found["edge_attr"] = self.edge_attr[None], torch.zeros_like(self.edge_attr[None])
        if self.descriptors is not None and self.mean_descriptors is not None:
            found["descriptors"] = self.descriptors, self.mean_descriptors
        return found


class ExplainedNetwork:
    """A copy of a trained network in float64, in evaluation mode and on backend=reference.

    Args:
        module: the trained module.
        column: the index of the column of predictions to explain.
    """

    def __init__(self, module: MoleculeModule, column: int) -> None:
        self._model = module.averaged.on_backend("reference").double().eval().requires_grad_(False)
        self._task, self._statistics, self._column = module.task, module.statistics, column

    def graphs(self, molecules: PackedMolecules) -> Iterator[MoleculeGraph]:
        """Yield the graph of each row."""
        model, device = self._model, next(self._model.parameters()).device
        mean = None if model.descriptors is None else model.descriptors.mean[None]
        for place in range(len(molecules)):
            batch = molecules.batch([place]).double().to(device)
            rwse, bond_rw = batch_encodings(batch, model.rwse, model.bond_rw)
            edge_attr = None if model.edge_channels is None or batch.num_edges == 0 else batch.edge_attr
            ends, bond_of = np.unique(np.sort(batch.edge_index.cpu().numpy().T, axis=1), axis=0, return_inverse=True)
            of = torch.from_numpy(bond_of.reshape(-1)).to(device)
            rwse, bond_rw = (None if one is None else one.double() for one in (rwse, bond_rw))
            more = rwse, bond_rw, batch.descriptors, mean, batch.component
            yield MoleculeGraph(batch.x, batch.edge_index, edge_attr, *more, ends.reshape(-1, 2), of)

    def __call__(self, graph: MoleculeGraph, x: Tensor, edge_attr: Tensor | None = None, descriptors: Tensor | None = None) -> Tensor:
        """Return the explained output for K copies of a molecule with different features, float64 [K].

        Args:
            graph: the molecule.
            x: float64 [K, N, F], the features of the atoms in each copy.
            edge_attr: float64 [K, E, D], the features of the bonds in each copy. None where the graph has none.
            descriptors: float64 [K, D'], the descriptors of each copy. None takes the molecule's own.
        """
        copies, atoms = x.shape[:2]
        shift = torch.arange(copies, device=x.device) * atoms
        edge_index = (graph.edge_index[:, None] + shift[None, :, None]).flatten(1)
        bonds = edge_attr
        if bonds is None and self._model.edge_channels is not None:  # the molecule has no bonds
            bonds = x.new_zeros(copies, 0, self._model.edge_channels)
        if descriptors is None and graph.descriptors is not None:
            descriptors = graph.descriptors.expand(copies, -1)
        rwse, bond_rw, component = (
            None if one is None else torch.cat([one] * copies) for one in (graph.rwse, graph.bond_rw, graph.component)
        )
        inputs = GraphInputs(
            x.flatten(0, 1),
            edge_index,
            torch.arange(copies, device=x.device).repeat_interleave(atoms),
            copies,
            None if bonds is None else bonds.flatten(0, 1),
            rwse,
            bond_rw,
            descriptors,
            component,
        )
        outputs = forward.predictions(self._model, inputs, REDUCTIONS)
        return self._task.explained(outputs, *self._statistics)[:, self._column]

    @torch.no_grad()
    def with_and_without(self, graph: MoleculeGraph) -> tuple[float, float]:
        """Return the explained output for a molecule and for its baseline, in which all features have their baseline's values."""
        prediction, baseline = self(graph, **{name: torch.cat(pair) for name, pair in graph.features.items()}).tolist()
        return prediction, baseline
