"""`molgcn::encode` on CUDA, by `cuda/encode.cu` and `cuda/encode_backward.cu`. Import this module to register it.

Forward takes one launch, or two where a norm is in training, and backward two.
"""

from __future__ import annotations

import ctypes
from typing import Any, NamedTuple

import torch
from torch import Tensor

from molgcn.cuda_runtime.launch import gpu, kernel
from molgcn.cuda_runtime.structs import Header, fill
from molgcn.ops.encode import OPERATOR, Encoded, EncodeInputs, check, check_backward, empty_gradients, empty_outputs
from molgcn.ops.expect import aligned

SUM_THREADS = 1024  # threads of a block that adds up the sums of other blocks, or rows
_THREADS = 256
_BACKWARD_THREADS = 512
_SHARED_NUMBERS = 20480  # the most numbers of rows that a block of backward has in shared memory: 80 KB
_COLUMNS = 32  # columns whose gradients a block writes, if there is no norm
MANY_ROWS = 16384  # from this many rows on a thread computes several at a time
_MOST_SUMS = 128  # the most blocks that share the sums of a norm
_HEADER = Header(
    "encode_structs.h",
    Parameters=[
        ("const float*", "x weight bias walks walk_weight walk_bias"),  # see EncodeInputs; biases may be null
        ("const float*", "norm_weight norm_bias running_mean running_var"),
        ("const int*", "num_real"),  # may be null
        ("double*", "sums"),  # [num_sums, 2, MORE_IN]: sums of the walks and of their squares
        ("float*", "states statistics moments"),  # see Encoded
        ("const float*", "grad_states"),
        ("float*", "partial"),  # [num_partial, in_stride + 1, out_stride]: see encode_backward.cu
        ("float*", "grad_weight grad_bias grad_walk_weight grad_walk_bias grad_norm_weight grad_norm_bias"),  # biases' may be null
        ("int", "num_rows rows_per_block"),  # rows with padding; rows of a block that sums
        ("int", "num_sums num_partial"),  # num_sums: 0 if the norm takes running statistics
        ("float", "eps momentum"),
    ],
)


class _Shape(NamedTuple):
    """The columns of inputs and states; see cuda/encode.cuh."""

    in_: int
    out: int
    more_in: int
    more_out: int
    add: bool
    norm: bool

    @staticmethod
    def of(inputs: EncodeInputs) -> _Shape:
        return _Shape(inputs.x.shape[1], inputs.widths[0], inputs.num_steps, inputs.widths[1], inputs.add, inputs.num_normed > 0)

    @property
    def macros(self) -> dict[str, int]:
        names = ("IN", "OUT", "MORE_IN", "MORE_OUT", "ADD", "NORM")
        return {name: int(value) for name, value in zip(names, self, strict=True)}

    @property
    def in_stride(self) -> int:
        return 4 * (_quads(self.in_) + _quads(self.more_in))

    @property
    def out_quads(self) -> int:
        return _quads(self.out) if self.add else _quads(self.out) + _quads(self.more_out)

    @property
    def tiles(self) -> int:
        """The number of tiles of four inputs and four states that the weights have."""
        return _quads(self.in_) * _quads(self.out) + _quads(self.more_in) * _quads(self.more_out)

    @property
    def norm_size(self) -> int:
        return 4 * _quads(3 * self.more_in)


