"""Gradients of weights are divided so that all multiprocessors have work and every atom belongs to one share."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from stack_cases import H100, changed, random_batch, random_inputs

from molgcn.cuda_runtime.launch import Gpu
from molgcn.ops.gcn_weights_plan import WeightBlocks, weight_blocks

HOPPER = Gpu(132, H100, True)


def plan(hidden: int, layers: int, atoms: int) -> WeightBlocks:
    """Return the division for a network whose first layer has as many columns as the others."""
    call = random_inputs(random_batch([3], 1), hidden, layers)
    return weight_blocks(changed(call, x=torch.empty(atoms, hidden), in_channels=hidden), 0, layers, HOPPER)


@pytest.mark.parametrize(("hidden", "layers", "splits"), [(128, 12, 11), (256, 6, 11), (200, 6, 11), (64, 12, 33)])
def test_multiprocessors_are_not_idle(hidden, layers, splits):
    """Six layers of width 256 have 24 tiles: two rounds of blocks, with 11 shares, use 132 multiprocessors. One round would use 120."""
    assert plan(hidden, layers, 74_911).splits == splits


@given(st.sampled_from([32, 64, 96, 172, 256]), st.integers(1, 4), st.integers(0, 20_000))
def test_every_atom_has_one_share(hidden, layers, atoms):
    found = plan(hidden, layers, atoms)
    assert (found.splits - 1) * found.atoms_per_split < max(atoms, 1) <= found.splits * found.atoms_per_split
    assert found.splits == 1 or found.atoms_per_split >= 128
