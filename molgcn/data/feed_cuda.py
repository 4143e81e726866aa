"""Fills slots on a GPU: from a set in its memory, or from the host while the other slot is computed on."""

from __future__ import annotations

from threading import Lock

import torch
from torch import Tensor

from molgcn.cuda_runtime.launch import kernel
from molgcn.data.feed import Feed
from molgcn.data.molecule_set import MoleculeSet
from molgcn.data.resident import KERNEL, SOURCE, THREADS, DeviceMolecules, Launch, Piece, PlanBuffer, macros, tables
from molgcn.data.sampler import EpochPlan
from molgcn.data.slot_batch import SlotBatch
from molgcn.data.slots import Capacity, Slot

_COPIED = 2**20  # the most numbers that are copied at once for many batches, 4 or 8 MiB


class CUDAFeed(Feed):
    """Two slots in a GPU's memory. Each batch may be asked for on another stream."""

    def __init__(self, molecules: MoleculeSet, capacity: Capacity, device: torch.device) -> None:
        super().__init__(Slot.pair(molecules, capacity, device=device))
        self.device = device
        self._current = torch.cuda.current_stream(device)

    def current_stream(self) -> torch.cuda.Stream:
        """Return the current stream, which waits for all work on the one that was current before."""
        if torch._C._cuda_getCurrentRawStream(self.device.index) != self._current.cuda_stream:
            current = torch.cuda.current_stream(self.device)
            current.wait_stream(self._current)
            for tensor in self.memory():
                tensor.record_stream(current)  # which may outlast this object
            self._current = current
        return self._current

    def memory(self) -> list[Tensor]:
        """Return the tensors that work on the current stream reads and writes, one for each piece of memory."""
        return [tensor for slot in self.slots for tensor in (slot.buffer, slot.edge_table) if tensor is not None]


