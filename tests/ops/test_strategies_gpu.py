"""Every strategy works on any thread and device and with any layout of the inputs, and leaks no memory. `pytest -m gpu`."""

import gc
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise

import pytest
import torch
from gpu_cases import SIZES, gradient_of, on_gpu
from stack_cases import changed, gcn, layers_of, mapped, random_batch, random_inputs, run
from test_head_loss import example

from molgcn.nn import GCN
from molgcn.ops.head_loss import Objective, head_loss

pytestmark = pytest.mark.gpu
two_devices = pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs")

STRATEGIES = ("tile", "layer")


def moved(inputs, device):
    """Return the inputs' leaf tensors on another device."""
    return mapped(inputs, lambda tensor: tensor.detach().to(device).requires_grad_(tensor.requires_grad))


def small(strategy, **options):
    return changed(on_gpu(random_inputs(random_batch(SIZES, 11), 32, 3, **options), torch.float32), strategy=strategy)


def assert_same(actual, expected):
    """Assert equality bit for bit."""
    for name, tensor in (expected.outputs | expected.gradients).items():
        found = (actual.outputs | actual.gradients)[name].to(tensor.device)
        torch.testing.assert_close(found, tensor, rtol=0, atol=0, msg=name)


def in_a_new_thread(call):
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(call).result()


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_new_thread_runs_both_ways(strategy):
    inputs = small(strategy)
    grad, leaves = gradient_of(inputs).float(), (inputs.graph.x, *inputs.parameters.tensors)
    call = layers_of(inputs)
    pooled, _, saved = torch.ops.molgcn.layer_network(*call.arguments)
    expected = torch.autograd.grad(pooled, leaves, grad, retain_graph=True)  # otherwise `saved` would be freed

    def backward():
        with torch.no_grad():
            return torch.ops.molgcn.layer_network_backward(grad, saved, True, False, *call.arguments)

    grad_x, _, gradients = in_a_new_thread(backward)
    assert all(torch.equal(actual, right) for actual, right in zip((grad_x, *gradients), expected, strict=True))
    forward = in_a_new_thread(lambda: torch.ops.molgcn.layer_network(*call.arguments)[0])
    assert torch.equal(forward, pooled)


@two_devices
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_device_that_is_not_the_current_one(strategy):
    inputs = small(strategy, norm="layer", dropout=0.3, training=True)
    expected = run(gcn, inputs, gradient_of(inputs))
    there = moved(inputs, "cuda:1")
    for thread in (lambda call: call(), in_a_new_thread):
        actual = thread(lambda: run(gcn, there, gradient_of(inputs).to("cuda:1")))
        assert all(tensor.device.index == 1 for tensor in actual.gradients.values())
        assert torch.cuda.current_device() == 0
        assert_same(actual, expected)


@two_devices
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_two_devices_at_once(strategy):
    inputs = small(strategy)
    expected = run(gcn, inputs, gradient_of(inputs))

    def steps(device):
        there, grad = moved(inputs, device), gradient_of(inputs).to(device)
        return [run(gcn, there, grad) for _ in range(50)]

    with ThreadPoolExecutor(2) as pool:
        for results in pool.map(steps, ("cuda:0", "cuda:1")):
            for actual in results:
                assert_same(actual, expected)


@two_devices
def test_the_loss_and_a_model_on_the_second_device():
    losses = []
    for device in ("cuda:0", "cuda:1"):
        x, _, _, targets = example(1500, (2,), device=device)
        losses.append(head_loss(x, [], [], Objective(*targets, "l1"))[0].item())
    assert losses[0] == losses[1]
    model, batch = GCN(11, 32, 3, 2, backend="fused", norm="batch"), random_batch(SIZES, 11)
    gradients = []
    for device in ("cuda:0", "cuda:1"):
        model.to(device)
        model(batch.to(device)).square().sum().backward()
        gradients.append([parameter.grad.cpu() for parameter in model.parameters()])
        model.zero_grad()
    assert all(torch.equal(one, other) for one, other in zip(*gradients, strict=True))


def strided(tensor):
    """Return the same numbers in every second place, starting at an odd address."""
    memory = tensor.new_zeros(2 * tensor.numel() + 1)[1:]
    view = memory.view(*tensor.shape[:-1], 2 * tensor.shape[-1])[..., ::2]
    return view.copy_(tensor.detach()).requires_grad_(tensor.requires_grad)


def shifted(tensor):
    """Return the same numbers side by side, starting at an odd address."""
    memory = tensor.new_zeros(tensor.numel() + 1)[1:].view(tensor.shape)
    return memory.copy_(tensor.detach()).requires_grad_(tensor.requires_grad)


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("laid_out", [strided, shifted])
def test_any_layout_of_the_inputs(laid_out, strategy):
    inputs = small(strategy, norm="layer")
    expected = run(gcn, inputs, gradient_of(inputs))

    others = mapped(inputs, laid_out)
    grad = gradient_of(inputs).T.contiguous().T
    assert others.graph.x.data_ptr() % 16 != 0
    assert_same(run(gcn, others, grad), expected)


def test_another_device_is_refused_in_words():
    inputs = small("auto")
    for wrong, message in [
        ({"x": inputs.graph.x.cpu()}, r"on (cpu|cuda:0)"),
        ({"ptr": inputs.graph.ptr.cpu()}, "ptr to be one-dimensional int32 on cuda:0, got torch.int32 on cpu"),
        ({"counts": torch.zeros(3, dtype=torch.int32)}, "counts"),
        ({"weights": [weight.cpu() for weight in inputs.parameters.weights]}, r"lin.weight of shape .* on cuda:0, got .* on cpu"),
        ({"seed": inputs.seed.cpu()}, r"seed of shape .* on cuda:0"),
    ]:
        with pytest.raises(ValueError, match=message):
            gcn(changed(inputs, **wrong))
    with pytest.raises(ValueError, match=r"convs.0.lin.weight of shape .* in torch.float32 on cpu, got .* on cuda:0"):
        GCN(11, 8, 2, 1, backend="fused").cuda()(random_batch(SIZES, 11))


@two_devices
def test_the_other_gpu_is_refused_in_words():
    inputs = small("auto")
    with pytest.raises(ValueError, match=r"bias of shape .* on cuda:0, got .* on cuda:1"):
        gcn(changed(inputs, biases=[bias.to("cuda:1") for bias in inputs.parameters.biases]))


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_1000_steps_without_drift_in_memory(strategy):
    inputs = small(strategy)

    def allocated():
        gc.collect()
        return torch.cuda.memory_allocated(), torch.cuda.memory_reserved()

    seen = []
    for steps in (10, 1000, 1000):
        for _ in range(steps):
            run(gcn, inputs, gradient_of(inputs))
        seen.append(allocated())
    assert any(after <= before for before, after in pairwise(seen)), seen  # a leak would grow every time
