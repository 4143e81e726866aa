"""Layers, head and loss as one operator agree with float64 and with separate operators, in emulation and on a GPU."""

from __future__ import annotations

import pytest
import torch
from architectures import ARCHITECTURES, by_turns
from emulated import Compiler, on_gpu_emulated
from gcn_reference import gcn_reference
from gpu_cases import on_gpu
from merged_leaves_cases import inputs_of, summed
from stack_cases import H100, changed, converted, gcn, layers_of, leaves, random_batch, random_inputs, worst
from torch import Tensor

from molgcn.cuda_runtime.launch import Gpu, launching_by
from molgcn.ops import head_loss_cuda
from molgcn.ops.gcn_network import GcnCall
from molgcn.ops.head_loss import LOSSES, Objective, head_loss_reference
from molgcn.ops.layer_network import implementation_cuda
from molgcn.ops.layer_network.operator import layer_network
from molgcn_benchmark.measure import count_kernels

SIZES = [5, 9, 18, 1, 30, 1, 7, 22, 40, 64, 3]
LARGE = [5, 70, 3, 200, 1, 8]
DEVICES = ["emulated", pytest.param("cuda", marks=pytest.mark.gpu)]


@pytest.fixture
def emulate_loss(emulate, monkeypatch):
    """Use the kernels as the operator's implementation for CPU tensors."""
    monkeypatch.setattr(head_loss_cuda, "THREADS", 64)  # a thread is a fiber here, and slow
    with on_gpu_emulated():
        yield


def with_loss(inputs: GcnCall, head: list[Tensor], loss: str, delta: float = 1.0) -> GcnCall:
    """Return the call with weight, bias, target, mean and std."""
    return inputs._replace(head=head[:2], objective=Objective(*head[2:], loss, delta))


def loss_of(inputs: GcnCall, head: list[Tensor], loss: str, delta: float = 1.0) -> tuple[Tensor, Tensor]:
    """Return loss and sums."""
    outputs = gcn(with_loss(inputs, head, loss, delta))
    return outputs.pooled, outputs.of_loss[0]


@pytest.fixture(params=DEVICES)
def device(request):
    request.getfixturevalue("poison" if request.param == "cuda" else "emulate_loss")
    return "cuda" if request.param == "cuda" else "cpu"


def head_of(inputs: GcnCall, num_targets: int, missing: float = 0.3) -> list[Tensor]:
    """Return weight, bias, targets, means and deviations."""
    generator = torch.Generator().manual_seed(num_targets)

    def draw(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator, dtype=torch.double)

    target = draw(inputs.graph.num_graphs, num_targets)
    target[torch.rand(target.shape, generator=generator) < missing] = torch.nan
    weight = draw(num_targets, inputs.network.hidden_channels) / inputs.network.hidden_channels
    return [weight, draw(num_targets), target, draw(num_targets), draw(num_targets).abs() + 0.1]


def differentiated(value: Tensor, variables: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name: g.cpu() for name, g in zip(variables, torch.autograd.grad(3 * value, list(variables.values())), strict=True)}


def check(
    inputs: GcnCall,
    device: str,
    num_targets: int = 1,
    loss: str = "mse",
    bounds: tuple[float, float] = (1e-5, 5e-5),
    missing: float = 0.3,
    merged_from: tuple[GcnCall, Tensor] | None = None,
) -> None:
    """Check against float64; `merged_from` has the inputs with all atoms, for the oracle, and the row of each atom."""
    head = head_of(inputs, num_targets, missing)
    exact, exact_head = converted(merged_from[0] if merged_from else inputs, torch.float64), [tensor.clone() for tensor in head]
    mine = on_gpu(inputs, torch.float32) if device == "cuda" else converted(inputs, torch.float32)
    my_head = [tensor.float().to(device) for tensor in head]
    variables = []
    for one, of in ((mine, my_head), (exact, exact_head)):
        of[:2] = [tensor.requires_grad_() for tensor in of[:2]]
        variables.append(leaves(one) | {"head_weight": of[0], "head_bias": of[1]})
    pooled = gcn_reference(exact)[0]
    expected, sums = head_loss_reference(pooled, exact_head[:1], exact_head[1:2], Objective(*exact_head[2:], loss, 0.5))
    actual, my_sums = loss_of(mine, my_head, loss, 0.5)
    torch.testing.assert_close(actual.cpu().double(), expected, rtol=bounds[0], atol=1e-9)
    torch.testing.assert_close(my_sums.cpu(), sums.double(), rtol=bounds[0], atol=1e-9)
    right = differentiated(expected, variables[1])
    assert worst(differentiated(actual, variables[0]), summed(right, merged_from[1]) if merged_from else right) < bounds[1]


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
    """The derivatives of L1 and huber jump where a prediction equals its target, which none does here."""
    check(random_inputs(random_batch(SIZES, 11, bonds_per_atom=1.2), 20, 2), device, num_targets, loss)


