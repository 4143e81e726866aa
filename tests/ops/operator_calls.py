"""Calls of every registered operator with arguments that fit."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from attention_cases import random_inputs as attention_inputs
from layer_network_cases import options_of, random_call
from plain_steps import PlainSteps
from stack_cases import layers_of, random_batch, random_inputs
from torch import Tensor

from molgcn.ops import AttentionInputs, ConvInputs, EncodeInputs, GineInputs, Objective
from molgcn.ops.aggregate import AggregateInputs
from molgcn.ops.aggregate_reference import aggregate_reference
from molgcn.ops.attention_reference import attention_reference
from molgcn.ops.encode import encode_reference
from molgcn.ops.gcn_conv_reference import gcn_conv_reference
from molgcn.ops.gine import gine_aggregate_reference
from molgcn.ops.head_loss import head_loss_reference
from molgcn.ops.layer_network import engine
from molgcn.ops.layer_network.call import LayerNetworkCall

Call = tuple[Any, list[Any]]  # an operator, and its arguments


def forward_calls(emulated: bool) -> dict[str, Call]:
    """Return calls of all operators but the backward ones.

    Args:
        emulated: whether the implementations for CUDA run, under emulation.
    """
    ops, found, dtype = torch.ops.molgcn, dict[str, Call](), torch.float32 if emulated else torch.float64
    for name, options in (("batch norm", {"norm": "batch", "training": True}), ("layer norm", {"norm": "layer", "residual": True})):
        call = layers_of(random_inputs(random_batch([5, 9, 1, 2], 6), 8, 3, dtype, **options))
        found[f"layer_network gcn, {name}"] = ops.layer_network, listed(call)
    for network, coded in (("gine", True), ("gcn_edge", False), ("sage, max", True)):
        call = random_call(options_of(network), sizes=[5, 9, 0], coded=coded, dtype=dtype)
        found[f"layer_network {network}"] = ops.layer_network, listed(call)
    torch.manual_seed(0)
    x, target, vector = torch.randn(4, 8), torch.randn(4, 2), torch.ones(2)
    weights, biases = [torch.randn(5, 8), torch.randn(2, 5)], [torch.zeros(5), torch.zeros(2)]
    found["head_loss"] = ops.head_loss, [x, weights, biases, target, vector, vector, "mse", 1.0]
    found["head_loss without maps"] = ops.head_loss, [target, [], [], target, vector, vector, "huber", 1.0]
    edge_index = torch.randint(0, 4, (2, 12))
    edge_index[:, 0] = 3  # the last node has edges
    found["gcn_conv"] = ops.gcn_conv, listed(ConvInputs(x, torch.randn(3, 8), torch.zeros(3), edge_index, torch.rand(12)))
    plain = ConvInputs(x, None, None, edge_index, torch.rand(12), normalize=False, add_self_loops=False)
    found["gcn_conv of sums"] = ops.gcn_conv, listed(plain)
    x = torch.randn(4, 9)
    found["aggregate max"] = ops.aggregate, listed(AggregateInputs(x, edge_index, torch.rand(12, 3), None, 4, "max"))
    found["aggregate sum"] = ops.aggregate, listed(AggregateInputs(x, edge_index, torch.rand(12, 3), torch.ones(1), 4))
    found["aggregate mean"] = ops.aggregate, listed(AggregateInputs(x, edge_index, None, None, 4, "mean"))
    found["gine_aggregate"] = ops.gine_aggregate, listed(GineInputs(x, torch.randn(12, 9), edge_index, 4))
    for name, options in (
        ("GAT", {"edges": True, "together": True, "num_loops": 20}),
        ("GATv2", {"v2": True, "edges": True, "dropout": 0.4, "num_dst": 15}),
    ):
        found[f"attention {name}"] = ops.attention, listed(attention_inputs(num_src=20, num_edges=50, **{"num_dst": 20, **options}))
    if emulated:  # on a CPU these are modules of PyTorch
        found["encode"] = ops.encode, listed(encode_inputs())
    return found


def encode_inputs() -> EncodeInputs:
    """Return the inputs of an encoder with random walks and a norm in training."""
    draw, ones = torch.randn, torch.ones
    norm = {"norm_weight": ones(5), "norm_bias": ones(5), "running_mean": ones(5), "running_var": ones(5)}
    walks = {"walks": torch.rand(9, 5), "walk_weight": draw(3, 5), "walk_bias": draw(3)}
    real = torch.tensor(7, dtype=torch.int32)
    return EncodeInputs(draw(9, 6), draw(8, 6), draw(8), **walks, **norm, num_real=real, training=True)


def backward_call(operator: Any, arguments: list[Any], right: Any) -> Call | None:
    """Return a call of the backward operator, given a call of the forward one and its outputs, or None if that call has no gradient."""
    short = operator.default._schema.name.split("::")[1]
    out, *kept = [right] if isinstance(right, Tensor) else right
    before: list[Any] = [torch.sin(torch.arange(out.numel())).view_as(out).to(out)]
    if short == "layer_network":
        layers = LayerNetworkCall.of(*arguments)
        before += [kept[1], True, layers.graph.bonds is not None]
        arguments = listed(layers._replace(statistics=()) if layers.batch_statistics else layers)
    elif short == "aggregate":
        before += [out if "max" in arguments else None, [True, True, True]]
    elif short == "gcn_conv":
        before += [[True] * 4]
    else:
        before += {"attention": [out, *kept], "encode": kept[1:]}.get(short, kept)
        arguments = arguments[:2] if short == "head_loss" else arguments
    return getattr(torch.ops.molgcn, f"{short}_backward"), [*before, *arguments]


def reference(operator: Any, arguments: list[Any]) -> Tensor:
    """Return the first output of an operator by plain PyTorch."""
    short = operator.default._schema.name.split("::")[1]
    if short == "layer_network":
        layers = LayerNetworkCall.of(*arguments)
        graph = layers.graph._replace(col=layers.graph.col[: layers.graph.rowptr[-1]])  # plain PyTorch takes no padding
        return engine.forward(layers._replace(graph=graph), PlainSteps).pooled
    if short == "head_loss":
        return head_loss_reference(*arguments[:3], Objective(*arguments[3:]))[0]
    inputs, function = {
        "aggregate": (AggregateInputs, aggregate_reference),
        "attention": (AttentionInputs, attention_reference),
        "encode": (EncodeInputs, encode_reference),
        "gcn_conv": (ConvInputs, gcn_conv_reference),
        "gine_aggregate": (GineInputs, gine_aggregate_reference),
    }[short]
    return function(inputs(*arguments))


def listed(inputs: Any) -> list[Any]:
    """Return the arguments of an operator's schema, without a history of autograd."""
    return [detached(value) for value in getattr(inputs, "arguments", inputs)]


