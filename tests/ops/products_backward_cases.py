"""Compare matrix products of the layer network's backward pass, one at a time, with float64."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from pass_values import fill, keep_moments, keep_signs, num_real, relative_error, row_error
from products_cases import exact_product, kernels_of, layer_end, saved_of
from torch import Tensor

from molgcn.cuda_runtime.launch import gpu
from molgcn.ops.layer_network.call import LayerNetworkCall
from molgcn.ops.layer_network.grad_launches_cuda import GradLaunch, backward_launches
from molgcn.ops.layer_network.gradient_steps import FinishGrad, InputGrad, Produced, WeightGrads
from molgcn.ops.layer_network.passes import Pass
from molgcn.ops.layer_network.products_cuda import TensorCoreProducts
from molgcn.ops.layer_network.rows_finish_cuda import FinishLaunches
from molgcn.ops.layer_network.steps import Finish
from molgcn.ops.part_sums import PartSums
from molgcn.ops.philox import keep_mask


def worst_backward(call: LayerNetworkCall) -> dict[str, float]:
    """Return the largest errors of gradients. Those of rows of which relu and dropout have left a part are `masked`."""
    run = Pass(call, saved_of(call), backward=True, signs_alone=True, grad_x=True, grad_bonds=True)
    worst = {"rows": 0.0, "masked": 0.0, "weights": 0.0, "biases": 0.0, "norms": 0.0}
    for launch in backward_launches(run, run.backward.steps, gpu(call.graph.x.device)).values():
        rows, products, sums = kernels_of(run)
        if isinstance(launch.step, InputGrad):
            for kind, error in _input_grad_errors(run, rows, products, launch):
                worst[kind] = max(worst[kind], error)
        elif isinstance(launch.step, WeightGrads):
            for kind, error in _weight_grad_errors(run, products, sums, launch.step):
                worst[kind] = max(worst[kind], error)
    return worst


def _input_grad_errors(run: Pass, rows: FinishLaunches, products: TensorCoreProducts, launch: GradLaunch) -> Iterator[tuple[str, float]]:
    first, before, mask, _, leaves, beside, sums, *_ = launch
    last, kind = launch.last, run.program.values[first.source.value].rows
    given = (before or mask or first).grad
    grad = fill(run, run.gradient(given), kind, even=before is not None).double()
    have = {given: grad}
    if before is not None:
        grad = have[before.source.out] = _through(run, rows, before, grad, kind)
    if mask is not None:
        grad = have[first.grad] = _ended_grad(run, mask.step, grad, keep_signs(run, mask.step.source, kind))
    masks = {step.source.value: keep_signs(run, step.source.value, kind) for step in (first, last) if step.source.mask}
    for number in (first.source.add, None if sums else last.source.add):
        if number is not None and number not in have:
            have[number] = fill(run, run.gradient(number), kind).double()
    adds = {step.source.out: have.get(step.source.add) for step in (first, last)}  # before anything is written
    others = [fill(run, run.gradient(step.grad), kind, seed=number).double() for number, step in enumerate(sums, start=1)]
    if leaves is not None:
        keep_moments(run, leaves.step, fill(run, run.rows(leaves.step.source), kind, even=True))
    for step in (first, last):
        run.gradient(step.source.out).tensor.fill_(torch.nan)
    products.input_grad(launch)
    shares = before is not None and mask is not None and run.gradient(mask.grad).address == run.gradient(first.grad).address
    for end in (None if shares else before, mask):  # the mask's gradient may take the place of the one before
        if end is not None:
            expected = have[end.source.out]
            yield "rows", row_error(run, run.gradient(end.source.out), expected, expected.abs() + 1, kind)
            grad = run.gradient(end.source.out).values[: len(grad)].double()
    for step in dict.fromkeys((last,) if sums else (first, last)):
        expected, size = exact_product(grad, run.parameter((first if sums else step).step.weight))
        for other, more in zip(sums, others, strict=True):
            product, terms = exact_product(more, run.parameter(other.step.weight))
            expected, size = expected + product, size + terms
        add = adds[(first if sums else step).source.out]
        if add is not None:
            expected, size = expected + add, size + add.abs()
        if step.source.mask is not None:
            expected = expected * masks[step.source.value] / (1 - _rate(run, step.source))
        yield "rows" if before is None and mask is None else "masked", row_error(run, run.gradient(step.source.out), expected, size, kind)
        if beside is None or step is beside:
            grad = run.gradient(step.source.out).values[: len(grad)].double()
    if leaves is not None:
        yield from _norm_errors(run, rows, leaves, grad)


def _through(run: Pass, rows: FinishLaunches, before: FinishGrad, grad: Tensor, kind: str) -> Tensor:
    """Return a gradient taken back through the end of a layer, in float64, and leave the sums of its norm.

    The gradient becomes zero where rounding decides whether relu passes it on.
    """
    source = fill(run, run.rows(before.step.source), kind, even=True, seed=3)  # of the gradient's own numbers a norm leaves next to none
    keep_moments(run, before.step, source)
    undecided = layer_end(run, before.step._replace(activation="", dropout=None, add=None), source.double()).abs() < 1e-6
    for tensor in (grad, run.gradient(before.grad).values[: len(grad)]):
        tensor[undecided] = 0
    rows.leave_sums(before)
    leaf = source.double().requires_grad_()
    with torch.enable_grad():
        return torch.autograd.grad(layer_end(run, before.step, leaf), leaf, grad.double())[0]


def _ended_grad(run: Pass, step: Finish, grad: Tensor, positive: Tensor) -> Tensor:
    """Return the gradient of a relu's input, where `positive`, from that of the output of dropout."""
    rate = run.call.program.dropout
    kept = grad.new_ones(()) if step.dropout is None else keep_mask(run.call.seed, step.dropout, *grad.shape, rate) / (1 - rate)
    return grad * positive * kept


