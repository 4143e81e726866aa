"""Fills slots on the CPU: C++ threads fill one slot while the other is read."""

from __future__ import annotations

from collections.abc import Iterator

from molgcn.data.molecule_set import MoleculeSet
from molgcn.data.sampler import EpochPlan
from molgcn.data.slot_batch import SlotBatch
from molgcn.data.slots import Slot


class CPUFeed:
    """Two slots in the CPU's memory and the threads that fill them.

    Args:
        molecules: the set.
        slots: the two slots.
        num_threads: number of threads. Each fills its share of every batch.
    """

    def __init__(self, molecules: MoleculeSet, slots: tuple[Slot, Slot], num_threads: int = 1) -> None:
        from molgcn._cpu import SlotCollator

        self.slots = slots
        self._collator = SlotCollator(molecules, *slots, num_threads)
        self._reader: object = None
        self._batch: SlotBatch | None = None

    def settle(self) -> None:
        """Return at once, since no thread works between two readings."""

    def read(self, plan: EpochPlan, start: int) -> Iterator[SlotBatch]:
        """Yield the batches of the plan from number `start` on. This ends an earlier reading.

        Raises:
            RuntimeError: when a later reading has ended this one.
        """
        reader = self._reader = object()
        self._expire()
        self._collator.start(plan, start, len(plan))
        try:
            for number in range(start, len(plan)):
                if self._reader is not reader:
                    raise RuntimeError("this loader is being read anew; make a second loader to read it twice at a time")
                self._expire()
                self._collator.next()
                self._batch = SlotBatch(self.slots[number % 2], plan.spans[number])
                yield self._batch
        finally:
            if self._reader is reader:
                self._collator.stop()

    def _expire(self) -> None:
        if self._batch is not None:
            self._batch.expire()
            self._batch = None
