"""`molgcn::gcn_stack` on CUDA with the aggregation as a kernel of its own and PyTorch for everything else.

Strategy `vertex` for float64, and for what is wider than the layers' kernels hold.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from molgcn.ops.aggregate_cuda import Aggregation
from molgcn.ops.gcn_layers_plan import Layout
from molgcn.ops.gcn_stack import StackInputs
from molgcn.ops.matmul import matmul_in
from molgcn.ops.philox import keep_mask


def saved_bytes(inputs: StackInputs) -> int:
    """Bytes that forward leaves for backward."""
    return _layout(inputs).num_bytes


def _layout(inputs: StackInputs) -> Layout:
    plane = inputs.x.shape[0] * inputs.hidden_channels
    statistics = 2 * (inputs.x.shape[0] if inputs.norm == "layer" else inputs.hidden_channels)
    size = inputs.x.dtype.itemsize
    return Layout(
        {
            "outputs": size * plane * inputs.num_layers,  # of each layer
            "raw": size * plane * inputs.num_norms,  # what the norms were given
            "moments": size * statistics * inputs.num_norms,  # mean and 1 / deviation
            "alive": plane * inputs.num_layers,  # activations > 0 that dropout kept
        }
    )


class _Batch:
    """A batch: its aggregation, which rows are atoms, and what is saved."""

    def __init__(self, inputs: StackInputs, saved: Tensor) -> None:
        self.inputs = inputs
        self.matmul = matmul_in(inputs.precision, inputs.x.dtype)
        self.aggregate = Aggregation(inputs)
        nodes = torch.arange(inputs.x.shape[0], device=inputs.x.device, dtype=torch.int32)
        self.num_nodes = inputs.ptr[-1]
        self.is_atom = (nodes < self.num_nodes)[:, None]
        self.graph = torch.searchsorted(inputs.ptr[1:], nodes, right=True).clamp(max=max(inputs.num_graphs - 1, 0))
        self.sizes = torch.diff(inputs.ptr)[:, None]
        self.ptr = inputs.ptr.long()
        layout, num_nodes, hidden = _layout(inputs), inputs.x.shape[0], inputs.hidden_channels
        self._saved = {name: saved[begin:] for name, begin in layout.offsets.items()}
        self._plane, self._shape = num_nodes * hidden, (num_nodes, hidden)

    def saved(self, name: str, layer: int) -> Tensor:
        """A plane [N, H] of `saved`; of "moments" [2, N] or [2, H]."""
        dtype = torch.bool if name == "alive" else self.inputs.x.dtype
        shape = self._shape
        if name == "moments":
            shape = (2, shape[0] if self.inputs.norm == "layer" else shape[1])
        count = shape[0] * shape[1]
        return self._saved[name][layer * count * dtype.itemsize : (layer + 1) * count * dtype.itemsize].view(dtype).view(shape)

    def activated(self, layer: int) -> bool:
        return layer < self.inputs.num_layers - 1 or self.inputs.last_activation

    def residual(self, h: Tensor) -> bool:
        return self.inputs.residual and h.shape[1] == self.inputs.hidden_channels

    def atoms(self, rows: Tensor) -> Tensor:
        """Zero beyond the last atom."""
        return torch.where(self.is_atom, rows, 0)

    def per_graph(self, rows: Tensor, how: str) -> Tensor:
        """Sum or max of each molecule's rows; 0 without atoms."""
        reduced = torch.segment_reduce(rows, how, offsets=self.ptr, axis=0, unsafe=True)
        return torch.where(self.sizes > 0, reduced, 0)


def forward(inputs: StackInputs, outputs: tuple[Tensor, Tensor, Tensor, Tensor]) -> None:
    """Fills the outputs of the schema in :mod:`molgcn.ops.gcn_stack`."""
    pooled, means, variances, saved = outputs
    if saved.numel() < saved_bytes(inputs):  # not kept; taken all the same, as the room of the layers' outputs
        saved = inputs.x.new_empty(saved_bytes(inputs), dtype=torch.uint8)
    with torch.autocast(inputs.x.device.type, enabled=False):  # `precision` has been read from it
        _forward(_Batch(inputs, saved), pooled, means, variances)


def _forward(batch: _Batch, pooled: Tensor, means: Tensor, variances: Tensor) -> None:
    inputs, h = batch.inputs, batch.atoms(batch.inputs.x)
    for layer in range(inputs.num_layers):
        out = batch.matmul(batch.aggregate(h), inputs.weights[layer].T) + inputs.biases[layer]
        if batch.activated(layer):
            if inputs.norm is not None:
                batch.saved("raw", layer).copy_(out)
                out = _normalise(batch, layer, out, means, variances)
            alive = out > 0
            out = out.relu()
            if inputs.dropout_rate > 0:
                kept = keep_mask(inputs.seed, layer, out.shape[0], out.shape[1], inputs.dropout)
                alive, out = alive & kept, out * kept / (1 - inputs.dropout)
            batch.saved("alive", layer).copy_(alive)
        h = batch.saved("outputs", layer).copy_(batch.atoms(out + h if batch.residual(h) else out))
    if inputs.num_graphs > 0:
        pooled.copy_(batch.per_graph(h, "max" if inputs.pool == "max" else "sum"))
        if inputs.pool == "mean":
            pooled.div_(batch.sizes.clamp(min=1))


