"""`molgcn::layer_network` on CUDA with batch statistics: one launch runs all layers of a small batch on GPUs that have clusters.

The kernels are `cuda/gcn_chain_*.cu`. Preparation, pooling and weight gradients use those of :mod:`molgcn.ops.gcn_layers_launches`.
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor

from molgcn.cuda_runtime.kernel import Kernel
from molgcn.cuda_runtime.launch import gpu, kernel
from molgcn.cuda_runtime.structs import fill
from molgcn.ops.gcn_chain_plan import Chain, chains
from molgcn.ops.gcn_layers_arguments import CHAIN, table_size
from molgcn.ops.gcn_layers_launches import LayerLaunches
from molgcn.ops.gcn_layers_macros import layer_macros, prepare_macros, weights_macros
from molgcn.ops.gcn_layers_plan import padded_width, pool_blocks, saved_layout
from molgcn.ops.gcn_network import GcnCall, Parameters
from molgcn.ops.gcn_weights_plan import WeightBlocks, weight_blocks
from molgcn.ops.layer_network.call import PRECISIONS
from molgcn.ops.layer_network.program import POOLS

_ARRIVALS = 4  # the counters before the sums, of which the kernels use one: sums are read four at a time


class Launches(NamedTuple):
    """The kernels of both passes, whose blocks all run on the GPU at once, and how they divide the atoms."""

    division: Chain
    kernels: tuple[Kernel, ...]

    def run(self, parameters: Any, *, backward: bool) -> None:
        """Launch the kernel of a pass."""
        it = self.division
        self.kernels[backward].launch(it.num_blocks, it.threads, it.shared_bytes, parameters, cooperative=True, cluster=it.cluster)


def find(call: GcnCall) -> Launches | None:
    """Return the launches for a batch, or None if its layers cannot be one launch each way."""
    names = ("gcn_chain_forward", "gcn_chain_backward")[: 1 + call.options.save_for_backward]
    for chain in chains(call, gpu(call.graph.x.device)):
        defines = _defines(call, chain)
        prefetch = partial(prefetch_kernels, call, defines)
        kernels = tuple(kernel(f"{name}.cu", name, defines, call.graph.x.device, prefetch) for name in names)
        if all(each.resident_blocks(chain.threads, chain.shared_bytes, chain.cluster) >= chain.num_blocks for each in kernels):
            return Launches(chain, kernels)
    return None


def _found(call: GcnCall) -> Launches:
    launches = find(call)
    assert launches is not None
    return launches


def prefetch_kernels(call: GcnCall, defines: dict[str, int]) -> list[tuple[str, dict[str, int]]]:
    """Return the sources and macros of the kernels that follow the forward kernel, to compile them at the same time."""
    own_gpu, num_layers = gpu(call.graph.x.device), call.network.num_layers
    kernels = [("gcn_layer_prepare.cu", prepare_macros(call, num_layers, backward=False))]
    kernels.append(("gcn_layer_pool.cu", layer_macros(call, pool_blocks(call, own_gpu))))
    if call.options.save_for_backward:
        division = weight_blocks(call, 0, num_layers, own_gpu)
        kernels += [("gcn_chain_backward.cu", defines), ("gcn_layer_weights.cu", weights_macros(call, num_layers, division))]
        kernels.append(("gcn_layer_prepare.cu", prepare_macros(call, num_layers, backward=True)))
    return kernels


def _defines(call: GcnCall, chain: Chain) -> dict[str, int]:
    return {
        "HIDDEN": call.network.hidden_channels,
        "PRECISION": PRECISIONS.index(call.options.precision),
        "DROPOUT": int(call.dropout_rate > 0),
        "SELF_LOOPS": int(call.network.add_self_loops),
        "POOL": POOLS.index(call.network.pool),
        "MAX_LAYERS": table_size(call.network.num_layers),
        **chain.defines,
    }


def _parameters(run: LayerLaunches) -> Any:
    call = run.call
    it: Any = CHAIN[table_size(call.network.num_layers)]()
    fill(it, {"ptr": call.graph.ptr, "rowptr": call.graph.rowptr, "col": call.graph.col, "seed": call.seed})
    for name in ("sources", "factors", "scale", "graph", "features", "raw", "moments", "masks", "largest", "ties"):
        setattr(it, name, run.saved[name])
    it.x, it.fragments, it.scales = run.feature(0), run.scratch["fragments"], run.scratch["scales"]
    it.arrivals, it.sums = run.scratch["counters"], run.scratch["counters"] + 4 * _ARRIVALS  # both are zeros at first
    it.num_graphs, (it.num_nodes, it.num_features), it.in_width = call.graph.num_graphs, call.graph.x.shape, run.in_width
    it.num_layers, it.num_norms = call.network.num_layers, call.network.num_norms
    it.residual, it.first_residual = int(call.network.residual), int(run.residual(0))
    it.dropout_threshold, it.dropout_scale = run.arguments.dropout_threshold, run.arguments.dropout_scale
    it.eps, it.momentum = call.network.eps, call.network.momentum
    for layer in range(call.network.num_norms):
        it.layers[layer].norm_weight = call.parameters.norm_weights[layer].data_ptr()
        it.layers[layer].norm_bias = call.parameters.norm_biases[layer].data_ptr()
    return it


def forward(call: GcnCall, pooled: Tensor, statistics: Tensor, saved: Tensor) -> None:
    """Compute pooled features, running statistics and `saved`, in three launches."""
    launches = _found(call)
    if not call.options.save_for_backward:
        saved = call.graph.x.new_empty(saved_layout(call, keep=False).num_bytes, dtype=torch.uint8)
    sizes = {"counters": 4 * (_ARRIVALS + launches.division.sums_bytes // 4)}
    run = LayerLaunches(call, saved, pool_blocks(call, gpu(call.graph.x.device)), sizes, backward=False)
    run.prepare()
    it = _parameters(run)
    it.new_mean, it.new_variance = (of_all.data_ptr() for of_all in statistics)
    for layer in range(call.network.num_layers):
        it.layers[layer].bias = call.parameters.biases[layer].data_ptr()
    for layer in range(call.network.num_norms):
        it.layers[layer].mean = call.parameters.running_means[layer].data_ptr()
        it.layers[layer].variance = call.parameters.running_vars[layer].data_ptr()
    launches.run(it, backward=False)
    last = call.network.num_layers - 1
    if call.network.last_activation:
        run.wait_for(last, statistics)
        run.arguments.in_.sums = it.sums + last % 2 * (launches.division.sums_bytes // 2)
        run.arguments.atoms_per_part = launches.division.atoms_per_part
    else:
        run.arguments.input = run.feature(call.network.num_layers)
    run.launch_pool(pooled)


def backward(call: GcnCall, grad_pooled: Tensor, saved: Tensor, grad_x: Tensor, gradients: Parameters) -> None:
    """Compute the gradients of the parameters, and of x unless `grad_x` is empty, in three launches."""
    launches = _found(call)
    division: WeightBlocks = weight_blocks(call, 0, call.network.num_layers, gpu(call.graph.x.device))
    plane = 4 * call.graph.num_nodes * padded_width(call.network.hidden_channels)
    sizes = {
        "counters": 4 * (_ARRIVALS + launches.division.sums_bytes // 4 + division.num_tiles),
        "outputs": 2 * plane,
        "kept": call.network.num_layers * plane,
        "weights": division.partial_bytes,
    }
    run = LayerLaunches(call, saved, pool_blocks(call, gpu(call.graph.x.device)), sizes, backward=True)
    run.prepare()
    it = _parameters(run)
    it.grad_pooled, it.grad_x = grad_pooled.data_ptr(), grad_x.data_ptr() if grad_x.numel() > 0 else 0
    it.outputs, it.gradients = run.scratch["outputs"], run.scratch["kept"]
    for layer in range(call.network.num_layers):
        it.layers[layer].grad_bias = gradients.biases[layer].data_ptr()
    for layer in range(call.network.num_norms):
        it.layers[layer].grad_norm_weight = gradients.norm_weights[layer].data_ptr()
        it.layers[layer].grad_norm_bias = gradients.norm_biases[layer].data_ptr()
    launches.run(it, backward=True)
    run.launch_weights(division, 0, call.network.num_layers, it.sums + launches.division.sums_bytes, gradients.weights)
