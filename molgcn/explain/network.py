"""The explained network: one column of predictions as a function of the features of atoms and bonds, and of descriptors."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from molgcn.data.packed import PackedMolecules
from molgcn.nn import MoleculeNet, forward
from molgcn.nn.encoders import Scale
from molgcn.nn.graph_inputs import GraphInputs, graph_inputs
from molgcn.nn.reference import REDUCTIONS
from molgcn.training.predictor import MoleculePredictor


@dataclass(frozen=True)
class Baseline:
    """What features and descriptors are replaced by: 0, or the training part's mean where the network standardises them.

    They are float64: features of an atom [F] and of a bond [D], and descriptors [1, K]; None where the network does not read them.
    """

    atoms: Tensor
    bonds: Tensor | None
    descriptors: Tensor | None

    @classmethod
    def of(cls, model: MoleculeNet) -> Baseline:
        """Return the baseline of a network."""

        def mean(scale: Scale | None, width: int | None) -> Tensor | None:
            like = next(model.parameters())
            return scale.mean if scale is not None else None if width is None else torch.zeros(width, dtype=like.dtype, device=like.device)

        atoms, bonds = mean(model.atom_scale, model.in_channels), mean(model.bond_scale, model.edge_channels)
        assert atoms is not None
        return cls(atoms, bonds, None if model.descriptors is None else model.descriptors.mean[None])


@dataclass(frozen=True, kw_only=True)
class MoleculeGraph(GraphInputs):
    """The inputs of a row, which is one or several molecules, in float64: N atoms and B bonds, each of which is two directed edges."""

    baseline: Baseline  # the values of features and descriptors in the baseline
    ends: np.ndarray  # int64 [B, 2], the two atoms of each bond, the smaller index first
    bond_of: Tensor  # int64 [E], the bond of every edge

    @property
    def num_bonds_read(self) -> int:
        """The number of bonds whose features the network uses; 0 where it uses none."""
        return 0 if self.edge_attr is None else len(self.ends)

    @property
    def num_descriptors(self) -> int:
        return 0 if self.descriptors is None else self.descriptors.shape[1]

    @property
    def features(self) -> dict[str, tuple[Tensor, Tensor]]:
        """What is explained: the features of atoms and bonds and the descriptors, each with its value in the baseline.

        The names are arguments of :class:`ExplainedNetwork`. The tensors have a first dimension of size 1, for copies of the molecule.
        """
        found = {"x": (self.x[None], self.baseline.atoms.expand_as(self.x)[None])}
        if self.edge_attr is not None and self.baseline.bonds is not None and self.num_bonds_read:
            found["edge_attr"] = self.edge_attr[None], self.baseline.bonds.expand_as(self.edge_attr)[None]
        if self.descriptors is not None and self.baseline.descriptors is not None:
            found["descriptors"] = self.descriptors, self.baseline.descriptors
        return found


class ExplainedNetwork:
    """A copy of a trained network in float64, in evaluation mode and on backend=reference, one column of whose predictions is explained."""

    def __init__(self, module: MoleculePredictor, column: int) -> None:
        self.model = module.averaged.on_backend("reference").double().eval().requires_grad_(False)  # the copy
        self._task, self._statistics, self._column = module.task, module.statistics, column

    def graphs(self, molecules: PackedMolecules) -> Iterator[MoleculeGraph]:
        """Yield the graph of each row."""
        model, device = self.model, next(self.model.parameters()).device
        baseline = Baseline.of(model)
        for place in range(len(molecules)):
            inputs = graph_inputs(model, molecules.batch([place]).double().to(device))
            ends, bond_of = np.unique(np.sort(inputs.edge_index.cpu().numpy().T, axis=1), axis=0, return_inverse=True)
            of = torch.from_numpy(bond_of.reshape(-1)).to(device)
            yield MoleculeGraph(**vars(inputs), baseline=baseline, ends=ends.reshape(-1, 2), bond_of=of)

    def __call__(self, graph: MoleculeGraph, x: Tensor, edge_attr: Tensor | None = None, descriptors: Tensor | None = None) -> Tensor:
        """Return the explained output [K] for K copies of a molecule by features of atoms [K, N, F], bonds [K, E, D], descriptors [K, D'].

        Where none are given for bonds or descriptors, they are the molecule's own.
        """
        copies, atoms = x.shape[:2]
        copy = torch.arange(copies, device=x.device)
        edge_index = (graph.edge_index[:, None] + atoms * copy[None, :, None]).flatten(1)
        if edge_attr is None and graph.edge_attr is not None:
            edge_attr = graph.edge_attr.expand(copies, -1, -1)
        if descriptors is None and graph.descriptors is not None:
            descriptors = graph.descriptors.expand(copies, -1)
        bonds = None if edge_attr is None else edge_attr.flatten(0, 1)
        rwse, bond_rw, component = (
            None if one is None else torch.cat([one] * copies) for one in (graph.rwse, graph.bond_rw, graph.component)
        )
        batch = copy.repeat_interleave(atoms)
        inputs = GraphInputs(x.flatten(0, 1), edge_index, batch, copies, bonds, rwse, bond_rw, descriptors, component)
        outputs = forward.predictions(self.model, inputs, REDUCTIONS)
        return self._task.explained(outputs, *self._statistics)[:, self._column]

    @torch.no_grad()
    def with_and_without(self, graph: MoleculeGraph) -> tuple[float, float]:
        """Return the explained output for a molecule and for its baseline, in which all features have their baseline's values."""
        prediction, baseline = self(graph, **{name: torch.cat(pair) for name, pair in graph.features.items()}).tolist()
        return prediction, baseline