@pytest.mark.parametrize("pool", ["mean", pytest.param("sum", marks=pytest.mark.slow)])
def test_merged_leaves(device, pool):
    merged, *atoms = inputs_of(SIZES, 11, 32, 3, pool=pool)
    check(merged, device, 2, merged_from=tuple(atoms))


def test_nothing_is_known(device):
    check(random_inputs(random_batch(SIZES, 11), 32, 2), device, 2, missing=2.0)


def test_bf16(device):
    inputs = random_inputs(random_batch(SIZES, 11, bonds_per_atom=1.2), 32, 2, precision="bf16")
    check(inputs, device, bounds=(3e-2, 1e-1))


def test_room_of_a_padded_batch(device):
    """Padding has molecules without atoms that are in no tile and have missing targets."""
    inputs = random_inputs(random_batch(SIZES, 11), 32, 2)
    count, nodes = inputs.graph.num_graphs, inputs.graph.x.shape[0]
    tile_ptr = torch.tensor([0, 4, 5, 8, 9, 10, *[count] * 9], dtype=torch.int32)
    padded = changed(
        inputs,
        ptr=torch.cat([inputs.graph.ptr, torch.full((5,), nodes, dtype=torch.int32)]),
        tile_ptr=tile_ptr,
        x=inputs.graph.x.detach().requires_grad_(),
    )
    head = [tensor.float() for tensor in head_of(inputs, 2)]
    results = []
    for one, room in ((inputs, 0), (padded, 5)):
        one = on_gpu(one, torch.float32) if device == "cuda" else converted(one, torch.float32)
        target = torch.cat([head[2], torch.full((room, 2), torch.nan)])
        weight, bias, target, mean, std = (tensor.to(device) for tensor in (*head[:2], target, *head[3:]))
        value, sums = loss_of(one, [weight.requires_grad_(), bias.requires_grad_(), target, mean, std], "mse")
        results.append((sums.cpu(), differentiated(value, leaves(one) | {"weight": weight, "bias": bias})))
    torch.testing.assert_close(results[1][0], results[0][0], rtol=1e-6, atol=0)
    assert worst(results[1][1], results[0][1]) < 1e-5


def example(device: str, num_targets: int = 2, **options: object) -> tuple[GcnCall, list[Tensor]]:
    """Return inputs and the head's tensors, as :func:`with_loss` takes them."""
    inputs = random_inputs(random_batch(SIZES, 11), 32, 2, **options)
    head = [tensor.float().to(device) for tensor in head_of(inputs, num_targets)]
    inputs = on_gpu(inputs, torch.float32) if device == "cuda" else converted(inputs, torch.float32)
    return inputs, [tensor.requires_grad_() for tensor in head[:2]] + head[2:]


def test_many_targets_in_several_blocks(device, request):
    if device == "cpu":
        request.getfixturevalue("emulate").properties = Gpu(3, H100)
    check(random_inputs(random_batch(SIZES, 11), 32, 2), device, 150)


def test_opcheck(device):
    """The saved tensor has gaps with arbitrary contents, so that calls are not compared."""
    inputs, _ = example(device)
    checks = ["test_schema", "test_autograd_registration", "test_faketensor"]
    torch.library.opcheck(torch.ops.molgcn.layer_network, layers_of(inputs).arguments, test_utils=checks)


def test_torch_compile(device):
    inputs, head = example(device)

    call = layers_of(with_loss(inputs, head, "mse"))

    def loss(x):
        return layer_network(call._replace(graph=call.graph._replace(x=x))).pooled

    compiled = torch.compile(loss, fullgraph=True, backend="aot_eager")
    expected, actual = (torch.autograd.grad(call(inputs.graph.x), [inputs.graph.x, *head[:2]]) for call in (loss, compiled))
    torch.testing.assert_close(actual, expected, rtol=1e-4, atol=1e-6)


def test_second_derivative_is_refused(device):
    inputs, head = example(device)
    gradients = torch.autograd.grad(loss_of(inputs, head, "mse")[0], [inputs.graph.x, *head[:2]], create_graph=True)
    for gradient in gradients:
        with pytest.raises(RuntimeError, match="backend=reference"):
            gradient.sum().backward(retain_graph=True)


