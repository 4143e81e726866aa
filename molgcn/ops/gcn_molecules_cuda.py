"""`molgcn::layer_network` on CUDA where blocks take tiles of whole molecules through all layers (`cuda/gcn_molecules_*.cu`)."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import Tensor

from molgcn.cuda_runtime.kernel import Kernel
from molgcn.cuda_runtime.launch import gpu
from molgcn.ops.gcn_layers_arguments import LAYERS
from molgcn.ops.gcn_layers_arguments import Parameters as Arguments
from molgcn.ops.gcn_layers_launches import LayerLaunches
from molgcn.ops.gcn_layers_macros import prefetch_kernels
from molgcn.ops.gcn_layers_plan import molecule_blocks, padded_width, saved_layout
from molgcn.ops.gcn_network import GcnCall, Parameters
from molgcn.ops.gcn_weights_plan import layers_together, weight_spans
from molgcn.ops.part_sums import PartSums, Sum


def forward(call: GcnCall, pooled: Tensor, statistics: Tensor, saved: Tensor) -> None:
    """Compute pooled features and `saved`."""
    if not call.options.save_for_backward:
        saved = call.graph.x.new_empty(saved_layout(call, keep=False).num_bytes, dtype=torch.uint8)
    run = MoleculeLaunches(call, saved, {}, backward=False)
    it, function = run.arguments, run.kernel("gcn_molecules_forward", partial(prefetch_kernels, call, run.gpu))
    run.prepare()
    for layer in range(call.network.num_layers):
        it.input, it.out = run.feature(layer), run.activation(layer)
        it.in_width = run.width if layer else run.in_width
        run.operands(layer)
        it.bias = call.parameters.biases[layer].data_ptr()
        it.residual = run.feature(layer) if run.residual(layer) else 0
        it.output = run.feature(layer + 1)
        run.add_layer()
    run.launch(function, pooled)


def backward(call: GcnCall, grad_pooled: Tensor, saved: Tensor, grad_x: Tensor, gradients: Parameters) -> None:
    """Compute the gradients of the parameters, and of x unless `grad_x` is empty."""
    num_layers, device = call.network.num_layers, gpu(call.graph.x.device)
    chunks = weight_spans(call, device)
    plane = 4 * call.graph.num_nodes * padded_width(call.network.hidden_channels)
    sizes = {
        "counters": 4 * sum(each.num_tiles for _, _, each in chunks),
        "outputs": 2 * plane,
        "gradients": 2 * plane,
        "kept": layers_together(call, device) * plane,
        "weights": max(each.partial_bytes for _, _, each in chunks),
    }
    run = MoleculeLaunches(call, saved, sizes, backward=True)
    run.prepare()
    needs_grad_x = grad_x.numel() > 0
    it, function = run.arguments, run.kernel("gcn_molecules_backward", needs_grad_x=needs_grad_x)

    def go_through(layer: int) -> None:
        """Let the next layer end with the backward of the layer's dropout, relu and norm, whose output's gradient it computes."""
        it.out = run.activation(layer)
        waits = not it.out.on
        it.output = run.scratch["outputs"] + (layer + 1) % 2 * plane if waits or run.residual(layer) else 0
        it.next_gradient = 0 if waits else run.scratch["gradients"] + layer % 2 * plane

    it.grad_pooled, it.input = grad_pooled.data_ptr(), run.feature(num_layers)
    go_through(num_layers - 1)
    run.add_layer()
    it.grad_pooled = it.input = 0
    first_counter = run.scratch["counters"]
    for first, end, division in chunks:
        for layer in range(end - 1, first - 1, -1):
            it.in_ = it.out
            it.in_.grad_layer_bias = gradients.biases[layer].data_ptr()
            if call.network.norm is not None and it.in_.on:
                it.in_.grad_weight, it.in_.grad_bias = gradients.norm_weights[layer].data_ptr(), gradients.norm_biases[layer].data_ptr()
            it.gradient = it.next_gradient or it.output
            it.residual = it.output if run.residual(layer) else 0
            run.operands(layer)
            it.kept = run.scratch["kept"] + (layer - first) * plane
            it.in_width = run.width if layer else run.in_width
            if layer > 0:
                go_through(layer - 1)
            elif needs_grad_x:
                it.grad_x = grad_x.data_ptr()
            run.add_layer()
        run.launch(function)
        run.launch_weights(division, first, end, first_counter, gradients.weights)
        first_counter += 4 * division.num_tiles


class MoleculeLaunches(LayerLaunches):
    """Launches that collect the arguments of layers, and then compute these layers at once; see :class:`LayerLaunches`."""

    def __init__(self, call: GcnCall, saved: Tensor, scratch: dict[str, int], *, backward: bool) -> None:
        blocks = molecule_blocks(call, gpu(call.graph.x.device))
        assert blocks is not None
        kinds = 2 if not backward else 1 if call.network.norm is None else 3
        self._row = kinds * blocks.width  # the numbers of a tile's column sums
        sums = {"sums": 4 * call.network.num_layers * self._row * blocks.num_tiles} if backward else {}
        super().__init__(call, saved, blocks, {**sums, **scratch}, backward=backward)
        self._layers: list[Any] = []
        self._sums = PartSums(call.graph.x)

    def activation(self, layer: int) -> Any:
        """Return the arguments of the norm, relu and dropout that follow a layer's product."""
        it: Any = super().activation(layer)
        it.sums = self.scratch["sums"] + 4 * layer * self._row * self.blocks.num_tiles if self.backward else 0
        return it

    def add_layer(self) -> None:
        """Collect a layer, whose arguments are :attr:`arguments`."""
        it: Any = Arguments.from_buffer_copy(self.arguments)
        layer = it.out.layer
        if self.backward:
            if not self.residual(layer):
                it.output = 0  # the gradient stays on chip
            if not it.grad_pooled:
                self._add_up(it.in_)
        elif not self._is_read(layer + 1):
            it.output = 0
        self._layers.append(it)

    def _is_read(self, layer: int) -> bool:
        """Return whether a layer's input, or for layer L the last one's output, is read from memory: in backward, or as a residual."""
        network, keep = self.call.network, self.call.options.save_for_backward
        return keep and network.pool == "max" if layer == network.num_layers else keep or self.residual(layer)

    def _add_up(self, layer: Any) -> None:
        """Remember to add up the tiles' sums, which are the gradients of a layer's bias and norm."""
        outs = [layer.grad_layer_bias]
        if self.call.network.norm is not None and layer.on:
            outs += [layer.grad_bias, layer.grad_weight]
        for kind, out in enumerate(outs):
            parts = layer.sums + 4 * kind * self.width
            self._sums.add(Sum(out, self.call.network.hidden_channels, parts, self.blocks.num_tiles, self._row))

    def launch(self, function: Kernel, pooled: Tensor | None = None) -> None:
        """Launch the layers that have been collected, after which forward pools its molecules.

        In backward the last layer leaves its gradient if more layers follow.
        """
        layers, self._layers = self._layers, []
        assert self.call.graph.tile_ptr is not None
        table: Any = LAYERS[self.blocks.max_layers](tile_ptr=self.call.graph.tile_ptr.data_ptr(), num_layers=len(layers))
        if pooled is not None:
            layers[-1].pooled = pooled.data_ptr()
        for i, layer in enumerate(layers):
            if i + 1 < len(layers) or layer.in_.layer == 0:
                layer.next_gradient = 0
            table.layers[i] = layer
        function.launch(self.blocks.num_tiles, self.blocks.threads, self.blocks.shared_bytes, table, overlap=True)
        self._sums.launch()
