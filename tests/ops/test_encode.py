"""Encodings of rows agree with float64 in emulation and on a GPU, and refuse what does not fit."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from architectures import EVERY_ARCHITECTURE
from compiler import needs_compiler
from emulated import Compiler, gpu_memory
from encode_cases import encode_emulated
from torch import Tensor

from molgcn.cuda_runtime.launch import launching_by
from molgcn.nn.norms import BatchNorm
from molgcn.ops import EncodeInputs, encode, encode_cuda
from molgcn.ops.encode import encode_reference, fits

PARAMETERS = ("weight", "bias", "walk_weight", "walk_bias", "norm_weight", "norm_bias")
DEVICES = [pytest.param("emulated", marks=needs_compiler), pytest.param("cuda", marks=pytest.mark.gpu)]
ATOMS = {"rows": 70, "columns": (21, 52), "walks": (20, 28), "norm": True}  # the encodings of GIN+
BONDS = {"rows": 90, "columns": (4, 80), "walks": (20, 80), "add": True}
ODD = {"rows": 45, "columns": (3, 7), "walks": (5, 6), "norm": True}
CASES = [
    {**ATOMS, "count": 61},
    {**BONDS, "count": 90},
    {**ODD, "training": False, "bias": True},
]
RARE = [
    {**ODD, "walks": (5, 7), "add": True, "count": 1},
    {"rows": 4, "columns": (4, 12)},
    {"rows": 33, "columns": (6, 3), "bias": True},
    {**ODD, "count": 0},
    {**ODD, "rows": 0},
    {"rows": 70, "columns": (133, 300), "bias": True, "count": 68},
    {**ATOMS, "rows": 300, "count": 290},  # several steps of a block that sums
    {**ODD, "rows": 300},
    {"rows": 40, "columns": (9, 140), "walks": (120, 140), "norm": True, "add": True},
]


def example(
    rows: int,
    columns: tuple[int, int],
    walks: tuple[int, int] | None = None,
    device: str = "cpu",
    count: int | None = None,
    bias: bool = False,
    norm: bool = False,
    training: bool = True,
    add: bool = False,
) -> EncodeInputs:
    """Return inputs whose padding is NaN; every second column of the walks varies little around 0.5."""
    generator = torch.Generator().manual_seed(rows)

    def draw(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator, dtype=torch.float64).float()

    tensors: dict[str, Tensor] = {"x": draw(rows, columns[0]), "weight": draw(columns[1], columns[0])}
    if bias:
        tensors["bias"] = draw(columns[1])
    if walks is not None:
        steps, width = walks
        probabilities = torch.rand(rows, steps, generator=generator)
        probabilities[:, 1::2] = probabilities[:, 1::2] * 0.1 + 0.5
        tensors |= {"walks": probabilities, "walk_weight": draw(width, steps), "walk_bias": draw(width)}
        if norm:
            tensors |= {"norm_weight": draw(steps), "norm_bias": draw(steps), "running_mean": draw(steps), "running_var": draw(steps).abs()}
    if count is not None:
        tensors["x"][count:] = torch.nan
        if walks is not None:
            tensors["walks"][count:] = torch.nan
        tensors["num_real"] = torch.tensor(count, dtype=torch.int32)
    return EncodeInputs(**{name: tensor.to(device) for name, tensor in tensors.items()}, add=add, training=training and norm)


@pytest.fixture
def emulated_operator() -> Iterator[None]:
    with encode_emulated():
        yield


@pytest.fixture(params=DEVICES)
def device(request: pytest.FixtureRequest) -> str:
    if request.param == "emulated":
        request.getfixturevalue("emulated_operator")
    return "cuda" if request.param == "cuda" else "cpu"


def learning(inputs: EncodeInputs, dtype: torch.dtype = torch.float32) -> EncodeInputs:
    """Return the inputs with leaves as parameters."""
    tensors = {name: getattr(inputs, name) for name in (*PARAMETERS, "x", "walks", "running_mean", "running_var")}
    found = {name: tensor.detach().to(dtype) for name, tensor in tensors.items() if tensor is not None}
    return inputs._replace(**{name: tensor.requires_grad_(name in PARAMETERS) for name, tensor in found.items()})


def differentiated(function: Any, inputs: EncodeInputs) -> dict[str, Tensor]:
    """Return the states and the gradients; the padding's gradient is not 0."""
    states = function(inputs)
    parameters = {name: getattr(inputs, name) for name in PARAMETERS if getattr(inputs, name) is not None}
    gradient = torch.rand(states.shape, generator=torch.Generator().manual_seed(1)).to(states)
    found = torch.autograd.grad(states, list(parameters.values()), gradient)
    return {"states": states.detach(), **dict(zip(parameters, found, strict=True))}


def check(inputs: EncodeInputs) -> dict[str, Tensor]:
    """Compare the operator with float64, and return its results."""
    found = differentiated(lambda inputs: encode(inputs).states, learning(inputs))
    expected = differentiated(encode_reference, learning(inputs, torch.float64))
    for name, value in expected.items():
        bound = 1e-6 if name == "states" else 1e-5
        assert (found[name].double() - value).norm() <= bound * value.norm() + 1e-9, name
    return found


@needs_compiler
@pytest.mark.parametrize("case", [*CASES, *(pytest.param(case, marks=pytest.mark.slow) for case in RARE)], ids=str)
def test_logic_under_emulation(case, emulated_operator):
    with gpu_memory():
        check(example(**case))


