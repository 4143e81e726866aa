"""Fills slots with the batches of a plan; on the CPU, C++ threads fill one slot while the other is read."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator

from torch import Tensor

from molgcn.data.molecule_set import MoleculeSet
from molgcn.data.sampler import EpochPlan
from molgcn.data.slot_batch import SlotBatch
from molgcn.data.slots import Slot


class Feed(ABC):
    """Fills two slots with batches, one while the other is read."""

    def __init__(self, slots: tuple[Slot, Slot]) -> None:
        self.slots = slots
        self._reader: object = None
        self._batch: SlotBatch | None = None

    def read(self, plan: EpochPlan, start: int) -> Iterator[SlotBatch]:
        """Yield the batches of the plan from number `start` on. This ends an earlier reading.

        Raises:
            RuntimeError: when a later reading has ended this one.
        """
        reader = self._reader = object()
        self._expire()
        self.begin(plan, start)
        try:
            for number in range(start, len(plan)):
                if self._reader is not reader:
                    raise RuntimeError("this loader is being read anew; make a second loader to read it twice at a time")
                self._expire()
                self._batch = self.take(plan, number)
                yield self._batch
        finally:
            if self._reader is reader:
                self.end()

    def _expire(self) -> None:
        if self._batch is not None:
            self._batch.expire()
            self._batch = None

    @abstractmethod
    def begin(self, plan: EpochPlan, start: int) -> None:
        """Start to fill in the batches of the plan from number `start` on."""

    @abstractmethod
    def take(self, plan: EpochPlan, number: int) -> SlotBatch:
        """Return batch `number` of the plan, and go on with the batch after it."""

    def end(self) -> None:  # noqa: B027, since launches that are enqueued may finish later
        """Finish the reading of a plan, whether it is complete or was broken off."""

    def copy(self, name: str) -> Tensor | None:
        """Return a copy of the targets or of the indices of the batch that is being read, or None to have them copied from the slot."""
        return None

    def enqueue_next(self, slot: Slot) -> None:  # noqa: B027
        """Fill the other slot than `slot` with the next batch, see :meth:`SlotBatch.enqueue_next`, if a CUDA graph may do that."""

    def next_is_enqueued(self) -> None:  # noqa: B027
        """Note that a CUDA graph fills in the next batch, see :meth:`SlotBatch.next_is_enqueued`."""

    def settle(self) -> None:  # noqa: B027, since threads stop with each reading
        """Wait until the plans of earlier epochs are no longer read."""


class CPUFeed(Feed):
    """Two slots in the CPU's memory and the threads that fill them. Each thread fills its share of every batch."""

    def __init__(self, molecules: MoleculeSet, slots: tuple[Slot, Slot], num_threads: int = 1) -> None:
        from molgcn._cpu import SlotCollator

        super().__init__(slots)
        self._collator = SlotCollator(molecules, *slots, num_threads)

    def begin(self, plan: EpochPlan, start: int) -> None:
        self._collator.start(plan, start, len(plan))

    def take(self, plan: EpochPlan, number: int) -> SlotBatch:
        """Wait for the threads."""
        self._collator.next()
        return SlotBatch(self.slots[number % 2], plan.spans[number])

    def end(self) -> None:
        self._collator.stop()
