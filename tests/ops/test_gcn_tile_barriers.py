"""The CUDA operator gives the same bits under emulation with warps at different speeds, since barriers order all accesses."""

import emulated
import pytest
import torch
from stack_cases import random_batch, random_inputs

SIZES = [5, 9, 18, 1, 30, 1, 7, 22, 40, 64, 3]
LARGE = [5, 70, 3, 200, 1, 8]


@pytest.mark.parametrize("sizes", [SIZES, pytest.param(LARGE, marks=pytest.mark.slow)], ids=["tiles", "large"])
@pytest.mark.parametrize(
    ("hidden", "options"),
    [
        (32, {}),  # four warps per tile
        (32, {"tile_nodes": 96, "precision": "bf16"}),  # two
        pytest.param(32, {"precision": "bf16"}, marks=pytest.mark.slow),
        pytest.param(32, {"tile_nodes": 96}, marks=pytest.mark.slow),
        (16, {"tile_nodes": 48, "norm": "layer", "residual": True, "pool": "max"}),  # three
    ],
    ids=str,
)
def test_same_bits_whichever_warps_run_ahead(emulate, hidden, options, sizes):
    """A missing barrier would change the bits."""
    emulate.properties = emulate.properties._replace(num_barriers=3)  # two groups of several tiles each
    inputs = random_inputs(random_batch(sizes, 11, bonds_per_atom=1.2), hidden, 3, **options)
    first = emulated.run_emulated(inputs)
    for emulate.slice_of_warps in (40, -40):
        second = emulated.run_emulated(inputs)
        assert torch.equal(first.outputs["pooled"], second.outputs["pooled"])
        assert all(torch.equal(gradient, second.gradients[name]) for name, gradient in first.gradients.items())
