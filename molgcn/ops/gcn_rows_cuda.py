"""`molgcn::message_network` on CUDA as a program of the steps of `molgcn::layer_network`, whose kernels run it.

It takes what the kernels of graph convolutions alone are not made for: float64, any width and depth, and batches of any size.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache

import torch
from torch import Tensor

from molgcn.ops.layer_network import steps_cuda
from molgcn.ops.layer_network.builder import Builder
from molgcn.ops.layer_network.call import LayerNetworkCall, Options
from molgcn.ops.layer_network.operator import Implementation
from molgcn.ops.layer_network.program import Program
from molgcn.ops.layer_network.steps import X
from molgcn.ops.message_network import Gradients, NetworkCall, Outputs
from molgcn.ops.spec import NetworkSpec


@cache
def program_of(spec: NetworkSpec, dropout: float) -> Program:
    """Return the program of a network, with its parameters under the names of :attr:`NetworkSpec.parameters`."""
    builder, h = Builder(spec.in_channels, None, dropout), X
    for layer in range(spec.num_layers):
        builder.scope = f"convs.{layer}."
        gathered = builder.gather(h, "gcn_loops" if spec.add_self_loops else "gcn")
        out = builder.linear(gathered, "lin", spec.hidden_channels, bias="bias")
        builder.scope, add = "", h if spec.residual and builder.width(h) == spec.hidden_channels else None
        if spec.last_activation or layer < spec.num_layers - 1:
            norm = {} if spec.norm is None else {"norm": f"norms.{layer}", "kind": spec.norm}
            h = builder.finish(out, activation="relu", dropout=True, add=add, **norm)  # type: ignore[arg-type]
        else:
            h = builder.finish(out, add=add)
        builder.end_layer()
    return builder.program(spec.pool, spec.eps, spec.momentum)


def layers_of(call: NetworkCall) -> LayerNetworkCall:
    """Return a call as one of `molgcn::layer_network`."""
    graph, options, program = call.graph, call.options, program_of(call.spec, call.dropout_rate)
    parameters = _by_name(call.spec.parameters, call.parameters.tensors)
    statistics = call.parameters.statistics
    return LayerNetworkCall(
        graph,
        program,
        [parameters[name] for name in program.parameters],
        [_by_name(call.spec.statistics, statistics)[name] for name in program.statistics] if statistics else [],
        call.seed,
        Options(options.training, options.precision, options.save_for_backward),
    )


def _by_name(names: Mapping[str, object], tensors: Sequence[Tensor]) -> dict[str, Tensor]:
    return dict(zip(names, tensors, strict=True))


def saved_bytes(call: NetworkCall) -> int:
    """Return how many bytes forward keeps for backward."""
    return call.graph.x.element_size() * steps_cuda.saved_numbers(layers_of(call))


def outputs(call: NetworkCall, implementation: Implementation) -> Outputs:
    """Return the outputs of a call without a head."""
    found, _ = implementation.forward(layers_of(call))
    return Outputs(found.pooled, found.new_statistics, found.saved.view(torch.uint8), [])


def gradients(call: NetworkCall, implementation: Implementation, grad_pooled: Tensor, saved: Tensor, needs_grad_x: bool) -> Gradients:
    """Return the gradients of a call without a head."""
    layers = layers_of(call)
    kept = saved.view(call.graph.x.dtype)
    grad_x, _, found = implementation.backward(layers, (None, None), grad_pooled, kept, needs_grad_x, False)
    of_parameters = _by_name(layers.program.parameters, [gradient for gradient in found if gradient is not None])
    return grad_x, [of_parameters[name] for name in call.spec.parameters], []
