"""Predictions in one launch agree with float64 under emulation and on a GPU, and a model uses them."""

import pytest
import torch
from compiler import needs_extension
from gcn_reference import gcn_reference
from gpu_cases import on_gpu
from stack_cases import changed, converted, gcn, random_batch, random_inputs, worst
from torch.nn import functional as F

from molgcn.nn import GCN
from molgcn.ops.gcn_tile_plan import next_fit
from molgcn_benchmark.measure import count_kernels

SIZES = [5, 9, 18, 1, 30, 7, 40, 64, 3, 130]


def with_head(inputs, *head):
    return inputs._replace(head=head)


def predicted(inputs):
    return gcn(inputs).pooled


@pytest.fixture(params=["emulated", pytest.param("cuda", marks=pytest.mark.gpu)])
def predict(request):
    """Return a function that runs the CUDA operator on inputs and a head in float64."""
    if request.param == "cuda":
        return lambda inputs, *head: predicted(on_gpu(with_head(inputs, *head), torch.float32)).cpu()
    request.getfixturevalue("emulate")
    request.getfixturevalue("operator_emulated")
    return lambda inputs, *head: predicted(converted(with_head(inputs, *head), torch.float32))


def inference(sizes, hidden, num_targets, **options):
    inputs = random_inputs(random_batch(sizes, 11), hidden, 3, save_for_backward=False, **options)
    head = torch.randn(num_targets, hidden, dtype=torch.float64), torch.randn(num_targets, dtype=torch.float64)
    return inputs, head


def check(predict, inputs, head, bound=1e-5):
    with torch.no_grad():
        expected = F.linear(gcn_reference(converted(inputs, torch.float64))[0], *head)
        assert worst({"predictions": predict(inputs, *head)}, {"predictions": expected}) < bound


RICH = {"norm": "layer", "residual": True, "pool": "max", "last_activation": True}


@pytest.mark.parametrize(("hidden", "num_targets", "options"), [(32, 1, {}), (16, 3, RICH), (20, 19, {}), (33, 2, RICH)], ids=str)
def test_the_head_of_what_is_pooled(predict, hidden, num_targets, options):
    check(predict, *inference(SIZES, hidden, num_targets, **options))


@pytest.mark.parametrize("tile_nodes", [48, 96])
def test_other_tiles(predict, tile_nodes):
    inputs, head = inference([20, 9, 31, 45, 130] * 3, 32, 2, tile_nodes=tile_nodes)
    check(predict, changed(inputs, tile_ptr=next_fit(inputs.graph.ptr, tile_nodes)), head)


@pytest.mark.slow
@pytest.mark.parametrize(("precision", "bound"), [("tf32", 3e-3), ("bf16", 3e-2)])
def test_lower_precision(predict, precision, bound):
    check(predict, *inference(SIZES, 32, 2, precision=precision), bound)


def test_strategies_without_a_launch_for_it(predict):
    check(predict, *inference(SIZES, 20, 2, strategy="layer"))


def test_padded_batch(predict):
    """Padding molecules get the head's bias, as molecules without atoms do."""
    inputs, head = inference(SIZES, 32, 3)
    tiles = next_fit(inputs.graph.ptr)
    padded = changed(
        inputs,
        x=torch.cat([inputs.graph.x.detach(), torch.full((7, 11), torch.nan)]),
        ptr=torch.cat([inputs.graph.ptr, inputs.graph.ptr[-1:], inputs.graph.ptr[-1:]]),
        rowptr=torch.cat([inputs.graph.rowptr, inputs.graph.rowptr[-1:].expand(7)]),
        tile_ptr=torch.cat([tiles, tiles[-1:]]),
    )
    alone, beside = predict(inputs, *head), predict(padded, *head)
    assert torch.equal(beside[:-2], alone)
    assert torch.equal(beside[-2:], head[1].float().expand(2, 3))


