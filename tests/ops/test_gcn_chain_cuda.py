"""All layers with batch statistics in one launch, without a GPU: under emulation, clusters included, against the float64 oracle."""

import pytest
import torch
from emulated import run_emulated
from stack_cases import random_batch, random_inputs
from test_gcn_layers_cuda import check
from test_gcn_stack_cuda import ARCHITECTURES, H100, SIZES

from molgcn.ops import gcn_layers_pass
from molgcn.ops.gcn_chain_plan import chains
from molgcn.ops.launch import Gpu
from molgcn.ops.nvrtc import compile_source

OPTIONS = [
    {},
    {"residual": True, "last_activation": True, "add_self_loops": False},
    {"residual": True, "last_activation": True, "pool": "max", "dropout": 0.3},
    {"pool": "sum", "dropout": 0.3, "add_self_loops": False},
    {"pool": "max"},
]


@pytest.fixture
def chained(emulate, monkeypatch):
    """A GPU with room for some blocks; what was launched."""
    found = []

    def on(num_multiprocessors):
        emulated = gcn_layers_pass.kernel
        monkeypatch.setattr(gcn_layers_pass, "gpu", lambda device: Gpu(num_multiprocessors, H100, True))
        monkeypatch.setattr(gcn_layers_pass, "kernel", lambda source, *args: found.append(source) or emulated(source, *args))
        return found

    return on


@pytest.mark.parametrize("num_multiprocessors", [8, 40])
@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_every_option(chained, options, num_multiprocessors):
    """Bonds within blocks, to guests, to atoms beyond the guests' room; one cluster and several."""
    found = chained(num_multiprocessors)
    check(random_inputs(random_batch(SIZES, 11, bonds_per_atom=1.2), 20, 3, norm="batch", training=True, **options))
    assert {"gcn_chain_forward.cu", "gcn_chain_backward.cu"} <= set(found)
