"""The same molecules with and without atoms alike as one row."""

from __future__ import annotations

import torch
from leaf_cases import random_trees, rows_of_atoms
from stack_cases import random_inputs
from torch import Tensor

from molgcn.data.merge_leaves import merge_leaves
from molgcn.ops import NetworkCall


def inputs_of(sizes, channels, hidden, num_layers, seed=0, ring_bonds=0.0, **options) -> tuple[NetworkCall, NetworkCall, Tensor]:
    """The operator's for a folded batch and for all its atoms, and the row of each of these."""
    molecules = random_trees(sizes, channels, seed, ring_bonds=ring_bonds)
    rows = merge_leaves(molecules)
    assert rows.num_nodes < molecules.num_nodes
    folded = random_inputs(rows.batch(slice(None)), hidden, num_layers, seed=seed, leaves_merged=True, **options)
    whole = random_inputs(molecules.batch(slice(None)), hidden, num_layers, seed=seed, **options)
    return folded, whole, torch.from_numpy(rows_of_atoms(molecules))


def summed(gradients: dict[str, Tensor], rows: Tensor) -> dict[str, Tensor]:
    """With x's as a row's, the sum of its atoms'."""
    x = gradients["x"]
    return gradients | {"x": x.new_zeros(int(rows.max()) + 1, x.shape[1]).index_add(0, rows, x)}
