"""Pooling over molecules, scaling of rows to length 1, and their gradients, by `cuda/rows_pool.cu` and `cuda/rows_normalize.cu`."""

from __future__ import annotations

from torch import Tensor

from molgcn.ops.layer_network.backward import NormalizeGrad, Produced
from molgcn.ops.layer_network.memory import stride_of
from molgcn.ops.layer_network.rows_launches import RowLaunches, tile_of
from molgcn.ops.layer_network.rows_lines import line_defines, line_grid, line_tile
from molgcn.ops.layer_network.spec import POOLS
from molgcn.ops.layer_network.steps import Linear, Normalize

_THREADS = 128  # threads of a molecule's block
_PADDING_BLOCKS = 32  # the number of blocks that write zeros beyond the last molecule


class PoolLaunches:
    """The kernels of the pooling and of the scaling to length 1 of a pass.

    Args:
        launches: The launches of the pass.
    """

    def __init__(self, launches: RowLaunches) -> None:
        self._launches, self.run = launches, launches.run
        self._defines = {"POOL": POOLS.index(self.run.spec.pool)}
        self._shared = _THREADS * 4 * launches.number_bytes

    def pool(self, pooled: Tensor) -> None:
        """Compute the pooled rows of the last value, `pooled` [B, H]."""
        source = self.run.rows(self.run.program.out)
        tile = tile_of(source.stride, _THREADS)
        it = self._launches.arguments(source.width, source.stride, tile, source=source)
        it.pooled = pooled.data_ptr()
        grid = self.run.graph.num_graphs * tile.chunks
        self._launches.launch("rows_pool.cu", "rows_pool", it, grid, block=_THREADS, shared=self._shared, defines=self._defines)

    def pool_grad(self, grad_pooled: Tensor, mask: Linear | None) -> None:
        """Compute gradient 0, that of the last value, times the derivative of `mask`."""
        width, out = self.run.spec.hidden_channels, self.run.program.out
        tile = tile_of(stride_of(width), _THREADS)
        source = self.run.rows(out) if self.run.spec.pool == "max" else None
        it = self._launches.arguments(width, stride_of(width), tile, source=source)
        it.grad, it.of_source = grad_pooled.data_ptr(), self._launches.gradient(Produced(out, 0, None, mask))
        grid = (self.run.graph.num_graphs + _PADDING_BLOCKS) * tile.chunks
        self._launches.launch("rows_pool.cu", "rows_pool_grad", it, grid, block=_THREADS, shared=self._shared, defines=self._defines)

    def normalize(self, step: Normalize) -> None:
        """Compute a step's value."""
        source = self.run.rows(step.source)
        tile = line_tile(source.stride)
        it = self._launches.arguments(source.width, source.stride, tile, source=source, out=self.run.rows(step.out))
        self._launches.launch(
            "rows_normalize.cu", "rows_normalize", it, line_grid(self.run.graph.num_nodes, tile), defines=line_defines(source.stride)
        )

    def normalize_grad(self, step: NormalizeGrad) -> None:
        """Compute the gradient of a step's source."""
        source = self.run.rows(step.step.source)
        tile = line_tile(source.stride)
        it = self._launches.arguments(source.width, source.stride, tile, source=source, grad=self.run.gradient(step.grad))
        it.of_source = self._launches.gradient(step.source)
        self._launches.launch(
            "rows_normalize.cu", "rows_normalize_grad", it, line_grid(self.run.graph.num_nodes, tile), defines=line_defines(source.stride)
        )
