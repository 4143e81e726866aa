"""The launches of a forward or backward whose blocks take tiles of whole molecules through all layers (`cuda/gcn_molecules_*.cu`)."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from molgcn.cuda_runtime.kernel import Kernel
from molgcn.cuda_runtime.launch import gpu
from molgcn.ops.gcn_layers_arguments import LAYERS, Parameters
from molgcn.ops.gcn_layers_launches import LayerLaunches
from molgcn.ops.gcn_layers_plan import blocks
from molgcn.ops.message_network import NetworkCall
from molgcn.ops.part_sums import PartSums, Sum


def launches(call: NetworkCall, saved: Tensor, scratch: dict[str, int], *, backward: bool) -> LayerLaunches:
    """Return the launches of a pass: one for each layer, or one for all of them if blocks take whole molecules.

    Args:
        call: The network and the batch.
        saved: What forward keeps for backward.
        scratch: The size in bytes of each array that the pass needs besides those of every pass.
        backward: Whether the pass is backward.
    """
    by_molecules = blocks(call, gpu(call.graph.x.device)).max_layers > 0
    return (MoleculeLaunches if by_molecules else LayerLaunches)(call, saved, scratch, backward)


class MoleculeLaunches(LayerLaunches):
    """Launches that collect layers, each with the arguments of its own launch, and then compute them at once."""

    def __init__(self, call: NetworkCall, saved: Tensor, scratch: dict[str, int], backward: bool) -> None:
        super().__init__(call, saved, scratch, backward)
        self._layers: list[Any] = []
        self._sums = PartSums(call.graph.x)
        self._function: Kernel

    def launch_layer(self, function: Kernel, *, overlap: bool = True) -> None:
        """Collect a layer."""
        it: Any = Parameters.from_buffer_copy(self.arguments)
        layer = it.out.layer
        if self.backward:
            if not self.residual(layer):
                it.output = 0  # the gradient stays on chip
            if not it.grad_pooled:
                self._add_up(it.in_)
        elif not self._is_read(layer + 1):
            it.output = 0
        self._layers.append(it)
        self._function = function

    def launch_pool(self, pooled: Tensor) -> None:
        """Launch all layers, whose blocks also pool their molecules."""
        self._layers[-1].pooled = pooled.data_ptr()
        self.flush()

    def _is_read(self, layer: int) -> bool:
        """Return whether a layer's input, or for layer L the last one's output, is read from memory: in backward, or as a residual."""
        spec, keep = self.call.spec, self.call.options.save_for_backward
        return keep and spec.pool == "max" if layer == spec.num_layers else keep or self.residual(layer)

    def _add_up(self, layer: Any) -> None:
        """Remember to add up the tiles' sums, which are the gradients of a layer's bias and norm."""
        tiles, row = self.blocks.num_tiles, 4 * self.width
        outs = [layer.grad_layer_bias]
        if self.call.spec.norm is not None and layer.on:
            outs += [layer.grad_bias, layer.grad_weight]
        for kind, out in enumerate(outs):
            self._sums.add(Sum(out, self.call.spec.hidden_channels, layer.sums + kind * row, tiles, self.sums_bytes // tiles // 4))

    def flush(self) -> None:
        """Launch the layers that have been collected. In backward the last one leaves its gradient if more layers follow."""
        layers, self._layers = self._layers, []
        assert self.call.graph.tile_ptr is not None
        table: Any = LAYERS[self.blocks.max_layers](tile_ptr=self.call.graph.tile_ptr.data_ptr(), num_layers=len(layers))
        for i, layer in enumerate(layers):
            if i + 1 < len(layers) or layer.in_.layer == 0:
                layer.next_gradient = 0
            table.layers[i] = layer
        self._function.launch(self.blocks.num_blocks, self.blocks.threads, self.blocks.shared_bytes, table, overlap=True)
        self._sums.launch()
