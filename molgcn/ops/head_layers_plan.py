"""How a kernel divides a head with hidden layers among blocks, and which heads it takes."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from itertools import pairwise
from typing import NamedTuple

from molgcn.cuda_runtime.launch import Gpu

MAX_LAYERS = 8
MAX_HIDDEN_WEIGHTS = 2**14  # weights and biases of the hidden layers; with more PyTorch is as fast
MAX_MULTIPLICATIONS = 2**27  # multiplications in the hidden layers; with more PyTorch is as fast
THREADS = 512  # threads of a block
_MOST_ROWS, _FEWEST_ROWS = 32, 16  # molecules of a block, if there are as many; with fewer, weights are read too often
_SMALLEST_CHUNK = 2**12  # numbers; with fewer, a chunk is not worth its barrier


class HeadPlan(NamedTuple):
    """How a head is divided. A block takes some molecules through all layers, and a chunk of a layer's weights at a time.

    Attributes:
        rows: The number of molecules that a block takes at a time, a multiple of four.
        blocks: The number of blocks. Each goes through the molecules in several steps if there are many.
        is_whole: Whether one block takes all molecules at once.
        strides: The length of a molecule's row in each plane of shared memory. In backward hidden states have a second plane, of gradients.
        chunk_size: The length of the memory of a chunk.
        forward_chunks: The number of quads of outputs of each layer's chunks in the forward pass.
        backward_chunks: The number of quads of inputs of each layer's chunks in the backward pass.
    """

    rows: int
    blocks: int
    is_whole: bool
    strides: list[int]
    chunk_size: int
    forward_chunks: list[int]
    backward_chunks: list[int]

    @property
    def shared(self) -> int:
        """The shared memory of a block in bytes. In the end it holds two doubles for each warp."""
        return max(4 * (self.rows * self.num_columns + 2 * self.chunk_size), 16 * THREADS // 32)

    @property
    def num_columns(self) -> int:
        """The length of a molecule's rows in all planes."""
        return _columns_of_planes(self.strides)


def quads(width: int) -> int:
    """Return how many groups of four numbers a row takes."""
    return -(-width // 4)


def _columns_of_planes(strides: Sequence[int]) -> int:
    return sum(strides) + sum(strides[1:-1])


@lru_cache(maxsize=256)
def plan_head(widths: tuple[int, ...], num_graphs: int, gpu: Gpu) -> HeadPlan | None:
    """Return how a head is divided, or None if its hidden layers are PyTorch's.

    They are PyTorch's in three cases. It is as fast beyond :data:`MAX_HIDDEN_WEIGHTS` and :data:`MAX_MULTIPLICATIONS`: kernels take layers
    of 80, 40 and 20 columns for up to 33,000 molecules, layers of 128 and 64 for 16,000, and none of 300 and 150. Kernels know up to
    :data:`MAX_LAYERS` layers. And the states of 16 molecules, with the gradients of hidden ones, must leave shared memory for
    weights, which limits the sum of all widths, those of hidden layers twice, to about 2,400 on an H100 (227 KB).

    Args:
        widths: The widths of the head's input, its hidden layers and its output.
        num_graphs: The number of molecules.
        gpu: The properties of the GPU.
    """
    *hidden, _ = [(wide + 1) * narrow for wide, narrow in pairwise(widths)]
    num_hidden = sum(hidden)
    if num_hidden > MAX_HIDDEN_WEIGHTS or num_graphs * num_hidden > MAX_MULTIPLICATIONS:
        return None
    if len(widths) - 1 > MAX_LAYERS or min(widths) == 0:
        return None
    strides = [4 * (quads(width + 1) | 1) for width in widths]  # of an odd number of quads: no bank conflicts
    columns, memory = _columns_of_planes(strides), gpu.shared_limit // 4
    of_outputs, of_inputs = [4 * stride for stride in strides[:-1]], [16 * quads(width) for width in widths[1:]]  # memory of a quad
    fitting = (memory - 2 * max(_SMALLEST_CHUNK, *of_outputs, *of_inputs)) // columns // 4 * 4
    wanted = min(max(4, 4 * quads(-(-num_graphs // gpu.num_multiprocessors))), _MOST_ROWS)
    if fitting < min(wanted, _FEWEST_ROWS):
        return None
    rows = min(wanted, fitting)
    room = (memory - rows * columns) // 2
    forward = [min(quads(width), room // size) for width, size in zip(widths[1:], of_outputs, strict=True)]
    backward = [min(quads(width), room // size) for width, size in zip(widths[:-1], of_inputs, strict=True)]
    chunk_size = max(number * size for number, size in zip(forward + backward, of_outputs + of_inputs, strict=True))
    tiles = max(1, -(-num_graphs // rows))
    return HeadPlan(rows, min(tiles, gpu.num_multiprocessors), tiles == 1, strides, chunk_size, forward, backward)
