"""`molgcn::gcn_stack` on CUDA one layer at a time (strategy `vertex`), no atomics on features: one launch a layer each way.

Small batches with batch statistics have one launch for all layers where the GPU can do that (:mod:`molgcn.ops.gcn_chain_cuda`).
"""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor

from molgcn.cuda_runtime.launch import gpu
from molgcn.ops import gcn_chain_cuda
from molgcn.ops.gcn_layers_launches import LayerLaunches
from molgcn.ops.gcn_layers_macros import prefetch_kernels
from molgcn.ops.gcn_layers_plan import layers_together, padded_width, saved_layout, weight_spans
from molgcn.ops.gcn_stack import StackInputs


def saved_bytes(inputs: StackInputs) -> int:
    """Bytes that forward leaves for backward."""
    return saved_layout(inputs).num_bytes


def forward(inputs: StackInputs, outputs: tuple[Tensor, Tensor, Tensor, Tensor]) -> None:
    """Fills the outputs of the schema in :mod:`molgcn.ops.gcn_stack`."""
    pooled, means, variances, saved = outputs
    if not inputs.save_for_backward:
        saved = inputs.x.new_empty(saved_layout(inputs, keep=False).num_bytes, dtype=torch.uint8)
    if (chain := gcn_chain_cuda.find(inputs, "gcn_chain_forward")) is not None:
        return gcn_chain_cuda.forward(chain, inputs, (pooled, means, variances, saved))
    run = LayerLaunches(inputs, saved, {}, backward=False)
    it, function = run.arguments, run.kernel(run.blocks.kernel("forward"), partial(prefetch_kernels, inputs, run.gpu))
    run.prepare()

    for layer in range(inputs.num_layers):
        if run.statistics and layer > 0:
            run.wait_for(layer - 1, means, variances)
        else:
            it.input = run.feature(layer)
        it.out = run.activation(layer)
        it.in_width = run.width if layer else run.in_width
        run.operands(layer)
        it.bias = inputs.biases[layer].data_ptr()
        it.residual = run.feature(layer) if run.residual(layer) else 0
        it.output = run.feature(layer + 1)
        it.arrivals = run.counters(layer)
        run.launch_layer(function, overlap=layer > 0)
    if run.statistics and inputs.last_activation:
        run.wait_for(inputs.num_layers - 1, means, variances)
    else:
        it.in_.on = 0
        it.input = run.feature(inputs.num_layers)
    run.launch_pool(pooled)


def backward(inputs: StackInputs, grad_pooled: Tensor, saved: Tensor, gradients: tuple[Tensor, list, list, list, list]) -> None:
    """Fills the gradients of the schema in :mod:`molgcn.ops.gcn_stack`; x's is wanted unless it is empty."""
    if (chain := gcn_chain_cuda.find(inputs, "gcn_chain_backward")) is not None:
        return gcn_chain_cuda.backward(chain, inputs, grad_pooled, saved, gradients)
    grad_x, grad_weights, grad_biases, grad_norm_weights, grad_norm_biases = gradients
    num_layers, chunks = inputs.num_layers, weight_spans(inputs, gpu(inputs.x.device))
    plane = 4 * inputs.x.shape[0] * padded_width(inputs.hidden_channels)
    sizes = {
        "counters": sum(each.num_tiles for _, _, each in chunks),
        "outputs": 2 * plane,
        "gradients": 2 * plane,
        "kept": layers_together(inputs) * plane,
        "weights": max(each.partial_bytes for _, _, each in chunks),
    }
    run = LayerLaunches(inputs, saved, sizes, backward=True)
    run.prepare()
    needs_grad_x = grad_x.numel() > 0
    it, function = run.arguments, run.kernel(run.blocks.kernel("backward"), needs_grad_x=needs_grad_x)

    def go_through(layer: int) -> None:
        """The kernel ends with relu, dropout and norm of the layer, whose output's gradient it makes."""
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
            it.in_.grad_layer_bias = grad_biases[layer].data_ptr()
            if inputs.norm is not None and it.in_.on:
                it.in_.grad_weight, it.in_.grad_bias = grad_norm_weights[layer].data_ptr(), grad_norm_biases[layer].data_ptr()
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
        run.launch_weights(division, first, end, first_counter, grad_weights)
        first_counter += 4 * division.num_tiles
