"""What the layers' kernels are specialised by, and which of them a forward and its backward launch."""

from __future__ import annotations

from molgcn.cuda_runtime.launch import Gpu
from molgcn.ops.gcn_layers_arguments import table_size
from molgcn.ops.gcn_layers_plan import MAX_TABLE, Blocks, blocks, weight_spans
from molgcn.ops.gcn_stack import POOLS, PRECISIONS, StackInputs


def layer_macros(inputs: StackInputs, division: Blocks, needs_grad_x: bool = False) -> dict[str, int]:
    """Of forward, backward and pooling, for the model's options; `needs_grad_x` is backward's."""
    return {
        "HIDDEN": inputs.hidden_channels,
        "PRECISION": PRECISIONS.index(inputs.precision),
        "NORM": 3 if inputs.batch_statistics else (None, "layer", "batch").index(inputs.norm),
        "DROPOUT": int(inputs.dropout_rate > 0),
        "SELF_LOOPS": int(inputs.add_self_loops),
        "POOL": POOLS.index(inputs.pool),
        "INPUT_GRADIENT": int(needs_grad_x),
        **division.defines,
    }


def prepare_macros(inputs: StackInputs, num_layers: int, backward: bool) -> dict[str, int]:
    """Of the launch that prepares some layers."""
    return {"SELF_LOOPS": int(inputs.add_self_loops), "TRANSPOSED": int(backward), "MAX_LAYERS": table_size(num_layers)}


def weights_macros(inputs: StackInputs, num_layers: int, tile: int) -> dict[str, int]:
    """Of the launch that forms some layers' weight gradients."""
    precision = PRECISIONS.index(inputs.precision)
    return {"HIDDEN": inputs.hidden_channels, "PRECISION": precision, "TILE": tile, "MAX_LAYERS": table_size(num_layers)}


def prefetch_kernels(inputs: StackInputs, gpu: Gpu) -> list[tuple[str, dict[str, int]]]:
    """Sources and macros of what a forward launches beside its layers' kernel, its backward's included, to be compiled at the same time."""
    division, trains = blocks(inputs, gpu), inputs.save_for_backward
    kernels = [(f"{division.kernel('backward')}.cu", layer_macros(inputs, division, inputs.x.requires_grad))] if trains else []
    for first in range(0, inputs.num_layers, MAX_TABLE):
        for backward in (False, True)[: 1 + trains]:
            kernels.append(("gcn_layer_prepare.cu", prepare_macros(inputs, min(MAX_TABLE, inputs.num_layers - first), backward)))
    kernels.append(("gcn_layer_pool.cu", layer_macros(inputs, division)))
    for first, end, weights in weight_spans(inputs, gpu) if trains else ():
        kernels.append(("gcn_layer_weights.cu", weights_macros(inputs, end - first, weights.tile)))
    return kernels
