"""`molgcn::gcn_stack` on CUDA with batch statistics, small batches on GPUs that have clusters: all layers of a pass in one launch.

Kernels: `cuda/gcn_chain_*.cu`; those that prepare, pool and form weight gradients are the layers'.
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

from torch import Tensor

from molgcn.cuda_runtime.launch import Kernel, gpu, kernel
from molgcn.ops.gcn_chain_plan import Chain, chains
from molgcn.ops.gcn_layers_arguments import CHAIN, table_size
from molgcn.ops.gcn_layers_launches import LayerLaunches
from molgcn.ops.gcn_layers_macros import layer_macros, prepare_macros, weights_macros
from molgcn.ops.gcn_layers_plan import WeightBlocks, blocks, padded_width, weight_blocks
from molgcn.ops.gcn_stack import POOLS, PRECISIONS, StackInputs


class Launch(NamedTuple):
    """A kernel whose blocks are all on the GPU at once."""

    division: Chain
    function: Kernel

    def run(self, parameters: Any) -> None:
        """Launches it."""
        it = self.division
        self.function.launch(it.num_blocks, it.threads, it.shared_bytes, parameters, cooperative=True, cluster=it.cluster)


def find(inputs: StackInputs, name: str) -> Launch | None:
    """The kernel `name` for a batch, or None where layers are launched one by one."""
    for chain in chains(inputs, gpu(inputs.x.device)):
        defines = _defines(inputs, chain)
        function = kernel(f"{name}.cu", name, defines, inputs.x.device, partial(prefetch_kernels, inputs, defines))
        if function.resident_blocks(chain.threads, chain.shared_bytes, chain.cluster) >= chain.num_blocks:
            return Launch(chain, function)
    return None


def prefetch_kernels(inputs: StackInputs, defines: dict[str, int]) -> list[tuple[str, dict[str, int]]]:
    """Return sources and macros of what follows the forward kernel, to be compiled at the same time."""
    own_gpu, num_layers = gpu(inputs.x.device), inputs.num_layers
    kernels = [("gcn_layer_prepare.cu", prepare_macros(inputs, num_layers, backward=False))]
    kernels.append(("gcn_layer_pool.cu", layer_macros(inputs, blocks(inputs, own_gpu))))
    if inputs.save_for_backward:
        tile = weight_blocks(inputs, 0, num_layers, own_gpu).tile
        kernels += [("gcn_chain_backward.cu", defines), ("gcn_layer_weights.cu", weights_macros(inputs, num_layers, tile))]
        kernels.append(("gcn_layer_prepare.cu", prepare_macros(inputs, num_layers, backward=True)))
    return kernels


def _defines(inputs: StackInputs, chain: Chain) -> dict[str, int]:
    return {
        "HIDDEN": inputs.hidden_channels,
        "PRECISION": PRECISIONS.index(inputs.precision),
        "DROPOUT": int(inputs.dropout_rate > 0),
        "SELF_LOOPS": int(inputs.add_self_loops),
        "POOL": POOLS.index(inputs.pool),
        "MAX_LAYERS": table_size(inputs.num_layers),
        **chain.defines,
    }


def _parameters(run: LayerLaunches) -> Any:
    inputs = run.inputs
    it: Any = CHAIN[table_size(inputs.num_layers)]()
    for name in ("ptr", "rowptr", "col", "seed"):
        setattr(it, name, getattr(inputs, name).data_ptr())
    for name in ("sources", "factors", "scale", "graph", "features", "raw", "moments", "masks", "largest", "ties"):
        setattr(it, name, run.saved[name])
    it.x, it.fragments, it.scales = run.feature(0), run.scratch["fragments"], run.scratch["scales"]
    it.arrivals, it.sums = run.counters(0), -(-run.counters(inputs.num_layers + 1) // 16) * 16  # both are zeros at first
    it.num_graphs, (it.num_nodes, it.num_features), it.in_width = inputs.num_graphs, inputs.x.shape, run.in_width
    it.num_layers, it.num_norms = inputs.num_layers, inputs.num_norms
    it.residual, it.first_residual = int(inputs.residual), int(run.residual(0))
    it.dropout_threshold, it.dropout_scale = run.arguments.dropout_threshold, run.arguments.dropout_scale
    it.eps, it.momentum = inputs.eps, inputs.momentum
    for layer in range(inputs.num_norms):
        it.layers[layer].norm_weight = inputs.norm_weights[layer].data_ptr()
        it.layers[layer].norm_bias = inputs.norm_biases[layer].data_ptr()
    return it


def forward(launch: Launch, inputs: StackInputs, outputs: tuple[Tensor, Tensor, Tensor, Tensor]) -> None:
    """As :func:`molgcn.ops.gcn_layers_cuda.forward`, in three launches."""
    pooled, means, variances, saved = outputs
    run = LayerLaunches(inputs, saved, {"counters": launch.division.sums_bytes // 4 + 4}, backward=False)
    run.prepare()
    it = _parameters(run)
    it.new_mean, it.new_variance = means.data_ptr(), variances.data_ptr()
    for layer in range(inputs.num_layers):
        it.layers[layer].bias = inputs.biases[layer].data_ptr()
    for layer in range(inputs.num_norms):
        it.layers[layer].mean = inputs.running_means[layer].data_ptr()
        it.layers[layer].variance = inputs.running_vars[layer].data_ptr()
    launch.run(it)
    last = inputs.num_layers - 1
    if inputs.last_activation:
        run.wait_for(last, means, variances)
        run.arguments.in_.sums = it.sums + last % 2 * (launch.division.sums_bytes // 2)
        run.arguments.atoms_per_part = launch.division.atoms_per_part
    else:
        run.arguments.input = run.feature(inputs.num_layers)
    run.launch_pool(pooled)


def backward(
    launch: Launch, inputs: StackInputs, grad_pooled: Tensor, saved: Tensor, gradients: tuple[Tensor, list, list, list, list]
) -> None:
    """As :func:`molgcn.ops.gcn_layers_cuda.backward`, in three launches."""
    grad_x, grad_weights, grad_biases, grad_norm_weights, grad_norm_biases = gradients
    division: WeightBlocks = weight_blocks(inputs, 0, inputs.num_layers, gpu(inputs.x.device))
    plane = 4 * inputs.x.shape[0] * padded_width(inputs.hidden_channels)
    sizes = {
        "counters": launch.division.sums_bytes // 4 + 4 + division.num_tiles,
        "outputs": 2 * plane,
        "kept": inputs.num_layers * plane,
        "weights": division.partial_bytes,
    }
    run = LayerLaunches(inputs, saved, sizes, backward=True)
    run.prepare()
    it = _parameters(run)
    it.grad_pooled, it.grad_x = grad_pooled.data_ptr(), grad_x.data_ptr() if grad_x.numel() > 0 else 0
    it.outputs, it.gradients = run.scratch["outputs"], run.scratch["kept"]
    for layer in range(inputs.num_layers):
        it.layers[layer].grad_bias = grad_biases[layer].data_ptr()
    for layer in range(inputs.num_norms):
        it.layers[layer].grad_norm_weight = grad_norm_weights[layer].data_ptr()
        it.layers[layer].grad_norm_bias = grad_norm_biases[layer].data_ptr()
    launch.run(it)
    run.launch_weights(division, 0, inputs.num_layers, it.sums + launch.division.sums_bytes, grad_weights)
