"""`molgcn::message_network` on CUDA: the choice of a strategy, and what all strategies share. Import this module to register it."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from types import ModuleType
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from molgcn.cuda_runtime.launch import gpu
from molgcn.errors import UserError
from molgcn.ops import gcn_chain_cuda, gcn_molecules_cuda, gcn_rows_cuda, gcn_tile_cuda
from molgcn.ops.expect import aligned, are_aligned
from molgcn.ops.gcn_layers_plan import molecule_blocks, saved_layout
from molgcn.ops.gcn_tile_arguments import MAX_LAYERS
from molgcn.ops.gcn_tile_plan import TILE_MAX_WIDTH, Saved
from molgcn.ops.layer_network import steps_cuda
from molgcn.ops.layer_network.operator import Implementation as LayerImplementation
from molgcn.ops.message_network import Epilogue, Gradients, NetworkCall, Outputs, empty_gradients, empty_outputs, register_saved_size
from molgcn.ops.message_network_autograd import Implementation, register_direct
from molgcn.ops.message_network_check import check, check_backward
from molgcn.ops.spec import Parameters

# Up to this many features `tile` is faster than `layer` on an H100 (docs/decisions/cuda_speed.md). Results are the same with both, so that
# another GPU may take the slower one near this width; backend.strategy chooses.
MAX_AUTOMATIC = 96


def strategy_of(call: NetworkCall) -> str:
    """Return the strategy that runs a call: the one that it names, or the one that "auto" stands for."""
    if call.options.strategy != "auto":
        return call.options.strategy
    spec = call.spec
    norm = spec.norm if call.options.training or spec.norm == "layer" else None
    return automatic(norm, spec.hidden_channels, spec.num_layers) if call.graph.x.dtype == torch.float32 else "layer"


def automatic(norm: str | None, hidden_channels: int, num_layers: int) -> str:
    """Return "tile" if it can run the model in float32 and is the faster strategy, otherwise "layer"."""
    return "tile" if norm != "batch" and hidden_channels <= MAX_AUTOMATIC and num_layers <= MAX_LAYERS else "layer"


def fuses_loss(call: NetworkCall) -> bool:
    """Return whether the call may have a loss: strategy "tile" in float32, at least one molecule, and `save_for_backward`."""
    fits = call.options.save_for_backward and call.graph.num_graphs > 0 and call.graph.x.dtype == torch.float32
    return fits and strategy_of(call) == "tile"


def engine_of(call: NetworkCall) -> ModuleType:
    """Return the module that runs a call. The family's steps run what no kernel of many layers does faster (docs/decisions)."""
    if strategy_of(call) == "tile":
        return gcn_tile_cuda
    if call.graph.x.dtype == torch.float32 and call.graph.num_graphs > 0:
        if gcn_chain_cuda.find(call) is not None:
            return gcn_chain_cuda
        if molecule_blocks(call, gpu(call.graph.x.device)) is not None:
            return gcn_molecules_cuda
    return gcn_rows_cuda


def saved_bytes(call: NetworkCall) -> int:
    """Return how many bytes forward keeps for backward."""
    engine = engine_of(call)
    if engine is gcn_rows_cuda:
        return gcn_rows_cuda.saved_bytes(call)
    return Saved(call).num_bytes if engine is gcn_tile_cuda else saved_layout(call).num_bytes


def forward(*args: Any) -> Outputs:
    """Compute the operator's outputs; see :mod:`molgcn.ops.message_network`."""
    return outputs_of(NetworkCall.of(*args))


def implementation_of(call: NetworkCall) -> Implementation:
    """Return the implementation of an eager call. The family's steps are planned once for calls of about the same size."""
    check(call)
    rows = steps_cuda.EACH
    if engine_of(call) is gcn_rows_cuda:
        rows = steps_cuda.implementation_of(gcn_rows_cuda.layers_of(call)) or rows
    return Implementation(partial(outputs_of, rows=rows), partial(gradients_of, rows=rows))


def outputs_of(call: NetworkCall, rows: LayerImplementation = steps_cuda.EACH) -> Outputs:
    """Return the outputs of a call, by the implementation `rows` where the family's steps compute it."""
    check(call)
    if call.epilogue.targets and not fuses_loss(call):
        raise ValueError(
            "message_network: a call with a loss needs strategy=tile, float32, at least one molecule and save_for_backward=True; leave "
            "the targets out and use molgcn.ops.head_loss"
        )
    call, engine = prepare_inputs(call), engine_of(call)
    if engine is gcn_tile_cuda and call.graph.num_graphs > 0:
        outputs = empty_outputs(call)
        gcn_tile_cuda.forward(call, outputs)
        return outputs
    if engine is gcn_rows_cuda:
        outputs = gcn_rows_cuda.outputs(call, rows)
    else:
        outputs = empty_outputs(call._replace(epilogue=Epilogue()))
        if engine is not gcn_tile_cuda:
            engine.forward(call, outputs.result, outputs.statistics, outputs.saved)
    if not call.epilogue.head:
        return outputs
    with torch.autocast("cuda", enabled=False):
        return outputs._replace(result=F.linear(outputs.result, *call.epilogue.head))


