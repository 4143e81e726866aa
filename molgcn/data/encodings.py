r"""Encodings of atoms and bonds by random walks.

A step of a walk follows one of an atom's bonds, all with the same probability: :math:`P = D^{-1} A`. :math:`A` counts the bonds between
two atoms, duplicates included and a self-loop once. :math:`D` holds its row sums. Rows of atoms without bonds are 0.

- ``rwse=k``: :math:`(P^1, \ldots, P^k)_{ii}` of atom :math:`i`, the probabilities to be back after 1 to k steps. Source: Dwivedi et al.,
  "Graph Neural Networks with Learnable Structural and Positional Representations", ICLR 2022.
- ``bond_rw=k``: :math:`(P^1, \ldots, P^k)_{st}` of the bond from :math:`s` to :math:`t`, the probabilities to be at its target after 1 to
  k steps from its source.

Models call `batch_encodings`. :mod:`molgcn.data.layout` has the encodings of a whole set, from which loaders gather them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import Tensor

from molgcn.errors import UserError

if TYPE_CHECKING:
    from molgcn.data.batch import GraphBatch


def batch_encodings(batch: GraphBatch | Any, rwse: int, bond_rw: int) -> tuple[Tensor | None, Tensor | None]:
    """Return the encodings that a batch holds, or compute those that it does not hold from its graph.

    Args:
        batch: a :class:`molgcn.data.GraphBatch` or a `torch_geometric.data.Batch` of N atoms and E bonds.
        rwse: number of steps of the walks that encode atoms, k. 0 gives no encoding of atoms.
        bond_rw: number of steps of the walks that encode bonds, k. 0 gives no encoding of bonds.

    Returns:
        `rwse` float [N, k] and `bond_rw` float [E, k] in the order of `edge_index`, each None for 0 steps. Computed encodings have the
        dtype of `batch.x`.

    Raises:
        UserError: when the batch holds encodings of another shape.
    """
    atoms = held_encoding(batch, "rwse", rwse) if rwse else None
    bonds = held_encoding(batch, "bond_rw", bond_rw) if bond_rw else None
    atom_steps, bond_steps = 0 if atoms is not None else rwse, 0 if bonds is not None else bond_rw
    if atom_steps or bond_steps:
        of_atoms, of_bonds = random_walks(batch.edge_index, *columns_of(batch), atom_steps, bond_steps, batch.x.dtype)
        atoms, bonds = of_atoms if atom_steps else atoms, of_bonds if bond_steps else bonds
    return atoms, bonds


def held_encoding(batch: GraphBatch | Any, name: Literal["rwse", "bond_rw"], steps: int | None = None) -> Tensor | None:
    """Return an encoding that a batch holds.

    The encoding of atoms may also be called `random_walk_pe`, the name that PyG's `AddRandomWalkPE` gives it. If `steps` are given, the
    encoding must have as many columns, else UserError is raised.

    Returns:
        float [N, k] or [E, k], or None where the batch does not hold the encoding.
    """
    rows = batch.x.shape[0] if name == "rwse" else batch.num_edges
    for held in ("rwse", "random_walk_pe") if name == "rwse" else ("bond_rw",):
        encoding: Tensor | None = getattr(batch, held, None)
        if encoding is None:
            continue
        if encoding.dim() != 2 or encoding.shape[0] != rows or steps not in (None, encoding.shape[1]):
            raise UserError(
                f"The batch holds `{held}` of shape {list(encoding.shape)}. Expected [{rows}, {steps or 'k'}]: a row for each "
                f"{'atom' if name == 'rwse' else 'bond'}, a column for each step of the walks. Leave `{held}` out to have it computed."
            )
        return encoding
    return None


def columns_of(batch: GraphBatch | Any) -> tuple[Tensor, int]:
    """Return each atom's position in its molecule, int64 [N], and the number of atoms of the largest molecule."""
    places = torch.arange(batch.x.shape[0], device=batch.x.device)
    if batch.batch is not None:
        places = places - torch.searchsorted(batch.batch, batch.batch)  # the first atom of the molecule
    return places, int(places.max()) + 1 if len(places) else 0


def random_walks(
    edge_index: Tensor, column: Tensor, num_columns: int, rwse: int, bond_rw: int, dtype: torch.dtype = torch.float32
) -> tuple[Tensor, Tensor]:
    """Compute the encodings of any graphs in plain PyTorch operations, with shapes that depend on the arguments' shapes alone.

    Powers of P are held as N rows of `num_columns`. Different molecules may share columns, since no walk leads from one molecule to
    another. An atom's position in its molecule as its column keeps them few. To export a model, the atom's number in the batch and N avoid
    shapes that depend on the data.

    Args:
        edge_index: int64 [2, E], source and target of every bond, both directions present.
        column: int64 [N], the column of each atom, different for the atoms of a molecule.
        num_columns: number of columns.
        rwse: number of steps of the walks that encode atoms, k.
        bond_rw: number of steps of the walks that encode bonds, k.
        dtype: dtype of the result.

    Returns:
        `rwse` [N, k] and `bond_rw` [E, k].
    """
    source, target = edge_index
    num_nodes, device = column.shape[0], edge_index.device
    degree = torch.zeros(num_nodes, dtype=dtype, device=device).index_add(0, source, torch.ones_like(source, dtype=dtype))
    weight = (1 / degree.clamp(min=1))[:, None]
    atom, bond = column[:, None], column[target][:, None]
    power = torch.zeros(num_nodes, num_columns, dtype=dtype, device=device).scatter(1, atom, 1.0)
    of_atoms, of_bonds = [power[:, :0]], [power[source, :0]]
    for step in range(max(rwse, bond_rw)):
        power = torch.zeros_like(power).index_add(0, source, power[target]) * weight
        if step < rwse:
            of_atoms.append(power.gather(1, atom))
        if step < bond_rw:
            of_bonds.append(power[source].gather(1, bond))
    return torch.cat(of_atoms, 1), torch.cat(of_bonds, 1)
