"""Compare matrix products of the layer network's forward pass, one at a time, with float64."""

from __future__ import annotations

import torch
from layer_network_cases import network_options
from pass_values import fill, gathered, num_real, row_error
from torch import Tensor
from torch.nn import functional as F

from molgcn.cuda_runtime.launch import gpu
from molgcn.nn.activations import ACTIVATIONS
from molgcn.nn.network_steps import program_of
from molgcn.ops.graph import Graph
from molgcn.ops.layer_network.call import LayerNetworkCall, Options
from molgcn.ops.layer_network.grad_launches_cuda import backward_launches
from molgcn.ops.layer_network.gradient_steps import InputGrad, WeightGrads
from molgcn.ops.layer_network.launches_cuda import forward_launches, is_read_later
from molgcn.ops.layer_network.layer_ends_cuda import LayerEnds
from molgcn.ops.layer_network.passes import Pass, saved_numbers
from molgcn.ops.layer_network.products_cuda import TensorCoreProducts
from molgcn.ops.layer_network.rows_finish_cuda import FinishLaunches
from molgcn.ops.layer_network.rows_launches import RowLaunches
from molgcn.ops.layer_network.steps import Finish, Linear
from molgcn.ops.layer_network.workspace import Workspace
from molgcn.ops.part_sums import PartSums
from molgcn.ops.philox import keep_mask


def call_of(
    in_channels: int, hidden: int, real: int, padding: int = 0, device: str = "cpu", precision: str = "float32", **options: object
) -> LayerNetworkCall:
    """Return a network with every kind of product, on atoms without bonds, or with a row for each bond."""
    options = {
        "conv": "gin",
        "mlp_norm": True,
        "num_layers": 2,
        "feed_forward": True,
        "dropout": 0.3,
        "train_eps": True,
        **options,
    }
    program = program_of(network_options(in_channels=in_channels, hidden_channels=hidden, **options))
    generator = torch.Generator().manual_seed(in_channels + hidden + real)

    def random(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator).to(device)

    num_atoms, num_bonds = real + padding, 2 * real + padding
    rowptr = torch.cat([2 * torch.arange(real + 1), torch.full((padding,), 2 * real)])
    graph = Graph(
        random(num_atoms, in_channels),
        None if program.edge_channels is None else random(num_bonds, program.edge_channels),
        *(tensor.int().to(device) for tensor in (torch.tensor([0, real]), rowptr, torch.arange(num_bonds) % max(real, 1))),
    )
    parameters = [random(*shape) for shape in program.parameters.values()]
    statistics = [random(*shape).abs() for shape in program.statistics.values()]
    seed = torch.tensor([1234567], device=device)
    return LayerNetworkCall(graph, program, parameters, statistics, seed, Options(training=True, precision=precision))


def worst_forward(call: LayerNetworkCall) -> float:
    """Return the largest error of a row that the launch of a matrix product gives; the batch's moments and statistics are checked too."""
    run = Pass(call, saved_of(call), backward=False, signs_alone=True)
    worst = 0.0
    for launch in forward_launches(run, gpu(call.graph.x.device)).values():
        first, before, gather, then, after, leaves, beside, _, parts = launch
        if not isinstance(first, Linear):
            continue
        rows, products, _ = kernels_of(run)  # for each launch, since its source is not what the launch before has left parts of
        last, kind = after or beside or then or (first, *parts)[-1], run.program.values[first.out].rows
        reads = before or gather or first
        source = fill(run, run.rows(reads.source), kind, even=before is not None)
        residual = None
        other = None if beside is None else fill(run, run.rows(beside.source), kind, seed=1)
        if other is not None and beside is not None and last.add == beside.source:
            residual = other.double()
        elif last.add not in (None, first.out) and (before is None or last.add != before.out):
            residual = fill(run, run.rows(last.add), kind).double()
        if before is not None:
            add = None if before.add is None else fill(run, run.rows(before.add), kind, even=True).double()
            source = layer_end(run, before, source.double(), add)
            rows.leave_moments(before)
            residual = source if last.add == before.out else residual
        ended = source
        if gather is not None:
            bonds = None if gather.bonds is None else fill(run, run.rows(gather.bonds), "bonds").double()
            source, terms = gathered(run, gather, source.double(), bonds)
        adds_first = after is not None and then is None and beside is None and first.add is not None
        added = fill(run, run.rows(first.add), kind, seed=2).double() if adds_first and first.add is not None else None
        out = run.rows(last.out)
        for part in (last, first)[: 1 + len(parts)]:
            run.rows(part.out).tensor.fill_(torch.nan)
        products.linear(launch)
        for part in (first, *parts)[: len(parts)]:
            worst = max(worst, row_error(run, run.rows(part.out), *_linear(run, part, part, source), kind))
        if gather is not None and is_read_later(run, gather.out):
            worst = max(worst, row_error(run, run.rows(gather.out), source, terms, kind))
            source = run.rows(gather.out).values[: len(source)]
        if added is not None:
            expected, size = _biased(run, first, source)
            expected, size = expected + added, size + added.abs()
            if _is_written(run, first):
                worst = max(worst, row_error(run, run.rows(first.out), expected, size, kind))
            expected = _followed(run, last, expected)
        elif beside is None or other is None:
            expected, size = _linear(run, parts[-1] if parts else first, last if then is None else first, source)
        else:
            both = (_biased(run, first, source), _biased(run, beside, other))
            expected, size = (one + more for one, more in zip(*both, strict=True))
            if after is not None and _is_written(run, beside):
                worst = max(worst, row_error(run, run.rows(beside.out), expected, size, kind))
            expected = _followed(run, last, expected)
        if then is not None:
            if is_read_later(run, first.out):
                worst = max(worst, row_error(run, run.rows(first.out), expected, size, kind))
                expected = run.rows(first.out).values[: len(expected)].double()
            expected, size = _linear(run, then, last, expected)
        if residual is not None:
            expected, size = expected + residual, size + residual.abs()
        worst = max(worst, row_error(run, out, expected, size, kind))
        if before is not None and is_read_later(run, before.out):
            worst = max(worst, row_error(run, run.rows(before.out), ended, ended.abs() + 1, kind))
        if leaves is not None:
            rows.forward(leaves, None)
            _check_statistics(run, leaves.norm, out.values[: num_real(run, kind)].double())
    return worst


