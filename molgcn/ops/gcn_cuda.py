"""Graph convolutions on CUDA by the kernels made for them: what `tile`, `chain` and `molecules` share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import ModuleType

import torch
from torch import Tensor

from molgcn.ops import gcn_chain_cuda, gcn_molecules_cuda, gcn_tile_cuda
from molgcn.ops.expect import aligned, expect
from molgcn.ops.gcn_layers_plan import saved_layout
from molgcn.ops.gcn_network import GcnCall, Parameters, empty_gradients
from molgcn.ops.gcn_tile_plan import Saved
from molgcn.ops.head_loss import check_kept
from molgcn.ops.layer_network.implementation import Outputs

ENGINES: Mapping[str, ModuleType] = {"tile": gcn_tile_cuda, "chain": gcn_chain_cuda, "molecules": gcn_molecules_cuda}


def saved_numbers(call: GcnCall, engine: str) -> int:
    """Return how many numbers of x's dtype forward keeps for backward."""
    return (Saved(call) if engine == "tile" else saved_layout(call)).num_bytes // call.graph.x.element_size()


def takes_end(call: GcnCall, engine: str) -> bool:
    """Return whether an engine computes what follows the pooling: nothing, a linear head in inference, or with its loss in training."""
    if not call.head and call.objective is None:
        return True
    linear = engine == "tile" and len(call.head) == 2 and call.graph.num_graphs > 0
    return linear and call.options.save_for_backward == (call.objective is not None)


def forward(call: GcnCall, engine: str) -> Outputs:
    """Return the outputs of a call whose tensors are as kernels read them."""
    x, width, num_graphs = call.graph.x, call.network.hidden_channels, call.graph.num_graphs
    statistics = x.new_empty(2, call.network.num_norms if call.batch_statistics else 0, width)
    num_bytes = x.element_size() * saved_numbers(call, engine) if call.options.save_for_backward else 0
    saved, num_targets, of_loss = x.new_empty(num_bytes, dtype=torch.uint8), call.num_targets, list[Tensor]()
    result = x.new_empty(num_graphs, num_targets if call.head else width)
    if call.objective is not None:
        sums, derivatives = x.new_empty(2, dtype=torch.double), x.new_empty(num_graphs, num_targets)
        result, of_loss = x.new_empty(()), [sums, derivatives, x.new_empty(num_targets * (width + 1))]
    outputs = Outputs(result, statistics, saved.view(x.dtype), of_loss)
    if engine != "tile":
        ENGINES[engine].forward(call, result, statistics, saved)
    elif num_graphs > 0:
        gcn_tile_cuda.forward(call, outputs)
    return outputs


def check_loss(call: GcnCall, grad_loss: Tensor, of_loss: Sequence[Tensor]) -> None:
    """Check what :func:`backward` reads of a loss.

    Raises:
        ValueError: If a tensor does not fit. The message names the first one.
    """
    sums, derivatives, head_sums = of_loss
    check_kept(grad_loss, sums, derivatives, (call.graph.num_graphs, call.num_targets), call.graph.x)
    expect("layer_network", "head_sums", head_sums, (call.num_targets * (call.network.hidden_channels + 1),), call.graph.x)


def backward(
    call: GcnCall, engine: str, grad_result: Tensor, saved: Tensor, of_loss: Sequence[Tensor], grad_x: bool
) -> tuple[Tensor, Parameters, list[Tensor]]:
    """Return the gradients of x, which is [0, 0] if it is not wanted, of the parameters and, with a loss, of the head."""
    x, of_loss = call.graph.x, [aligned(tensor) for tensor in of_loss]
    of_x = x.new_empty(x.shape if grad_x else (0, 0))
    of_head = [tensor.new_empty(tensor.shape) for tensor in call.head] if of_loss else []
    _, gradients = empty_gradients(call)
    if engine != "tile":
        ENGINES[engine].backward(call, grad_result, saved, of_x, gradients)
    elif call.graph.num_graphs > 0:
        gcn_tile_cuda.backward(call, grad_result, saved, of_loss, of_x, gradients, of_head)
    else:
        for tensor in (of_x, *gradients.tensors):
            tensor.zero_()
    return of_x, gradients, of_head
