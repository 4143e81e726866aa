"""Chooses what fills the slots of a packed loader, by device, memory and installed extensions."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from typing import Literal, Protocol

import torch

from molgcn.data.capacity import Capacity
from molgcn.data.feed_cpu import CPUFeed
from molgcn.data.molecule_set import MoleculeSet
from molgcn.data.resident import is_resident, resident_bytes
from molgcn.data.sampler import EpochPlan
from molgcn.data.slot_batch import SlotBatch
from molgcn.data.slots import Slot
from molgcn.data.tiles import HAS_EXTENSION
from molgcn.errors import UserError

log = logging.getLogger(__name__)


class Feed(Protocol):
    """Fills two slots with batches, one while the other is read."""

    slots: tuple[Slot, Slot]

    def settle(self) -> None:
        """Wait until the plans of earlier epochs are no longer read."""
        ...

    def read(self, plan: EpochPlan, start: int) -> Iterator[SlotBatch]:
        """Yield the batches of the plan from number `start` on. This ends an earlier reading."""
        ...


def make_feed(
    molecules: MoleculeSet, capacity: Capacity, device: torch.device, resident: bool | Literal["auto"], num_threads: int | None
) -> Feed | None:
    """Return the fastest feed for the device, or None where batches have to be gathered by NumPy.

    Args:
        molecules: the set.
        capacity: size of the slots.
        device: where the batches are needed.
        resident: whether the packed set is kept in a GPU's memory, see :class:`molgcn.data.loader.PackedLoader`.
        num_threads: number of threads that gather on the CPU. None chooses.

    Raises:
        UserError: when an argument is out of range, or `resident=True` and the set does not fit or the CUDA tool chain is missing.
    """
    if resident not in (True, False, "auto"):
        raise UserError(f"dataset.resident={resident} is unknown. Expected auto, true or false.")
    if num_threads is not None and num_threads < 1:
        raise UserError(f"num_threads={num_threads} is not valid: expected at least 1, or None to leave it to the loader.")
    if device.type == "cuda":
        from molgcn.data.feed_cuda import ResidentFeed, StagedFeed

        device = torch.device("cuda", torch.cuda.current_device() if device.index is None else device.index)
        if resident is True or (resident == "auto" and _fits(molecules, device, 0.5)):
            if not _fits(molecules, device, 1.0):
                raise UserError(
                    f"The packed set needs {resident_bytes(molecules) / 2**30:.1f} GiB, more than is free in the memory of {device}. "
                    "Use dataset.resident=auto or false, which gather on the CPU."
                )
            return ResidentFeed(molecules, capacity, device)
        if HAS_EXTENSION:
            return StagedFeed(molecules, capacity, device, num_threads or min(8, max(1, (os.cpu_count() or 1) - 1)))
    elif HAS_EXTENSION and device.type == "cpu":
        return CPUFeed(molecules, Slot.pair(molecules, capacity), num_threads or 1)
    if not HAS_EXTENSION:
        log.warning("Batches are gathered by NumPy, since the C++ extension is not built: run `pip install -e .` with a compiler.")
    return None


def _fits(molecules: MoleculeSet, device: torch.device, share: float) -> bool:
    return is_resident(molecules, device) or resident_bytes(molecules) <= share * torch.cuda.mem_get_info(device)[0]