def test_a_large_molecule_where_none_was_promised(predict):
    inputs, head = inference([5, 130, 9], 32, 3)
    expected, broken = predict(inputs, *head), predict(changed(inputs, large_molecules=False), *head)
    assert broken[1].isnan().all() and torch.equal(broken[::2], expected[::2])


def test_no_molecules(predict):
    inputs, head = inference([3], 32, 2)
    none = torch.zeros(1, dtype=torch.int32)
    assert predict(changed(inputs, x=inputs.graph.x.detach()[:0], ptr=none, rowptr=none, col=none[:0]), *head).shape == (0, 2)


@needs_extension
def test_on_the_cpu():
    inputs, head = inference(SIZES, 20, 2)
    with torch.no_grad():
        assert torch.equal(predicted(with_head(inputs, *head)), F.linear(predicted(inputs), *head))
    with pytest.raises(RuntimeError, match="save_for_backward=False"):
        predicted(with_head(inputs, *head)).sum().backward()


@pytest.mark.parametrize(
    ("change", "weight", "bias", "message"),
    [
        ({}, (2, 9), (2,), r"the head's weight of shape \[\d, 8\]"),
        ({}, (2, 8), (3,), r"the head's bias of shape \[2\]"),
        ({}, (8,), (1,), r"the head's weight of shape \[\d, 8\]"),
    ],
)
def test_what_does_not_fit_is_an_error_in_words(change, weight, bias, message):
    options = {"save_for_backward": False, **change}
    inputs = random_inputs(random_batch([4], 3), 8, 2, **options)
    with pytest.raises(ValueError, match=message):
        predicted(with_head(inputs, torch.zeros(weight, dtype=torch.float64), torch.zeros(bias, dtype=torch.float64)))


def test_another_dtype_is_an_error_in_words():
    inputs = random_inputs(random_batch([4], 3), 8, 2, save_for_backward=False)
    with pytest.raises(ValueError, match=r"the head's weight .* in torch.float64 on cpu, got .* in torch.float32 on cpu"):
        predicted(with_head(inputs, torch.zeros(2, 8), torch.zeros(2)))


@pytest.mark.gpu
@pytest.mark.parametrize("options", [{}, {"head_layers": 2}, {"norm": "batch"}, {"hidden_channels": 128}, {"dropout": 0.5}], ids=str)
def test_a_model_predicts_the_same_with_and_without_gradients(options):
    batch = random_batch(SIZES, 11).to("cuda")
    model = (
        GCN(**{"in_channels": 11, "hidden_channels": 32, "num_layers": 4, "out_channels": 3, "backend": "fused", **options}).cuda().eval()
    )
    with_gradients = model(batch)
    with torch.no_grad():
        torch.testing.assert_close(model(batch), with_gradients.detach(), rtol=1e-5, atol=1e-6)
        with torch.autocast("cuda", torch.bfloat16):
            assert model(batch).dtype == torch.bfloat16


@pytest.mark.gpu
def test_a_hook_of_the_head_is_called():
    batch = random_batch(SIZES, 11).to("cuda")
    model = GCN(11, 32, 2, 1, backend="fused").cuda().eval()
    model.head.register_forward_hook(lambda module, inputs, output: output + 1)
    with torch.no_grad():
        hooked = model(batch)
        model.head._forward_hooks.clear()
        torch.testing.assert_close(hooked, model(batch) + 1)


@pytest.mark.gpu
def test_inference_is_one_kernel_captured_or_not():
    batch = random_batch(SIZES, 11).to("cuda")
    batch.tile_ptr  # noqa: B018  computed on the host, before capture
    model = GCN(11, 32, 3, 2, backend="fused").cuda().eval()
    graph = torch.cuda.CUDAGraph()
    with torch.no_grad():
        plain = model(batch)
        assert count_kernels(lambda: model(batch), batch.x.device) == 1
        with torch.cuda.graph(graph):
            captured = model(batch)
    assert count_kernels(graph.replay, batch.x.device) == 1
    assert torch.equal(captured, plain)
