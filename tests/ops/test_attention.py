"""The attention operator agrees with the oracle on every device, and does what PyTorch expects of an operator."""

import pytest
import torch
from attention_cases import CASES, assert_close, expected, gradient_for, present, random_inputs
from compiler import needs_extension

from molgcn.ops import attention, attention_reference

DEVICES = [pytest.param("cpu", marks=needs_extension), pytest.param("cuda", marks=pytest.mark.gpu)]
pytestmark = pytest.mark.parametrize("device", DEVICES)


def on(device, inputs):
    """Return the call on a device, with tensors that are leaves of the autograd graph."""
    moved = {name: getattr(inputs, name).to(device) for name in (*present(inputs), "edge_index")}
    inputs = inputs._replace(**moved, seed=None if inputs.seed is None else inputs.seed.to(device))
    for name in present(inputs):
        getattr(inputs, name).requires_grad_()
    return inputs


def results(inputs):
    """Return output and gradients."""
    out = attention(inputs)
    gradients = torch.autograd.grad(out, [getattr(inputs, name) for name in present(inputs)], gradient_for(inputs))
    return {"out": out.detach(), **dict(zip(present(inputs), gradients, strict=True))}


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-12), (torch.float32, 1e-5)], ids=["float64", "float32"])
@pytest.mark.parametrize("case", CASES, ids=str)
def test_every_case(device, case, dtype, tolerance):
    inputs = random_inputs(**case, dtype=dtype)
    assert_close(results(on(device, inputs)), expected(inputs), tolerance)


@pytest.mark.parametrize("case", [{"v2": True, "edges": True}, {"edges": True, "num_loops": 40, "together": True}], ids=str)
def test_second_derivatives(device, case):
    inputs, found = on(device, random_inputs(**case)), []
    leaves = [getattr(inputs, name) for name in present(inputs)]
    for function in (attention, attention_reference):
        gradients = torch.autograd.grad(function(inputs).square().sum(), leaves, create_graph=True)
        found.append(torch.autograd.grad(sum(gradient.square().sum() for gradient in gradients), leaves))
    for actual, wanted in zip(*found, strict=True):
        torch.testing.assert_close(actual, wanted, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("case", [CASES[3], CASES[4]], ids=str)
def test_opcheck(device, case):
    inputs = on(device, random_inputs(**case))
    torch.library.opcheck(torch.ops.molgcn.attention.default, tuple(inputs))


@pytest.mark.parametrize("case", [CASES[9], CASES[10]], ids=str)
def test_the_same_bits_each_time(device, case):
    inputs = on(device, random_inputs(**case, dtype=torch.float32))
    first, second = results(inputs), results(inputs)
    assert all(torch.equal(first[name], second[name]) for name in first)


def test_dropout_follows_its_seed_and_rate(device):
    inputs = on(device, random_inputs(num_edges=4000, heads=2, channels=1, dropout=0.25))
    inputs = inputs._replace(source=torch.ones_like(inputs.source), targets=torch.zeros_like(inputs.targets))
    first = attention(inputs)
    assert torch.equal(first, attention(inputs))
    assert not torch.equal(first, attention(inputs._replace(seed=inputs.seed + 1)))
    assert 0.9 < first[0].mean() < 1.1  # node 0 has most edges
    assert first.max() <= 1 / 0.75 + 1e-12


def test_wrong_tensors_are_named(device):
    inputs = on(device, random_inputs(v2=True, edges=True))
    wrong = {
        "edges": (inputs.edges[1:], "edges of shape"),
        "att": (inputs.att.float(), "att of shape"),
        "targets": (inputs.targets[:, 1:], "targets of shape"),
        "source": (inputs.source[:, 1:], r"source \[M, at least 15"),
        "edge_index": (inputs.edge_index.int(), "edge_index of shape"),
        "dropout": (0.5, "needs a seed"),
        "num_loops": (41, r"num_loops in 0 \.\. 40.*got 41"),
    }
    for name, (value, message) in wrong.items():
        with pytest.raises(ValueError, match=message):
            attention(inputs._replace(**{name: value}))
    with pytest.raises(IndexError, match=r"outside 0 \.\. 39"):
        attention(inputs._replace(edge_index=inputs.edge_index + 30))


def test_scores_of_any_size(device):
    """The softmax does not overflow, and a NaN stays in its row."""
    inputs = on(device, random_inputs(together=True, heads=1, channels=4))
    source = inputs.source.detach().clone()
    source[:, 4:] *= 1e4
    out = attention(inputs._replace(source=source))
    torch.testing.assert_close(out, attention_reference(inputs._replace(source=source)), rtol=1e-12, atol=0)
    source[3, 5] = torch.nan
    out = attention(inputs._replace(source=source))
    assert out[3].isnan().all() and out[torch.arange(40, device=device) != 3].isfinite().all()