@needs_compiler
@pytest.mark.slow
@pytest.mark.parametrize("case", [CASES[0], CASES[1], {**ATOMS, "rows": 300}, {**ODD, "rows": 300}], ids=str)
def test_no_races(case, emulated_operator, emulate):
    emulate.find_races = True
    check(example(**case))


@needs_compiler
def test_many_rows_at_a_time(emulated_operator, monkeypatch):
    monkeypatch.setattr(encode_cuda, "MANY_ROWS", 50)
    check(example(**{**ATOMS, "rows": 130}, count=127))


@pytest.mark.gpu
@pytest.mark.parametrize("case", [*CASES, *RARE, {**ATOMS, "rows": 95_000, "count": 94_000}, {**BONDS, "rows": 203_000}], ids=str)
def test_on_a_gpu_and_the_same_bits_again(case, poison):
    first, again = (check(example(**case, device="cuda")) for _ in range(2))
    assert all(torch.equal(value, again[name]) for name, value in first.items())


@pytest.mark.parametrize("arch", EVERY_ARCHITECTURE)
def test_compiles_for_every_architecture(arch):
    with torch.no_grad(), launching_by(compiler := Compiler(arch)):
        for case in (ATOMS, BONDS):
            inputs = example(**case)
            encoded = encode_cuda.forward(*inputs)
            encode_cuda.backward(encoded.states, encoded.moments, *inputs)
    assert compiler.sources == {"encode.cu", "encode_backward.cu"}


@pytest.mark.parametrize("rows", [45, 2])
def test_running_statistics_are_batch_norms(rows, device):
    inputs, norm = example(**{**ODD, "rows": rows + 3}, count=rows, device=device), BatchNorm(5).double().to(device)
    norm.running_mean.copy_(inputs.running_mean)
    norm.running_var.copy_(inputs.running_var)
    norm(inputs.walks[:rows].double())
    torch.testing.assert_close(encode(inputs).statistics.double(), torch.stack([norm.running_mean, norm.running_var]), rtol=1e-6, atol=1e-7)


def test_a_batch_without_rows_changes_no_statistics(device):
    inputs = example(**ODD, count=0, device=device)
    assert torch.equal(encode(inputs).statistics, torch.stack([inputs.running_mean, inputs.running_var]))


@pytest.mark.parametrize("training", [True, False])
def test_contract_of_an_operator(training, device):
    """Torch's checks hold, and what torch.compile makes of a call has its bits."""
    inputs = learning(example(**ODD, count=40, training=training, device=device))
    inputs = inputs._replace(x=inputs.x.nan_to_num(), walks=inputs.walks.nan_to_num())
    torch.library.opcheck(torch.ops.molgcn.encode.default, tuple(inputs))
    compiled = torch.compile(lambda inputs: encode(inputs).states, backend="aot_eager", fullgraph=True)
    assert torch.equal(compiled(inputs), encode(inputs).states)


def test_second_derivatives(device):
    found = []
    for function in (lambda inputs: encode(inputs).states, encode_reference):
        inputs = learning(example(**{**ODD, "rows": 9}, device=device))
        leaves = [getattr(inputs, name) for name in PARAMETERS if getattr(inputs, name) is not None]
        gradients = torch.autograd.grad(function(inputs).square().sum(), leaves, create_graph=True)
        found.append(torch.autograd.grad(sum(gradient.square().sum() for gradient in gradients), leaves))
    for actual, expected in zip(*found, strict=True):
        assert (actual - expected).norm() <= 1e-4 * expected.norm()


def test_what_does_not_fit_is_refused(device):
    inputs = example(**ODD, count=40, device=device)
    for name, value, message in (
        ("weight", inputs.weight[:, :2], r"expected weight of shape \[7, 3\]"),
        ("walks", inputs.walks[1:], r"expected walks of shape \[45, 5\]"),
        ("running_var", inputs.running_var.double(), "expected running_var of"),
        ("num_real", inputs.num_real.long(), "expected num_real of shape .* in torch.int32"),
        ("walk_weight", None, "expected both walks and walk_weight"),
        ("running_mean", None, "a norm needs running_mean"),
        ("x", inputs.x.double(), "expected x"),
        ("add", True, r"expected walk_weight of shape \[7, 5\]"),
    ):
        with pytest.raises(ValueError, match=message):
            encode(inputs._replace(**{name: value}))
    with pytest.raises(ValueError, match="got 300 of x"):
        encode(example(4, (300, 3), device=device))
    with pytest.raises(ValueError, match="x would get no gradient"):
        encode(inputs._replace(x=inputs.x.clone().requires_grad_()))


@pytest.mark.gpu
def test_a_captured_call_is_the_call():
    """Replayed on another batch of the same shape, with another number of real rows, it gives the bits of a plain call."""
    inputs = learning(example(**ATOMS, count=60, device="cuda"))
    leaves = [inputs.weight, inputs.walk_weight, inputs.norm_weight]

    def step() -> list[Tensor]:
        encoded = encode(inputs)
        return [*encoded, *torch.autograd.grad(encoded.states.square().sum(), leaves)]

    step()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = step()
    inputs.x.copy_(torch.rand_like(inputs.x))
    inputs.walks.copy_(torch.rand_like(inputs.walks))
    inputs.num_real.fill_(33)
    graph.replay()
    assert all(torch.equal(one, other) for one, other in zip(captured, step(), strict=True))


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def test_what_the_operator_supports(device):
    assert fits(example(**ATOMS, count=60, device=device)) == (device == "cuda")
    assert not fits(learning(example(**ATOMS, device=device), torch.float64))
    assert not fits(example(4, (300, 3), device=device))
