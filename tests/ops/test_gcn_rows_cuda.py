"""Graph convolutions as a program of the family's steps agree with the float64 oracle, under emulation.

What only a GPU shows is in test_gcn_layers_gpu.py.
"""

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from emulated import run_emulated
from emulated_kernels import included
from gcn_reference import gcn_reference
from stack_cases import A100, H100, RTX, changed, converted, errors, layers_of, random_batch, random_inputs, run, worst, worst_molecule
from test_gcn_tile_cuda import SIZES

from molgcn.cuda_runtime.launch import Gpu, Launcher, launching_by
from molgcn.ops.gcn_layers_plan import pool_blocks
from molgcn.ops.gcn_weights_plan import weight_blocks
from molgcn.ops.layer_network import implementation_cuda
from molgcn.resources import resource

OPTIONS = [
    {},
    {"residual": True, "pool": "sum"},
    {"norm": "layer", "residual": True, "last_activation": True, "pool": "max"},
    {"norm": "batch", "add_self_loops": False},
    {"dropout": 0.3, "training": True, "last_activation": True},
    {"norm": "batch", "training": True},
    {"norm": "batch", "training": True, "residual": True, "last_activation": True, "pool": "max", "dropout": 0.3},
    {"norm": "batch", "training": True, "residual": True, "pool": "sum", "dropout": 0.3, "add_self_loops": False},
]


def check(inputs, output_bound=1e-5, gradient_bound=5e-5):
    actual = run_emulated(changed(inputs, strategy=inputs.options.strategy.replace("auto", "layer")))
    expected = run(gcn_reference, converted(inputs, torch.float64))
    floor = 1e-5 * max(gradient.norm().item() for gradient in expected.gradients.values())  # a bias before batch norm: 0 but for rounding
    assert worst(actual.outputs, expected.outputs) < output_bound
    assert worst_molecule(actual.outputs["pooled"], expected.outputs["pooled"]) < output_bound
    found = errors(actual.gradients, expected.gradients, floor)
    assert max(found.values()) < gradient_bound, max(found, key=found.get)


@pytest.mark.parametrize(
    "options", [pytest.param(one, marks=[pytest.mark.slow] if one in OPTIONS[1::4] else []) for one in OPTIONS], ids=str
)
def test_every_option(emulate, options):
    check(random_inputs(random_batch(SIZES, 11, bonds_per_atom=1.2), 20, 3, **options))


@pytest.mark.parametrize(
    ("channels", "hidden"), [(3, 1), (70, 24), *(pytest.param(*more, marks=pytest.mark.slow) for more in ((20, 20), (5, 33), (16, 64)))]
)
def test_widths(emulate, channels, hidden):
    check(random_inputs(random_batch(SIZES[:6], channels), hidden, 2, residual=True, norm="batch", training=True))


@pytest.mark.parametrize(("norm", "strategy"), [(None, "tile"), (None, "layer"), ("layer", "layer"), ("batch", "layer"), ("batch", "auto")])
def test_what_is_not_a_number_stays_so(emulate, norm, strategy):
    """Dropout passes NaN on, as PyTorch does, whichever kernel applies it."""
    inputs = random_inputs(
        random_batch(SIZES[:6], 11), 20, 3, torch.float32, norm=norm, training=True, dropout=0.9, last_activation=True, strategy=strategy
    )
    inputs = changed(inputs, x=inputs.graph.x.detach() * torch.nan)
    assert run_emulated(inputs).outputs["pooled"][inputs.graph.ptr.diff() > 0].isnan().all()


@pytest.mark.parametrize("norm", [None, "batch"])
def test_features_without_a_gradient(emulate, norm):
    """Most models need no gradient of the features, and backward then has another kernel."""
    inputs = random_inputs(random_batch(SIZES[:6], 11), 20, 3, residual=True, norm=norm, training=True)
    check(changed(inputs, x=inputs.graph.x.detach()))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("hidden", "norm", "limit"),
    [(80, "layer", H100), (96, None, H100), (128, "batch", H100), (172, "batch", H100), (512, "batch", H100), (512, "layer", RTX)],
)
def test_wide(emulate, monkeypatch, hidden, norm, limit):
    emulate.properties = Gpu(1, limit)
    check(random_inputs(random_batch(SIZES[:6], 11), hidden, 2, residual=True, norm=norm, training=True))


