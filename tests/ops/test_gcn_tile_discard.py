"""Backward discards features that forward saved, except when it must not."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from itertools import pairwise

import pytest
import torch
from emulated import LINE, run_emulated
from gpu_cases import gradient_of, on_gpu
from stack_cases import H100, changed, converted, gcn, leaves, planned_alone, random_batch, random_inputs
from within_backward import within_backward

from molgcn.cuda_runtime.launch import Gpu, Launcher, launching_by
from molgcn.ops.gcn_network import GcnCall
from molgcn.ops.gcn_tile_discard import discard_from
from molgcn.ops.gcn_tile_plan import Saved, features_bytes, next_fit
from molgcn.ops.read_again import capturing_both_ways

SIZES = [5, 9, 18, 1, 30, 1, 7, 22, 40, 64, 3]


def example(sizes: list[int] = SIZES, **options: object) -> GcnCall:
    inputs = random_inputs(random_batch(sizes, 11, bonds_per_atom=1.2), 32, 4, **options)
    return changed(inputs, tile_ptr=next_fit(inputs.graph.ptr, inputs.graph.tile_nodes))


def filled(plain: Gpu, inputs: GcnCall) -> Gpu:
    """Return a GPU whose cache holds almost all layers, so that all but the first are discarded."""
    return plain._replace(cache_bytes=inputs.network.num_layers * features_bytes(inputs) - 1)


@pytest.fixture
def fill_cache() -> Iterator[Callable[[GcnCall], None]]:
    """Return a function that gives the machine's GPU such a cache."""

    class SmallCache(Launcher):
        inputs: GcnCall

        def gpu(self, device: torch.device) -> Gpu:
            return filled(super().gpu(device), self.inputs)

    with launching_by(launcher := SmallCache()):
        yield lambda inputs: setattr(launcher, "inputs", inputs)


@pytest.mark.parametrize("sizes", [SIZES, [5, 70, 3, 200, 1, 8]], ids=["small", "large"])
@pytest.mark.parametrize("precision", ["float32", "tf32", "bf16"])
def test_lines_that_hold_one_tiles_rows(emulate, sizes, precision):
    """Lines of every layer but the first are discarded, of no other array, and the gradients do not change."""
    inputs = converted(example(sizes, precision=precision), torch.float32)
    emulate.properties = filled(Gpu(1, H100), inputs)
    expected, actual = run_emulated(inputs, keep_graph=True), run_emulated(inputs)
    kept, discarded = expected.saved, actual.saved
    assert all(torch.equal(actual.gradients[name], gradient) for name, gradient in expected.gradients.items())

    layer_bytes, row_bytes = features_bytes(inputs), features_bytes(inputs) // inputs.graph.x.shape[0]
    lines = torch.zeros(kept.numel(), dtype=torch.bool)
    for layer in range(1, 4):
        layer_begin = Saved(inputs).offsets["pulled"] + layer * layer_bytes
        rows = [layer_begin + row_bytes * int(inputs.graph.ptr[graph]) for graph in inputs.graph.tile_ptr.tolist()]
        for begin, end in pairwise(rows):
            lines[-(-begin // LINE) * LINE : end // LINE * LINE] = True
    arrivals = slice(0, 8)  # the barrier's counter, which keeps counting
    kept[arrivals] = discarded[arrivals]
    assert torch.equal(discarded, kept.masked_fill(lines, 0xFF))
    assert bool((kept[lines] != 0xFF).any())


def test_layers_by_precision():
    """In bf16 the layers are discarded that a cache may still hold."""

    def first_of(call, cache_bytes):
        return within_backward(partial(discard_from, call, Gpu(1, H100, cache_bytes=cache_bytes)))

    inputs = converted(example(), torch.float32)
    bf16 = changed(inputs, precision="bf16")
    two, all_four = 2 * features_bytes(bf16) + 1, 4 * features_bytes(inputs)
    assert [first_of(one, two) for one in (inputs, changed(inputs, precision="tf32"), bf16)] == [1, 1, 2]
    assert [first_of(one, all_four) for one in (inputs, bf16)] == [4, 4]


def test_nothing_outside_autograd():
    """A caller outside of autograd may use the saved tensor again."""
    assert discard_from(example(), Gpu(1, H100)) == 4


@pytest.mark.gpu
@pytest.mark.parametrize("precision", ["float32", "tf32", "bf16"])
def test_autograd(fill_cache, precision):
    """A retained graph gives the same gradients again, also at its last use."""
    inputs = on_gpu(example(precision=precision), torch.float32)
    fill_cache(inputs)
    pooled, grad = gcn(inputs).pooled, gradient_of(inputs).float()
    gradients = [torch.autograd.grad(pooled, list(leaves(inputs).values()), grad, retain_graph=keep) for keep in (True, True, False)]
    for gradient in gradients[1:]:
        assert all(torch.equal(one, other) for one, other in zip(gradient, gradients[0], strict=True))


@pytest.mark.gpu
@pytest.mark.parametrize("precision", ["float32", "bf16"])
def test_captured_backward(fill_cache, precision):
    """A CUDA graph of backward alone may be replayed twice, and one of both passes gives the same gradients."""
    inputs = on_gpu(example(precision=precision), torch.float32)
    fill_cache(inputs)
    variables, grad = list(leaves(inputs).values()), gradient_of(inputs).float()

    def step() -> tuple[torch.Tensor, ...]:
        return torch.autograd.grad(planned_alone(inputs).pooled, variables, grad)

    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        expected = step()
    torch.cuda.current_stream().wait_stream(stream)
    forward, backward, both = (torch.cuda.CUDAGraph() for _ in range(3))
    with torch.cuda.graph(forward):
        pooled = gcn(inputs).pooled
    with torch.cuda.graph(backward, pool=forward.pool()):
        alone = torch.autograd.grad(pooled, variables, grad)
    with torch.cuda.graph(both), capturing_both_ways():
        together = step()
    forward.replay()
    for graph, gradients in ((backward, alone), (backward, alone), (both, together), (both, together)):
        for gradient in gradients:
            gradient.fill_(torch.nan)
        graph.replay()
        assert all(torch.equal(one, other) for one, other in zip(gradients, expected, strict=True))
