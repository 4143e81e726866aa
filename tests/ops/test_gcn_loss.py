"""Layers, head and loss as one: under emulation and on a GPU, against float64 and against the operators one by one."""

from __future__ import annotations

import pytest
import torch
from architectures import ARCHITECTURES, EVERY_ARCHITECTURE
from folded_cases import inputs_of, summed
from gpu_cases import on_gpu
from stack_cases import H100, converted, leaves, random_batch, random_inputs, worst
from torch import Tensor

from molgcn.benchmark.measure import count_kernels
from molgcn.cuda_runtime.launch import Gpu
from molgcn.cuda_runtime.nvrtc import compile_source
from molgcn.ops import StackInputs, gcn_stack_cuda, gcn_stack_reference, head_loss_cuda
from molgcn.ops import gcn_loss as module
from molgcn.ops.gcn_loss import gcn_loss, takes
from molgcn.ops.gcn_stack import _SAVED_BYTES
from molgcn.ops.gcn_stack_plan import backward_plan, forward_plan, next_fit
from molgcn.ops.head_loss import LOSSES, Objective, head_loss_reference

SIZES = [5, 9, 18, 1, 30, 1, 7, 22, 40, 64, 3]
LARGE = [5, 70, 3, 200, 1, 8]
DEVICES = ["emulated", pytest.param("cuda", marks=pytest.mark.gpu)]


@pytest.fixture
def emulate_loss(emulate, monkeypatch):
    """The kernels as the operator's implementation for CPU tensors."""
    new_empty = torch.Tensor.new_empty

    def poisoned(tensor, *size, dtype=None, **options):
        out = new_empty(tensor, *size, dtype=dtype or tensor.dtype, **options)
        return out.fill_(torch.nan if out.is_floating_point() else 0xFF)

    monkeypatch.setattr(torch.Tensor, "new_empty", poisoned)
    monkeypatch.setattr(head_loss_cuda, "THREADS", 64)  # a thread is a fiber here, and slow
    monkeypatch.setattr(module, "check", lambda inputs: None)  # which refuses folded inputs on a CPU
    monkeypatch.setitem(_SAVED_BYTES, "cpu", gcn_stack_cuda.saved_bytes)
    library = torch.library.Library("molgcn", "IMPL")
    library.impl("gcn_loss", module._forward, "CPU")
    library.impl("gcn_loss_backward", module._backward, "CPU")
    yield
    library._destroy()


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
    expected, sums = head_loss_reference(pooled, exact_head[:1], exact_head[1:2], Objective(*exact_head[2:], loss, 0.5))
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


def example(device: str, num_targets: int = 2, **options: object) -> tuple[StackInputs, list[Tensor]]:
    """Inputs, and the head's as :func:`gcn_loss` takes them."""
    inputs = random_inputs(random_batch(SIZES, 11), 32, 2, **options)
    head = [tensor.float().to(device) for tensor in head_of(inputs, num_targets)]
    inputs = on_gpu(inputs, torch.float32) if device == "cuda" else converted(inputs, torch.float32)
    return inputs, [tensor.requires_grad_() for tensor in head[:2]] + head[2:]


def test_many_targets_in_several_blocks(device, request):
    if device == "cpu":
        request.getfixturevalue("emulate").properties = Gpu(3, H100)
    check(random_inputs(random_batch(SIZES, 11), 32, 2), device, 150)


def test_opcheck(device, request):
    """On a GPU what forward keeps has gaps, in which anything may be: two calls' differ. Elsewhere nothing of it is discarded."""
    if device == "cpu":
        request.getfixturevalue("emulate").properties = Gpu(1, H100, cache_bytes=2**30)
    inputs, head = example(device)
    checks = ["test_schema", "test_autograd_registration", "test_faketensor"]
    checks += ["test_aot_dispatch_dynamic"] if device == "cpu" else []
    torch.library.opcheck(torch.ops.molgcn.gcn_loss, (*head, "mse", 1.0, *inputs), test_utils=checks)


def test_torch_compile(device):
    inputs, head = example(device)

    def loss(x):
        return gcn_loss(inputs._replace(x=x), *head, "mse")[0]

    compiled = torch.compile(loss, fullgraph=True, backend="aot_eager")
    expected, actual = (torch.autograd.grad(call(inputs.x), [inputs.x, *head[:2]]) for call in (loss, compiled))
    assert all(torch.equal(one, other) for one, other in zip(actual, expected, strict=True))