def backward(grad_result: Tensor, saved: Tensor, of_loss: Sequence[Tensor], needs_grad_x: bool, *args: Any) -> Gradients:
    """Compute the gradients; see :mod:`molgcn.ops.message_network`."""
    return gradients_of(NetworkCall.of(*args), grad_result, saved, of_loss, needs_grad_x)


def gradients_of(
    call: NetworkCall,
    grad_result: Tensor,
    saved: Tensor,
    of_loss: Sequence[Tensor],
    needs_grad_x: bool,
    rows: LayerImplementation = steps_cuda.EACH,
) -> Gradients:
    """Return the gradients of a call, by the implementation `rows` where the family's steps compute it."""
    engine = engine_of(call)
    if engine is gcn_rows_cuda:
        check_backward(grad_result, saved, of_loss, saved.numel(), call)
        return gcn_rows_cuda.gradients(prepare_inputs(call), rows, grad_result, aligned(saved), needs_grad_x)
    check_backward(grad_result, saved, of_loss, saved_bytes(call), call)
    call, grad_result, of_loss = prepare_inputs(call), aligned(grad_result), [aligned(tensor) for tensor in of_loss]
    saved = aligned(saved, 128)  # the bytes of a line of the cache, which backward may discard
    gradients = grad_x, of_parameters, _ = empty_gradients(call, needs_grad_x, with_head=len(of_loss) > 0)
    if call.graph.num_graphs == 0:
        for tensor in (grad_x, *of_parameters):
            tensor.zero_()
    elif engine is gcn_tile_cuda:
        gcn_tile_cuda.backward(call, grad_result, saved, of_loss, gradients)
    else:
        engine.backward(call, grad_result, saved, grad_x, Parameters.of(call.spec, of_parameters))
    return gradients


def prepare_inputs(call: NetworkCall) -> NetworkCall:
    """Return the call with its tensors in the form that kernels read: contiguous, and values aligned to 16 bytes.

    Raises:
        UserError: If the strategy cannot run the call.
    """
    dtype, spec = call.graph.x.dtype, call.spec
    if dtype not in (torch.float32, torch.float64):
        raise UserError(f"backend=fused on CUDA computes in float32 or float64, not {dtype}. Convert model and batch, or use backend=pyg.")
    if strategy_of(call) == "tile":
        if dtype != torch.float32:
            raise UserError(f"backend.strategy=tile computes in float32, not {dtype}. Convert model and batch, or use auto.")
        if spec.hidden_channels > TILE_MAX_WIDTH:
            raise UserError(
                f"model.hidden_channels={spec.hidden_channels} is too much for backend.strategy=tile, which has at most {TILE_MAX_WIDTH}. "
                "Use auto."
            )
        if spec.num_layers > MAX_LAYERS:
            raise UserError(
                f"model.num_layers={spec.num_layers} is too much for backend.strategy=tile, which has at most {MAX_LAYERS}. Use auto."
            )
        if call.batch_statistics:
            raise UserError("backend.strategy=tile cannot train model.norm=batch, which couples all molecules. Use auto or layer.")
    elif call.graph.leaves_merged:
        raise UserError(
            f"backend.strategy={strategy_of(call)} does not take merged leaves, rows that stand for several atoms; tile does. "
            "Give a batch whose leaves are not merged."
        )
    parameters, epilogue = call.parameters, call.epilogue
    lists = (call.graph.tensors, parameters.tensors, parameters.statistics, epilogue.head, epilogue.targets, (call.seed,))
    if are_aligned([tensor for tensors in lists for tensor in tensors if tensor is not None]):
        return call
    return call._replace(
        graph=call.graph.mapped(aligned),
        parameters=Parameters(*map(_aligned, call.parameters)),
        seed=_aligned(call.seed),
        epilogue=Epilogue(*map(_aligned, call.epilogue)),
    )


def _aligned(value: Any) -> Any:
    if isinstance(value, (list, tuple)):
        return [aligned(tensor) for tensor in value]
    return aligned(value) if isinstance(value, Tensor) else value


register_saved_size("cuda", saved_bytes)
register_direct("cuda", implementation_of)
torch.library.impl("molgcn::message_network", "CUDA", forward)
torch.library.impl("molgcn::message_network_backward", "CUDA", backward)