def _normalise(batch: _Batch, layer: int, out: Tensor, means: Tensor, variances: Tensor) -> Tensor:
    inputs, moments = batch.inputs, batch.saved("moments", layer)
    weight, bias = inputs.norm_weights[layer], inputs.norm_biases[layer]
    if inputs.norm == "layer":
        out, mean, inverse = torch.native_layer_norm(out, [inputs.hidden_channels], weight, bias, inputs.eps)
        moments.copy_(torch.stack([mean[:, 0], inverse[:, 0]]))
        return out
    mean, variance = inputs.running_means[layer], inputs.running_vars[layer]
    if inputs.batch_statistics:
        running = (mean, variance)
        mean = batch.atoms(out).sum(0) / batch.num_nodes.clamp(min=1)
        squares = batch.atoms(out - mean).square().sum(0)
        variance = squares / batch.num_nodes.clamp(min=1)
        moved = (mean, squares / (batch.num_nodes - 1).clamp(min=1))
        for new, before, now in zip((means[layer], variances[layer]), running, moved, strict=True):
            new.copy_(torch.where(batch.num_nodes > 0, (1 - inputs.momentum) * before + inputs.momentum * now, before))
    inverse = (variance + inputs.eps).rsqrt()
    moments.copy_(torch.stack([mean, inverse]))
    return (out - mean) * inverse * weight + bias


def backward(inputs: StackInputs, grad_pooled: Tensor, saved: Tensor, gradients: tuple[Tensor, list, list, list, list]) -> None:
    """Fills the gradients of the schema in :mod:`molgcn.ops.gcn_stack`; x's is wanted unless it is empty."""
    with torch.autocast(inputs.x.device.type, enabled=False):
        _backward(_Batch(inputs, saved), grad_pooled, *gradients)


def _backward(
    batch: _Batch,
    grad_pooled: Tensor,
    grad_x: Tensor,
    grad_weights: list[Tensor],
    grad_biases: list[Tensor],
    grad_norm_weights: list[Tensor],
    grad_norm_biases: list[Tensor],
) -> None:
    inputs, grad = batch.inputs, _unpool(batch, grad_pooled)
    for layer in range(inputs.num_layers - 1, -1, -1):
        h = batch.saved("outputs", layer - 1) if layer > 0 else batch.atoms(inputs.x)
        before = grad
        if batch.activated(layer):
            grad = torch.where(batch.saved("alive", layer), grad, 0) / (1 - inputs.dropout_rate)
            if inputs.norm is not None:
                grad = _through_norm(batch, layer, grad, grad_norm_weights[layer], grad_norm_biases[layer])
        if batch.activated(layer) and inputs.batch_statistics:
            grad_biases[layer].zero_()  # the mean takes the bias away again; a sum would be its rounding
        else:
            torch.sum(grad, 0, out=grad_biases[layer])
        grad = batch.aggregate(grad)
        grad_weights[layer].copy_(batch.matmul(grad.T, h))
        if layer > 0 or grad_x.numel() > 0:
            grad = batch.matmul(grad, inputs.weights[layer])
            grad = grad + before if batch.residual(h) else grad
    if grad_x.numel() > 0:
        grad_x.copy_(batch.atoms(grad))


def _unpool(batch: _Batch, grad: Tensor) -> Tensor:
    inputs = batch.inputs
    if inputs.pool == "max":
        last = batch.saved("outputs", inputs.num_layers - 1)
        largest = batch.atoms((last == batch.per_graph(last, "max")[batch.graph]).to(last.dtype))
        grad = grad / batch.per_graph(largest, "sum").clamp(min=1)
        return batch.atoms(largest * grad[batch.graph])
    if inputs.pool == "mean":
        grad = grad / batch.sizes.clamp(min=1)
    return batch.atoms(grad[batch.graph])


def _through_norm(batch: _Batch, layer: int, grad: Tensor, grad_weight: Tensor, grad_bias: Tensor) -> Tensor:
    inputs, weight = batch.inputs, batch.inputs.norm_weights[layer]
    mean, inverse = batch.saved("moments", layer)
    across: Any = (slice(None), None) if inputs.norm == "layer" else slice(None)
    normal = batch.atoms((batch.saved("raw", layer) - mean[across]) * inverse[across])
    torch.sum(grad, 0, out=grad_bias)
    torch.sum(grad * normal, 0, out=grad_weight)
    if inputs.norm == "layer":
        grad = grad * weight
        return inverse[across] * (grad - grad.mean(1, keepdim=True) - normal * (grad * normal).mean(1, keepdim=True))
    if inputs.batch_statistics:
        atoms = batch.num_nodes.clamp(min=1)
        grad = batch.atoms(grad - grad_bias / atoms - normal * (grad_weight / atoms))
    return grad * inverse * weight