@pytest.mark.slow
@pytest.mark.parametrize(("channels", "options"), [(300, {"dropout": 0.3, "residual": True}), (11, {"last_activation": True})])
def test_first_and_last_layer_pulled_as_the_others(emulate, channels, options):
    """From 256 features on, other layers wait for their norm's statistics and these do not."""
    check(random_inputs(random_batch(SIZES[:6], channels), 256, 3, norm="batch", training=True, **options))


@pytest.mark.slow
def test_what_tensor_cores_cut_off_is_made_up_for(emulate):
    """Otherwise outputs would be 5e-6 off and gradients 9e-6."""
    check(random_inputs(random_batch([9, 18, 5], 11, bonds_per_atom=1.2), 64, 28), 2e-6, 6e-6)


@pytest.mark.parametrize(("precision", "bound"), [pytest.param("tf32", 3e-3, marks=pytest.mark.slow), ("bf16", 3e-2)])
def test_lower_precision_is_what_was_asked_for(emulate, precision, bound):
    inputs = random_inputs(random_batch(SIZES, 11), 32, 3, precision=precision)
    check(inputs, bound, 3 * bound)
    with pytest.raises(AssertionError):
        check(inputs)


def test_padded_batches(emulate):
    """Padding for molecules, atoms and bonds gives zero outputs and has no effect on statistics and gradients."""
    options = {"norm": "batch", "training": True, "residual": True, "strategy": "layer"}
    inputs = random_inputs(random_batch(SIZES, 11), 32, 3, **options)
    grad = torch.sin(torch.arange(32.0 * (len(SIZES) + 2), dtype=torch.float64)).view(-1, 32)
    expected = run_emulated(inputs, grad[: len(SIZES)])
    padded = changed(
        inputs,
        x=torch.cat([inputs.graph.x.detach(), torch.full((7, 11), torch.nan)]).requires_grad_(),
        ptr=torch.cat([inputs.graph.ptr, inputs.graph.ptr[-1:], inputs.graph.ptr[-1:]]),
        rowptr=torch.cat([inputs.graph.rowptr, inputs.graph.rowptr[-1:].expand(7)]),
        col=torch.cat([inputs.graph.col, torch.full((9,), 10**6, dtype=torch.int32)]),
    )
    actual = run_emulated(padded, grad)
    assert torch.equal(actual.outputs.pop("pooled"), torch.cat([expected.outputs.pop("pooled"), torch.zeros(2, 32)]))
    assert torch.equal(actual.gradients.pop("x"), torch.cat([expected.gradients.pop("x"), torch.zeros(7, 11)]))
    for name, tensor in (expected.outputs | expected.gradients).items():
        torch.testing.assert_close((actual.outputs | actual.gradients)[name], tensor, rtol=1e-5, atol=1e-6, msg=name)


@pytest.mark.parametrize("options", [{"norm": "layer", "residual": True}, {"norm": "batch", "training": True}], ids=str)
def test_an_eager_call_takes_a_plan_to_the_same_result(emulate, options):
    call = converted(random_inputs(random_batch(SIZES, 12), 20, 3, strategy="layer", **options), torch.float32)
    expected = run_emulated(call)
    with torch.no_grad():
        eager = implementation_cuda.implementation_of(layers_of(call))
        found, _, kept, backward = eager.run(layers_of(call))
        assert found.saved.numel() != implementation_cuda.saved_numbers(layers_of(call))  # a plan's
        grad = torch.sin(torch.arange(found.pooled.numel(), dtype=torch.float64)).view_as(found.pooled).float()
        *_, gradients = backward(kept, grad, (True, False, *(True for _ in layers_of(call).learnt)))
    assert worst({"pooled": found.pooled}, {"pooled": expected.outputs["pooled"]}) < 1e-6
    expected.gradients.pop("x")
    assert worst(dict(zip(expected.gradients, gradients, strict=True)), expected.gradients) < 1e-5


