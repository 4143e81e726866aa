"""Strategy `tile` on CUDA, one launch in forward and one in backward (`cuda/gcn_tile_*.cu`), which may include a head or a loss."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from torch import Tensor, double

from molgcn.cuda_runtime.launch import gpu, kernel
from molgcn.cuda_runtime.structs import fill
from molgcn.ops import head_loss_cuda
from molgcn.ops.gcn_network import GcnCall, Parameters
from molgcn.ops.gcn_tile_arguments import parameters_of, table_size
from molgcn.ops.gcn_tile_discard import discard_from
from molgcn.ops.gcn_tile_plan import Plan, backward_plan, forward_plan, may_be_large, next_fit, scratch_bytes, wide_input
from molgcn.ops.head_loss import number_of
from molgcn.ops.layer_network.call import PRECISIONS
from molgcn.ops.layer_network.implementation import Outputs
from molgcn.ops.layer_network.program import NORMS, POOLS


def forward(call: GcnCall, outputs: Outputs) -> None:
    """Compute the outputs of a batch of at least one molecule. A second launch adds up the loss, if there is one."""
    call = _with_tiles(call)
    x, head, objective = call.graph.x, call.head, call.objective
    assert call.graph.tile_ptr is not None
    plan = forward_plan(call, gpu(x.device))
    pooled = x.new_empty(call.graph.num_graphs, call.network.hidden_channels) if head else outputs.pooled
    scratch = x.new_empty(scratch_bytes(call, plan) // 4)
    parameters = parameters_of(call, outputs.saved, scratch)
    fill(parameters, {"pooled": pooled, "num_targets": call.num_targets})
    if head:
        fill(parameters, dict(zip(("head_weight", "head_bias"), head, strict=True)))
    if objective is not None:
        sums, derivatives, head_sums = outputs.of_loss
        terms = x.new_empty((call.graph.tile_ptr.shape[0] - 1) * plan.warps, 2, dtype=double)
        fill(parameters, dict(zip(("target", "target_mean", "target_std"), objective[:3], strict=True)))
        fill(parameters, {"derivatives": derivatives, "terms": terms, "kind": number_of(objective.loss), "delta": objective.delta})
    elif head:
        fill(parameters, {"predictions": outputs.pooled})
    defines = _defines(call, plan, loss=objective is not None)
    function = kernel("gcn_tile_forward.cu", "gcn_tile_forward", defines, x.device, partial(prefetch_kernels, call))
    function.launch(plan.grid, plan.threads, plan.shared_bytes, parameters)
    if objective is not None:
        head_loss_cuda.launch_ends(pooled, head[0], derivatives, terms, sums, outputs.pooled, head_sums)


def backward(
    call: GcnCall,
    grad_result: Tensor,
    saved: Tensor,
    of_loss: Sequence[Tensor],
    grad_x: Tensor,
    gradients: Parameters,
    of_head: Sequence[Tensor],
) -> None:
    """Compute the gradients of the parameters, with a loss also of the head, and of x unless its gradient is empty."""
    call = _with_tiles(call)
    x, device = call.graph.x, gpu(call.graph.x.device)
    needs_grad_x = grad_x.shape == x.shape
    plan = backward_plan(call, device)
    large = scratch_bytes(call, plan) // 4
    scratch = x.new_empty(large + plan.grid * (plan.gradient_size + plan.reduced_size))
    parameters = parameters_of(call, saved, scratch, gradients)
    parameters.discard_from = discard_from(call, device)
    fill(parameters, {"totals": scratch[large:], "partial": scratch[large + plan.grid * plan.gradient_size :]})
    if needs_grad_x:
        fill(parameters, {"grad_x": grad_x})
    if of_loss:
        fill(parameters, dict(zip(("loss_sums", "derivatives", "head_sums"), of_loss, strict=True)))
        fill(parameters, {"grad_loss": grad_result, "head_weight": call.head[0], "num_targets": call.num_targets})
        fill(parameters, dict(zip(("grad_head_weight", "grad_head_bias"), of_head, strict=True)))
    else:
        fill(parameters, {"grad_pooled": grad_result})
    function = kernel("gcn_tile_backward.cu", "gcn_tile_backward", _defines(call, plan, needs_grad_x, len(of_loss) > 0), x.device)
    function.launch(plan.grid, plan.threads, plan.shared_bytes, parameters, cooperative=True, overlap=True)


def _with_tiles(call: GcnCall) -> GcnCall:
    """Return the call with tiles, which are made if its graph has none."""
    graph = call.graph
    return call if graph.tile_ptr is not None else call._replace(graph=graph._replace(tile_ptr=next_fit(graph.ptr, graph.tile_nodes)))


def prefetch_kernels(call: GcnCall) -> list[tuple[str, dict[str, int]]]:
    """Return the sources and macros of the kernels that follow the forward kernel, to compile them at the same time."""
    if not call.options.save_for_backward:
        return []
    has_loss = call.objective is not None
    defines = _defines(call, backward_plan(call, gpu(call.graph.x.device)), call.graph.x.requires_grad, has_loss)
    return [("gcn_tile_backward.cu", defines), *([head_loss_cuda.source(call.num_targets)] if has_loss else [])]


def _defines(call: GcnCall, plan: Plan, needs_grad_x: bool = False, loss: bool = False) -> dict[str, int]:
    weights = (*call.parameters.weights[1:], *call.parameters.biases, *call.parameters.norm_weights, *call.parameters.norm_biases)
    return {
        "HIDDEN": call.network.hidden_channels,
        "MAX_LAYERS": table_size(call.network.num_layers),
        "PRECISION": PRECISIONS.index(call.options.precision),
        "NORM": NORMS.index(call.network.norm),
        "RESIDUAL": int(call.network.residual),
        "DROPOUT": int(call.dropout_rate > 0),
        "SELF_LOOPS": int(call.network.add_self_loops),
        "LAST_ACTIVATION": int(call.network.last_activation),
        "POOL": POOLS.index(call.network.pool),
        "ALIGNED": int(call.network.hidden_channels % 4 == 0 and all(tensor.data_ptr() % 16 == 0 for tensor in weights)),
        "WIDE_INPUT": int(wide_input(call)),
        "INPUT_GRADIENT": int(needs_grad_x),
        "SAVE": int(call.options.save_for_backward),
        "LARGE_MOLECULES": int(may_be_large(call, plan)),
        "MERGED_LEAVES": int(call.graph.leaves_merged),
        "LOSS": int(loss),
        **plan.defines,
    }
