"""`molgcn::message_network` on CUDA with one kernel for the aggregation and PyTorch for everything else.

Strategy `layer` uses it for float64, and for networks that are wider than the layers' kernels allow.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from molgcn.ops.gcn_adjacency_cuda import Aggregation
from molgcn.ops.gcn_layers_plan import Layout
from molgcn.ops.matmul import matmul_in
from molgcn.ops.message_network import NetworkCall
from molgcn.ops.philox import keep_mask
from molgcn.ops.spec import Parameters


def saved_bytes(call: NetworkCall) -> int:
    """Return how many bytes forward keeps for backward."""
    return _layout(call).num_bytes


def _layout(call: NetworkCall) -> Layout:
    plane = call.graph.num_nodes * call.spec.hidden_channels
    statistics = 2 * (call.graph.num_nodes if call.spec.norm == "layer" else call.spec.hidden_channels)
    size = call.graph.x.dtype.itemsize
    return Layout(
        {
            "outputs": size * plane * call.spec.num_layers,  # each layer's output
            "raw": size * plane * call.spec.num_norms,  # each norm's input
            "moments": size * statistics * call.spec.num_norms,  # mean and 1 / standard deviation
            "alive": plane * call.spec.num_layers,  # whether an activation is > 0 and kept by dropout
        }
    )


class _Batch:
    """One batch: its aggregation, its mask of atoms, and the arrays in `saved`."""

    def __init__(self, call: NetworkCall, saved: Tensor) -> None:
        self.call = call
        self.matmul = matmul_in(call.options.precision, call.graph.x.dtype)
        self.aggregate = Aggregation(call.graph, call.spec.add_self_loops)
        nodes = torch.arange(call.graph.num_nodes, device=call.graph.x.device, dtype=torch.int32)
        self.num_nodes = call.graph.ptr[-1]
        self.is_atom = (nodes < self.num_nodes)[:, None]
        self.graph = torch.searchsorted(call.graph.ptr[1:], nodes, right=True).clamp(max=max(call.graph.num_graphs - 1, 0))
        self.sizes = torch.diff(call.graph.ptr)[:, None]
        self.ptr = call.graph.ptr.long()
        layout, num_nodes, hidden = _layout(call), call.graph.num_nodes, call.spec.hidden_channels
        self._saved = {name: saved[begin:] for name, begin in layout.offsets.items()}
        self._plane, self._shape = num_nodes * hidden, (num_nodes, hidden)

    def saved(self, name: str, layer: int) -> Tensor:
        """Return a layer's array in `saved`, [N, H]; "moments" are [2, N] for layer norm and [2, H] for batch norm."""
        dtype = torch.bool if name == "alive" else self.call.graph.x.dtype
        shape = self._shape
        if name == "moments":
            shape = (2, shape[0] if self.call.spec.norm == "layer" else shape[1])
        count = shape[0] * shape[1]
        return self._saved[name][layer * count * dtype.itemsize : (layer + 1) * count * dtype.itemsize].view(dtype).view(shape)

    def activated(self, layer: int) -> bool:
        """Return whether norm, relu and dropout follow the layer's product."""
        return layer < self.call.spec.num_layers - 1 or self.call.spec.last_activation

    def residual(self, h: Tensor) -> bool:
        """Return whether the layer's input `h` is added to its output."""
        return self.call.spec.residual and h.shape[1] == self.call.spec.hidden_channels

    def atoms(self, rows: Tensor) -> Tensor:
        """Return the rows with zeros beyond the last atom."""
        return torch.where(self.is_atom, rows, 0)

    def per_graph(self, rows: Tensor, how: str) -> Tensor:
        """Return the sum or max of each molecule's rows; 0 for a molecule without atoms."""
        reduced = torch.segment_reduce(rows, how, offsets=self.ptr, axis=0, unsafe=True)
        return torch.where(self.sizes > 0, reduced, 0)


def forward(call: NetworkCall, pooled: Tensor, statistics: Tensor, saved: Tensor) -> None:
    """Compute pooled features, running statistics and `saved`; see :class:`molgcn.ops.message_network.Outputs`."""
    if saved.numel() < saved_bytes(call):  # nothing is kept, but the layers' outputs need the memory
        saved = call.graph.x.new_empty(saved_bytes(call), dtype=torch.uint8)
    with torch.autocast(call.graph.x.device.type, enabled=False):  # `precision` has been read from it
        _forward(_Batch(call, saved), pooled, statistics)


def _forward(batch: _Batch, pooled: Tensor, statistics: Tensor) -> None:
    call, h = batch.call, batch.atoms(batch.call.graph.x)
    for layer in range(call.spec.num_layers):
        out = batch.matmul(batch.aggregate(h), call.parameters.weights[layer].T) + call.parameters.biases[layer]
        if batch.activated(layer):
            if call.spec.norm is not None:
                batch.saved("raw", layer).copy_(out)
                out = _normalise(batch, layer, out, statistics)
            alive = out > 0
            out = out.relu()
            if call.dropout_rate > 0:
                kept = keep_mask(call.seed, layer, out.shape[0], out.shape[1], call.spec.dropout)
                alive, out = alive & kept, out * kept / (1 - call.spec.dropout)
            batch.saved("alive", layer).copy_(alive)
        h = batch.saved("outputs", layer).copy_(batch.atoms(out + h if batch.residual(h) else out))
    if call.graph.num_graphs > 0:
        pooled.copy_(batch.per_graph(h, "max" if call.spec.pool == "max" else "sum"))
        if call.spec.pool == "mean":
            pooled.div_(batch.sizes.clamp(min=1))


