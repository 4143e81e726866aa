"""Blocks that go through many tiles agree with the float64 oracle under emulation."""

import pytest
import torch
from compiling import compiles
from emulated import run_emulated
from stack_cases import A100, H100, RTX, changed, random_batch, random_inputs
from test_gcn_layers_cuda import check

from molgcn.cuda_runtime.launch import Gpu
from molgcn.ops.gcn_layers_macros import layer_macros
from molgcn.ops.gcn_layers_plan import blocks

SIZES = [5, 9, 18, 1, 30, 100, 7, 22, 40, 64, 3, 10]  # 309 atoms, tiles of 32: the last one is not full
HIDDEN = 136
OPTIONS = [
    {"residual": True, "last_activation": True, "pool": "max", "dropout": 0.3},
    {"residual": True},
    {"last_activation": True, "pool": "sum", "dropout": 0.3, "add_self_loops": False},
]


def make(num_layers=3, channels=11, **options):
    return random_inputs(random_batch(SIZES, channels, bonds_per_atom=1.2), HIDDEN, num_layers, norm="batch", training=True, **options)


@pytest.mark.parametrize("options", [OPTIONS[0], *(pytest.param(options, marks=pytest.mark.slow) for options in OPTIONS[1:])], ids=str)
def test_every_option(emulate, options):
    """Bonds lead to atoms within tiles, to the halo and to atoms for which it has no room, in two blocks of several tiles."""
    check(make(2, **options))
    assert {"gcn_stream_forward.cu", "gcn_stream_backward.cu"} <= emulate.sources
    assert not {"gcn_layer_forward.cu", "gcn_layer_backward.cu"} & emulate.sources


@pytest.mark.slow
def test_features_without_a_gradient(emulate):
    """Most models need no gradient of the features, and backward then has another kernel."""
    inputs = make(residual=True)
    check(changed(inputs, x=inputs.graph.x.detach()))
    assert "gcn_stream_backward.cu" in emulate.sources


@pytest.mark.slow
def test_padded_batches(emulate):
    """Padding that leaves one block without atoms has no effect on outputs, statistics and gradients."""
    inputs, more = changed(make(2), strategy="layer"), 400
    grad = torch.sin(torch.arange(float(HIDDEN) * len(SIZES), dtype=torch.float64)).view(-1, HIDDEN)
    expected = run_emulated(inputs, grad)
    padded = changed(
        inputs,
        x=torch.cat([inputs.graph.x.detach(), torch.full((more, 11), torch.nan)]).requires_grad_(),
        rowptr=torch.cat([inputs.graph.rowptr, inputs.graph.rowptr[-1:].expand(more)]),
        col=torch.cat([inputs.graph.col, torch.full((9,), 10**6, dtype=torch.int32)]),
    )
    actual = run_emulated(padded, grad)
    assert torch.equal(actual.gradients.pop("x"), torch.cat([expected.gradients.pop("x"), torch.zeros(more, 11)]))
    for name, tensor in (expected.outputs | expected.gradients).items():
        torch.testing.assert_close((actual.outputs | actual.gradients)[name], tensor, rtol=1e-5, atol=1e-6, msg=name)


@pytest.mark.slow
def test_no_atoms(emulate):
    """A batch of padding alone gives zeros and leaves the running statistics unchanged."""
    inputs = changed(make(2), strategy="layer")
    none = {name: torch.zeros_like(getattr(inputs.graph, name)) for name in ("ptr", "rowptr")}
    result = run_emulated(changed(inputs, x=torch.full_like(inputs.graph.x.detach(), torch.nan).requires_grad_(), **none))
    assert not result.outputs["pooled"].any() and not any(gradient.any() for gradient in result.gradients.values())
    assert torch.equal(result.outputs["statistics"][0, 0], inputs.parameters.running_means[0].float())


def test_plans():
    """Only large batches are streamed, if shared memory has room for two blocks with the next tile's rows."""
    molecules = random_batch([23] * 1500, 28)
    options = {"norm": "batch", "training": True}

    def plan(hidden, limit=H100, batch=molecules, **more):
        return blocks(random_inputs(batch, hidden, 2, **options | more), Gpu(132, limit))

    streamed = plan(172)
    assert (streamed.streams, streamed.warp_columns, streamed.column_tiles) == (264, 6, 2)
    assert all(2 * (streamed.kernel_bytes(backward) + 1024) <= 228 * 1024 for backward in (False, True))
    assert streamed.num_groups * streamed.tiles_per_group >= streamed.num_blocks
    others = [plan(hidden) for hidden in (32, 64, 128, 200, 256)] + [plan(172, limit) for limit in (A100, RTX)]
    others += [plan(172, norm="layer"), plan(172, training=False), plan(172, batch=random_batch([23] * 1000, 28))]
    others.append(plan(172, batch=random_batch([23] * 1500, 300)))
    assert not any(other.streams for other in others)


@pytest.mark.slow
@pytest.mark.parametrize(("arch", "dropout", "needs_grad_x"), [("sm_90", 0.0, False), ("sm_100", 0.3, True)])
def test_compiles(arch, dropout, needs_grad_x):
    inputs = random_inputs(random_batch([23] * 1500, 28), 172, 2, norm="batch", training=True, dropout=dropout)
    division = blocks(inputs, Gpu(132, H100))
    for direction in ("forward", "backward"):
        defines = layer_macros(inputs, division, needs_grad_x and direction == "backward")
        assert compiles(f"{division.kernel(direction)}.cu", defines, arch)
