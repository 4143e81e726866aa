"""The macros that specialise the kernels of many layers, and the kernels that a forward on molecules and its backward launch."""

from __future__ import annotations

from molgcn.cuda_runtime.launch import Gpu
from molgcn.ops import part_sums
from molgcn.ops.gcn_layers_arguments import table_size
from molgcn.ops.gcn_layers_plan import MAX_TABLE, Blocks, molecule_blocks
from molgcn.ops.gcn_network import GcnCall
from molgcn.ops.gcn_weights_plan import WeightBlocks, weight_spans
from molgcn.ops.layer_network.call import PRECISIONS
from molgcn.ops.layer_network.program import NORMS, POOLS


def layer_macros(call: GcnCall, division: Blocks, needs_grad_x: bool = False) -> dict[str, int]:
    """Return the macros of the forward, backward and pooling kernels. Only backward uses `needs_grad_x`."""
    return {
        "HIDDEN": call.network.hidden_channels,
        "PRECISION": PRECISIONS.index(call.options.precision),
        "NORM": 3 if call.batch_statistics else NORMS.index(call.network.norm),
        "DROPOUT": int(call.dropout_rate > 0),
        "SELF_LOOPS": int(call.network.add_self_loops),
        "POOL": POOLS.index(call.network.pool),
        "INPUT_GRADIENT": int(needs_grad_x),
        **division.defines,
    }


def prepare_macros(call: GcnCall, num_layers: int, backward: bool) -> dict[str, int]:
    """Return the macros of the kernel that prepares some layers' operands."""
    return {"SELF_LOOPS": int(call.network.add_self_loops), "TRANSPOSED": int(backward), "MAX_LAYERS": table_size(num_layers)}


def weights_macros(call: GcnCall, num_layers: int, division: WeightBlocks) -> dict[str, int]:
    """Return the macros of the kernel that computes some layers' weight gradients."""
    sizes = {"TILE": division.tile, "STAGES": division.stages, "MIN_BLOCKS": division.min_blocks, "MAX_LAYERS": table_size(num_layers)}
    return {"HIDDEN": call.network.hidden_channels, "PRECISION": PRECISIONS.index(call.options.precision), **sizes}


def prefetch_kernels(call: GcnCall, gpu: Gpu) -> list[tuple[str, dict[str, int]]]:
    """Return the sources and macros of a forward's other kernels and of its backward's kernels, to compile them at the same time."""
    division, trains = molecule_blocks(call, gpu), call.options.save_for_backward
    assert division is not None
    kernels = [("gcn_molecules_backward.cu", layer_macros(call, division, call.graph.x.requires_grad))] if trains else []
    for first in range(0, call.network.num_layers, MAX_TABLE):
        for backward in (False, True)[: 1 + trains]:
            kernels.append(("gcn_layer_prepare.cu", prepare_macros(call, min(MAX_TABLE, call.network.num_layers - first), backward)))
    if trains:
        kernels.append(part_sums.source(call.graph.x.element_size()))
    for first, end, weights in weight_spans(call, gpu) if trains else ():
        kernels.append(("gcn_layer_weights.cu", weights_macros(call, end - first, weights)))
    return kernels