def _is_written(run: Pass, step: Linear) -> bool:
    """Return whether a launch that ends the layer after a product writes the product too."""
    return step.out not in run.signs_alone and is_read_later(run, step.out)


def _linear(run: Pass, step: Linear, end: Linear | Finish, source: Tensor) -> tuple[Tensor, Tensor]:
    """Return a step's product with what follows it but an addition, and the sums of its terms' absolute values."""
    expected, size = _biased(run, step, source)
    return _followed(run, end, expected), size


def _biased(run: Pass, step: Linear, source: Tensor) -> tuple[Tensor, Tensor]:
    """Return a step's product with its bias, and the sums of the terms' absolute values."""
    expected, size = exact_product(source, run.parameter(step.weight).T)
    if step.bias is not None:
        bias = run.parameter(step.bias).double()
        expected, size = expected + bias, size + bias.abs()
    return expected, size


def _followed(run: Pass, end: Linear | Finish, rows: Tensor) -> Tensor:
    """Return rows after activation and dropout, where a step has them."""
    activation = end.activation if isinstance(end, Finish) else "relu" if end.relu else ""
    rows = ACTIVATIONS[activation]()(rows) if activation else rows
    if end.dropout is not None:
        rate = run.call.program.dropout
        rows = rows * keep_mask(run.call.seed, end.dropout, *rows.shape, rate) / (1 - rate)
    return rows


def launch_all(call: LayerNetworkCall) -> None:
    """Launch every product of a forward and a backward pass, with arbitrary values in memory."""
    run = Pass(call, saved_of(call), backward=False, signs_alone=True)
    rows, products, sums = kernels_of(run)
    for launch in forward_launches(run, gpu(call.graph.x.device)).values():
        if launch.before is not None:
            rows.leave_moments(launch.before)
        if isinstance(launch.step, Linear):
            products.linear(launch)
    run = Pass(call, run.saved, backward=True, signs_alone=True, grad_x=True, grad_bonds=True)
    rows, products, sums = kernels_of(run)
    for grad_launch in backward_launches(run, run.backward.steps, gpu(call.graph.x.device)).values():
        if grad_launch.before is not None:
            rows.leave_sums(grad_launch.before)
        if isinstance(grad_launch.step, InputGrad):
            products.input_grad(grad_launch)
        elif isinstance(grad_launch.step, WeightGrads):
            products.weight_grads(grad_launch.step)
            sums.launch()


def kernels_of(run: Pass) -> tuple[FinishLaunches, TensorCoreProducts, PartSums]:
    """Return what launches the kernels of a pass."""
    workspace = Workspace(run.graph.x, overlaps=run.is_backward)
    ends = LayerEnds(run, workspace)
    return FinishLaunches(RowLaunches(run, workspace, ends)), TensorCoreProducts(run, workspace, ends), workspace.sums


def layer_end(run: Pass, step: Finish, source: Tensor, add: Tensor | None = None) -> Tensor:
    """Return the end of a layer with batch statistics, in float64."""
    out = source
    if step.norm is not None:
        weight, bias = (run.parameter(f"{step.norm}.{name}").double() for name in ("weight", "bias"))
        out = F.batch_norm(source, None, None, weight, bias, True, 0.0, run.program.eps) if len(source) > 1 else out * 0 + bias
    out = ACTIVATIONS[step.activation]()(out) if step.activation else out
    if step.dropout is not None:
        rate = run.call.program.dropout
        out = out * keep_mask(run.call.seed, step.dropout, *out.shape, rate) / (1 - rate)
    return out if add is None else out + add


def saved_of(call: LayerNetworkCall) -> Tensor:
    """Return the memory of what a forward pass saves, filled with NaN."""
    return call.graph.x.new_full((saved_numbers(call, signs_alone=True),), torch.nan)


def exact_product(rows: Tensor, matrix: Tensor) -> tuple[Tensor, Tensor]:
    """Return the product and, for each of its elements, the sum of its terms' absolute values."""
    return rows.double() @ matrix.double(), rows.double().abs() @ matrix.double().abs()


def _check_statistics(run: Pass, norm: str, rows: Tensor) -> None:
    mean, deviation = run.moments(norm).double()
    old, new = ([tensor.double() for tensor in each(norm)] for each in (run.running, run.new_running))
    if len(rows) == 0:
        assert all(map(torch.equal, new, old)), "no atoms leave the running statistics as they are"
        return
    variance, expected = torch.var_mean(rows, 0, correction=0)
    momentum = run.program.momentum
    unbiased = variance * len(rows) / max(len(rows) - 1, 1)
    largest = rows.abs().amax(0)
    assert ((mean - expected).abs() <= 1e-6 * largest).all()
    torch.testing.assert_close(deviation, (variance + run.program.eps).rsqrt(), rtol=1e-5, atol=0)
    torch.testing.assert_close(new[0], (1 - momentum) * old[0] + momentum * expected, rtol=3e-6, atol=1e-6 * float(largest.amax()))
    torch.testing.assert_close(new[1], (1 - momentum) * old[1] + momentum * unbiased, rtol=1e-5, atol=0)
