"""`molgcn::message_network` on CUDA with batch statistics: one launch runs all layers of a small batch on GPUs that have clusters.

The kernels are `cuda/gcn_chain_*.cu`. Preparation, pooling and weight gradients use the kernels of :mod:`molgcn.ops.gcn_layers_cuda`.
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

from torch import Tensor

from molgcn.cuda_runtime.kernel import Kernel
from molgcn.cuda_runtime.launch import gpu, kernel
from molgcn.cuda_runtime.structs import fill
from molgcn.ops.gcn_chain_plan import Chain, chains
from molgcn.ops.gcn_layers_arguments import CHAIN, table_size
from molgcn.ops.gcn_layers_launches import LayerLaunches
from molgcn.ops.gcn_layers_macros import layer_macros, prepare_macros, weights_macros
from molgcn.ops.gcn_layers_plan import blocks, padded_width
from molgcn.ops.gcn_weights_plan import WeightBlocks, weight_blocks
from molgcn.ops.message_network import PRECISIONS, NetworkCall
from molgcn.ops.spec import POOLS, Parameters


class Launch(NamedTuple):
    """A kernel whose blocks all run on the GPU at once, and how they divide the atoms."""

    division: Chain
    function: Kernel

    def run(self, parameters: Any) -> None:
        """Launch the kernel."""
        it = self.division
        self.function.launch(it.num_blocks, it.threads, it.shared_bytes, parameters, cooperative=True, cluster=it.cluster)


def find(call: NetworkCall, name: str) -> Launch | None:
    """Return the launch of the kernel `name` for a batch, or None if the layers must be launched one by one."""
    for chain in chains(call, gpu(call.graph.x.device)):
        defines = _defines(call, chain)
        function = kernel(f"{name}.cu", name, defines, call.graph.x.device, partial(prefetch_kernels, call, defines))
        if function.resident_blocks(chain.threads, chain.shared_bytes, chain.cluster) >= chain.num_blocks:
            return Launch(chain, function)
    return None


def prefetch_kernels(call: NetworkCall, defines: dict[str, int]) -> list[tuple[str, dict[str, int]]]:
    """Return the sources and macros of the kernels that follow the forward kernel, to compile them at the same time."""
    own_gpu, num_layers = gpu(call.graph.x.device), call.spec.num_layers
    kernels = [("gcn_layer_prepare.cu", prepare_macros(call, num_layers, backward=False))]
    kernels.append(("gcn_layer_pool.cu", layer_macros(call, blocks(call, own_gpu))))
    if call.options.save_for_backward:
        division = weight_blocks(call, 0, num_layers, own_gpu)
        kernels += [("gcn_chain_backward.cu", defines), ("gcn_layer_weights.cu", weights_macros(call, num_layers, division))]
        kernels.append(("gcn_layer_prepare.cu", prepare_macros(call, num_layers, backward=True)))
    return kernels


def _defines(call: NetworkCall, chain: Chain) -> dict[str, int]:
    return {
        "HIDDEN": call.spec.hidden_channels,
        "PRECISION": PRECISIONS.index(call.options.precision),
        "DROPOUT": int(call.dropout_rate > 0),
        "SELF_LOOPS": int(call.spec.add_self_loops),
        "POOL": POOLS.index(call.spec.pool),
        "MAX_LAYERS": table_size(call.spec.num_layers),
        **chain.defines,
    }


def _parameters(run: LayerLaunches) -> Any:
    call = run.call
    it: Any = CHAIN[table_size(call.spec.num_layers)]()
    fill(it, {"ptr": call.graph.ptr, "rowptr": call.graph.rowptr, "col": call.graph.col, "seed": call.seed})
    for name in ("sources", "factors", "scale", "graph", "features", "raw", "moments", "masks", "largest", "ties"):
        setattr(it, name, run.saved[name])
    it.x, it.fragments, it.scales = run.feature(0), run.scratch["fragments"], run.scratch["scales"]
    it.arrivals, it.sums = run.counters(0), -(-run.counters(call.spec.num_layers + 1) // 16) * 16  # both are zeros at first
    it.num_graphs, (it.num_nodes, it.num_features), it.in_width = call.graph.num_graphs, call.graph.x.shape, run.in_width
    it.num_layers, it.num_norms = call.spec.num_layers, call.spec.num_norms
    it.residual, it.first_residual = int(call.spec.residual), int(run.residual(0))
    it.dropout_threshold, it.dropout_scale = run.arguments.dropout_threshold, run.arguments.dropout_scale
    it.eps, it.momentum = call.spec.eps, call.spec.momentum
    for layer in range(call.spec.num_norms):
        it.layers[layer].norm_weight = call.parameters.norm_weights[layer].data_ptr()
        it.layers[layer].norm_bias = call.parameters.norm_biases[layer].data_ptr()
    return it


def forward(launch: Launch, call: NetworkCall, pooled: Tensor, statistics: Tensor, saved: Tensor) -> None:
    """Compute what :func:`molgcn.ops.gcn_layers_cuda.forward` computes, in three launches."""
    run = LayerLaunches(call, saved, {"counters": launch.division.sums_bytes // 4 + 4}, backward=False)
    run.prepare()
    it = _parameters(run)
    it.new_mean, it.new_variance = (of_all.data_ptr() for of_all in statistics)
    for layer in range(call.spec.num_layers):
        it.layers[layer].bias = call.parameters.biases[layer].data_ptr()
    for layer in range(call.spec.num_norms):
        it.layers[layer].mean = call.parameters.running_means[layer].data_ptr()
        it.layers[layer].variance = call.parameters.running_vars[layer].data_ptr()
    launch.run(it)
    last = call.spec.num_layers - 1
    if call.spec.last_activation:
        run.wait_for(last, statistics)
        run.arguments.in_.sums = it.sums + last % 2 * (launch.division.sums_bytes // 2)
        run.arguments.atoms_per_part = launch.division.atoms_per_part
    else:
        run.arguments.input = run.feature(call.spec.num_layers)
    run.launch_pool(pooled)


def backward(launch: Launch, call: NetworkCall, grad_pooled: Tensor, saved: Tensor, grad_x: Tensor, gradients: Parameters) -> None:
    """Compute what :func:`molgcn.ops.gcn_layers_cuda.backward` computes, in three launches."""
    division: WeightBlocks = weight_blocks(call, 0, call.spec.num_layers, gpu(call.graph.x.device))
    plane = 4 * call.graph.num_nodes * padded_width(call.spec.hidden_channels)
    sizes = {
        "counters": launch.division.sums_bytes // 4 + 4 + division.num_tiles,
        "outputs": 2 * plane,
        "kept": call.spec.num_layers * plane,
        "weights": division.partial_bytes,
    }
    run = LayerLaunches(call, saved, sizes, backward=True)
    run.prepare()
    it = _parameters(run)
    it.grad_pooled, it.grad_x = grad_pooled.data_ptr(), grad_x.data_ptr() if grad_x.numel() > 0 else 0
    it.outputs, it.gradients = run.scratch["outputs"], run.scratch["kept"]
    for layer in range(call.spec.num_layers):
        it.layers[layer].grad_bias = gradients.biases[layer].data_ptr()
    for layer in range(call.spec.num_norms):
        it.layers[layer].grad_norm_weight = gradients.norm_weights[layer].data_ptr()
        it.layers[layer].grad_norm_bias = gradients.norm_biases[layer].data_ptr()
    launch.run(it)
    run.launch_weights(division, 0, call.spec.num_layers, it.sums + launch.division.sums_bytes, gradients.weights)
