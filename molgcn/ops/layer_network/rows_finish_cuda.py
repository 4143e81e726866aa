"""The ends of layers, norm, relu, dropout and residual, and their gradients: `cuda/rows_finish*.cu` and `cuda/rows_layer_norm.cu`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from molgcn.ops.layer_network.backward import FinishGrad
from molgcn.ops.layer_network.passes import Pass, Rows
from molgcn.ops.layer_network.rows_launches import THREADS, RowLaunches, Tile, tile_of
from molgcn.ops.layer_network.rows_lines import line_defines, line_grid, line_tile
from molgcn.ops.layer_network.steps import Finish

_BLOCK_THREADS = 1024  # of blocks that have all atoms in their registers
_BLOCKS = 4  # of a multiprocessor, where blocks hand in sums
_APPLY_BLOCKS = 16  # where they do not


def fit_a_block(run: Pass) -> bool:
    """Return whether one block has all atoms of some columns, and their moments without another launch."""
    rows_of_thread = 2 if run.graph.x.element_size() == 8 else 4  # `rows` in cuda/rows_finish_block.cu
    return run.graph.num_nodes <= rows_of_thread * _BLOCK_THREADS


class FinishLaunches:
    """The ends of layers of a pass.

    Args:
        launches: of the pass.
    """

    def __init__(self, launches: RowLaunches) -> None:
        self._launches, self.run = launches, launches.run
        self._num_atoms = self.run.graph.num_nodes

    def forward(self, step: Finish, *, has_moments: bool) -> None:
        """Compute a step's value; `has_moments` says that the moments of its norm are there."""
        run, source = self.run, self.run.rows(step.source)
        rows = {"source": source, "out": run.rows(step.out), "add": None if step.add is None else run.rows(step.add)}
        kind, statistics = self._kind(step)
        if kind == "layer":
            it, grid = self._layer_norm(step, source, rows)
            return self._launches.launch("rows_layer_norm.cu", "rows_layer_norm", it, grid, defines=line_defines(source.stride))
        tile = tile_of(source.stride)
        it = self._arguments(step, source, tile, rows)
        if statistics and step.norm is not None:
            moments = run.moments(step.norm).data_ptr()
            it.new_mean, it.new_variance = (tensor.data_ptr() for tensor in run.new_running(step.norm))
            it.new_moments = it.moments = moments
            if not has_moments and fit_a_block(run):
                return self._launch_block("rows_finish_block", it, source)
            if not has_moments:
                self._launch_sums("rows_finish.cu", "rows_moments", it, tile, 3)
        parts = min(tile.parts(self._num_atoms), self._launches.resident(tile.chunks, _APPLY_BLOCKS))
        self._launches.launch("rows_finish.cu", "rows_finish", it, tile.chunks * parts)

    def backward(self, step: FinishGrad) -> None:
        """Compute the gradients of a step's source and of its norm's weight and bias."""
        run, forward = self.run, step.step
        source, rows = run.rows(forward.source), {"source": run.rows(forward.source), "grad": run.gradient(step.grad)}
        kind, statistics = self._kind(forward)
        if kind == "layer":
            it, grid = self._layer_norm(forward, source, rows)
            it.of_source = self._launches.gradient(step.source)
            self._grad_parameters(it, forward)
            grid = min(grid, self._launches.resident(1, _BLOCKS))
            it.merge = self._launches.merging(1, grid, source.stride, 2)
            shared = 16 + THREADS // it.lanes * source.stride * 2 * self._launches.number_bytes
            defines = line_defines(source.stride)
            return self._launches.launch("rows_layer_norm.cu", "rows_layer_norm_grad", it, grid, shared=shared, defines=defines)
        tile = tile_of(source.stride)
        it = self._arguments(forward, source, tile, rows)
        gradient = self._launches.gradient(step.source)
        if forward.norm is not None:
            self._grad_parameters(it, forward)
        if statistics and forward.norm is not None:
            it.moments = run.moments(forward.norm).data_ptr()
            if fit_a_block(run):
                it.of_source = gradient
                return self._launch_block("rows_finish_grad_block", it, source)
        if kind is not None:
            it.of_source = type(gradient)() if statistics else gradient
            self._launch_sums("rows_finish_grad.cu", "rows_finish_grad", it, tile, 2, {"SUMS": 1})
        if kind is None or statistics:
            it.of_source = gradient
            parts = min(tile.parts(self._num_atoms), self._launches.resident(tile.chunks, _APPLY_BLOCKS))
            self._launches.launch("rows_finish_grad.cu", "rows_finish_grad", it, tile.chunks * parts, defines={"SUMS": 0})

    def _kind(self, step: Finish) -> tuple[str | None, bool]:
        """Return the kind of a step's norm, and whether it takes the statistics of the batch."""
        kind = None if step.norm is None else self.run.spec.norms[step.norm]
        return kind, kind == "batch" and self.run.call.options.training

    def _arguments(self, step: Finish, source: Rows, tile: Tile, rows: Mapping[str, Rows | None]) -> Any:
        run = self.run
        it = self._launches.arguments(source.width, source.stride, tile, **rows)
        self._launches.activation(it, step)
        if step.norm is not None:
            it.weight, it.bias = (run.parameter(f"{step.norm}.{name}").data_ptr() for name in ("weight", "bias"))
            if step.norm in run.spec.batch_norms and run.call.statistics:
                it.mean, it.variance = (tensor.data_ptr() for tensor in run.running(step.norm))
        return it

    def _layer_norm(self, step: Finish, source: Rows, rows: Mapping[str, Rows | None]) -> tuple[Any, int]:
        tile = line_tile(source.stride)
        return self._arguments(step, source, tile, rows), line_grid(self._num_atoms, tile)

    def _grad_parameters(self, it: Any, step: Finish) -> None:
        it.grad_weight, it.grad_bias = (self.run.grad_parameters[f"{step.norm}.{name}"].data_ptr() for name in ("weight", "bias"))

    def _launch_block(self, name: str, it: Any, source: Rows) -> None:
        """Launch a block for every quad of columns."""
        threads = min(_BLOCK_THREADS, max(32, -(-self._num_atoms // 32) * 32))
        shared = 8 * 33 * self._launches.number_bytes
        self._launches.launch("rows_finish_block.cu", name, it, source.stride // 4, block=threads, shared=shared)

    def _launch_sums(self, file: str, name: str, it: Any, tile: Tile, record_numbers: int, defines: dict[str, int] | None = None) -> None:
        """Launch a kernel whose blocks hand in a record for every column."""
        columns = 4 * tile.lanes
        parts = min(tile.parts(self._num_atoms, 4), self._launches.resident(tile.chunks, _BLOCKS))
        it.merge = self._launches.merging(tile.chunks, parts, columns, record_numbers)
        shared = 16 + tile.teams * columns * record_numbers * self._launches.number_bytes
        self._launches.launch(file, name, it, tile.chunks * parts, shared=shared, defines=defines)
