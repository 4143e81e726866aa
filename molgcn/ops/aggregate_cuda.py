r"""Sums over the neighbours, :math:`\hat A` times rows, by the three ways of going over a graph's bonds (`cuda/aggregate_*.cu`)."""

from __future__ import annotations

import torch
from torch import Tensor

from molgcn.cuda_runtime.launch import gpu, kernel
from molgcn.cuda_runtime.structs import Header
from molgcn.ops.gcn_stack import StackInputs

_THREADS = 256
_COLUMNS = 128  # of a warp's partial sums, in cuda/aggregate_neighbor_group.cu
ATOMICS = ("edge", "neighbor_group")  # strategies whose sums depend on which thread comes first


_HEADER = Header(
    "aggregate_structs.h",
    Parameters=[
        ("const int*", "ptr rowptr col"),
        ("int*", "target"),  # [E]: atom that each bond points at
        ("real*", "scale"),  # [N]: D^-1/2
        ("const int*", "group_node"),  # [groups]: atom of each group of bonds, N for none
        ("const int*", "group_end"),  # [N]: groups up to and with the atom's
        ("const real*", "rows"),  # [N, columns]
        ("real*", "sums"),  # [N, columns]
        ("int", "num_graphs num_nodes num_columns num_groups group_size"),
    ],
)


class Aggregation:
    r"""A batch's :math:`\hat A`, to be multiplied with rows.

    Args:
        inputs: its bonds, strategy and dtype.
    """

    def __init__(self, inputs: StackInputs) -> None:
        x, num_nodes, num_bonds = inputs.x, inputs.x.shape[0], inputs.col.shape[0]
        self._bonds = (inputs.ptr, inputs.rowptr, inputs.col)
        self._strategy = inputs.strategy if inputs.strategy in ATOMICS else "vertex"
        self._defines = {"DOUBLE": int(x.dtype == torch.float64), "SELF_LOOPS": int(inputs.add_self_loops)}
        self._grid = 8 * gpu(x.device).num_multiprocessors
        self._scale = x.new_empty(num_nodes)
        self._target = inputs.col.new_empty(num_bonds)
        self._arguments = it = _HEADER.ctype()()
        it.ptr, it.rowptr, it.col = (tensor.data_ptr() for tensor in self._bonds)
        it.target, it.scale = self._target.data_ptr(), self._scale.data_ptr()
        it.num_graphs, it.num_nodes = inputs.num_graphs, num_nodes
        if self._strategy == "neighbor_group":
            it.group_size = max(1, num_bonds // max(num_nodes, 1))  # the average degree, as GNNAdvisor's auto mode
            counts = (torch.diff(inputs.rowptr) + it.group_size - 1).div(it.group_size, rounding_mode="floor").clamp(min=1)
            self._end = counts.cumsum(0).int()
            it.num_groups = num_nodes + num_bonds // it.group_size  # at most
            groups = torch.arange(it.num_groups, device=x.device, dtype=torch.int32)
            self._node = torch.searchsorted(self._end, groups, right=True, out_int32=True)
            it.group_end, it.group_node = self._end.data_ptr(), self._node.data_ptr()
        kernel("aggregate_prepare.cu", "aggregate_prepare", self._defines, x.device).launch(self._blocks(num_nodes), _THREADS, 0, it)

    def __call__(self, rows: Tensor) -> Tensor:
        r""":math:`\hat A` times rows [N, columns]; rows beyond the last atom of a padded batch become zero."""
        rows, it = rows.contiguous(), self._arguments
        sums = torch.empty_like(rows) if self._strategy == "vertex" else torch.zeros_like(rows)
        it.rows, it.sums, it.num_columns = rows.data_ptr(), sums.data_ptr(), rows.shape[1]
        name, shared = f"aggregate_{self._strategy}", 0
        if self._strategy == "neighbor_group":
            grid = max(1, -(-it.num_groups // (_THREADS // 32)))
            shared = _THREADS // 32 * (rows.dtype.itemsize * (_COLUMNS + it.group_size) + 4 * it.group_size)
        else:
            grid = self._blocks(rows.numel() if self._strategy == "vertex" else (it.num_nodes + self._target.shape[0]) * rows.shape[1])
        kernel(f"{name}.cu", name, self._defines, rows.device).launch(grid, _THREADS, shared, it)
        return sums

    def _blocks(self, work: int) -> int:
        return max(1, min(-(-work // _THREADS), self._grid))
