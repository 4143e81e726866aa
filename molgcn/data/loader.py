"""Iterables of batches: what training reads from. Both loaders give the same batches in the same order."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any

import torch

from molgcn.data.batch import GraphBatch
from molgcn.data.packed import PackedMolecules
from molgcn.data.sampler import MoleculeSampler


class MoleculeLoader(ABC):
    """A sized iterable of :class:`GraphBatch`, as a `DataLoader` is, that can be interrupted and resumed between any two batches.

    One `iter` reads one epoch, each epoch with its own permutation; `set_epoch` chooses another. An iteration that was broken off starts
    the same epoch again, unless `load_state_dict` put the loader in its middle.

    Args:
        molecules: the set.
        batch_size: molecules a batch, B; the last batch may be shorter.
        shuffle: a new permutation every epoch, else in order.
        seed: of the permutations.
        rank: this process, 0 ... world_size - 1; each reads its own share.
        world_size: processes.
        drop_last: leave a short last batch out.
        device: where the batches are to be.

    Raises:
        UserError: see :class:`molgcn.data.sampler.MoleculeSampler`.
    """

    def __init__(
        self,
        molecules: PackedMolecules,
        batch_size: int,
        shuffle: bool = True,
        seed: int = 0,
        *,
        rank: int = 0,
        world_size: int = 1,
        drop_last: bool = False,
        device: str | torch.device = "cpu",
    ) -> None:
        self.molecules = molecules
        self.batch_size = batch_size
        self.device = torch.device(device)
        self.sampler = MoleculeSampler(molecules.num_nodes_per_graph, batch_size, shuffle, seed, rank, world_size, drop_last)

    def __len__(self) -> int:
        """Batches an epoch."""
        return len(self.sampler)

    def __iter__(self) -> Iterator[GraphBatch]:
        """Reads the current epoch, or what is left of it after `load_state_dict`."""
        start = self.sampler.begin()
        for batch in self.read(self.sampler.epoch, start):
            self.sampler.advance()
            yield batch

    @abstractmethod
    def read(self, epoch: int, start: int) -> Iterator[GraphBatch]:
        """The batches of `epoch` from number `start` on."""

    def set_epoch(self, epoch: int) -> None:
        """Makes `epoch` the next to be read; without effect while it is half read."""
        self.sampler.set_epoch(epoch)

    def state_dict(self) -> dict[str, Any]:
        """Where the reading stands: counts the batches handed out, not those prepared ahead."""
        return self.sampler.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """The next `iter` goes on where `state_dict` was taken.

        Raises:
            UserError: when the state belongs to a run with other batches.
        """
        self.sampler.load_state_dict(state)


class PackedLoader(MoleculeLoader):
    """Gathers batches from the packed arrays: no Python object per molecule. Arguments as :class:`MoleculeLoader`."""

    def read(self, epoch: int, start: int) -> Iterator[GraphBatch]:
        """The batches of `epoch` from number `start` on."""
        plan = self.sampler.plan(epoch)
        for number in range(start, len(plan)):
            indices, tile_ptr = plan.batch(number)
            yield GraphBatch.from_packed(self.molecules, indices, tile_ptr).to(self.device, non_blocking=True)
