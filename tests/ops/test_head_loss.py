"""The head with its loss agrees with float64 in every instruction set, in emulation and on a GPU, and refuses what does not fit."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import pytest
import torch
from architectures import architectures
from compiler import needs_compiler, needs_extension
from compiling import compiles
from emulated import Emulator
from stack_cases import H100
from torch import Tensor

from molgcn.cuda_runtime.launch import Gpu
from molgcn.ops import head_layers_cuda, head_loss_cuda
from molgcn.ops.head_loss import LOSSES, Objective, head_loss, head_loss_reference

Inputs = tuple[Tensor, list[Tensor], list[Tensor], tuple[Tensor, Tensor, Tensor]]
ON_CPU, ON_CUDA = pytest.param("cpu", marks=needs_extension), pytest.param("cuda", marks=pytest.mark.gpu)
DEVICES = [ON_CPU, pytest.param("emulated", marks=needs_compiler), ON_CUDA]
CHAINS = [(1, (1, 1)), (37, (8, 5, 3)), (131, (33, 17, 1)), (4096, (64, 32, 16, 19)), (0, (4, 2))]  # molecules and widths
MAPS = [
    (1, (1, 1)),
    (40, (1, 2)),
    (37, (8, 3)),
    (9, (150, 1)),
    (550, (33, 1)),
    (521, (20, 11)),
]  # one block and several, few and many columns
HEADS = [(0, (4, 3, 2)), (32, (12, 8, 4, 1)), (70, (37, 12, 9, 6))]  # with hidden layers
TOO_DEEP = (9, (3,) * 10)
PLAIN = [(1, (2,)), (37, (2,)), (1500, (2,))]
LARGE = [(5000, (32, 1)), (4096, (130, 19)), (4096, (120, 100, 1)), (4096, (64, 32, 617)), (5, (100, 64, 300)), (70, (300, 150, 2))]
MANY = Gpu(132, H100)
LITTLE_MEMORY = Gpu(2, 56 * 1024)  # several blocks, several chunks of weights, and threads that are left over


@pytest.fixture
def emulated_operator(emulate: Emulator, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Use CUDA's implementation for CPU tensors."""
    monkeypatch.setattr(head_loss_cuda, "THREADS", 64)  # a thread is a fiber here, and slow
    monkeypatch.setattr(head_loss_cuda, "ONE_BLOCK_THREADS", 64)  # so that threads have several molecules
    monkeypatch.setattr(head_loss_cuda, "MAX_BLOCKS", 2)  # and several numbers of a gradient
    monkeypatch.setattr(head_layers_cuda, "THREADS", 64)
    library = torch.library.Library("molgcn", "IMPL")
    library.impl("head_loss", head_loss_cuda.forward, "CPU")
    library.impl("head_loss_backward", head_loss_cuda.backward, "CPU")
    yield
    library._destroy()


@pytest.fixture(params=DEVICES)
def device(request: pytest.FixtureRequest) -> str:
    if request.param == "emulated":
        request.getfixturevalue("emulated_operator")
    return "cuda" if request.param == "cuda" else "cpu"


def example(count: int, widths: tuple[int, ...], dtype: torch.dtype = torch.float32, device: str = "cpu") -> Inputs:
    """Return x, weights, biases, and the objective's target, mean and std."""
    generator = torch.Generator().manual_seed(count)

    def draw(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator, dtype=torch.float64).to(device, dtype)

    weights = [draw(out, width) / width**0.5 for width, out in pairwise(widths)]
    biases = [draw(out) for out in widths[1:]]
    target = draw(count, widths[-1])
    target[(torch.rand(target.shape, generator=generator) < 0.3).to(device)] = torch.nan
    return draw(count, widths[0]), weights, biases, (target, draw(widths[-1]), draw(widths[-1]).abs() + 0.1)


def differentiated(function, inputs: Inputs, loss: str) -> tuple[Tensor, ...]:
    """Return loss, sums and three times the gradients."""
    x, weights, biases, targets = inputs
    parameters = [tensor.clone().requires_grad_() for tensor in (x, *weights, *biases)]
    k = 1 + len(weights)
    value, sums = function(parameters[0], parameters[1:k], parameters[k:], Objective(*targets, loss, 0.5))
    return value.detach(), sums, *torch.autograd.grad(3 * value, parameters)


