"""Graph convolutions on the CPU for training loops: bound to one network, without autograd."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

import molgcn._cpu as _cpu
from molgcn.ops.gcn_cpu import contiguous, network_arguments, saved_numbers
from molgcn.ops.gcn_network import GcnCall, empty_gradients

_BOUND = {torch.float32: _cpu.BoundNetworkFloat32, torch.float64: _cpu.BoundNetworkFloat64}


class BoundNetwork:
    """Run forward and backward of one network on many batches, with bit for bit the operator's results.

    The addresses of parameters, running statistics and gradients are taken once, so these tensors may only change in place. Backward
    reuses what forward has computed about a batch.

    Args:
        call: A call with any batch. Its parameters must be contiguous. Its running statistics are updated in place.
        num_batches_tracked: The int64 scalars that count batches, one per norm with running statistics.

    Attributes:
        gradients: The parameters' gradients of the last backward, in the order of the program.
    """

    def __init__(self, call: GcnCall, num_batches_tracked: Sequence[Tensor] = ()) -> None:
        blocks, gradients = empty_gradients(call)
        self.gradients: list[Tensor] = gradients.tensors
        graphs = (call.graph._replace(x=call.graph.x.new_empty(count, call.network.in_channels)) for count in (1, 0))
        one, none = (call._replace(graph=graph) for graph in graphs)
        self._saved_numbers = saved_numbers(one), saved_numbers(none)
        self._saved = call.graph.x.new_empty(0)
        self._hidden = call.network.hidden_channels
        tensors = contiguous(call, self._saved)
        self._keep = tensors, blocks, list(num_batches_tracked)  # C++ has their addresses
        addresses = [0, 0, *(block.data_ptr() for block in blocks)]
        self._bound = _BOUND[call.graph.x.dtype](
            network_arguments(call, tensors), addresses, [count.data_ptr() for count in num_batches_tracked]
        )

    def forward(self, sizes: tuple[int, int, int], x: Tensor, ptr: Tensor, rowptr: Tensor, col: Tensor, seed: int = 0) -> Tensor:
        """Return the pooled features [B, H] of a batch.

        All tensors are contiguous. They are those of :class:`molgcn.ops.graph.Graph`, or longer ones that begin with them.

        Args:
            sizes: The numbers of molecules, atoms and directed bonds: B, N and E.
            x: The atoms' features [N, F].
            ptr: The first atom of each molecule, int32 [B + 1].
            rowptr: The first bond of each atom, int32 [N + 1].
            col: The neighbour at each bond, int32 [E].
            seed: The seed of dropout.

        Raises:
            ValueError: If ptr, rowptr or col do not describe a batch of these sizes.
        """
        one, none = self._saved_numbers
        if (size := none + (one - none) * sizes[1]) > self._saved.numel():
            self._saved = x.new_empty(size + size // 8)
        pooled = x.new_empty(sizes[0], self._hidden)
        self._batch = x, ptr, rowptr, col, self._saved, pooled
        self._bound.forward((*sizes, torch.get_num_threads()), seed, [tensor.data_ptr() for tensor in self._batch])
        return pooled

    def backward(self, grad_pooled: Tensor, grad_x: Tensor | None = None) -> None:
        """Compute the gradients for the last batch of :meth:`forward`.

        Args:
            grad_pooled: The gradient of the pooled features, contiguous [B, H].
            grad_x: Where the gradient of x is written, contiguous [N, F]; None if it is not wanted.
        """
        self._bound.backward(grad_pooled.data_ptr(), 0 if grad_x is None else grad_x.data_ptr())
