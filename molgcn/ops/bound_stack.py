"""`molgcn::message_network` on the CPU as a training run calls it: bound to a network, without autograd."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

import molgcn._cpu as _cpu
from molgcn.ops.message_network import NetworkCall
from molgcn.ops.message_network_cpu import contiguous, empty_parameter_gradients, network_arguments, saved_bytes

_BOUND = {torch.float32: _cpu.BoundStackFloat32, torch.float64: _cpu.BoundStackFloat64}


class BoundStack:
    """Forward and backward of one network over batch after batch, bit for bit what the operator gives.

    Addresses are taken once: parameters and running statistics change in place only, gradients are written where they were before, and
    what forward has found out about a batch serves backward.

    Args:
        call: of some batch; its parameters are contiguous, its running statistics are updated in place.
        num_batches_tracked: int64 scalars that count batches, one a norm with running statistics.

    Attributes:
        gradients: of the parameters in the order of the spec; the last backward's.
    """

    def __init__(self, call: NetworkCall, num_batches_tracked: Sequence[Tensor] = ()) -> None:
        blocks, gradients = empty_parameter_gradients(call)
        self.gradients: list[Tensor] = gradients
        graphs = (call.graph._replace(x=call.graph.x.new_empty(count, call.spec.in_channels)) for count in (1, 0))
        one, none = (call._replace(graph=graph) for graph in graphs)
        self._saved_bytes = saved_bytes(one), saved_bytes(none)
        self._saved = call.graph.x.new_empty(0, dtype=torch.uint8)
        self._hidden = call.spec.hidden_channels
        tensors = contiguous(call, self._saved)
        self._keep = tensors, blocks, list(num_batches_tracked)  # C++ has their addresses
        addresses = [0, 0, *(block.data_ptr() for block in blocks)]
        self._bound = _BOUND[call.graph.x.dtype](
            network_arguments(call, tensors), addresses, [count.data_ptr() for count in num_batches_tracked]
        )

    def forward(self, sizes: tuple[int, int, int], x: Tensor, ptr: Tensor, rowptr: Tensor, col: Tensor, seed: int = 0) -> Tensor:
        """Pooled features [B, H] of a batch.

        Args:
            sizes: B, N and E.
            x: contiguous, as :class:`molgcn.ops.graph.Graph` has it or with room for more atoms; likewise
            ptr: of the molecules,
            rowptr: of the atoms,
            col: of the bonds.
            seed: of the dropout.

        Raises:
            ValueError: for pointers that do not fit.
        """
        one, none = self._saved_bytes
        if (size := none + (one - none) * sizes[1]) > self._saved.numel():
            self._saved = x.new_empty(size + size // 8, dtype=torch.uint8)
        pooled = x.new_empty(sizes[0], self._hidden)
        self._batch = x, ptr, rowptr, col, self._saved, pooled
        self._bound.forward((*sizes, torch.get_num_threads()), seed, [tensor.data_ptr() for tensor in self._batch])
        return pooled

    def backward(self, grad_pooled: Tensor, grad_x: Tensor | None = None) -> None:
        """Writes `gradients`, and the gradient of `x` into `grad_x` [N, F], of the last batch of :meth:`forward`."""
        self._bound.backward(grad_pooled.data_ptr(), 0 if grad_x is None else grad_x.data_ptr())