def check(inputs: Inputs, loss: str) -> None:
    """Compare the operator with float64."""
    x, weights, biases, targets = inputs
    exact = x.double(), [weight.double() for weight in weights], [bias.double() for bias in biases], tuple(t.double() for t in targets)
    tolerance = 2e-6 if x.dtype == torch.float32 else 1e-14
    found, expected = differentiated(head_loss, inputs, loss), differentiated(head_loss_reference, exact, loss)
    for one, other in zip(found, expected, strict=True):
        assert (one.double() - other).norm() <= tolerance * other.norm() + 1e-12


@needs_extension
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(("count", "widths"), CHAINS + PLAIN, ids=str)
def test_on_the_cpu(count, widths, dtype, instruction_set):
    for loss in LOSSES:
        check(example(count, widths, dtype), loss)


@needs_compiler
@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize(("count", "widths"), [*MAPS, *HEADS, TOO_DEEP, *PLAIN], ids=str)
def test_logic_under_emulation(loss, count, widths, emulated_operator):
    check(example(count, widths), loss)


@needs_compiler
@pytest.mark.parametrize("gpu", [MANY, LITTLE_MEMORY], ids=str)
@pytest.mark.parametrize(("count", "widths"), [(41, (9, 5, 3)), (33, (150, 60, 7)), (100, (150, 60, 7))], ids=str)
def test_several_blocks_and_chunks_under_emulation(gpu, count, widths, emulated_operator, emulate):
    emulate.properties = gpu
    check(example(count, widths), "huber")
    assert {"head_layers_forward.cu", "head_layers_backward.cu"} <= emulate.sources


@needs_compiler
@pytest.mark.parametrize(
    ("count", "widths", "launches"),
    [(4, (80, 40, 20, 1), 2), (33, (80, 40, 20, 1), 4), (4, (3,) * 9, 2), (*TOO_DEEP, 2), (9, (3, 1), 2)],
    ids=str,
)
def test_how_many_launches_a_head_takes(count, widths, launches, emulated_operator, emulate):
    """Forward and backward are a launch each if one block takes all molecules. Hidden layers that PyTorch computes do not count."""
    emulate.properties = MANY
    differentiated(head_loss, example(count, widths), "mse")
    assert emulate.num_launches == launches


@needs_compiler
@pytest.mark.slow
def test_no_races(emulated_operator, emulate):
    emulate.find_races, emulate.properties = True, LITTLE_MEMORY
    check(example(100, (150, 60, 7)), "mse")
    assert {"head_layers_forward.cu", "head_layers_backward.cu"} <= emulate.sources


@pytest.mark.gpu
@pytest.mark.parametrize(("count", "widths"), [*MAPS, *PLAIN, *CHAINS, *HEADS, *LARGE], ids=str)
def test_on_a_gpu_and_the_same_bits_again(count, widths):
    for loss in LOSSES:
        inputs = example(count, widths, device="cuda")
        check(inputs, loss)
        first, again = (differentiated(head_loss, inputs, loss) for _ in range(2))
        assert all(torch.equal(one, other) for one, other in zip(first, again, strict=True))


@pytest.mark.gpu
@pytest.mark.parametrize(("count", "widths"), [(32, (80, 40, 20, 1)), (500, (80, 40, 20, 1)), (50, (3,) * 10)], ids=str)
def test_in_a_captured_graph(count, widths):
    inputs = example(count, widths, device="cuda")
    differentiated(head_loss, inputs, "mse")  # compiles
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        found = differentiated(head_loss, inputs, "mse")
    inputs[0].copy_(inputs[0].flip(0))
    expected = differentiated(head_loss, inputs, "mse")
    graph.replay()
    assert all(torch.equal(one, other) for one, other in zip(found, expected, strict=True))


@pytest.mark.parametrize("arch", architectures("sm_90"))
def test_compiles_for_every_architecture(arch):
    of_layers = [head_layers_cuda.source(way, layers) for way in ("forward", "backward") for layers in (1, 2)]
    for source in (head_loss_cuda.source(8), *of_layers):
        assert compiles(*source, arch)


