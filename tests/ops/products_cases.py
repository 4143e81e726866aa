"""Compare matrix products of the layer network, one at a time, with float64."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from molgcn.ops.layer_network.backward import InputGrad, Produced, WeightGrads
from molgcn.ops.layer_network.call import BondGraph, LayerNetworkCall, Options
from molgcn.ops.layer_network.passes import Pass, Rows, saved_numbers
from molgcn.ops.layer_network.products_cuda import TensorCoreProducts
from molgcn.ops.layer_network.spec import LayerNetworkSpec
from molgcn.ops.layer_network.steps import Finish, Linear, Step
from molgcn.ops.layer_network.workspace import Workspace
from molgcn.ops.philox import keep_mask

SPREAD = (1e-12, 1e-4, 1.0, 1.0, 1.0, 1e6)  # sizes of rows


def call_of(
    in_channels: int, hidden: int, real: int, padding: int = 0, device: str = "cpu", precision: str = "float32", **options: object
) -> LayerNetworkCall:
    """Return a network with every kind of product, on atoms without bonds, or with a row for each bond."""
    options = {"message": "gin", "mlp_norm": True, "num_layers": 2, "feed_forward": True, "dropout": 0.3, "train_eps": True, **options}
    spec = LayerNetworkSpec(in_channels=in_channels, hidden_channels=hidden, **options)  # type: ignore[arg-type]
    generator = torch.Generator().manual_seed(in_channels + hidden + real)

    def random(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator).to(device)

    num_atoms, num_bonds = real + padding, 2 * real + padding
    rowptr = torch.cat([2 * torch.arange(real + 1), torch.full((padding,), 2 * real)])
    graph = BondGraph(
        random(num_atoms, in_channels),
        None if spec.edge_channels is None else random(num_bonds, spec.edge_channels),
        *(tensor.int().to(device) for tensor in (torch.tensor([0, real]), rowptr, torch.arange(num_bonds) % max(real, 1))),
    )
    parameters = [random(*shape) for shape in spec.parameters.values()]
    statistics = [random(*shape).abs() for shape in spec.statistics.values()]
    seed = torch.tensor([1234567], device=device)
    return LayerNetworkCall(graph, spec, parameters, statistics, seed, Options(training=True, precision=precision))


def worst_forward(call: LayerNetworkCall) -> float:
    """Return the largest error of a row that a matrix product gives; moments and statistics are checked too."""
    run = Pass(call, _saved(call), backward=False)
    products = TensorCoreProducts(run, Workspace(run.graph.x))
    worst = 0.0
    for step, following in zip(run.program.steps, (*run.program.steps[1:], None), strict=True):
        if not isinstance(step, Linear):
            continue
        out, kind = run.rows(step.out), run.program.values[step.out].rows
        expected, size = _product(_filled(run, run.rows(step.source), kind), run.parameter(step.weight).T)
        add = None if step.add is None else _filled(run, run.rows(step.add), kind).double()
        out.tensor.fill_(torch.nan)
        norm = _norm_after(step, following)
        assert products.linear(step, norm) == (norm is not None)
        if step.bias is not None:
            bias = run.parameter(step.bias).double()
            expected, size = expected + bias, size + bias.abs()
        expected = expected.relu() if step.relu else expected
        if step.dropout is not None:
            rate = call.dropout_rate
            expected *= keep_mask(call.seed, step.dropout, *expected.shape, rate) / (1 - rate)
        if add is not None:
            expected, size = expected + add, size + add.abs()
        worst = max(worst, _error(run, out, expected, size, kind))
        if norm is not None:
            _check_statistics(run, norm, out.values[: _real(run, kind)].double())
    return worst


def worst_backward(call: LayerNetworkCall) -> dict[str, float]:
    """Return the largest errors of the gradients of rows, weights and biases."""
    run = Pass(call, _saved(call), backward=True, grad_x=True, grad_bonds=True)
    products, worst = TensorCoreProducts(run, Workspace(run.graph.x)), {"rows": 0.0, "weights": 0.0, "biases": 0.0}
    for step in run.backward.steps:
        if isinstance(step, InputGrad):
            worst["rows"] = max(worst["rows"], _input_grad_error(run, products, step))
        elif isinstance(step, WeightGrads):
            for kind, error in _weight_grad_errors(run, products, step):
                worst[kind] = max(worst[kind], error)
    return worst


def launch_all(call: LayerNetworkCall) -> None:
    """Launch every product of a forward and a backward pass, with arbitrary values in memory."""
    run = Pass(call, _saved(call), backward=False)
    products = TensorCoreProducts(run, Workspace(run.graph.x))
    for step, following in zip(run.program.steps, (*run.program.steps[1:], None), strict=True):
        if isinstance(step, Linear):
            products.linear(step, _norm_after(step, following))
    run = Pass(call, run.saved, backward=True, grad_x=True, grad_bonds=True)
    products = TensorCoreProducts(run, Workspace(run.graph.x))
    for grad_step in run.backward.steps:
        if isinstance(grad_step, InputGrad):
            products.input_grad(grad_step)
        elif isinstance(grad_step, WeightGrads):
            products.weight_grads(grad_step)


def _norm_after(step: Linear, following: Step | None) -> str | None:
    return following.norm if isinstance(following, Finish) and following.source == step.out else None


def _input_grad_error(run: Pass, products: TensorCoreProducts, step: InputGrad) -> float:
    source, kind = step.source, run.program.values[step.source.value].rows
    grad = _filled(run, run.gradient(step.grad), kind)
    expected, size = _product(grad, run.parameter(step.step.weight))
    if source.add is not None:
        add = _filled(run, run.gradient(source.add), kind).double()
        expected, size = expected + add, size + add.abs()
    if source.mask is not None:
        expected *= (_filled(run, run.rows(source.value), kind) > 0) / (1 - _rate(run, source))
    out = run.gradient(source.out)
    out.tensor.fill_(torch.nan)
    products.input_grad(step)
    return _error(run, out, expected, size, kind)


def _weight_grad_errors(run: Pass, products: TensorCoreProducts, step: WeightGrads) -> Iterator[tuple[str, float]]:
    for product in step.products:
        kind = run.program.values[run.backward.gradients[product.grad]].rows
        for rows in (run.gradient(product.grad), None if product.source is None else run.rows(product.source)):
            if rows is not None:
                _filled(run, rows, kind)
    for product in step.products:
        for name in (product.weight, product.bias):
            if name is not None:
                run.grad_parameters[name].fill_(torch.nan)
    products.weight_grads(step)
    for product in step.products:
        count = _real(run, run.program.values[run.backward.gradients[product.grad]].rows)
        grad = run.gradient(product.grad).values[:count].double()
        if product.weight is not None and product.source is not None:
            x = run.rows(product.source).values[:count].double()
            yield "weights", _relative(run.grad_parameters[product.weight], grad.T @ x, grad.norm() * x.norm())
        if product.bias is not None:
            yield "biases", _relative(run.grad_parameters[product.bias], grad.sum(0), grad.norm())


def _saved(call: LayerNetworkCall) -> Tensor:
    return call.graph.x.new_full((saved_numbers(call),), torch.nan)


def _real(run: Pass, kind: str) -> int:
    atoms = int(run.graph.ptr[-1])
    return atoms if kind == "atoms" else int(run.graph.rowptr[atoms])


def _rate(run: Pass, produced: Produced) -> float:
    return run.call.dropout_rate if produced.mask is not None and produced.mask.dropout is not None else 0.0


def _filled(run: Pass, rows: Rows, kind: str) -> Tensor:
    """Fill rows with numbers of all magnitudes and padding with NaN, and return the real rows."""
    count = _real(run, kind)
    generator = torch.Generator().manual_seed(rows.width + count)
    numbers = torch.randn(count, rows.width, generator=generator)
    sizes = torch.tensor(SPREAD)[torch.randint(len(SPREAD), (count, 1), generator=generator)]
    rows.tensor.zero_()
    rows.tensor[count:] = torch.nan
    rows.values[:count] = (numbers * sizes).to(rows.tensor.device)
    return rows.values[:count].clone()


def _product(rows: Tensor, matrix: Tensor) -> tuple[Tensor, Tensor]:
    """Return the product and, for each of its elements, the sum of its terms' absolute values."""
    return rows.double() @ matrix.double(), rows.double().abs() @ matrix.double().abs()


