"""Layers, head and loss as one: under emulation and on a GPU, against float64 and against the operators one by one."""

from __future__ import annotations

import emulated
import pytest
import torch
from folded_cases import inputs_of, summed
from gpu_cases import on_gpu
from stack_cases import H100, converted, leaves, random_batch, random_inputs, worst
from torch import Tensor

from molgcn.ops import StackInputs, gcn_stack_cuda, gcn_stack_reference, linear_loss
from molgcn.ops import gcn_loss as gcn_loss_module
from molgcn.ops.gcn_loss import gcn_loss
from molgcn.ops.launch import Gpu
from molgcn.ops.masked_loss import LOSSES, masked_loss_reference

SIZES = [5, 9, 18, 1, 30, 1, 7, 22, 40, 64, 3]
LARGE = [5, 70, 3, 200, 1, 8]
DEVICES = ["emulated", pytest.param("cuda", marks=pytest.mark.gpu)]


@pytest.fixture
def emulate_loss(emulate, monkeypatch):
    """The kernels on CPU tensors."""

    def empty_outputs(inputs):
        pooled = torch.full((inputs.num_graphs, inputs.hidden_channels), torch.nan)
        return pooled, None, None, torch.full((gcn_stack_cuda.saved_bytes(inputs),), 0xFF, dtype=torch.uint8)

    monkeypatch.setattr(linear_loss, "kernel", emulated.kernel)
    monkeypatch.setattr(linear_loss, "_THREADS", 64)  # a thread is a fiber here, and slow
    monkeypatch.setattr(gcn_loss_module, "check", lambda inputs: None)  # which refuses folded inputs on a CPU
    monkeypatch.setattr(gcn_loss_module, "gpu", lambda device: Gpu(1, H100))
    monkeypatch.setattr(gcn_loss_module, "empty_outputs", empty_outputs)


@pytest.fixture(params=DEVICES)
def device(request):
    request.getfixturevalue("poison" if request.param == "cuda" else "emulate_loss")
    return "cuda" if request.param == "cuda" else "cpu"


def head_of(inputs: StackInputs, num_targets: int, missing: float = 0.3) -> list[Tensor]:
    """Weight, bias, targets, means and deviations."""
    generator = torch.Generator().manual_seed(num_targets)

    def draw(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator, dtype=torch.double)

    target = draw(inputs.num_graphs, num_targets)
    target[torch.rand(target.shape, generator=generator) < missing] = torch.nan
    weight = draw(num_targets, inputs.hidden_channels) / inputs.hidden_channels
    return [weight, draw(num_targets), target, draw(num_targets), draw(num_targets).abs() + 0.1]


def differentiated(value: Tensor, variables: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name: g.cpu() for name, g in zip(variables, torch.autograd.grad(3 * value, list(variables.values())), strict=True)}


def check(
    inputs: StackInputs,
    device: str,
    num_targets: int = 1,
    loss: str = "mse",
    bounds: tuple[float, float] = (1e-5, 5e-5),
    missing: float = 0.3,
    folded_from: tuple[StackInputs, Tensor] | None = None,
) -> None:
    """`folded_from` is all atoms, for the oracle, and the row of each."""
    head = head_of(inputs, num_targets, missing)
    exact, exact_head = converted(folded_from[0] if folded_from else inputs, torch.float64), [tensor.clone() for tensor in head]
    mine = on_gpu(inputs, torch.float32) if device == "cuda" else converted(inputs, torch.float32)
    my_head = [tensor.float().to(device) for tensor in head]
    variables = []
    for one, of in ((mine, my_head), (exact, exact_head)):
        of[:2] = [tensor.requires_grad_() for tensor in of[:2]]
        variables.append(leaves(one) | {"head_weight": of[0], "head_bias": of[1]})
    pooled = gcn_stack_reference(exact)[0]
    expected, sums = masked_loss_reference(torch.nn.functional.linear(pooled, *exact_head[:2]), *exact_head[2:], loss, 0.5)
    actual, my_sums = gcn_loss(mine, *my_head, loss, 0.5)
    torch.testing.assert_close(actual.cpu().double(), expected, rtol=bounds[0], atol=1e-9)
    torch.testing.assert_close(my_sums.cpu(), sums.double(), rtol=bounds[0], atol=1e-9)
    right = differentiated(expected, variables[1])
    assert worst(differentiated(actual, variables[0]), summed(right, folded_from[1]) if folded_from else right) < bounds[1]


