"""The addresses and launches of a forward or backward pass whose kernels run many layers of graph convolutions."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from molgcn.cuda_runtime.kernel import Kernel
from molgcn.cuda_runtime.launch import Prefetch, gpu, kernel
from molgcn.cuda_runtime.structs import fill
from molgcn.ops.gcn_layers_arguments import PREPARE, WEIGHTS, Activation, Parameters
from molgcn.ops.gcn_layers_macros import layer_macros, prepare_macros, weights_macros
from molgcn.ops.gcn_layers_plan import MAX_TABLE, Blocks, Layout, moments_size, padded_width, saved_layout
from molgcn.ops.gcn_network import GcnCall
from molgcn.ops.gcn_weights_plan import WeightBlocks

_PREPARE_THREADS = 256


class LayerLaunches:
    """The addresses and launches that all passes of many layers in a launch have in common.

    Args:
        call: The network and the batch.
        saved: What forward keeps for backward.
        blocks: How the kernels divide the atoms.
        scratch: The size in bytes of each array that the pass needs besides the products' operands. "counters" are zeros at first.
        backward: Whether the pass is backward.
    """

    def __init__(self, call: GcnCall, saved: Tensor, blocks: Blocks, scratch: dict[str, int], *, backward: bool) -> None:
        self.call, self.blocks, self.backward = call, blocks, backward
        self.gpu = gpu(call.graph.x.device)
        self.width = self.blocks.width
        self.in_width = padded_width(call.network.in_channels)
        self.plane = 4 * call.graph.num_nodes * self.width
        self.planes = call.network.num_layers if call.options.save_for_backward or call.batch_statistics else 2
        self.statistics = call.batch_statistics
        layout = saved_layout(call, call.options.save_for_backward)
        self.saved = {name: saved.data_ptr() + offset for name, offset in layout.offsets.items()}
        fragments, self.scale_stride = self.fragment(call.network.num_layers), max(self.in_width, self.width)
        sizes = {"fragments": fragments, "scales": 4 * call.network.num_layers * self.scale_stride, "counters": 0, **scratch}
        layout = Layout(sizes)
        self._memory = call.graph.x.new_empty(layout.num_bytes, dtype=torch.uint8)
        self.scratch = {name: self._memory.data_ptr() + offset for name, offset in layout.offsets.items()}
        self.num_counters = sizes["counters"] // 4
        self.arguments = self._arguments()

    def fragment(self, layer: int) -> int:
        """Return the offset in bytes of a layer's operands in `fragments`."""
        return 4 * (self.in_width * self.width + (layer - 1) * self.width**2 if layer else 0)

    def operands(self, layer: int) -> None:
        """Let the next launch multiply by the layer's weight."""
        self.arguments.fragments = self.scratch["fragments"] + self.fragment(layer)
        self.arguments.scales = self.scratch["scales"] + 4 * layer * self.scale_stride

    def feature(self, layer: int) -> int:
        """Return the address of a layer's input [N, width or in_width]. The input of layer L is the last layer's output."""
        if layer == 0:
            return self.saved["x"] if self.call.network.in_channels % 16 else self.call.graph.x.data_ptr()
        return self.saved["features"] + (layer - 1) % self.planes * self.plane

    def activated(self, layer: int) -> bool:
        """Return whether norm, relu and dropout follow the layer's product."""
        return layer < self.call.network.num_layers - 1 or self.call.network.last_activation

    def residual(self, layer: int) -> bool:
        """Return whether the layer's input is added to its output."""
        return self.call.network.residual and (layer > 0 or self.call.network.in_channels == self.call.network.hidden_channels)

    def activation(self, layer: int) -> ctypes.Structure:
        """Return the arguments of the norm, relu and dropout that follow a layer's product."""
        call, it = self.call, Activation(layer=layer, on=int(self.activated(layer)))
        if not it.on:
            return it
        keep = call.options.save_for_backward or self.statistics
        if call.network.norm is not None:
            it.weight, it.bias = call.parameters.norm_weights[layer].data_ptr(), call.parameters.norm_biases[layer].data_ptr()
            if keep:
                it.raw = self.saved["raw"] + layer * self.plane
                it.moments = self.saved["moments"] + 4 * layer * moments_size(call)
        if call.parameters.running_means:
            it.mean, it.variance = call.parameters.running_means[layer].data_ptr(), call.parameters.running_vars[layer].data_ptr()
        if keep:
            it.masks = self.saved["masks"] + layer * self.plane // 16
        return it

    def wait_for(self, layer: int, statistics: Tensor) -> None:
        """Let the next launch begin with the layer's norm, relu and dropout, which had to wait for the batch statistics."""
        it, row = self.arguments, 4 * self.call.network.hidden_channels
        it.in_ = self.activation(layer)
        it.in_.new_mean, it.in_.new_variance = (of_all.data_ptr() + layer * row for of_all in statistics)
        it.input = self.feature(layer) if self.residual(layer) else 0
        it.kept = self.feature(layer + 1)

    def _arguments(self) -> ctypes.Structure:
        call, it = self.call, Parameters()
        fill(it, {"ptr": call.graph.ptr, "rowptr": call.graph.rowptr, "col": call.graph.col, "seed": call.seed})
        for name in ("sources", "factors", "scale", "graph"):
            setattr(it, name, self.saved[name])
        if call.network.pool == "max" and (call.options.save_for_backward or self.statistics):
            it.largest, it.ties = self.saved["largest"], self.saved["ties"]
        it.num_graphs, it.num_nodes, it.num_features = call.graph.num_graphs, *call.graph.x.shape
        it.dropout_threshold = int(call.dropout_rate * 2**32)
        it.dropout_scale = 1.0 / (1.0 - call.dropout_rate)
        it.eps, it.momentum = call.network.eps, call.network.momentum
        return it

    def kernel(self, name: str, prefetch: Prefetch | None = None, *, needs_grad_x: bool = False) -> Kernel:
        """Return a kernel for the model's options; see :func:`molgcn.cuda_runtime.launch.kernel` for `prefetch`."""
        return kernel(f"{name}.cu", name, layer_macros(self.call, self.blocks, needs_grad_x), self.call.graph.x.device, prefetch)

    def prepare(self) -> None:
        """Prepare the products' operands and the counters, and in forward also the bonds and the padded features."""
        call, bytes_before = self.call, 0
        for first in range(0, call.network.num_layers, MAX_TABLE):
            weights = call.parameters.weights[first : first + MAX_TABLE]
            defines = prepare_macros(call, len(weights), self.backward)
            it: Any = PREPARE[defines["MAX_LAYERS"]]()
            fill(it, {"ptr": call.graph.ptr, "rowptr": call.graph.rowptr, "col": call.graph.col, "x": call.graph.x})
            num_features = call.network.in_channels if first == 0 else call.network.hidden_channels
            if first == 0:
                it.counters, it.num_counters = self.scratch["counters"], self.num_counters
                if not self.backward:
                    for name in ("sources", "factors", "scale", "graph"):
                        setattr(it, name, self.saved[name])
                    it.padded_x = self.saved["x"] if num_features % 16 else 0
            it.fragments = self.scratch["fragments"] + bytes_before
            it.scales, it.scale_stride = self.scratch["scales"] + 4 * first * self.scale_stride, self.scale_stride
            it.num_graphs, it.num_features, it.in_width = call.graph.num_graphs, num_features, self.in_width
            it.hidden, it.num_layers = call.network.hidden_channels, len(weights)
            it.weights[: len(weights)] = [weight.data_ptr() for weight in weights]
            function = kernel("gcn_layer_prepare.cu", "gcn_layer_prepare", defines, call.graph.x.device)
            work = max(call.graph.num_nodes, self.fragment(first + len(weights)) // 16 - bytes_before // 16)
            grid = max(1, min(-(-work // _PREPARE_THREADS), 8 * self.gpu.num_multiprocessors))
            function.launch(grid, _PREPARE_THREADS, 4 * 16 * _PREPARE_THREADS // 32, it)
            bytes_before = self.fragment(first + len(weights))

    def launch_pool(self, pooled: Tensor) -> None:
        """Pool the last layer's output, which `arguments` describe, into `pooled`."""
        self.arguments.pooled = pooled.data_ptr()
        grid = max(1, min(self.call.graph.num_graphs, 8 * self.gpu.num_multiprocessors))
        shared_bytes = self.blocks.shared_bytes if self.statistics else self.blocks.pool_bytes
        self.kernel("gcn_layer_pool").launch(grid, self.blocks.threads, shared_bytes, self.arguments, overlap=True)

    def launch_weights(self, division: WeightBlocks, first: int, end: int, arrivals: int, grad_weights: Sequence[Tensor]) -> None:
        """Compute the weight gradients of layers `first` to `end` - 1, whose G = Â dZ is in `kept`."""
        call = self.call
        defines = weights_macros(call, end - first, division)
        tables: Any = WEIGHTS[defines["MAX_LAYERS"]]()
        tables.ptr, tables.first_input = call.graph.ptr.data_ptr(), self.feature(0)
        tables.inputs = self.feature(first) if first else self.feature(1) - self.plane
        tables.gradients, tables.partial, tables.arrivals = self.scratch["kept"], self.scratch["weights"], arrivals
        tables.num_graphs, (tables.num_nodes, tables.num_features) = call.graph.num_graphs, call.graph.x.shape
        tables.in_width, tables.first_layer, tables.num_tiles = self.in_width, first, division.num_tiles
        tables.splits, tables.atoms_per_split = division.splits, division.atoms_per_split
        tables.grad_weights[: end - first] = [grad_weights[layer].data_ptr() for layer in range(first, end)]
        product = kernel("gcn_layer_weights.cu", "gcn_layer_weights", defines, call.graph.x.device)
        product.launch(division.num_tiles * division.splits, division.threads, division.shared_bytes, tables, overlap=True)
