"""The ends of layers (norm, relu, dropout, residual) and their gradients, by `cuda/rows_finish*.cu` and `cuda/rows_layer_norm.cu`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from molgcn.cuda_runtime.launch import gpu
from molgcn.ops.layer_network.backward import FinishGrad
from molgcn.ops.layer_network.passes import Pass, Rows
from molgcn.ops.layer_network.rows_launches import RowLaunches, Tile, tile_of
from molgcn.ops.layer_network.rows_lines import line_defines, line_grid, line_tile
from molgcn.ops.layer_network.steps import Finish

_MOST_THREADS = 1024  # threads of a block that has some columns of all atoms, alone or in a cluster
_CLUSTER, _LANES = 8, 4  # blocks of such a cluster, and threads side by side on a row; both 1 on a GPU without clusters
_SUM_THREADS = 1024  # threads of a block that sums columns; fewer blocks merge their sums sooner
_SUM_BLOCKS = 1  # such blocks per multiprocessor
_LINE_THREADS = 512  # threads of a block that sums columns and reads whole rows
_LINE_BLOCKS = 2  # such blocks per multiprocessor
_LINE_BYTES = 96 << 10  # the most shared memory for the sums of such a block
_SUM_ROWS = 4  # the fewest rows of a thread that sums columns
_ROWS, _GRAD_ROWS = 2, 4  # rows of a thread that does not sum, in forward and in backward


class Cluster(NamedTuple):
    """How the threads of a cluster share some columns of all atoms; see cuda/rows_finish_block.cu.

    Attributes:
        blocks: The number of blocks, 1 for few atoms and on GPUs without clusters.
        lanes: The number of threads side by side, each with four columns of the same rows.
        rows: The number of rows of a thread.
        threads: The number of threads of a block.
    """

    blocks: int
    lanes: int
    rows: int
    threads: int

    @classmethod
    def of(cls, run: Pass) -> Cluster | None:
        """Return how a cluster reads the atoms of a pass, or None if they are too many for the registers of its threads.

        One block with a row per thread is faster than several blocks that have to wait for each other.
        """
        num_atoms = run.graph.num_nodes
        shared = num_atoms > _MOST_THREADS and gpu(run.graph.x.device).has_clusters
        blocks, lanes = (_CLUSTER, _LANES) if shared else (1, 1)
        needed = -(-num_atoms * lanes // blocks)
        rows = 1 << (max(1, -(-needed // _MOST_THREADS)) - 1).bit_length()
        most = 2 if run.graph.x.element_size() == 8 else 4
        return cls(blocks, lanes, rows, 32 * max(1, -(-needed // (32 * rows)))) if rows <= most else None


class FinishLaunches:
    """The kernels of the ends of layers of a pass.

    Args:
        launches: The launches of the pass.
    """

    def __init__(self, launches: RowLaunches) -> None:
        self._launches, self.run = launches, launches.run
        self._num_atoms = self.run.graph.num_nodes

    def forward(self, step: Finish, *, has_moments: bool) -> None:
        """Compute a step's value. `has_moments` says whether its norm's batch moments have been computed."""
        run, source = self.run, self.run.rows(step.source)
        rows = {"source": source, "out": run.rows(step.out), "add": None if step.add is None else run.rows(step.add)}
        kind, statistics = self._kind(step)
        if kind == "layer":
            tile = line_tile(source.stride)
            it, grid = self._arguments(step, source, tile, rows), line_grid(self._num_atoms, tile)
            return self._launches.launch("rows_layer_norm.cu", "rows_layer_norm", it, grid, defines=line_defines(source.stride))
        tile = tile_of(source.stride)
        it = self._arguments(step, source, tile, rows)
        if statistics and step.norm is not None:
            it.moments = run.moments(step.norm).data_ptr()
            if not has_moments:
                it.new_mean, it.new_variance = (tensor.data_ptr() for tensor in run.new_running(step.norm))
                it.new_moments, cluster = it.moments, Cluster.of(run)
                if cluster is not None:
                    return self._launch_cluster("rows_finish_block", it, source, cluster)
                self._launch_sums("rows_finish.cu", "rows_moments", it, 3)
        self._launches.launch("rows_finish.cu", "rows_finish", it, self._grid(tile, _ROWS))

    def backward(self, step: FinishGrad) -> None:
        """Compute the gradients of a step's source and of its norm's weight and bias."""
        run, forward = self.run, step.step
        source, rows = run.rows(forward.source), {"source": run.rows(forward.source), "grad": run.gradient(step.grad)}
        kind, statistics = self._kind(forward)
        if kind == "layer":
            return self._layer_norm_grad(step, source, rows)
        tile = tile_of(source.stride)
        it = self._arguments(forward, source, tile, rows)
        gradient = self._launches.gradient(step.source)
        if forward.norm is not None:
            self._grad_parameters(it, forward)
        if statistics and forward.norm is not None:
            it.moments = run.moments(forward.norm).data_ptr()
            cluster = Cluster.of(run)
            if cluster is not None:
                it.of_source = gradient
                return self._launch_cluster("rows_finish_grad_block", it, source, cluster)
        if kind is not None:
            it.of_source = type(gradient)() if statistics else gradient
            self._launch_sums("rows_finish_grad.cu", "rows_finish_grad", it, 2, {"SUMS": 1})
        if kind is None or statistics:
            it.of_source = gradient
            self._launches.launch("rows_finish_grad.cu", "rows_finish_grad", it, self._grid(tile, _GRAD_ROWS), defines={"SUMS": 0})

    def _layer_norm_grad(self, step: FinishGrad, source: Rows, rows: Mapping[str, Rows | None]) -> None:
        threads, numbers = _LINE_THREADS, 2 * source.stride * self._launches.number_bytes
        while threads > 32 and threads // 32 * numbers > _LINE_BYTES:
            threads //= 2
        tile = line_tile(source.stride, threads)
        it = self._arguments(step.step, source, tile, rows)
        it.of_source = self._launches.gradient(step.source)
        self._grad_parameters(it, step.step)
        grid = min(line_grid(self._num_atoms, tile), self._launches.resident(1, _LINE_BLOCKS))
        it.merge = self._launches.merging(1, grid, source.stride, 2)
        defines, shared = line_defines(source.stride), 16 + tile.teams * numbers
        self._launches.launch("rows_layer_norm.cu", "rows_layer_norm_grad", it, grid, block=threads, shared=shared, defines=defines)

    def _kind(self, step: Finish) -> tuple[str | None, bool]:
        """Return the kind of a step's norm, and whether it uses the statistics of the batch."""
        kind = None if step.norm is None else self.run.spec.norms[step.norm]
        return kind, kind == "batch" and self.run.call.options.training

    def _grid(self, tile: Tile, rows: int) -> int:
        """Return the number of blocks if every thread has `rows` rows."""
        return tile.chunks * tile.parts(self._num_atoms, rows)

    def _arguments(self, step: Finish, source: Rows, tile: Tile, rows: Mapping[str, Rows | None]) -> Any:
        run = self.run
        it = self._launches.arguments(source.width, source.stride, tile, **rows)
        self._launches.activation(it, step)
        if step.norm is not None:
            it.weight, it.bias = (run.parameter(f"{step.norm}.{name}").data_ptr() for name in ("weight", "bias"))
            if step.norm in run.spec.batch_norms and run.call.statistics:
                it.mean, it.variance = (tensor.data_ptr() for tensor in run.running(step.norm))
        return it

    def _grad_parameters(self, it: Any, step: Finish) -> None:
        it.grad_weight, it.grad_bias = (self.run.grad_parameters[f"{step.norm}.{name}"].data_ptr() for name in ("weight", "bias"))

    def _launch_cluster(self, name: str, it: Any, source: Rows, cluster: Cluster) -> None:
        """Launch a cluster for every `4 * cluster.lanes` columns."""
        blocks, lanes, rows, threads = cluster
        grid = blocks * -(-source.stride // (4 * lanes))
        shared = (32 + blocks) * lanes * 8 * self._launches.number_bytes
        defines = {"ROWS": rows, "LANES": lanes, "CLUSTER": blocks}
        self._launches.launch("rows_finish_block.cu", name, it, grid, block=threads, shared=shared, defines=defines, cluster=blocks)

    def _launch_sums(self, file: str, name: str, it: Any, record_numbers: int, defines: dict[str, int] | None = None) -> None:
        """Launch a kernel whose blocks merge a record of `record_numbers` numbers for every column."""
        tile = tile_of(it.stride, _SUM_THREADS)
        columns = 4 * tile.lanes
        parts = min(tile.parts(self._num_atoms, _SUM_ROWS), self._launches.resident(tile.chunks, _SUM_BLOCKS))
        it.merge = self._launches.merging(tile.chunks, parts, columns, record_numbers)
        shared = 16 + tile.teams * columns * record_numbers * self._launches.number_bytes
        self._launches.launch(file, name, it, tile.chunks * parts, block=tile.threads, shared=shared, defines=defines)