def detached(value: Any) -> Any:
    """Return tensors, also in lists, detached, and other values unchanged."""
    return [detached(one) for one in value] if isinstance(value, list) else value.detach() if isinstance(value, Tensor) else value


def tensors_of(value: Any) -> Sequence[tuple[int, Tensor]]:
    """Return the tensors of an argument, each with its place in the list that the argument is, or 0."""
    values = value if isinstance(value, list) else [value]
    return [(place, one) for place, one in enumerate(values) if isinstance(one, Tensor)]


def replaced(arguments: list[Any], place: int, by: Any, number: int = 0) -> list[Any]:
    """Return arguments with another one, or, if that is a list and `by` a tensor, with another tensor in the list."""
    if isinstance(arguments[place], list) and isinstance(by, Tensor):
        by = [*arguments[place][:number], by, *arguments[place][number + 1 :]]
    return [*arguments[:place], by, *arguments[place + 1 :]]


def run(operator: Any, arguments: list[Any]) -> list[Tensor]:
    """Return the outputs of an operator, except those that may have gaps between values."""
    out, names = operator(*arguments), [output.name for output in operator.default._schema.returns]
    outputs = zip([out] if isinstance(out, Tensor) else out, names, strict=True)
    return [tensor for output, name in outputs if name not in ("saved", "hidden") for _, tensor in tensors_of(output)]


def gradients(operator: Any, arguments: list[Any]) -> list[Tensor]:
    """Return an operator's gradients of all floating-point tensors that have any."""
    leaves = list[Tensor]()
    for place, value in enumerate(arguments):
        for number, tensor in tensors_of(value):
            if tensor.is_floating_point():
                leaves.append(tensor.clone().requires_grad_())
                arguments = replaced(arguments, place, leaves[-1], number)
    out = operator(*arguments)
    out = out if isinstance(out, Tensor) else out[0]
    weights = torch.sin(torch.arange(out.numel())).view_as(out).to(out)
    found = torch.autograd.grad(out, leaves, weights + 0.5, allow_unused=True)
    return [gradient for gradient in found if gradient is not None]
