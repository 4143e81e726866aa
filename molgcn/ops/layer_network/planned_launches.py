"""The launches of a planned pass, and the memory that a call makes for them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from itertools import accumulate, compress
from operator import or_
from typing import Any

import torch
from torch import Tensor

from molgcn.cuda_runtime.plan import Place, Plan, Recording, Region, Regions
from molgcn.ops.expect import aligned
from molgcn.ops.graph import Graph
from molgcn.ops.layer_network.forms import Sizes
from molgcn.ops.layer_network.plan_key import Key

ALIGNMENT = 256  # bytes
_ENDS = [Graph._fields.index(name) for name in ("ptr", "tile_ptr")]


class Launches:
    """The launches of a pass, with the memory that a call makes for them.

    The first buffers are the memory of the pass, and then the outputs. The ends of the lists of molecules and of tiles follow, and the
    tensors that the pass reads.

    Args:
        key: What the plan depends on.
        made: The recording of the pass.
        outputs: The memory of outputs that outlive the pass, several tensors one after another in each buffer.
        tensors: The tensors of the call, or None.
        read: Which of them the pass reads.
        others: More tensors that it reads.
        written: The tensors among these that it writes.
        alignment: The number of bytes that divides the address of each output.

    Attributes:
        read: Which of a call's tensors the pass reads.
        sizes: The sizes of the buffers that a call makes, in numbers of 4 bytes.
        own: The places of the recorded addresses in these buffers. It holds no memory.
    """

    def __init__(
        self,
        key: Key,
        made: Recording,
        outputs: Sequence[Sequence[Tensor]],
        tensors: Sequence[Tensor | None],
        read: Sequence[bool],
        others: Sequence[Tensor],
        written: Sequence[Tensor] = (),
        alignment: int = ALIGNMENT,
    ) -> None:
        self.read = read
        given: list[Any] = [*compress(tensors, read), *others]
        changed = {*map(id, written)}
        self._written = [place for place, tensor in enumerate(given) if id(tensor) in changed]
        starts = {tensor.data_ptr() for group in (*outputs, given) for tensor in group}
        scratch = [tensor for tensor in made.allocated if tensor.data_ptr() not in starts]
        self.sizes, own = list[int](), list[Region]()
        for group in (scratch, *outputs):
            *begins, size = begins_of(group, ALIGNMENT if group is scratch else alignment)
            own += [(tensor, Place(len(self.sizes), 4 * begin)) for tensor, begin in zip(group, begins, strict=True)]
            self.sizes.append(size)
        self.own = Regions(own)
        self._ends = [sum(read[:place]) for place in _ENDS if read[place]]
        given = [*(given[place][-1:] for place in self._ends), *given]
        regions = [(tensor, Place(len(self.sizes) + index)) for index, tensor in enumerate(given)]
        self._plan = Plan(made.launches, [*own, *regions], len(self.sizes) + len(given), 4, key.counts)

    def run(self, like: Tensor, sizes: Sizes, given: Sequence[Tensor], are_contiguous: bool) -> list[Tensor]:
        """Launch the pass of a call and return the memory that it has made, float32 [size] for each of :attr:`sizes`.

        Tensors that are not as kernels read them are copied, and back if they are written.

        Args:
            like: A tensor on the device, in float32.
            sizes: The sizes of the batch.
            given: The tensors that the pass reads.
            are_contiguous: Whether they are known to be contiguous.
        """
        targets, addresses = [given[place] for place in self._written], [*map(Tensor.data_ptr, given)]
        if not are_contiguous or reduce(or_, addresses) % 16 > 0:
            given = [*map(aligned, given)]  # kept until they are read
            addresses = [*map(Tensor.data_ptr, given)]
        memory = [like.new_empty(size) for size in self.sizes]
        counts = sizes.graphs, sizes.tiles or 0
        ends = [addresses[place] + 4 * count for place, count in zip(self._ends, counts, strict=False)]
        self._plan.run([*map(Tensor.data_ptr, memory), *ends, *addresses], (sizes.graphs, sizes.atoms, sizes.bonds, counts[1]))
        if targets:
            for place, target in zip(self._written, targets, strict=True):
                if given[place] is not target:
                    target.copy_(given[place])
            torch.autograd.graph.increment_version(targets)
        return memory


def begins_of(tensors: Sequence[Tensor], alignment: int = ALIGNMENT) -> list[int]:
    """Return where tensors begin that share a buffer, and its size, in numbers of 4 bytes."""
    sizes = (-(-tensor.numel() * tensor.element_size() // alignment) * alignment // 4 for tensor in tensors)
    return [*accumulate(sizes, initial=0)]