def _relative(found: Tensor, expected: Tensor, scale: Tensor) -> float:
    """Return the error relative to the expected value, or to a millionth of `scale` where that cancels out."""
    return float((found.double() - expected).norm() / (expected.norm() + 1e-6 * scale + 1e-30))


def _error(run: Pass, out: Rows, expected: Tensor, size: Tensor, kind: str) -> float:
    """Return the largest error of a row relative to `size`."""
    count = _real(run, kind)
    assert not out.tensor[count:].any(), "padding is zeros"
    assert not out.tensor[:, out.width :].any(), "columns between width and stride are zeros"
    errors = (out.values[:count].double() - expected).norm(dim=1) / size.norm(dim=1)
    return float(errors.amax()) if count else 0.0


def _check_statistics(run: Pass, norm: str, rows: Tensor) -> None:
    mean, deviation = run.moments(norm).double()
    old, new = ([tensor.double() for tensor in each(norm)] for each in (run.running, run.new_running))
    if len(rows) == 0:
        assert all(map(torch.equal, new, old)), "no atoms leave the running statistics as they are"
        return
    variance, expected = torch.var_mean(rows, 0, correction=0)
    momentum = run.spec.momentum
    unbiased = variance * len(rows) / max(len(rows) - 1, 1)
    largest = rows.abs().amax(0)
    assert ((mean - expected).abs() <= 1e-6 * largest).all()
    torch.testing.assert_close(deviation, (variance + run.spec.eps).rsqrt(), rtol=1e-5, atol=0)
    torch.testing.assert_close(new[0], (1 - momentum) * old[0] + momentum * expected, rtol=3e-6, atol=1e-6 * float(largest.amax()))
    torch.testing.assert_close(new[1], (1 - momentum) * old[1] + momentum * unbiased, rtol=1e-5, atol=0)
