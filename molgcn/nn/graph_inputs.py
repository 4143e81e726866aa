"""The tensors that a network reads from a batch, the same ones for this project's batches and for PyG's."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from torch import Tensor

from molgcn.data.batch import GraphBatch
from molgcn.data.encodings import batch_encodings
from molgcn.errors import UserError
from molgcn.nn.components import chosen_rows
from molgcn.nn.padding import first_rows

if TYPE_CHECKING:
    from molgcn.nn.molecule_net import MoleculeNet


@dataclass(frozen=True)
class GraphInputs:
    """The tensors of N atoms and E directed bonds in B molecules."""

    x: Tensor  # float [N, F], features of the atoms
    edge_index: Tensor  # int64 [2, E], source and target of every bond
    batch: Tensor | None  # int64 [N], the molecule of every atom; None where there is one molecule
    num_graphs: int  # number of molecules, B
    edge_attr: Tensor | None = None  # float [E, D], features of the bonds, or None
    rwse: Tensor | None = None  # float [N, k], return probabilities of random walks, or None
    bond_rw: Tensor | None = None  # float [E, k], probabilities of random walks from a bond's source to its target, or None
    # float [B, K], numbers of each molecule, or None. A padded batch has no row for the molecule of the padding
    descriptors: Tensor | None = None
    component: Tensor | None = None  # integer [N], which of a row's molecules an atom belongs to, or None
    num_atoms: Tensor | None = None  # integer [], number of real atoms of a padded batch; None for other batches
    num_bonds: Tensor | None = None  # integer [], number of real bonds of a padded batch; None for other batches

    def of_component(self, number: int) -> GraphInputs:
        """Return the atoms and bonds of one component, in their order.

        The others are left out, which saves an encoder work. In a padded batch they become padding at the end, so that no shape depends on
        values.
        """
        assert self.batch is not None
        mask, atoms, places, bonds = chosen_rows(self.component, number, self.edge_index[0], self.num_atoms, self.num_bonds)
        edge_attr, bond_rw = (None if rows is None else rows[bonds] for rows in (self.edge_attr, self.bond_rw))
        rwse = None if self.rwse is None else self.rwse[atoms]
        edge_index = places[self.edge_index[:, bonds]]
        graph = GraphInputs(self.x[atoms], edge_index, self.batch[atoms], self.num_graphs, edge_attr, rwse, bond_rw)
        if self.num_atoms is None:
            return graph
        num_atoms, num_bonds = mask.sum(), mask[self.edge_index[0]].sum()  # bonds of the padding start at its atom
        return replace(
            graph,
            edge_index=torch.where(first_rows(bonds, num_bonds), edge_index, mask.shape[0] - 1),
            batch=torch.where(first_rows(mask, num_atoms), self.batch[atoms], self.num_graphs - 1),
            num_atoms=num_atoms,
            num_bonds=num_bonds,
        )

    def padded(self, batch: Tensor, num_atoms: Tensor, num_bonds: Tensor) -> GraphInputs:
        """Return the inputs of a padded batch, with the atom and the molecule of the padding added at the end.

        `batch` has the molecule of every atom and of the padding's atom, int64 [N + 1]; `num_atoms` and `num_bonds` count the real ones.
        """
        one_more = (0, 0, 0, 1)
        return replace(
            self,
            x=F.pad(self.x, one_more),
            batch=batch,
            num_graphs=self.num_graphs + 1,
            rwse=None if self.rwse is None else F.pad(self.rwse, one_more),
            component=None if self.component is None else F.pad(self.component, (0, 1)),
            num_atoms=num_atoms,
            num_bonds=num_bonds,
        )


def graph_inputs(model: MoleculeNet, batch: GraphBatch | Any) -> GraphInputs:
    """Return what a network reads from a :class:`molgcn.data.GraphBatch`, or from PyG's `Batch` or `Data`.

    Encodings that the batch does not hold are computed from its graph. A padded batch gets the atom and the molecule of its padding
    (:class:`molgcn.data.slots.PaddedBatch`) at the end.
    """
    rwse, bond_rw = batch_encodings(batch, model.rwse, model.bond_rw)
    edge_attr = None if model.edge_channels is None else getattr(batch, "edge_attr", None)
    _check_width(batch.x, "x", model.in_channels, "atom")
    _check_width(edge_attr, "edge_attr", model.edge_channels, "bond")
    num_graphs, counts = getattr(batch, "num_graphs", 1), getattr(batch, "counts", None)
    descriptors, component = (getattr(batch, name, None) for name in ("descriptors", "component"))
    graph = GraphInputs(batch.x, batch.edge_index, batch.batch, num_graphs, edge_attr, rwse, bond_rw, descriptors, component)
    return graph if counts is None else graph.padded(batch.batch, counts[1], counts[2])


def _check_width(rows: Tensor | None, name: str, width: int | None, of: str) -> None:
    if rows is not None and rows.shape[-1] != width:
        raise UserError(
            f"The batch's `{name}` has {rows.shape[-1]} features per {of}, but the network was made for {width}. Give it molecules "
            "with the features that it was trained on."
        )
