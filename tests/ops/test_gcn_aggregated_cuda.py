"""The aggregation as a separate kernel agrees with the float64 oracle, under emulation and with PyTorch on the CPU."""

import pytest
import torch
from architectures import ARCHITECTURES, EVERY_ARCHITECTURE
from compiling import compiles
from emulated import run_emulated
from stack_cases import changed, converted, errors, random_batch, random_inputs, run, worst
from test_gcn_layers_cuda import OPTIONS
from test_gcn_tile_cuda import SIZES

from molgcn.ops import gcn_aggregated_cuda, message_network_cuda, message_network_reference


def check(inputs, dtype=torch.float64, bound=1e-11):
    """Check results in float64 against the oracle; its rounding is below the bound."""
    actual, expected = run_emulated(inputs, dtype=dtype), run(message_network_reference, converted(inputs, torch.float64))
    floor = 1e-6 * max(gradient.norm().item() for gradient in expected.gradients.values())
    assert worst(actual.outputs, expected.outputs) < bound
    found = errors(actual.gradients, expected.gradients, floor)
    assert max(found.values()) < bound, max(found, key=found.get)


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_every_option_in_float64(emulate, options):
    check(random_inputs(random_batch(SIZES, 11, bonds_per_atom=1.2), 20, 3, strategy="layer", **options))


def test_float32(emulate):
    check(random_inputs(random_batch(SIZES[:5], 11), 520, 2, norm="batch", training=True), torch.float32, 2e-5)


def test_what_is_wide_or_double_takes_this_way():
    batch = random_batch([5], 3)
    double, wide = random_inputs(batch, 8, 2), converted(random_inputs(batch, 520, 2), torch.float32)
    assert message_network_cuda.saved_bytes(double) == gcn_aggregated_cuda.saved_bytes(double)
    assert message_network_cuda.saved_bytes(wide) == gcn_aggregated_cuda.saved_bytes(wide)


@pytest.mark.parametrize("pool", ["mean", "sum", "max"])
def test_padded_batches(emulate, pool):
    """Padding for molecules, atoms and bonds gives zero outputs and has no effect on statistics and gradients."""
    options = {"norm": "batch", "training": True, "residual": True, "last_activation": True, "pool": pool, "strategy": "layer"}
    inputs = random_inputs(random_batch(SIZES, 11), 16, 2, **options)
    grad = torch.sin(torch.arange(16.0 * (len(SIZES) + 2), dtype=torch.float64)).view(-1, 16)
    grad[len(SIZES) :] = torch.nan
    expected = run(message_network_reference, inputs, grad[: len(SIZES)])
    padded = changed(
        inputs,
        x=torch.cat([inputs.graph.x.detach(), torch.full((7, 11), torch.nan)]).requires_grad_(),
        ptr=torch.cat([inputs.graph.ptr, inputs.graph.ptr[-1:], inputs.graph.ptr[-1:]]),
        rowptr=torch.cat([inputs.graph.rowptr, inputs.graph.rowptr[-1:].expand(7)]),
        col=torch.cat([inputs.graph.col, torch.full((9,), 10**6, dtype=torch.int32)]),
    )
    actual = run_emulated(padded, grad, dtype=torch.float64)
    assert not actual.outputs["pooled"][len(SIZES) :].any()
    assert not actual.gradients["x"][-7:].any()
    actual.outputs["pooled"], actual.gradients["x"] = actual.outputs["pooled"][: len(SIZES)], actual.gradients["x"][:-7]
    assert worst(actual.outputs, expected.outputs) < 1e-11
    assert worst(actual.gradients, expected.gradients) < 1e-11


def test_a_bias_before_batch_statistics_has_no_gradient(emulate):
    """The gradient is exactly zero, since Adam would turn rounding into whole steps."""
    options = {"norm": "batch", "training": True, "pool": "sum", "strategy": "layer"}
    gradients = run_emulated(random_inputs(random_batch(SIZES, 11), 16, 3, **options), dtype=torch.float64).gradients
    assert not gradients["convs.0.bias"].any()
    assert not gradients["convs.1.bias"].any()
    assert gradients["convs.2.bias"].all()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_autocast_is_read_as_precision_alone(emulate, dtype):
    inputs = random_inputs(random_batch(SIZES[:5], 11), 520, 2)
    expected = run_emulated(inputs)
    with torch.autocast("cpu", dtype):
        actual = run_emulated(inputs)
    for name, tensor in (expected.outputs | expected.gradients).items():
        assert torch.equal((actual.outputs | actual.gradients)[name], tensor), name


def test_runs_where_determinism_is_asked_for(emulate):
    torch.use_deterministic_algorithms(True)
    try:
        run_emulated(random_inputs(random_batch([5], 3), 8, 2, strategy="layer"), dtype=torch.float64)
    finally:
        torch.use_deterministic_algorithms(False)


@pytest.mark.parametrize("arch", EVERY_ARCHITECTURE)
def test_compiles_for_every_architecture(arch):
    number = ARCHITECTURES.index(arch)
    assert compiles("gcn_adjacency.cu", {"DOUBLE": number % 2, "SELF_LOOPS": number // 2 % 2}, arch)