class ResidentFeed(CUDAFeed):
    """Gathers batches from the packed set in the GPU's memory, with one launch for each, which a CUDA graph may hold.

    The launch takes the device 4 to 6 us and is on the stream that the batch is asked for on: to order two streams by events would take
    the host 10 us more.
    """

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
        self._number = 0  # the batch that is being read
        self._next = 0  # the first batch that no slot holds
        self._copies: dict[str, tuple[int, tuple[Tensor, ...]]] = {}  # by the name of an array, the first batch's number and the copies

    def memory(self) -> list[Tensor]:
        """Return the tensors that work on the current stream reads and writes, those of the set included."""
        of_plan = () if self._plan is None else self._plan.arrays().values()
        copies = (parts[0] for _, parts in self._copies.values())
        return [*super().memory(), self._cursor, *self.resident.arrays().values(), *of_plan, *copies]

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

    def begin(self, plan: EpochPlan, start: int) -> None:
        """Upload the plan."""
        current = self.current_stream()
        if self._plan is None:
            self._plan = PlanBuffer(plan, self.device)
            arrays = self.resident.arrays() | self._plan.arrays() | {"cursor": self._cursor}
            self._launches = [Launch(arrays, slot, number, len(plan)) for number, slot in enumerate(self.slots)]
        if plan is not self._in_plan:  # without shuffling all epochs have the same
            self._plan.copy_(plan)
            self._uploaded.record(current)
            self._in_plan = plan
        self._next = start
        self._copies = {}

    def take(self, plan: EpochPlan, number: int) -> SlotBatch:
        """Return batch `number`, ready for work on the stream that is current now, with one launch if no graph has filled its slot."""
        self.current_stream()
        if self._next <= number:
            self.fill(number)
            self._next = number + 1
        self._number = number
        return SlotBatch(self.slots[number % 2], plan.spans[number], self)

    def fill(self, number: int) -> None:
        """Fill batch `number` of the plan into its slot with one launch on the current stream."""
        launch = self._launches[number % 2]
        self.kernel.launch(launch.grid, THREADS, 0, launch.batch(number))

    def copy(self, name: str) -> Tensor | None:
        """Return a copy of the targets or of the molecules' positions of the batch that is being read.

        Many batches are copied at once, since each copy would take the host 20 us; but not by a graph, which copies when it is replayed.
        """
        first, parts = self._copies.get(name, (0, ()))
        if not first <= self._number < first + len(parts):
            if torch.cuda.is_current_stream_capturing():
                return None
            first, parts = self._copies[name] = self._number, self._copied(name, self._number)
        return parts[self._number - first]

    def _copied(self, name: str, first: int) -> tuple[Tensor, ...]:
        assert self._plan is not None and self._in_plan is not None
        spans, rows = self._in_plan.spans[first:], self.resident.arrays()["targets"] if name == "targets" else None
        numbers = spans[0].num_graphs * (1 if rows is None else max(1, rows.shape[1:].numel()))
        sizes = [span.num_graphs for span in spans[: max(1, _COPIED // numbers)]]
        order = self._plan.order[spans[0].first_graph :][: sum(sizes)]
        with torch.inference_mode(False):  # they may be used outside of it
            copied = order.clone() if rows is None else rows.index_select(0, order)
            return torch.unsafe_split_with_sizes(copied, sizes)  # whose parts count writes each to itself alone

    def next_is_enqueued(self) -> None:
        """Leave the filling of the next batch to the CUDA graph that was replayed."""
        self._next = self._number + 2

    def enqueue_next(self, slot: Slot) -> None:
        """Fill the other slot with one launch on the current stream, which reads the batch's number on the device."""
        launch = self._launches[1 - self.slots.index(slot)]
        self.kernel.launch(launch.grid, THREADS, 0, launch.batch(-1))


class StagedFeed(CUDAFeed):
    """Fills the slots from a set that does not fit into the GPU's memory: one on a side stream while the other is computed on.

    Threads gather each batch, still packed, into page-locked memory. It is copied to the GPU and unpacked there. Events order all work. The
    host never waits for the device's work on a batch.
    """

    def __init__(self, molecules: MoleculeSet, capacity: Capacity, device: torch.device, num_threads: int) -> None:
        from molgcn._cpu import PieceCollator

        super().__init__(molecules, capacity, device)
        self.stream = torch.cuda.Stream(device, priority=-1)
        self._filled = (torch.cuda.Event(), torch.cuda.Event())
        self._free = torch.cuda.Event()
        self._next = 0  # the first batch that has not been enqueued
        self._waits = [False, False]  # whether the side stream fills each slot
        self._staging = (Piece(molecules, capacity, pin_memory=True), Piece(molecules, capacity, pin_memory=True))
        self._collator = PieceCollator(molecules, *self._staging, num_threads)
        self._copied = torch.cuda.Event()
        self._piece = Piece(molecules, capacity, device)
        piece = self._piece
        self._tables = tables(piece.features, device)
        self._launches = [Launch(piece.kernel_arrays() | self._tables, slot) for slot in self.slots]
        self.kernel = kernel(SOURCE, KERNEL, macros(piece), device)
        torch.cuda.current_stream(device).synchronize()
        for tensor in (*self.memory(), piece.buffer, *self._tables.values()):
            tensor.record_stream(self.stream)

    def begin(self, plan: EpochPlan, start: int) -> None:
        """Start the threads."""
        self._copied.synchronize()
        self._collator.start(plan, start, len(plan))
        self._next = start

    def take(self, plan: EpochPlan, number: int) -> SlotBatch:
        """Return batch `number`, ready for work on the stream that is current now, and enqueue the one after it."""
        current = self.current_stream()
        while self._next <= min(number + 1, len(plan) - 1):
            place = self._next % 2
            self._free.record(current)
            self.stream.wait_event(self._free)  # for the work enqueued so far, which includes all work on the slot's previous batch
            self._fill(plan, self._next)
            self._filled[place].record(self.stream)
            self._waits[place] = True
            self._next += 1
        if self._waits[number % 2]:
            current.wait_event(self._filled[number % 2])
            self._waits[number % 2] = False
        return SlotBatch(self.slots[number % 2], plan.spans[number], self)

    def _fill(self, plan: EpochPlan, number: int) -> None:
        """Copy batch `number` of the plan to the GPU and unpack it into its slot with one launch."""
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