def _normalise(batch: _Batch, layer: int, out: Tensor, statistics: Tensor) -> Tensor:
    call, moments = batch.call, batch.saved("moments", layer)
    weight, bias = call.parameters.norm_weights[layer], call.parameters.norm_biases[layer]
    if call.spec.norm == "layer":
        out, mean, inverse = torch.native_layer_norm(out, [call.spec.hidden_channels], weight, bias, call.spec.eps)
        moments.copy_(torch.stack([mean[:, 0], inverse[:, 0]]))
        return out
    mean, variance = call.parameters.running_means[layer], call.parameters.running_vars[layer]
    if call.batch_statistics:
        running = (mean, variance)
        mean = batch.atoms(out).sum(0) / batch.num_nodes.clamp(min=1)
        squares = batch.atoms(out - mean).square().sum(0)
        variance = squares / batch.num_nodes.clamp(min=1)
        moved = (mean, squares / (batch.num_nodes - 1).clamp(min=1))
        for new, before, now in zip(statistics[:, layer], running, moved, strict=True):
            new.copy_(torch.where(batch.num_nodes > 0, (1 - call.spec.momentum) * before + call.spec.momentum * now, before))
    inverse = (variance + call.spec.eps).rsqrt()
    moments.copy_(torch.stack([mean, inverse]))
    return (out - mean) * inverse * weight + bias


def backward(call: NetworkCall, grad_pooled: Tensor, saved: Tensor, grad_x: Tensor, gradients: Parameters) -> None:
    """Compute the gradients of the parameters, and of x unless `grad_x` is empty."""
    with torch.autocast(call.graph.x.device.type, enabled=False):
        _backward(_Batch(call, saved), grad_pooled, grad_x, gradients)


def _backward(batch: _Batch, grad_pooled: Tensor, grad_x: Tensor, gradients: Parameters) -> None:
    call, grad = batch.call, _unpool(batch, grad_pooled)
    for layer in range(call.spec.num_layers - 1, -1, -1):
        h = batch.saved("outputs", layer - 1) if layer > 0 else batch.atoms(call.graph.x)
        before = grad
        if batch.activated(layer):
            grad = torch.where(batch.saved("alive", layer), grad, 0) / (1 - call.dropout_rate)
            if call.spec.norm is not None:
                grad = _through_norm(batch, layer, grad, gradients.norm_weights[layer], gradients.norm_biases[layer])
        if batch.activated(layer) and call.batch_statistics:
            gradients.biases[layer].zero_()  # batch norm subtracts the bias with the mean; a sum would be rounding error
        else:
            torch.sum(grad, 0, out=gradients.biases[layer])
        grad = batch.aggregate(grad)
        gradients.weights[layer].copy_(batch.matmul(grad.T, h))
        if layer > 0 or grad_x.numel() > 0:
            grad = batch.matmul(grad, call.parameters.weights[layer])
            grad = grad + before if batch.residual(h) else grad
    if grad_x.numel() > 0:
        grad_x.copy_(batch.atoms(grad))


def _unpool(batch: _Batch, grad: Tensor) -> Tensor:
    call = batch.call
    if call.spec.pool == "max":
        last = batch.saved("outputs", call.spec.num_layers - 1)
        largest = batch.atoms((last == batch.per_graph(last, "max")[batch.graph]).to(last.dtype))
        grad = grad / batch.per_graph(largest, "sum").clamp(min=1)
        return batch.atoms(largest * grad[batch.graph])
    if call.spec.pool == "mean":
        grad = grad / batch.sizes.clamp(min=1)
    return batch.atoms(grad[batch.graph])


def _through_norm(batch: _Batch, layer: int, grad: Tensor, grad_weight: Tensor, grad_bias: Tensor) -> Tensor:
    call, weight = batch.call, batch.call.parameters.norm_weights[layer]
    mean, inverse = batch.saved("moments", layer)
    across: Any = (slice(None), None) if call.spec.norm == "layer" else slice(None)
    normal = batch.atoms((batch.saved("raw", layer) - mean[across]) * inverse[across])
    torch.sum(grad, 0, out=grad_bias)
    torch.sum(grad * normal, 0, out=grad_weight)
    if call.spec.norm == "layer":
        grad = grad * weight
        return inverse[across] * (grad - grad.mean(1, keepdim=True) - normal * (grad * normal).mean(1, keepdim=True))
    if call.batch_statistics:
        atoms = batch.num_nodes.clamp(min=1)
        grad = batch.atoms(grad - grad_bias / atoms - normal * (grad_weight / atoms))
    return grad * inverse * weight
