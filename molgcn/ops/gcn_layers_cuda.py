"""`molgcn::gcn_stack` on CUDA one layer at a time (strategy `vertex`): one launch a layer each way, no atomics on features."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from molgcn.ops.gcn_layers_arguments import PREPARE, TABLES, WEIGHTS, Activation, Parameters
from molgcn.ops.gcn_layers_plan import (
    MAX_TABLE,
    Blocks,
    Layout,
    blocks,
    layers_together,
    moments_size,
    padded_width,
    saved_layout,
    weight_blocks,
)
from molgcn.ops.gcn_stack import POOLS, PRECISIONS, StackInputs
from molgcn.ops.launch import Kernel, gpu, kernel

_PREPARE_THREADS = 256
_WEIGHTS_THREADS = 128


def saved_bytes(inputs: StackInputs) -> int:
    """Bytes that forward leaves for backward."""
    return saved_layout(inputs).num_bytes


class _Pass:
    """One forward or backward: addresses and launches."""

    def __init__(self, inputs: StackInputs, saved: Tensor, scratch: dict[str, int], backward: bool) -> None:
        self.inputs = inputs
        self.backward = backward
        self.gpu = gpu(inputs.x.device)
        self.blocks: Blocks = blocks(inputs, self.gpu)
        self.width = self.blocks.width
        self.in_width = padded_width(inputs.x.shape[1])
        self.plane = 4 * inputs.x.shape[0] * self.width
        self.planes = inputs.num_layers if inputs.save_for_backward or inputs.batch_statistics else 2
        self.statistics = inputs.batch_statistics
        layout = saved_layout(inputs, inputs.save_for_backward)
        self.saved = {name: saved.data_ptr() + offset for name, offset in layout.offsets.items()}
        kinds = 2 if self.statistics or not backward else 1 if inputs.norm is None else 3
        row = 4 * kinds * self.width
        self.sums_bytes = row * self.blocks.num_parts
        fragments = self.fragment(inputs.num_layers)
        launches, counters = inputs.num_layers + 1, scratch.pop("counters", 0)
        layout = Layout(
            {
                "fragments": fragments,
                "partial": row * self.blocks.num_tiles,
                "groups": row * self.blocks.num_groups,
                "sums": 2 * self.sums_bytes,
                **scratch,
                "counters": 4 * (launches * (self.blocks.num_groups + 1) + counters),
            }
        )
        self._memory = inputs.x.new_empty(layout.num_bytes, dtype=torch.uint8)
        self.scratch = {name: self._memory.data_ptr() + offset for name, offset in layout.offsets.items()}
        self.num_counters = (layout.num_bytes - layout.offsets["counters"]) // 4
        self.arguments = self._arguments()

    def fragment(self, layer: int) -> int:
        """Bytes of the products' operands before the layer's."""
        return 4 * (self.in_width * self.width + (layer - 1) * self.width**2 if layer else 0)

    def feature(self, layer: int) -> int:
        """Input of a layer [N, width or in_width]; of layer L the last one's output."""
        if layer == 0:
            return self.saved["x"] if self.inputs.x.shape[1] % 16 else self.inputs.x.data_ptr()
        return self.saved["features"] + (layer - 1) % self.planes * self.plane

    def activated(self, layer: int) -> bool:
        """Whether norm, relu and dropout follow the layer's product."""
        return layer < self.inputs.num_layers - 1 or self.inputs.last_activation

    def residual(self, layer: int) -> bool:
        """Whether the layer's input is added to its output."""
        return self.inputs.residual and (layer > 0 or self.inputs.x.shape[1] == self.inputs.hidden_channels)

    def activation(self, layer: int) -> Activation:
        """What follows a layer's product."""
        inputs, it = self.inputs, Activation(layer=layer, on=int(self.activated(layer)))
        it.sums = self.scratch["sums"] + layer % 2 * self.sums_bytes
        if not it.on:
            return it
        keep = inputs.save_for_backward or self.statistics
        if inputs.norm is not None:
            it.weight, it.bias = inputs.norm_weights[layer].data_ptr(), inputs.norm_biases[layer].data_ptr()
            if keep:
                it.raw = self.saved["raw"] + layer * self.plane
                it.moments = self.saved["moments"] + 4 * layer * moments_size(inputs)
        if inputs.running_means:
            it.mean, it.variance = inputs.running_means[layer].data_ptr(), inputs.running_vars[layer].data_ptr()
        if keep:
            it.masks = self.saved["masks"] + layer * self.plane // 16
        return it

    def _arguments(self) -> Parameters:
        inputs, it = self.inputs, Parameters()
        for name in ("ptr", "rowptr", "col", "seed"):
            setattr(it, name, getattr(inputs, name).data_ptr())
        for name in ("sources", "factors", "scale", "graph"):
            setattr(it, name, self.saved[name])
        if inputs.pool == "max" and (inputs.save_for_backward or self.statistics):
            it.largest, it.ties = self.saved["largest"], self.saved["ties"]
        it.partial, it.group_sums = self.scratch["partial"], self.scratch["groups"]
        it.num_graphs = inputs.num_graphs
        it.num_nodes, it.num_features = inputs.x.shape
        it.tiles_per_group, it.atoms_per_part = self.blocks.tiles_per_group, self.blocks.atoms_per_part
        it.dropout_threshold = int(inputs.dropout_rate * 2**32)
        it.dropout_scale = 1.0 / (1.0 - inputs.dropout_rate)
        it.eps, it.momentum = inputs.eps, inputs.momentum
        return it

    def kernel(self, name: str, soon: tuple[str, ...] = ()) -> Kernel:
        """A kernel for the model's options; `soon`, others that will be wanted next."""
        inputs = self.inputs
        defines = {
            "HIDDEN": inputs.hidden_channels,
            "PRECISION": PRECISIONS.index(inputs.precision),
            "NORM": 3 if self.statistics else (None, "layer", "batch").index(inputs.norm),
            "DROPOUT": int(inputs.dropout_rate > 0),
            "SELF_LOOPS": int(inputs.add_self_loops),
            "POOL": POOLS.index(inputs.pool),
            **self.blocks.defines,
        }
        return kernel(f"{name}.cu", name, defines, inputs.x.device, lambda: [(f"{other}.cu", defines) for other in soon])

    def launch(self, function: Kernel, grid: int, *, overlap: bool = True) -> None:
        """One launch with the arguments as they stand; the first one after :meth:`prepare` reads what that wrote and can not overlap it."""
        function.launch(grid, self.blocks.threads, self.blocks.shared_bytes, self.arguments, overlap=overlap)

    def counters(self, launch: int) -> int:
        """Those of one launch's groups."""
        return self.scratch["counters"] + 4 * launch * (self.blocks.num_groups + 1)

    def prepare(self) -> None:
        """Bonds and padded features (forward), the products' operands, counters."""
        inputs, bytes_before = self.inputs, 0
        for first in range(0, inputs.num_layers, MAX_TABLE):
            weights = inputs.weights[first : first + MAX_TABLE]
            size = next(size for size in TABLES if len(weights) <= size)
            it: Any = PREPARE[size]()
            for name in ("ptr", "rowptr", "col", "x"):
                setattr(it, name, getattr(inputs, name).data_ptr())
            num_features = inputs.x.shape[1] if first == 0 else inputs.hidden_channels
            if first == 0:
                it.counters, it.num_counters = self.scratch["counters"], self.num_counters
                if not self.backward:
                    for name in ("sources", "factors", "scale", "graph"):
                        setattr(it, name, self.saved[name])
                    it.padded_x = self.saved["x"] if num_features % 16 else 0
            it.fragments = self.scratch["fragments"] + bytes_before
            it.num_graphs, it.num_features, it.in_width = inputs.num_graphs, num_features, self.in_width
            it.hidden, it.num_layers = inputs.hidden_channels, len(weights)
            it.weights[: len(weights)] = [weight.data_ptr() for weight in weights]
            defines = {"SELF_LOOPS": int(inputs.add_self_loops), "TRANSPOSED": int(self.backward), "MAX_LAYERS": size}
            function = kernel("gcn_layer_prepare.cu", "gcn_layer_prepare", defines, inputs.x.device)
            work = max(inputs.x.shape[0], self.fragment(first + len(weights)) // 16 - bytes_before // 16)
            grid = max(1, min(-(-work // _PREPARE_THREADS), 8 * self.gpu.num_multiprocessors))
            function.launch(grid, _PREPARE_THREADS, 0, it)
            bytes_before = self.fragment(first + len(weights))


def forward(inputs: StackInputs, outputs: tuple[Tensor, Tensor, Tensor, Tensor]) -> None:
    """Fills the outputs of the schema in :mod:`molgcn.ops.gcn_stack`."""
    pooled, means, variances, saved = outputs
    if not inputs.save_for_backward:
        saved = inputs.x.new_empty(saved_layout(inputs, keep=False).num_bytes, dtype=torch.uint8)
    run = _Pass(inputs, saved, {}, backward=False)
    run.prepare()
    soon = ("gcn_layer_pool", "gcn_layer_backward") if inputs.save_for_backward else ("gcn_layer_pool",)
    it, function, row = run.arguments, run.kernel("gcn_layer_forward", soon), 4 * inputs.hidden_channels

    def wait_for(layer: int) -> None:
        """The kernel begins with what the layer before left for when its statistics are known."""
        it.before = run.activation(layer)
        it.before.new_mean, it.before.new_variance = means.data_ptr() + layer * row, variances.data_ptr() + layer * row
        it.input = run.feature(layer) if run.residual(layer) else 0
        it.kept = run.feature(layer + 1)

    for layer in range(inputs.num_layers):
        if run.statistics and layer > 0:
            wait_for(layer - 1)
        else:
            it.input = run.feature(layer)
        it.after = run.activation(layer)
        it.in_width = run.width if layer else run.in_width
        it.fragments = run.scratch["fragments"] + run.fragment(layer)
        it.bias = inputs.biases[layer].data_ptr()
        it.residual = run.feature(layer) if run.residual(layer) else 0
        it.output = run.feature(layer + 1)
        it.arrivals = run.counters(layer)
        run.launch(function, run.blocks.num_tiles, overlap=layer > 0)
    if run.statistics and inputs.last_activation:
        wait_for(inputs.num_layers - 1)
    else:
        it.before.on = 0
        it.input = run.feature(inputs.num_layers)
    it.pooled = pooled.data_ptr()
    run.launch(run.kernel("gcn_layer_pool"), max(1, min(inputs.num_graphs, 8 * run.gpu.num_multiprocessors)))


def backward(inputs: StackInputs, grad_pooled: Tensor, saved: Tensor, gradients: tuple[Tensor, list, list, list, list]) -> None:
    """Fills the gradients of the schema in :mod:`molgcn.ops.gcn_stack`; x's is wanted unless it is empty."""
    grad_x, grad_weights, grad_biases, grad_norm_weights, grad_norm_biases = gradients
    num_layers, together = inputs.num_layers, layers_together(inputs)
    chunks = [(max(0, end - together), end) for end in range(num_layers, 0, -together)]
    weights = [weight_blocks(inputs, first, end - first, gpu(inputs.x.device)) for first, end in chunks]
    plane = 4 * inputs.x.shape[0] * padded_width(inputs.hidden_channels)
    sizes = {
        "counters": sum(each.num_tiles for each in weights),
        "outputs": 2 * plane,
        "gradients": 2 * plane,
        "kept": together * plane,
        "weights": max(each.partial_bytes for each in weights),
    }
    run = _Pass(inputs, saved, sizes, backward=True)
    run.prepare()
    it, function = run.arguments, run.kernel("gcn_layer_backward")

    def go_through(layer: int) -> None:
        """The kernel ends with relu, dropout and norm of the layer, whose output's gradient it makes."""
        it.after = run.activation(layer)
        waits = run.statistics or not it.after.on
        it.output = run.scratch["outputs"] + (layer + 1) % 2 * plane if waits or run.residual(layer) else 0
        it.next_gradient = 0 if waits else run.scratch["gradients"] + layer % 2 * plane

    it.grad_pooled, it.input = grad_pooled.data_ptr(), run.feature(num_layers)
    it.arrivals = run.counters(num_layers)
    go_through(num_layers - 1)
    run.launch(function, run.blocks.num_tiles, overlap=False)
    it.grad_pooled = it.input = 0
    first_counter = run.counters(num_layers + 1)
    for (first, end), division in zip(chunks, weights, strict=True):
        for layer in range(end - 1, first - 1, -1):
            it.before = it.after
            it.before.grad_layer_bias = grad_biases[layer].data_ptr()
            if inputs.norm is not None and it.before.on:
                it.before.grad_weight, it.before.grad_bias = grad_norm_weights[layer].data_ptr(), grad_norm_biases[layer].data_ptr()
            it.gradient = it.next_gradient or it.output
            it.residual = it.output if run.residual(layer) else 0
            it.fragments = run.scratch["fragments"] + run.fragment(layer)
            it.kept = run.scratch["kept"] + (layer - first) * plane
            it.in_width = run.width if layer else run.in_width
            it.arrivals = run.counters(layer)
            if layer > 0:
                go_through(layer - 1)
            elif grad_x.numel() > 0:
                it.grad_x = grad_x.data_ptr()
            run.launch(function, run.blocks.num_tiles)
        size = next(size for size in TABLES if end - first <= size)
        tables: Any = WEIGHTS[size]()
        tables.ptr, tables.first_input = inputs.ptr.data_ptr(), run.feature(0)
        tables.inputs = run.feature(first) if first else run.feature(1) - plane
        tables.gradients, tables.partial, tables.arrivals = run.scratch["kept"], run.scratch["weights"], first_counter
        tables.num_graphs, (tables.num_nodes, tables.num_features) = inputs.num_graphs, inputs.x.shape
        tables.in_width, tables.first_layer, tables.num_tiles = run.in_width, first, division.num_tiles
        tables.splits, tables.atoms_per_split = division.splits, division.atoms_per_split
        tables.grad_weights[: end - first] = [grad_weights[layer].data_ptr() for layer in range(first, end)]
        defines = {
            "HIDDEN": inputs.hidden_channels,
            "PRECISION": PRECISIONS.index(inputs.precision),
            "TILE": division.tile,
            "MAX_LAYERS": size,
        }
        product = kernel("gcn_layer_weights.cu", "gcn_layer_weights", defines, inputs.x.device)
        product.launch(division.num_tiles * division.splits, _WEIGHTS_THREADS, division.shared_bytes, tables, overlap=True)
        first_counter += 4 * division.num_tiles
