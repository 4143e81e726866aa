"""Pooling over molecules, scaling of rows to length 1, and their gradients, by `cuda/rows_pool.cu` and `cuda/rows_normalize.cu`."""

from __future__ import annotations

import torch
from torch import Tensor

from molgcn.ops.layer_network.gradient_steps import FinishGrad, NormalizeGrad, PoolGrad
from molgcn.ops.layer_network.memory import FEW_ATOMS, stride_of
from molgcn.ops.layer_network.program import POOLS
from molgcn.ops.layer_network.rows_launches import RowLaunches, teams_of
from molgcn.ops.layer_network.rows_warp_teams import warp_team_blocks, warp_team_macros, warp_teams
from molgcn.ops.layer_network.steps import Finish, Normalize

_THREADS = 128  # threads of a molecule's block
_FEW_THREADS, _FEW_LANES = 256, 16  # of such a block that merges parts in a small batch, and the most side by side on a row
_FEW_BLOCKS = 3  # such blocks per multiprocessor: as many as run at the same time
_GRAD_BLOCKS = 16  # backward blocks per multiprocessor
_SUMMING_BLOCKS = 8  # backward blocks per multiprocessor that leave sums
_FEWEST_BLOCKS = 32  # of backward, since they also share the padding


class PoolLaunches:
    """The kernels of the pooling and of the scaling to length 1 of a pass.

    Args:
        launches: The launches of the pass.
    """

    def __init__(self, launches: RowLaunches) -> None:
        self._launches, self.run = launches, launches.run
        self._defines = {"POOL": POOLS.index(self.run.program.pool)}

    def pool(self, value: int, pooled: Tensor, end: Finish | None) -> None:
        """Compute the pooled rows of a value, `pooled` [B, H], which `end` is still to compute if it is not None."""
        run, launches = self.run, self._launches
        if run.program.pool == "none":
            pooled.copy_(run.rows(value).values)
            return
        source = run.rows(value if end is None else end.source)
        few = end is not None and run.graph.num_nodes <= FEW_ATOMS
        teams = teams_of(source.stride, _FEW_THREADS, _FEW_LANES) if few else teams_of(source.stride, _THREADS)
        add = None if end is None or end.add is None else run.rows(end.add)
        it = launches.arguments(source.width, source.stride, teams, source=source, add=add)
        it.pooled, it.pooled_stride = pooled.data_ptr(), pooled.stride(0)
        if end is not None:
            it.end = launches.ends.forward(end)
        # In a small batch every block merges parts. So there are no more blocks than run at the same time.
        parts = min(run.graph.num_graphs, launches.resident(teams.chunks, _FEW_BLOCKS)) if few else run.graph.num_graphs
        grid, shared = parts * teams.chunks, launches.end_bytes(teams, ends=int(end is not None))
        defines = {**self._defines, "ENDS": int(end is not None), "LEAVES": 0}
        launches.launch("rows_pool.cu", "rows_pool", it, grid, block=teams.threads, shared=shared, defines=defines)

    def pool_grad(self, step: PoolGrad, grad_pooled: Tensor, leaves: FinishGrad | None) -> None:
        """Compute the gradient of a value that is pooled, and leave the sums for the norm of `leaves`."""
        launches, width = self._launches, self.run.program.hidden_channels
        if self.run.program.pool == "none":
            return self._rows_grad(step, grad_pooled)
        teams = teams_of(stride_of(width), _THREADS)
        source = self.run.rows(step.source.value) if self.run.program.pool == "max" else None
        it = launches.arguments(width, stride_of(width), teams, source=source)
        it.grad, it.pooled_stride, it.of_source = grad_pooled.data_ptr(), grad_pooled.stride(0), launches.gradient(step.source)
        most = launches.resident(teams.chunks, _GRAD_BLOCKS if leaves is None else _SUMMING_BLOCKS)
        parts = min(max(self.run.graph.num_graphs, _FEWEST_BLOCKS), most)
        if leaves is not None:
            it.next, it.next_source = launches.ends.backward(leaves.step), self.run.rows(leaves.step.source).address
            parts = launches.leave_part(it, leaves.step, parts)
        grid, shared = parts * teams.chunks, launches.end_bytes(teams)
        defines = {**self._defines, "ENDS": 0, "LEAVES": int(leaves is not None)}
        # It reads nothing else before it waits than the batch, and moments that the forward pass has made.
        launches.launch("rows_pool.cu", "rows_pool_grad", it, grid, block=_THREADS, shared=shared, defines=defines, early=False)
        launches.ends.left(None if leaves is None else leaves.step)

    def _rows_grad(self, step: PoolGrad, grad: Tensor) -> None:
        """Write the gradient of atoms that are not pooled, and zeros to rows of padding, whose gradients may be anything."""
        run, (value, number, add, mask) = self.run, step.source
        real = torch.arange(run.graph.num_nodes, device=grad.device) < run.graph.ptr[-1]
        kept = real[:, None] if mask is None else real[:, None] & (run.rows(value).values > 0)
        grad = grad if add is None else grad + run.gradient(add).values
        out = run.gradient(number)
        out.tensor[:, out.width :] = 0
        out.values.copy_(torch.where(kept, grad if mask is None else grad * run.mask_scale(mask), 0.0))

    def normalize(self, step: Normalize) -> None:
        """Compute a step's value."""
        source = self.run.rows(step.source)
        teams = warp_teams(source.stride)
        it = self._launches.arguments(source.width, source.stride, teams, source=source, out=self.run.rows(step.out))
        grid = warp_team_blocks(self.run.graph.num_nodes, teams)
        self._launches.launch("rows_normalize.cu", "rows_normalize", it, grid, defines=warp_team_macros(source.stride))

    def normalize_grad(self, step: NormalizeGrad) -> None:
        """Compute the gradient of a step's source."""
        source = self.run.rows(step.step.source)
        teams = warp_teams(source.stride)
        it = self._launches.arguments(source.width, source.stride, teams, source=source, grad=self.run.gradient(step.grad))
        it.of_source = self._launches.gradient(step.source)
        grid = warp_team_blocks(self.run.graph.num_nodes, teams)
        self._launches.launch("rows_normalize.cu", "rows_normalize_grad", it, grid, defines=warp_team_macros(source.stride))