def test_backward_may_run_twice(device):
    inputs, head = example(device)
    value, _ = loss_of(inputs, head, "mse")
    first, again = (torch.autograd.grad(value, [inputs.graph.x, *head[:2]], retain_graph=True) for _ in range(2))
    assert all(torch.equal(one, other) for one, other in zip(first, again, strict=True))


@pytest.mark.parametrize("options", [{}, {"norm": "layer", "residual": True, "pool": "max"}], ids=str)
def test_three_launches_forward_and_backward(device, request, options):
    inputs, head = example(device, **options)
    variables, one = [*leaves(inputs).values(), *head[:2]], torch.ones((), device=device)

    def both():
        torch.autograd.grad(loss_of(inputs, head, "mse")[0], variables, one)

    if device == "cuda":
        both()
        assert count_kernels(both, inputs.graph.x.device) == 3
        return
    both()
    assert request.getfixturevalue("emulate").num_launches == 3


@pytest.mark.parametrize("num_targets", [1, 3])
def test_forward_knows_all_that_follows(emulate_loss, emulate, num_targets):
    """All kernels of a step compile at once, so that the first step waits only for the slowest."""
    check(random_inputs(random_batch([5, 9], 11), 16, 2), "cpu", num_targets)
    assert sorted(emulate.prefetched, key=str) == sorted(emulate.used[1:], key=str)


@pytest.mark.slow
def test_no_races(emulate_loss, emulate):
    emulate.find_races = True
    check(random_inputs(random_batch(SIZES, 11), 32, 2), "cpu", num_targets=3)


def test_tensors_that_do_not_fit(emulate_loss):
    inputs, (weight, bias, target, mean, std) = example("cpu")
    for wrong, message in [
        ((bias.double(), target, mean, std), "the head's bias of shape .* in torch.float32"),
        ((bias, target[:3], mean, std), r"target of shape .*, got \[3, 2\]"),
        ((bias[:1], target, mean, std), r"the head's bias of shape \[2\] .*, got \[1\]"),
        ((bias, target, mean, std[None]), r"std of shape \[2\] .*, got \[1, 2\]"),
    ]:
        with pytest.raises(ValueError, match=message):
            loss_of(inputs, [weight, *wrong], "mse")
    many = 2**31 // inputs.graph.num_graphs + 1
    with pytest.raises(ValueError, match=f"{many} targets are too many for one batch"):
        loss_of(
            inputs,
            [
                tensor[..., :1].expand(*tensor.shape[:-1], many) if tensor is not weight else weight[:1].expand(many, -1)
                for tensor in (weight, bias, target, mean, std)
            ],
            "mse",
        )


def test_which_calls_have_their_loss_in_the_launch(emulate):
    def fuses(change=lambda call: call, hidden=32, dtype=torch.float32, **options):
        inputs = change(random_inputs(random_batch([5, 3], 11), hidden, 2, dtype, **options))
        call = with_loss(inputs, [tensor.to(dtype) for tensor in head_of(inputs, 1)], "mse")
        return implementation_cuda.implementation_of(layers_of(call)) is not None

    assert fuses() and fuses(norm="batch") and fuses(hidden=128, strategy="tile")
    batch_norm = {"norm": "batch", "training": True}
    wrong = [{"hidden": 128}, {"dtype": torch.double}, {"strategy": "layer"}, {"save_for_backward": False}, batch_norm]
    assert not any(fuses(**options) for options in wrong)
    assert not fuses(lambda inputs: changed(inputs, ptr=torch.zeros(1, dtype=torch.int32)))


@pytest.mark.parametrize(("arch", "source"), by_turns([("gcn_tile_forward",), ("gcn_tile_backward",)]))
def test_compiles_for_every_architecture(source, arch, emulate_loss):
    number = ARCHITECTURES.index(arch)
    precision, hidden, pool = ("float32", "tf32", "bf16")[number % 3], (32, 64, 20)[number // 2], ("mean", "max")[number % 2]
    inputs = random_inputs(random_batch([20] * 20, 11), hidden, 3, torch.float32, precision=precision, pool=pool)
    compiler = Compiler(arch, f"{source}.cu")
    with launching_by(compiler):
        loss_of(inputs, [tensor.float() for tensor in head_of(inputs, 2)], "mse")[0].backward()
    assert compiler.sources == {f"{source}.cu"}