@pytest.mark.parametrize("widths", [(4, 3, 2), (4, 2), (2,)], ids=str)
def test_nothing_is_known(device, widths):
    x, weights, biases, (target, mean, std) = example(5, widths, device=device)
    inputs = (x, weights, biases, (target.fill_(torch.nan), mean, std))
    value, sums, *gradients = differentiated(head_loss, inputs, "mse")
    assert value == 0 and sums.tolist() == [0, 0] and not any(gradient.any() for gradient in gradients)


@pytest.mark.parametrize("widths", [(4, 3, 2), (4, 2), (2,)], ids=str)
def test_nan_comes_through(device, widths):
    x, weights, biases, (target, mean, std) = example(70, widths, device=device)
    x[69] = torch.nan
    assert head_loss(x, weights, biases, Objective(target.nan_to_num(), mean, std, "l1"))[0].isnan()


def test_infinity_stops_at_relu(device):
    x, weights, biases, targets = example(70, (4, 3, 2), device=device)
    x[1] = torch.inf
    weights[0].copy_(-weights[0].abs())
    for function in (head_loss, head_loss_reference):
        value, _, grad_x, *_ = differentiated(function, (x, weights, biases, targets), "mse")
        assert value.isfinite() and grad_x.isfinite().all()


@pytest.mark.parametrize("widths", [(16, 5, 2), (16, 2), (2,)], ids=str)
def test_contract_of_an_operator(device, widths):
    x, weights, biases, targets = example(40, widths, device=device)
    parameters = x.requires_grad_(), [weight.requires_grad_() for weight in weights], [bias.requires_grad_() for bias in biases]
    torch.library.opcheck(torch.ops.molgcn.head_loss.default, (*parameters, *targets, "huber", 0.5))
    objective = Objective(*targets, "l1")
    compiled = torch.compile(lambda x: head_loss(x, weights, biases, objective)[0], backend="aot_eager", fullgraph=True)
    torch.testing.assert_close(compiled(x), head_loss(x, weights, biases, objective)[0], rtol=0, atol=0)


def test_there_is_no_second_derivative(device):
    x, weights, biases, targets = example(9, (4, 3, 2), device=device)
    loss, _ = head_loss(x.requires_grad_(), weights, biases, Objective(*targets, "mse"))
    (gradient,) = torch.autograd.grad(loss, x, create_graph=True)
    with pytest.raises(RuntimeError, match="head_loss has no second derivative; use backend=pyg"):
        gradient.sum().backward()


def test_what_does_not_fit_is_refused(device):
    x, (weight,), (bias,), (target, mean, std) = example(6, (4, 2), device=device)
    for wrong in (
        (x, [weight[:, :3]], [bias], target, mean, std),
        (x, [weight], [], target, mean, std),
        (x, [weight], [bias], target[:3], mean, std),
        (x, [weight], [bias[:1]], target, mean, std),  # which PyTorch would broadcast over the targets
        (x, [weight], [bias], target, mean[:1], std),
        (x, [weight], [bias], target, mean, std[:, None]),
        (x, [], [], target, mean, std),
    ):
        with pytest.raises(ValueError, match=r"do not fit together: x \[6, 4\]"):
            torch.ops.molgcn.head_loss(*wrong, "mse", 1.0)
    many = x[:1, :1].expand(2**16, 1), [weight[:1, :1].expand(2**15, 1)], [bias[:1].expand(2**15)]
    with pytest.raises(ValueError, match=r"65536 molecules x 32768 targets are too many"):
        head_loss(*many, Objective(target[:1, :1].expand(2**16, 2**15), mean[:1].expand(2**15), std[:1].expand(2**15), "mse"))
    with pytest.raises(ValueError, match=r"expected mean in torch.float32 on c.*, got torch.float64"):
        head_loss(x, [weight], [bias], Objective(target, mean.double(), std, "mse"))
    with pytest.raises(ValueError, match=r"x of shape \[B, H\] in torch.float32"):
        head_loss(x.half(), [weight], [bias], Objective(target, mean, std, "mse"))
    with pytest.raises(ValueError, match=r"loss=mae is unknown\. Expected one of mse, l1, huber"):
        head_loss(x, [weight], [bias], Objective(target, mean, std, "mae"))
