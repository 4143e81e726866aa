"""Fills slots on a GPU: one slot is filled on a side stream while the other is computed on."""

from __future__ import annotations

from abc import abstractmethod
from threading import Lock

import torch

from molgcn.cuda_runtime.launch import kernel
from molgcn.data.feed import Feed
from molgcn.data.molecule_set import MoleculeSet
from molgcn.data.resident import KERNEL, SOURCE, THREADS, DeviceMolecules, Launch, Piece, PlanBuffer, macros, tables
from molgcn.data.sampler import EpochPlan
from molgcn.data.slot_batch import SlotBatch
from molgcn.data.slots import Capacity, Slot


class CUDAFeed(Feed):
    """Two slots in a GPU's memory and the side stream that fills them.

    Events order all work. The host never waits for the device's work on a batch.
    """

    def __init__(self, molecules: MoleculeSet, capacity: Capacity, device: torch.device) -> None:
        super().__init__(Slot.pair(molecules, capacity, device=device))
        self.device = device
        self.stream = torch.cuda.Stream(device, priority=-1)
        self._filled = (torch.cuda.Event(), torch.cuda.Event())
        self._free = torch.cuda.Event()
        self._number = 0  # the batch that is being read
        self._next = 0  # the first batch that has not been enqueued
        self._ahead = 1  # how many batches are enqueued before they are asked for
        self._waits = [False, False]  # whether the side stream fills each slot
        for slot in self.slots:
            for tensor in slot.tensors():
                tensor.record_stream(self.stream)

    @abstractmethod
    def prepare(self, plan: EpochPlan, start: int) -> None:
        """Prepare, on the side stream, to fill in the batches of the plan from number `start` on."""

    @abstractmethod
    def fill(self, plan: EpochPlan, number: int, slot: Slot) -> None:
        """Enqueue batch `number` on the side stream."""

    def begin(self, plan: EpochPlan, start: int) -> None:
        """Prepare the plan on the side stream."""
        if not self._ahead:  # graphs may still read the previous plan
            self.stream.wait_stream(torch.cuda.current_stream(self.device))
        with torch.cuda.stream(self.stream):
            self.prepare(plan, start)
        self._next, self._ahead = start, 1

    def take(self, plan: EpochPlan, number: int) -> SlotBatch:
        """Return batch `number`, ready for work on the stream that is current now."""
        current = torch.cuda.current_stream(self.device)
        while self._next <= min(number + self._ahead, len(plan) - 1):
            place = self._next % 2
            self._free.record(current)
            self.stream.wait_event(self._free)  # for the work enqueued so far, which includes all work on the slot's previous batch
            self.fill(plan, self._next, self.slots[place])
            self._filled[place].record(self.stream)
            self._waits[place] = True
            self._next += 1
        if self._waits[number % 2]:
            current.wait_event(self._filled[number % 2])
            self._waits[number % 2] = False
        self._number = number
        return SlotBatch(self.slots[number % 2], plan.spans[number], self)


