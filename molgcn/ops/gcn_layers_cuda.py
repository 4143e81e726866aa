"""`molgcn::message_network` on CUDA one layer at a time (strategy `layer`): one launch per layer in forward and one in backward.

No features are added atomically. One launch does all layers of small batches with batch statistics if the GPU can do that
(:mod:`molgcn.ops.gcn_chain_cuda`), and of large batches without them if the graph has tiles (:mod:`molgcn.ops.gcn_molecules_launches`).
"""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor

from molgcn.cuda_runtime.launch import gpu
from molgcn.ops import gcn_chain_cuda
from molgcn.ops.gcn_layers_macros import prefetch_kernels
from molgcn.ops.gcn_layers_plan import padded_width, saved_layout
from molgcn.ops.gcn_molecules_launches import launches
from molgcn.ops.gcn_weights_plan import layers_together, weight_spans
from molgcn.ops.message_network import NetworkCall
from molgcn.ops.spec import Parameters


def saved_bytes(call: NetworkCall) -> int:
    """Return how many bytes forward keeps for backward."""
    return saved_layout(call).num_bytes


def forward(call: NetworkCall, pooled: Tensor, statistics: Tensor, saved: Tensor) -> None:
    """Compute pooled features, running statistics and `saved`; see :class:`molgcn.ops.message_network.Outputs`."""
    if not call.options.save_for_backward:
        saved = call.graph.x.new_empty(saved_layout(call, keep=False).num_bytes, dtype=torch.uint8)
    if (chain := gcn_chain_cuda.find(call, "gcn_chain_forward")) is not None:
        return gcn_chain_cuda.forward(chain, call, pooled, statistics, saved)
    run = launches(call, saved, {}, backward=False)
    it, function = run.arguments, run.kernel(run.blocks.kernel("forward"), partial(prefetch_kernels, call, run.gpu))
    run.prepare()

    for layer in range(call.spec.num_layers):
        if run.statistics and layer > 0:
            run.wait_for(layer - 1, statistics)
        else:
            it.input = run.feature(layer)
        it.out = run.activation(layer)
        it.in_width = run.width if layer else run.in_width
        run.operands(layer)
        it.bias = call.parameters.biases[layer].data_ptr()
        it.residual = run.feature(layer) if run.residual(layer) else 0
        it.output = run.feature(layer + 1)
        it.arrivals = run.counters(layer)
        run.launch_layer(function, overlap=layer > 0)
    if run.statistics and call.spec.last_activation:
        run.wait_for(call.spec.num_layers - 1, statistics)
    else:
        it.in_.on = 0
        it.input = run.feature(call.spec.num_layers)
    run.launch_pool(pooled)


def backward(call: NetworkCall, grad_pooled: Tensor, saved: Tensor, grad_x: Tensor, gradients: Parameters) -> None:
    """Compute the gradients of the parameters, and of x unless `grad_x` is empty."""
    if (chain := gcn_chain_cuda.find(call, "gcn_chain_backward")) is not None:
        return gcn_chain_cuda.backward(chain, call, grad_pooled, saved, grad_x, gradients)
    num_layers, device = call.spec.num_layers, gpu(call.graph.x.device)
    chunks = weight_spans(call, device)
    plane = 4 * call.graph.num_nodes * padded_width(call.spec.hidden_channels)
    sizes = {
        "counters": sum(each.num_tiles for _, _, each in chunks),
        "outputs": 2 * plane,
        "gradients": 2 * plane,
        "kept": layers_together(call, device) * plane,
        "weights": max(each.partial_bytes for _, _, each in chunks),
    }
    run = launches(call, saved, sizes, backward=True)
    run.prepare()
    needs_grad_x = grad_x.numel() > 0
    it, function = run.arguments, run.kernel(run.blocks.kernel("backward"), needs_grad_x=needs_grad_x)

    def go_through(layer: int) -> None:
        """Let the next launch end with the backward of the layer's dropout, relu and norm, whose output's gradient it computes."""
        it.out = run.activation(layer)
        waits = run.statistics or not it.out.on
        it.output = run.scratch["outputs"] + (layer + 1) % 2 * plane if waits or run.residual(layer) else 0
        it.next_gradient = 0 if waits else run.scratch["gradients"] + layer % 2 * plane

    it.grad_pooled, it.input = grad_pooled.data_ptr(), run.feature(num_layers)
    it.arrivals = run.counters(num_layers)
    go_through(num_layers - 1)
    run.launch_layer(function, overlap=False)
    it.grad_pooled = it.input = 0
    first_counter = run.counters(num_layers + 1)
    for first, end, division in chunks:
        for layer in range(end - 1, first - 1, -1):
            it.in_ = it.out
            it.in_.grad_layer_bias = gradients.biases[layer].data_ptr()
            if call.spec.norm is not None and it.in_.on:
                it.in_.grad_weight, it.in_.grad_bias = gradients.norm_weights[layer].data_ptr(), gradients.norm_biases[layer].data_ptr()
            it.gradient = it.next_gradient or it.output
            it.residual = it.output if run.residual(layer) else 0
            run.operands(layer)
            it.kept = run.scratch["kept"] + (layer - first) * plane
            it.in_width = run.width if layer else run.in_width
            it.arrivals = run.counters(layer)
            if layer > 0:
                go_through(layer - 1)
            elif needs_grad_x:
                it.grad_x = grad_x.data_ptr()
            run.launch_layer(function)
        run.flush()
        run.launch_weights(division, first, end, first_counter, gradients.weights)
        first_counter += 4 * division.num_tiles