@pytest.mark.parametrize(
    ("sizes", "options"),
    [
        (SIZES, {}),
        (LARGE, {"norm": "layer", "residual": True, "pool": "sum"}),
        (SIZES, {"tile_nodes": 96, "pool": "max"}),
        (SIZES, {"dropout": 0.3, "training": True}),
    ],
    ids=str,
)
def test_against_float64(device, sizes, options):
    check(random_inputs(random_batch(sizes, 11, bonds_per_atom=1.2), 32, 3, **options), device)


@pytest.mark.parametrize(("loss", "num_targets"), list(zip(LOSSES, (19, 3, 1), strict=True)))
def test_losses_and_targets(device, loss, num_targets):
    """The derivatives of L1 and huber jump where a prediction is its target; none is near."""
    check(random_inputs(random_batch(SIZES, 11, bonds_per_atom=1.2), 20, 2), device, num_targets, loss)


@pytest.mark.parametrize("pool", ["mean", "sum"])
def test_folded(device, pool):
    folded, *atoms = inputs_of(SIZES, 11, 32, 3, pool=pool)
    check(folded, device, 2, folded_from=tuple(atoms))


def test_nothing_is_known(device):
    check(random_inputs(random_batch(SIZES, 11), 32, 2), device, 2, missing=2.0)


def test_bf16(device):
    inputs = random_inputs(random_batch(SIZES, 11, bonds_per_atom=1.2), 32, 2, precision="bf16")
    check(inputs, device, bounds=(3e-2, 1e-1))


def test_room_of_a_padded_batch(device):
    """Molecules without atoms, in no tile, whose targets are missing."""
    inputs = random_inputs(random_batch(SIZES, 11), 32, 2)
    count, nodes = inputs.num_graphs, inputs.x.shape[0]
    tile_ptr = torch.tensor([0, 4, 5, 8, 9, 10, *[count] * 9], dtype=torch.int32)
    padded = inputs._replace(
        ptr=torch.cat([inputs.ptr, torch.full((5,), nodes, dtype=torch.int32)]), tile_ptr=tile_ptr, x=inputs.x.detach().requires_grad_()
    )
    head = [tensor.float() for tensor in head_of(inputs, 2)]
    results = []
    for one, room in ((inputs, 0), (padded, 5)):
        one = on_gpu(one, torch.float32) if device == "cuda" else converted(one, torch.float32)
        target = torch.cat([head[2], torch.full((room, 2), torch.nan)])
        weight, bias, target, mean, std = (tensor.to(device) for tensor in (*head[:2], target, *head[3:]))
        value, sums = gcn_loss(one, weight.requires_grad_(), bias.requires_grad_(), target, mean, std, "mse")
        results.append((sums.cpu(), differentiated(value, leaves(one) | {"weight": weight, "bias": bias})))
    torch.testing.assert_close(results[1][0], results[0][0], rtol=1e-6, atol=0)
    assert worst(results[1][1], results[0][1]) < 1e-5


@pytest.mark.parametrize("wrong", ["head_bias", "target"])
def test_tensors_that_do_not_fit(emulate_loss, wrong):
    inputs = converted(random_inputs(random_batch(SIZES, 11), 32, 2), torch.float32)
    weight, bias, target, mean, std = (tensor.float() for tensor in head_of(inputs, 2))
    bias, target = (bias.double(), target) if wrong == "head_bias" else (bias, target[:3])
    with pytest.raises(ValueError, match="linear_loss"):
        gcn_loss(inputs, weight, bias, target, mean, std, "mse")