class _Rows(NamedTuple):
    """How threads share the states; see cuda/encode.cu.

    Attributes:
        lanes: The number of threads side by side on a row.
        teams: The number of rows that a block works on at a time.
        rows: The number of rows that a thread works on at a time.
    """

    lanes: int
    teams: int
    rows: int

    @staticmethod
    def of(shape: _Shape, num_rows: int) -> _Rows:
        rows, chunks = 4 if num_rows >= MANY_ROWS else 1, -(-shape.out_quads // min(32, 4096 // shape.in_stride))
        lanes = -(-shape.out_quads // chunks)
        return _Rows(lanes, max(1, min(_THREADS // lanes, 32, 8192 // (rows * shape.in_stride))), rows)

    def macros(self, shape: _Shape) -> dict[str, int]:
        return {**shape.macros, "LANES": self.lanes, "TEAMS": self.teams, "ROWS": self.rows}

    def shared_bytes(self, shape: _Shape) -> int:
        tile = max(self.teams * self.rows * shape.in_stride, 2 * _THREADS)
        return 4 * (4 * (self.lanes + 1) * (shape.in_stride + 1) + shape.norm_size + tile)


class _Sums(NamedTuple):
    """How threads share the sums of backward; see cuda/encode_backward.cu.

    Attributes:
        lanes: The number of tiles of a block.
        rows: The number of rows of a step. A block has those of two steps in shared memory.
    """

    lanes: int
    rows: int

    @staticmethod
    def of(shape: _Shape) -> _Sums:
        row = shape.in_stride + 4 * shape.out_quads
        rows = next((rows for rows in (64, 32, 16) if 2 * rows * row <= _SHARED_NUMBERS), 8)
        return _Sums(-(-shape.tiles // -(-shape.tiles // 256)), rows)

    def macros(self, shape: _Shape) -> dict[str, int]:
        return {**shape.macros, "LANES": self.lanes, "ROWS": self.rows, "COLUMNS": _COLUMNS}

    def shared_bytes(self, shape: _Shape) -> int:
        rows = 2 * self.rows * (shape.in_stride + 4 * shape.out_quads)
        return 4 * (shape.norm_size + max(rows, 20 * _BACKWARD_THREADS))


def outputs_of(inputs: EncodeInputs) -> Encoded:
    """Check the arguments of forward, and return uninitialised outputs.

    Raises:
        ValueError: If an argument does not fit. The message names the first one.
    """
    check(inputs)
    if inputs.num_normed and (inputs.running_mean is None or inputs.running_var is None):
        raise ValueError("encode: a norm needs running_mean and running_var")
    return empty_outputs(*inputs)


def forward(*args: Any) -> Encoded:
    """Compute the operator's outputs; see :mod:`molgcn.ops.encode`."""
    inputs = _prepared(args)
    outputs, shape, num_rows = outputs_of(inputs), _Shape.of(inputs), inputs.x.shape[0]
    plan, device, it = _Rows.of(shape, num_rows), inputs.x.device, _parameters(inputs, outputs._asdict())
    macros = plan.macros(shape)
    if shape.norm and inputs.training:
        it.num_sums = max(1, min(-(-num_rows // 128), _MOST_SUMS))
        it.rows_per_block = -(-num_rows // it.num_sums)
        sums = inputs.x.new_empty(it.num_sums, 2, shape.more_in, dtype=torch.float64)
        it.sums = sums.data_ptr()
        kernel("encode.cu", "encode_moments", macros, device).launch(it.num_sums, SUM_THREADS, 16 * SUM_THREADS, it, overlap=True)
    chunks, tiles = -(-shape.out_quads // plan.lanes), -(-num_rows // (plan.teams * plan.rows))
    blocks = chunks * max(1, min(tiles, 8 * gpu(device).num_multiprocessors // chunks))
    function = kernel("encode.cu", "encode_rows", macros, device, lambda: [("encode_backward.cu", _Sums.of(shape).macros(shape))])
    function.launch(blocks, _THREADS, plan.shared_bytes(shape), it, overlap=True)
    return outputs


def backward(grad_states: Tensor, moments: Tensor, *args: Any) -> tuple[Tensor, ...]:
    """Compute the gradients; see :mod:`molgcn.ops.encode`."""
    inputs = _prepared(args)
    shape, (num_rows, _), device = _Shape.of(inputs), inputs.x.shape, inputs.x.device
    check(inputs)
    check_backward(grad_states, moments, inputs)
    grad_states, moments, gradients = aligned(grad_states), moments.contiguous(), empty_gradients(grad_states, moments, *inputs)
    names = ("grad_weight", "grad_bias", "grad_walk_weight", "grad_walk_bias", "grad_norm_weight", "grad_norm_bias")
    it = _parameters(inputs, {"grad_states": grad_states, "moments": moments, **dict(zip(names, gradients, strict=True))})
    plan, parts = _Sums.of(shape), max(1, min(-(-num_rows // 32), 2 * gpu(device).num_multiprocessors))
    partial = inputs.x.new_empty(parts, shape.in_stride + 1, 4 * shape.out_quads)
    it.rows_per_block, it.num_partial, it.partial = -(-num_rows // parts), parts, partial.data_ptr()
    blocks, macros = -(-shape.tiles // plan.lanes) * parts, plan.macros(shape)
    function = kernel("encode_backward.cu", "encode_sums", macros, device)
    function.launch(blocks, _BACKWARD_THREADS, plan.shared_bytes(shape), it, overlap=True)
    function = kernel("encode_backward.cu", "encode_gradients", macros, device)
    across = 1 if shape.norm else -(-4 * shape.out_quads // _COLUMNS)
    function.launch((shape.in_ + shape.more_in + 1) * across, SUM_THREADS, 4 * SUM_THREADS, it, overlap=True)
    return gradients


def gradients_of(grad_states: Tensor, moments: Tensor | None, inputs: EncodeInputs | None) -> list[Tensor | None]:
    """Return the gradients of an encoder's parameters, None for those that it does not have or if they are not wanted."""
    if inputs is None or moments is None:
        return []
    if grad_states.numel() == 0:
        return [None] * len(inputs.parameters)
    found = backward(grad_states, moments, *inputs)
    return [None if parameter is None else gradient for gradient, parameter in zip(found, inputs.parameters, strict=True)]


def _prepared(args: tuple) -> EncodeInputs:
    inputs = EncodeInputs(*args)
    tensors: dict[str, Any] = {name: value.contiguous() for name, value in inputs._asdict().items() if isinstance(value, Tensor)}
    return inputs._replace(**tensors)


def _parameters(inputs: EncodeInputs, others: dict[str, Tensor]) -> Any:
    """Return the kernels' arguments, with null for tensors that there are not."""
    tensors = {name: value for name, value in inputs._asdict().items() if isinstance(value, Tensor)} | others
    it: ctypes.Structure = _HEADER.ctype()(num_rows=inputs.x.shape[0], eps=inputs.eps, momentum=inputs.momentum)
    return fill(it, {name: tensor for name, tensor in tensors.items() if tensor.numel() > 0})


def _quads(columns: int) -> int:
    return -(-columns // 4)


OPERATOR.implement("CUDA", forward, backward)