def test_statistics_far_from_zero(emulate):
    """A mean of a thousand times the deviation costs no more than the rounding of the norm's inputs."""
    inputs = random_inputs(random_batch(SIZES, 11), 16, 2, norm="batch", training=True)
    inputs = changed(inputs, biases=[(inputs.parameters.biases[0].detach() + 1e3).requires_grad_(), inputs.parameters.biases[1]])
    actual, expected = run_emulated(inputs), run(gcn_reference, converted(inputs, torch.float64))
    assert worst({"pooled": actual.outputs["pooled"]}, {"pooled": expected.outputs["pooled"]}) < 5e-4
    assert worst({"v": actual.outputs["statistics"][1]}, {"v": expected.outputs["statistics"][1]}) < 1e-4


@pytest.mark.parametrize("hidden", [1, 16, 32, 48, 64, 128, 172, 256, 400])
def test_plans(hidden):
    """Blocks cover all columns and atoms, and fit into the smallest shared memory."""
    inputs = random_inputs(random_batch([20] * 200, 300), hidden, 28)
    plan = pool_blocks(inputs, Gpu(132, RTX))
    assert plan.shared_bytes <= RTX
    assert plan.threads <= 512
    assert 16 * plan.warp_columns * plan.column_tiles >= hidden
    for limit in (48 * 1024, RTX, A100, H100):
        weights = weight_blocks(inputs, 0, 28, Gpu(132, limit))
        assert weights.shared_bytes <= limit
        assert weights.splits * weights.atoms_per_split >= inputs.graph.x.shape[0]
        assert weights.num_tiles * weights.tile**2 >= hidden * 300 + 27 * hidden**2


def test_gradients_of_weights_copy_rows_as_far_ahead_as_shared_memory_allows():
    graph = random_batch([20] * 200, 16)
    divisions = [
        weight_blocks(random_inputs(graph, hidden, 3), 0, 3, Gpu(132, limit)) for hidden in (64, 128) for limit in (H100, A100, RTX)
    ]
    found = [(it.tile, it.min_blocks, it.stages) for it in divisions]
    assert found == [(64, 3, 2), (64, 3, 1), (64, 1, 2), (128, 1, 4), (128, 1, 2), (64, 1, 2)]


class Recorder(Launcher):
    """A launcher that runs nothing, and records the file of each launch and whether CUDA runs all its blocks at once."""

    def __init__(self) -> None:
        self.launches: set[tuple[str, bool]] = set()

    def gpu(self, device: object) -> Gpu:
        return Gpu(132, H100, has_clusters=True)

    def kernel(self, source: str, *_: object) -> Any:
        def launch(*_: object, cooperative: bool = False, **__: object) -> None:
            self.launches.add((source, cooperative))

        return SimpleNamespace(launch=launch, resident_blocks=lambda *_: 128)


def waits(source: str) -> bool:
    """Return whether a file has kernels whose blocks wait for each other."""
    return any("pause();" in text for text in included(f'#include "{source}"', [resource("cuda")]))


def test_blocks_wait_for_each_other_in_cooperative_launches_alone():
    """CUDA refuses such a launch unless all blocks run at once, also in the share of a GPU that MPS leaves a process."""
    with launching_by(recorder := Recorder()):
        for norm, hidden in ((None, 32), ("batch", 64), ("layer", 64)):
            for strategy in ("auto", "tile", "layer") if norm != "batch" else ("auto", "layer"):
                run_emulated(random_inputs(random_batch(SIZES, 11), hidden, 3, norm=norm, training=True, strategy=strategy))
    spinning = {(source, at_once) for source, at_once in recorder.launches if waits(source)}
    assert {source for source, _ in spinning} == {"gcn_tile_backward.cu", "gcn_chain_forward.cu", "gcn_chain_backward.cu"}
    assert all(at_once for _, at_once in spinning)
