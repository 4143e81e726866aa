"""Aggregation over the bonds and its gradients, by `cuda/rows_gather*.cu`."""

from __future__ import annotations

from functools import cached_property

import torch
from torch import Tensor

from molgcn.ops.layer_network.backward import reads_source
from molgcn.ops.layer_network.gradient_steps import FinishGrad, GatherGrad
from molgcn.ops.layer_network.launches_cuda import Launch, is_read_later
from molgcn.ops.layer_network.memory import FEW_ATOMS
from molgcn.ops.layer_network.rows_launches import PAIR_LANES, THREADS, RowLaunches, Teams
from molgcn.ops.layer_network.steps import AGGREGATIONS, Gather

# Sizes of launches, measured on an H100 (docs/decisions/rows_on_cuda.md). They follow the number of multiprocessors, and any size computes
# the same results but for the order of a sum, so that another GPU only loses time where they do not suit it.
_BLOCKS = 4  # forward blocks per multiprocessor
_END_BLOCKS = 3  # such blocks that apply the end of a layer
_TABLE_THREADS = 512  # threads of a backward block that sums over distinct bonds in a small batch: fewer blocks leave parts
_GRAD_BLOCKS = 16  # backward blocks per multiprocessor
_SUMMING_THREADS = 1024  # threads per multiprocessor of backward blocks that leave sums
_LEAVING_THREADS = 768  # those where layers leave sums for norms too


class GatherLaunches:
    """The kernels of the gathers of a pass.

    Args:
        launches: The launches of the pass.
    """

    def __init__(self, launches: RowLaunches) -> None:
        self._launches, self.run = launches, launches.run

    @cached_property
    def _scale(self) -> Tensor:
        """The D^-1/2 of every atom [N]."""
        scale = self.run.graph.x.new_empty(self.run.graph.num_nodes)
        aggr = next(step.aggr for step in self.run.program.steps if isinstance(step, Gather))
        return self._launches.prepare("rows_scale", "new_scale", scale, Teams(1, 1), aggr)

    @cached_property
    def paired(self) -> Tensor:
        """The row in `bonds` of every bond's reverse [E]."""
        paired = self.run.graph.x.new_empty(self.run.graph.col.shape[0], dtype=torch.int32)
        return self._launches.prepare("rows_pair", "new_paired", paired, Teams(PAIR_LANES, 1))

    def prepare(self) -> None:
        """Compute what the gathers of a backward pass read of the bonds, before the launches that they read anything else of."""
        gathers = [step.step for step in self.run.backward.steps if isinstance(step, GatherGrad)]
        if any(step.aggr.startswith("gcn") for step in gathers):
            _ = self._scale
        if any(step.bonds is not None for step in gathers):
            _ = self.paired

    def forward(self, step: Gather, launch: Launch) -> None:
        """Compute a step's value."""
        run, launches, before = self.run, self._launches, launch.before
        source = run.rows(step.source if before is None else before.source)
        teams = launches.teams(source.stride)
        rows = {"source": source, "out": run.rows(step.out), "bonds": None if step.bonds is None else run.rows(step.bonds)}
        if before is not None:
            rows |= {"add": None if before.add is None else run.rows(before.add)}
            rows |= {"written": run.rows(before.out) if is_read_later(run, before.out) else None}
        it = launches.arguments(source.width, source.stride, teams, **rows)
        it.eps, it.bias = self._parameter(step.eps), self._parameter(step.bias)
        if step.aggr.startswith("gcn"):
            it.scale = self._scale.data_ptr()
        resident = launches.resident(teams.chunks, _BLOCKS if before is None else _END_BLOCKS)
        parts, leaves = min(teams.parts(run.graph.num_nodes), resident), launch.leaves
        if before is not None:
            it.end = launches.ends.forward(before)
        parts = launches.leave_part(it, leaves, parts, teams.per_block)
        defines = {
            "AGGR": AGGREGATIONS.index(step.aggr),
            "BONDS": int(step.bonds is not None),
            "ENDS": int(before is not None),
            "LEAVES": int(leaves is not None),
        }
        shared = launches.end_bytes(teams) if before is not None or leaves is not None else 0
        launches.launch("rows_gather.cu", "rows_gather", it, teams.chunks * parts, shared=shared, defines=defines)
        launches.ends.left(leaves)

    def backward(self, step: GatherGrad, leaves: FinishGrad | None) -> None:
        """Compute the gradients of a step's source, bonds and eps, and leave the sums for the norm of `leaves`."""
        run, launches, forward = self.run, self._launches, step.step
        grad, num_atoms = run.gradient(step.grad), run.graph.num_nodes
        table = step.bonds is not None and run.graph.code is not None and run.graph.num_bond_rows > 0
        few = num_atoms <= FEW_ATOMS
        teams = launches.teams(grad.stride, _TABLE_THREADS if table and few else THREADS)
        reads = reads_source(forward)
        rows = {"grad": grad, "source": run.rows(forward.source) if reads else None}
        rows |= {"bonds": None if forward.bonds is None else run.rows(forward.bonds)}
        rows |= {"largest": run.rows(forward.out) if forward.aggr == "max" else None}
        it = launches.arguments(grad.width, grad.stride, teams, **rows)
        it.of_source, it.of_bonds = launches.gradient(step.source), launches.gradient(step.bonds)
        it.eps = self._parameter(forward.eps)
        if forward.aggr.startswith("gcn"):
            it.scale = self._scale.data_ptr()
        if forward.bonds is not None:
            it.paired = self.paired.data_ptr()
        ranges, shared, learns_eps = 1, 0, forward.train_eps
        # The first layer leaves no sums for a norm, but as many parts as the others: they are then added up together.
        summing = (_LEAVING_THREADS if few and run.call.batch_statistics else _SUMMING_THREADS) // teams.threads
        sums = table or learns_eps or leaves is not None
        parts = min(teams.parts(num_atoms), launches.resident(teams.chunks, summing if sums else _GRAD_BLOCKS))
        parts = launches.parts_left(parts) if table else parts
        if leaves is not None:
            it.next, it.next_source = launches.ends.backward(leaves.step), run.rows(leaves.step.source).address
            parts, shared = launches.leave_part(it, leaves.step, parts, teams.per_block), launches.end_bytes(teams)
        if table and step.bonds is not None:
            each = 4 * launches.number_bytes
            ranges = launches.sum_codes(it, step.bonds, parts, teams.threads * each)
            shared = max(shared, (teams.threads * it.codes + 6 * teams.lanes) * each)
        if learns_eps and forward.eps is not None:
            it.sum_parts = launches.leave_sums(parts * teams.chunks, forward.eps)
            shared = max(shared, (teams.threads + 24 * teams.lanes) * launches.number_bytes)
        defines = {
            "AGGR": AGGREGATIONS.index(forward.aggr),
            "BONDS": int(forward.bonds is not None),
            "THREADS": teams.threads,
            "TABLE": int(table),
            "LEAVES": int(leaves is not None),
        }
        grid = parts * teams.chunks * ranges
        launches.launch("rows_gather_grad.cu", "rows_gather_grad", it, grid, block=teams.threads, shared=shared, defines=defines)
        launches.ends.left(None if leaves is None else leaves.step)

    def _parameter(self, name: str | None) -> int:
        return 0 if name is None else self.run.parameter(name).data_ptr()
