"""Batches of the components of rows, for networks whose rows are several molecules each, such as a solute and its solvent."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from molgcn.data.batch import GraphBatch
from molgcn.data.encodings import batch_encodings
from molgcn.errors import UserError
from molgcn.nn.padding import first_rows

if TYPE_CHECKING:
    from molgcn.nn.molecule_net import MoleculeNet


def component_of(component: Tensor | None) -> Tensor:
    """Return the component of every atom [N], which a batch of rows of several molecules must have."""
    if component is None:
        raise UserError("The network reads `component`, which the batch does not have. Give it rows of several molecules.")
    return component


def apart(batch: GraphBatch, components: int) -> GraphBatch:
    """Return the batch [B] with each component as a molecule of its own [B * components]: those of a row follow each other.

    The atoms of a row must be sorted by component, as those of all batches are. Nothing else is read but the graph and its features.
    """
    atoms = torch.arange(batch.num_nodes, dtype=batch.ptr.dtype, device=batch.ptr.device)
    row = torch.searchsorted(batch.ptr, atoms, right=True) - 1
    molecule = torch.where(atoms < batch.ptr[-1], row * components + component_of(batch.component), batch.num_graphs * components)
    molecules = torch.arange(batch.num_graphs * components + 1, device=batch.ptr.device)
    ptr = torch.searchsorted(molecule, molecules, out_int32=True)
    tiles = batch.planned_tiles()
    made = _like(batch, batch.x, ptr, batch.rowptr, batch.col, None if tiles is None else tiles * components)
    for name in ("edge_code", "edge_table", "rwse", "bond_rw"):
        setattr(made, name, getattr(batch, name))
    if batch.edge_code is None:
        made.edge_attr = batch.edge_attr
    made.counts = None if batch.counts is None else torch.cat([batch.counts[:1] * components, batch.counts[1:]])
    return made


def of_component(model: MoleculeNet, batch: GraphBatch, number: int) -> GraphBatch:
    """Return the atoms and bonds of one component of every row, in their order, with the features that a model reads.

    The others are left out. In a padded batch they become padding at the end, so that no shape depends on values.
    """
    _, num_atoms, num_bonds, _ = (None,) * 4 if batch.counts is None else batch.counts.unbind()
    col = batch.col if num_bonds is None else torch.where(first_rows(batch.col, num_bonds), batch.col, 0)  # unused places hold anything
    chosen, atoms, _, bonds = chosen_rows(batch.component, number, col, num_atoms, num_bonds)
    before = torch.cat([chosen.new_zeros(1, dtype=torch.int32), chosen.cumsum(0, dtype=torch.int32)])  # chosen atoms before each atom
    degree = torch.where(chosen, torch.diff(batch.rowptr), 0)[atoms]
    rowptr = torch.cat([degree.new_zeros(1), degree.cumsum(0, dtype=torch.int32)])
    made = _like(batch, batch.x[atoms], before[batch.ptr], rowptr, before[col[bonds]], batch.planned_tiles())
    rwse, bond_rw = batch_encodings(batch, model.rwse, model.bond_rw)
    made.rwse, made.bond_rw = None if rwse is None else rwse[atoms], None if bond_rw is None else bond_rw[bonds]
    if batch.edge_code is not None:
        made.edge_code, made.edge_table = batch.edge_code[bonds], batch.edge_table
    elif batch.edge_attr is not None:
        made.edge_attr = batch.edge_attr[bonds]
    if batch.counts is not None:
        made.counts = torch.stack([batch.counts[0], made.ptr[-1], rowptr[-1], batch.counts[3]])
    return made


class Chosen(NamedTuple):
    """The atoms and bonds of one component."""

    mask: Tensor  # the atoms that belong to it, bool [N]
    atoms: Tensor  # they, as a mask; in a padded batch the order of all atoms that puts them first, int64 [N]
    places: Tensor  # the new position of each atom, int64 [N]
    bonds: Tensor  # the bonds between them, in the form of `atoms`


def chosen_rows(component: Tensor | None, number: int, source: Tensor, num_atoms: Tensor | None, num_bonds: Tensor | None) -> Chosen:
    """Return the atoms and bonds of one component.

    Args:
        component: The component of every atom [N].
        number: The component.
        source: The source of every bond [E].
        num_atoms: The number of real atoms of a padded batch, otherwise None.
        num_bonds: The number of real bonds of a padded batch, otherwise None.
    """
    mask = component_of(component) == number
    if num_atoms is None or num_bonds is None:
        return Chosen(mask, mask, torch.cumsum(mask, 0) - 1, mask[source])
    mask = mask & first_rows(mask, num_atoms)
    (places, atoms), (_, bonds) = _to_the_front(mask), _to_the_front(mask[source] & first_rows(source, num_bonds))
    return Chosen(mask, atoms, places, bonds)


def _to_the_front(chosen: Tensor) -> tuple[Tensor, Tensor]:
    """Return the new position of each row and the row at each new position, both int64 [R], if the chosen rows (bool [R]) come first."""
    behind = torch.cumsum(~chosen, 0) + chosen.sum()
    places = torch.where(chosen, torch.cumsum(chosen, 0), behind) - 1
    return places, torch.empty_like(places).scatter(0, places, torch.arange(chosen.shape[0], device=chosen.device))


def _like(batch: GraphBatch, x: Tensor, ptr: Tensor, rowptr: Tensor, col: Tensor, tile_ptr: Tensor | None) -> GraphBatch:
    """Return a batch of parts of another's molecules, which fit into its tiles."""
    large = None if tile_ptr is None else batch.large_molecules
    return GraphBatch(
        x, ptr, rowptr, col, batch.targets, tile_nodes=vars(batch).get("tile_nodes"), tile_ptr=tile_ptr, large_molecules=large
    )