def _norm_errors(run: Pass, rows: FinishLaunches, leaves: FinishGrad, grad: Tensor) -> Iterator[tuple[str, float]]:
    """Yield the errors of the gradients of a norm's weight and bias, from the sums that were left."""
    source = run.rows(leaves.step.source).values[: len(grad)].double()
    names = [f"{leaves.step.norm}.{name}" for name in ("weight", "bias")]
    parameters = [run.parameter(name).double().requires_grad_() for name in names]
    rows.backward(leaves, None)
    with torch.enable_grad():
        normal = (source - source.mean(0)) / (source.var(0, correction=0) + run.program.eps).sqrt()
        out = layer_end(run, leaves.step._replace(norm=None), parameters[0] * normal + parameters[1])
        expected = torch.autograd.grad(out, parameters, grad)
    for name, one in zip(names, expected, strict=True):
        yield "norms", relative_error(run.grad_parameters[name], one, grad.norm())


def _weight_grad_errors(run: Pass, products: TensorCoreProducts, sums: PartSums, step: WeightGrads) -> Iterator[tuple[str, float]]:
    for product in step.products:
        kind = run.program.values[run.backward.gradients[product.grad]].rows
        for rows in (run.gradient(product.grad), None if product.source is None else run.rows(product.source)):
            if rows is not None:
                fill(run, rows, kind)
    for product in step.products:
        for name in (product.weight, product.bias):
            if name is not None:
                run.grad_parameters[name].fill_(torch.nan)
    products.weight_grads(step)
    sums.launch()
    for product in step.products:
        count = num_real(run, run.program.values[run.backward.gradients[product.grad]].rows)
        grad = run.gradient(product.grad).values[:count].double()
        if product.weight is not None and product.source is not None:
            x = run.rows(product.source).values[:count].double()
            yield "weights", relative_error(run.grad_parameters[product.weight], grad.T @ x, grad.norm() * x.norm())
        if product.bias is not None:
            yield "biases", relative_error(run.grad_parameters[product.bias], grad.sum(0), grad.norm())


def _rate(run: Pass, produced: Produced) -> float:
    return run.call.program.dropout if produced.mask is not None and produced.mask.dropout is not None else 0.0
