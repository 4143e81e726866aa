"""What a network reads of a batch, whichever form the batch has."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch.nn.functional as F
from torch import Tensor

from molgcn.data.batch import GraphBatch
from molgcn.data.encodings import batch_encodings
from molgcn.errors import UserError

if TYPE_CHECKING:
    from molgcn.nn.molecule_net import MoleculeNet


@dataclass(frozen=True)
class GraphInputs:
    """Tensors of N atoms and E directed bonds in B molecules.

    Attributes:
        x: float [N, F], features of the atoms.
        edge_index: int64 [2, E], source and target of every bond.
        batch: int64 [N], the molecule of every atom; None where there is one molecule.
        num_graphs: B.
        edge_attr: float [E, D], features of the bonds, or None.
        rwse: float [N, k], return probabilities of random walks, or None.
        bond_rw: float [E, k], probabilities of random walks from a bond's source to its target, or None.
        descriptors: float [B, K], numbers of each molecule, or None; of a padded batch without one of the padding.
        num_atoms: of a padded batch: integer [], real atoms; else None.
        num_bonds: of a padded batch: integer [], real bonds; else None.
    """

    x: Tensor
    edge_index: Tensor
    batch: Tensor | None
    num_graphs: int
    edge_attr: Tensor | None = None
    rwse: Tensor | None = None
    bond_rw: Tensor | None = None
    descriptors: Tensor | None = None
    num_atoms: Tensor | None = None
    num_bonds: Tensor | None = None


def graph_inputs(model: MoleculeNet, batch: GraphBatch | Any) -> GraphInputs:
    """Return what a network reads of a :class:`molgcn.data.GraphBatch`, or of PyG's `Batch` or `Data`.

    Encodings that the batch does not hold are computed from its graph. A padded batch gets the atom and the molecule that its padding
    belongs to (:mod:`molgcn.data.padding`), behind the others.
    """
    rwse, bond_rw = batch_encodings(batch, model.rwse, model.bond_rw)
    edge_attr = None if model.edge_channels is None else getattr(batch, "edge_attr", None)
    _check_width(batch.x, "x", model.in_channels, "atom")
    _check_width(edge_attr, "edge_attr", model.edge_channels, "bond")
    num_graphs, counts, descriptors = getattr(batch, "num_graphs", 1), getattr(batch, "counts", None), getattr(batch, "descriptors", None)
    if counts is None:
        return GraphInputs(batch.x, batch.edge_index, batch.batch, num_graphs, edge_attr, rwse, bond_rw, descriptors)
    one_more = (0, 0, 0, 1)
    return GraphInputs(
        F.pad(batch.x, one_more),
        batch.edge_index,
        batch.batch,
        num_graphs + 1,
        edge_attr,
        None if rwse is None else F.pad(rwse, one_more),
        bond_rw,
        descriptors,
        num_atoms=counts[1],
        num_bonds=counts[2],
    )


def _check_width(rows: Tensor | None, name: str, width: int | None, of: str) -> None:
    if rows is not None and rows.shape[-1] != width:
        raise UserError(
            f"The batch's `{name}` has {rows.shape[-1]} features of each {of}, and the network was made for {width}. Give it molecules "
            "with the features that it was trained on."
        )
