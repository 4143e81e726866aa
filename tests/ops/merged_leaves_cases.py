"""Batches of the same molecules, with and without merged leaves."""

from __future__ import annotations

import torch
from leaf_cases import random_trees, rows_of_atoms
from stack_cases import random_inputs
from torch import Tensor

from molgcn.data.merge_leaves import merge_leaves
from molgcn.ops.gcn_network import GcnCall


def inputs_of(sizes, channels, hidden, num_layers, seed=0, ring_bonds=0.0, **options) -> tuple[GcnCall, GcnCall, Tensor]:
    """Return the operator's inputs for a batch with merged leaves and for all its atoms, and the row of each atom."""
    molecules = random_trees(sizes, channels, seed, ring_bonds=ring_bonds)
    rows = merge_leaves(molecules)
    assert rows.num_nodes < molecules.num_nodes
    merged = random_inputs(rows.batch(slice(None)), hidden, num_layers, seed=seed, leaves_merged=True, **options)
    whole = random_inputs(molecules.batch(slice(None)), hidden, num_layers, seed=seed, **options)
    return merged, whole, torch.from_numpy(rows_of_atoms(molecules))


def summed(gradients: dict[str, Tensor], rows: Tensor) -> dict[str, Tensor]:
    """Return the gradients, with x's summed over the atoms of each row."""
    x = gradients["x"]
    return gradients | {"x": x.new_zeros(int(rows.max()) + 1, x.shape[1]).index_add(0, rows, x)}