def test_second_derivative_is_refused(device):
    inputs, head = example(device)
    gradients = torch.autograd.grad(gcn_loss(inputs, *head, "mse")[0], [inputs.x, *head[:2]], create_graph=True)
    for gradient in gradients:
        with pytest.raises(RuntimeError, match="backend=pyg"):
            gradient.sum().backward(retain_graph=True)


def test_backward_may_run_twice(device):
    inputs, head = example(device)
    value, _ = gcn_loss(inputs, *head, "mse")
    first, again = (torch.autograd.grad(value, [inputs.x, *head[:2]], retain_graph=True) for _ in range(2))
    assert all(torch.equal(one, other) for one, other in zip(first, again, strict=True))


@pytest.mark.parametrize("options", [{}, {"norm": "layer", "residual": True, "pool": "max"}], ids=str)
def test_three_launches_forward_and_backward(device, request, options):
    inputs, head = example(device, **options)
    variables, one = [*leaves(inputs).values(), *head[:2]], torch.ones((), device=device)

    def both():
        torch.autograd.grad(gcn_loss(inputs, *head, "mse")[0], variables, one)

    if device == "cuda":
        both()
        assert count_kernels(both, inputs.x.device) == 3
        return
    both()
    assert request.getfixturevalue("emulate").num_launches == 3


@pytest.mark.parametrize("num_targets", [1, 3])
def test_forward_knows_all_that_follows(emulate_loss, emulate, num_targets):
    """All kernels of a step compile at once, so that its first one takes as long as the slowest."""
    check(random_inputs(random_batch([5, 9], 11), 16, 2), "cpu", num_targets)
    assert sorted(emulate.prefetched, key=str) == sorted(emulate.used[1:], key=str)


def test_no_races(emulate_loss, emulate):
    emulate.find_races = True
    check(random_inputs(random_batch(SIZES, 11), 32, 2), "cpu", num_targets=3)


def test_tensors_that_do_not_fit(emulate_loss):
    inputs, (weight, bias, target, mean, std) = example("cpu")
    for wrong, message in [
        ((bias.double(), target, mean, std), r"biases\[0\] in torch.float32"),
        ((bias, target[:3], mean, std), r"target \[3, 2\]"),
        ((bias[:1], target, mean, std), r"biases\[0\] \[1\]"),
        ((bias, target, mean, std[None]), r"std \[1, 2\]"),
    ]:
        with pytest.raises(ValueError, match=f"head_loss: .*{message}"):
            gcn_loss(inputs, weight, *wrong, "mse")


def test_what_it_takes():
    def inputs(hidden=32, dtype=torch.float32, **options):
        return random_inputs(random_batch([5, 3], 11), hidden, 2, dtype, **options)

    assert all(takes(one) for one in (inputs(), inputs(norm="batch"), inputs(hidden=128, strategy="stack")))
    batch_norm = {"norm": "batch", "training": True}
    wrong = [{"hidden": 128}, {"dtype": torch.double}, {"strategy": "vertex"}, {"save_for_backward": False}, batch_norm]
    nothing = inputs()._replace(ptr=torch.zeros(1, dtype=torch.int32))
    for other in (nothing, *(inputs(**options) for options in wrong)):
        assert not takes(other)
        with pytest.raises(ValueError, match="use gcn_stack and head_loss"):
            gcn_loss(other, *head_of(other, 1), "mse")


@pytest.mark.parametrize("arch", EVERY_ARCHITECTURE)
@pytest.mark.parametrize("source", ["gcn_stack_forward", "gcn_stack_backward"])
def test_compiles_for_every_architecture(source, arch):
    number = ARCHITECTURES.index(arch)
    precision, hidden, pool = ("float32", "tf32", "bf16")[number % 3], (32, 64, 20)[number // 2], ("mean", "max")[number % 2]
    inputs = random_inputs(random_batch([20] * 20, 11), hidden, 3, precision=precision, pool=pool)
    inputs = converted(inputs._replace(tile_ptr=next_fit(inputs.ptr, 64)), torch.float32)
    plan = (forward_plan if source == "gcn_stack_forward" else backward_plan)(inputs, Gpu(1, H100))
    defines = gcn_stack_cuda._defines(inputs, plan, needs_grad_x=False, loss=True)
    assert compile_source(f"{source}.cu", defines, arch).startswith(b"\x7fELF")