class ResidentFeed(CUDAFeed):
    """Gathers batches from the packed set in the GPU's memory, with one launch for each, which a CUDA graph may hold."""

    def __init__(self, molecules: MoleculeSet, capacity: Capacity, device: torch.device) -> None:
        super().__init__(molecules, capacity, device)
        self.resident = DeviceMolecules.of(molecules, device)
        self.kernel = kernel(SOURCE, KERNEL, macros(self.resident), device)
        self._staging: list[PlanBuffer] = []
        self._lock = Lock()
        self._plan: PlanBuffer | None = None
        self._in_plan: EpochPlan | None = None  # what it holds
        self._cursor = torch.zeros(2, dtype=torch.int32, device=device)
        self._launches: list[Launch] = []
        self._uploaded = torch.cuda.Event()
        torch.cuda.current_stream(device).synchronize()
        for tensor in (self._cursor, *self.resident.arrays().values()):
            tensor.record_stream(self.stream)

    def stage(self, plan: EpochPlan, place: int, places: int) -> EpochPlan:
        """Return a plan with its arrays in the page-locked buffer `place` of `places`.

        All memory is allocated with the first plan, since a CUDA graph may be captured later.
        """
        with self._lock:
            if not self._staging:
                self._staging = [PlanBuffer(plan, pin_memory=True) for _ in range(places)]
        return self._staging[place].copy_(plan).view(plan)

    def settle(self) -> None:
        """Wait until the last plan is uploaded, so that its page-locked memory can take another."""
        self._uploaded.synchronize()

    def prepare(self, plan: EpochPlan, start: int) -> None:
        """Upload the plan."""
        if self._plan is None:
            self._plan = PlanBuffer(plan, self.device)
            arrays = self.resident.arrays() | self._plan.arrays() | {"cursor": self._cursor}
            self._launches = [Launch(arrays, slot, number, len(plan)) for number, slot in enumerate(self.slots)]
        if plan is not self._in_plan:  # without shuffling all epochs have the same
            self._plan.copy_(plan)
            self._uploaded.record(self.stream)
            self._in_plan = plan

    def fill(self, plan: EpochPlan, number: int, slot: Slot) -> None:
        """Fill batch `number` of the plan into a slot with one launch on the side stream."""
        launch = self._launches[number % 2]
        self.kernel.launch(launch.grid, THREADS, 0, launch.batch(number), stream=self.stream)

    def next_is_enqueued(self) -> None:
        """Leave the filling of the next batch to the CUDA graph that was replayed."""
        self._next, self._ahead = self._number + 2, 0

    def enqueue_next(self, slot: Slot) -> None:
        """Fill the other slot with one launch on the current stream, which reads the batch's number on the device."""
        launch = self._launches[1 - self.slots.index(slot)]
        self.kernel.launch(launch.grid, THREADS, 0, launch.batch(-1))


class StagedFeed(CUDAFeed):
    """Fills the slots from a set that does not fit into the GPU's memory.

    Threads gather each batch, still packed, into page-locked memory. It is copied to the GPU and unpacked there.
    """

    def __init__(self, molecules: MoleculeSet, capacity: Capacity, device: torch.device, num_threads: int) -> None:
        from molgcn._cpu import PieceCollator

        super().__init__(molecules, capacity, device)
        self._staging = (Piece(molecules, capacity, pin_memory=True), Piece(molecules, capacity, pin_memory=True))
        self._collator = PieceCollator(molecules, *self._staging, num_threads)
        self._copied = torch.cuda.Event()
        self._piece = Piece(molecules, capacity, device)
        piece = self._piece
        self._tables = tables(piece.features, device)
        self._launches = [Launch(piece.kernel_arrays() | self._tables, slot) for slot in self.slots]
        self.kernel = kernel(SOURCE, KERNEL, macros(piece), device)
        torch.cuda.current_stream(device).synchronize()
        for tensor in (piece.buffer, *self._tables.values()):
            tensor.record_stream(self.stream)

    def prepare(self, plan: EpochPlan, start: int) -> None:
        """Start the threads."""
        self._copied.synchronize()
        self._collator.start(plan, start, len(plan))

    def fill(self, plan: EpochPlan, number: int, slot: Slot) -> None:
        """Copy batch `number` of the plan to the GPU and unpack it into a slot with one launch."""
        self._copied.synchronize()  # the copy out of the page-locked memory that the threads fill next is done
        self._collator.next()
        span = plan.spans[number]
        used = self._piece.used_bytes(span)
        with torch.cuda.stream(self.stream):
            self._piece.buffer[:used].copy_(self._staging[number % 2].buffer[:used], non_blocking=True)
        self._copied.record(self.stream)
        launch = self._launches[number % 2]
        self.kernel.launch(launch.grid, THREADS, 0, launch.piece(span), stream=self.stream)

    def end(self) -> None:
        self._collator.stop()
