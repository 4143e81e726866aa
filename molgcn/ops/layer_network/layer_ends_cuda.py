"""The ends of layers as arguments of the CUDA kernels, and the parts of moments and sums that launches leave for the next one."""

from __future__ import annotations

import ctypes
from typing import Any, NamedTuple

from molgcn.cuda_runtime.launch import kernel
from molgcn.cuda_runtime.structs import Header
from molgcn.ops.layer_network.memory import FEW_ATOMS, stride_of
from molgcn.ops.layer_network.norm_parts import merge_numbers, part_numbers
from molgcn.ops.layer_network.passes import Pass
from molgcn.ops.layer_network.steps import ACTIVATIONS, Finish
from molgcn.ops.layer_network.workspace import Workspace

_MERGE_THREADS = 128

LAYER_END = Header(
    "layer_end_structs.h",
    LayerEnd=[
        ("const real*", "weight bias"),  # [width], or null without a norm
        ("const real*", "mean variance"),  # [width]: running statistics
        ("real*", "moments"),  # [2, width]: mean and 1 / deviation of the batch; null without batch statistics
        ("real*", "new_mean new_variance"),  # [width]: running statistics after this batch
        ("const real*", "parts"),  # [num_parts, part_numbers(width)] to merge: moments, in backward sums; or null
        ("real*", "grad_weight grad_bias"),  # [width]
        ("int", "num_parts rows_of_part"),  # rows_of_part: see `has_part` in cuda/layer_end.cuh
        ("int", "width activation dropout_site"),  # activation: an index into ACTIVATIONS; site: -1 without dropout
        ("double", "eps momentum"),
    ],
)
_MERGE = Header(
    "layer_end_merge_structs.h",
    uses=LAYER_END,
    Parameters=[("LayerEnd", "from"), ("real*", "to"), ("int", "columns num_rows")],
)


class _Parts(NamedTuple):
    address: int
    number: int
    rows: int


class LayerEnds:
    """The ends of layers of a pass.

    Args:
        run: The pass.
        workspace: The scratch memory of the kernels.
    """

    def __init__(self, run: Pass, workspace: Workspace) -> None:
        self.run, self._workspace = run, workspace
        self._number_bytes = run.graph.x.element_size()
        self._parts: dict[str, _Parts] = {}

    def forward(self, step: Finish) -> ctypes.Structure:
        """Return the arguments of an end in the forward pass. If parts were left for its norm, the kernel merges them."""
        it, run, norm = self._known(step), self.run, step.norm
        if norm in self._parts:
            it.parts, it.num_parts, it.rows_of_part = self._parts[norm]
            it.new_mean, it.new_variance = (tensor.data_ptr() for tensor in run.new_running(norm))
        return it

    def backward(self, step: Finish) -> ctypes.Structure:
        """Return the arguments of an end in the backward pass. If parts were left for its norm, the kernel merges them."""
        it, norm = self._known(step), step.norm
        if norm is not None:
            it.grad_weight, it.grad_bias = (self.run.grad_parameters[f"{norm}.{name}"].data_ptr() for name in ("weight", "bias"))
        if norm in self._parts:
            it.parts, it.num_parts, it.rows_of_part = self._parts[norm]
        return it

    def has_parts(self, step: Finish) -> bool:
        """Return whether parts were left for the norm of a step."""
        return step.norm in self._parts

    def room(self, step: Finish, number: int, rows: int = 0) -> int:
        """Return the address of memory for the parts that a launch leaves for the norm of a step.

        Args:
            step: The step.
            number: The number of parts, one for each block that shares the rows.
            rows: The number of rows that a block works on at a time, if block i has those from i * rows on first; otherwise 0.
        """
        assert step.norm is not None
        size = self._number_bytes * part_numbers(self.run.width(step.source))
        self._parts[step.norm] = _Parts(self._workspace.scratch(number * size), number, rows)
        return self._parts[step.norm].address

    def left(self, step: Finish | None) -> None:
        """Merge the parts that have been left for the norm of a step, if it is not None, into one if many blocks will read them."""
        if step is None or self.run.graph.num_nodes <= FEW_ATOMS:
            return
        columns = stride_of(self.run.width(step.source))
        it: Any = _MERGE.ctype()(columns=columns, num_rows=self.run.num_rows(step.source))
        it.from_ = self.backward(step) if self.run.is_backward else self.forward(step)
        it.to = self.room(step, 1)
        defines = {"DOUBLE": int(self._number_bytes == 8), "SUMS": int(self.run.is_backward)}
        shared = self._number_bytes * merge_numbers(_MERGE_THREADS, 4)
        merge = kernel("layer_end_merge.cu", "layer_end_merge", defines, self.run.graph.x.device)
        merge.launch(columns // 4, _MERGE_THREADS, shared, it, overlap=True)

    def _known(self, step: Finish) -> Any:
        run, norm = self.run, step.norm
        site = -1 if step.dropout is None else step.dropout
        it: Any = LAYER_END.ctype("LayerEnd")(activation=ACTIVATIONS.index(step.activation), dropout_site=site)
        it.width, it.eps, it.momentum = self.run.width(step.source), run.program.eps, run.program.momentum
        if norm is None:
            return it
        it.weight, it.bias = (run.parameter(f"{norm}.{name}").data_ptr() for name in ("weight", "bias"))
        if norm in run.program.batch_norms:
            if run.call.statistics:
                it.mean, it.variance = (tensor.data_ptr() for tensor in run.running(norm))
            if run.call.options.training:
                it.moments = run.moments(norm).data_ptr()
        return it
