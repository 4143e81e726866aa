"""Lightning's plugin for checkpoints: they are written in the background, and training waits only until the host has a copy of them."""

from __future__ import annotations

import copy
import sys
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any

import torch
from lightning.pytorch.plugins import TorchCheckpointIO
from torch import Tensor

from molgcn.training.checkpoint_reader import load_checkpoint
from molgcn.training.checkpoint_writer import write

_MAX_PENDING = 2  # most copies in memory: an epoch may end with best.ckpt and last.ckpt
_SWITCH_INTERVAL = 1e-4  # seconds
Write = Callable[[dict[str, Any], Path], None]


class AtomicCheckpointIO(TorchCheckpointIO):
    """Writes checkpoints in one thread, in the order in which they were given, and reads plain tensors and values only.

    Each file is written as a whole or not at all. All methods but :meth:`load_checkpoint` raise a UserError where a checkpoint could not be
    written.

    Args:
        write_file: writes one checkpoint to its path.
    """

    def __init__(self, write_file: Write = write) -> None:
        super().__init__()
        self._write_file = write_file
        self._thread: ThreadPoolExecutor | None = None
        self._pending: deque[Future[None]] = deque()

    def save_checkpoint(self, checkpoint: dict[str, Any], path: Any, storage_options: Any = None) -> None:
        """Write a copy of the checkpoint to `path` in the background; its tensors may change as soon as this returns."""
        self.wait(_MAX_PENDING - 1)
        self._thread = self._thread or ThreadPoolExecutor(1, "molgcn-checkpoint")
        self._pending.append(self._thread.submit(_write_in_background, self._write_file, host_copy(checkpoint), Path(path)))

    def wait(self, leave: int = 0) -> None:
        """Wait until all but `leave` checkpoints are on disk."""
        while len(self._pending) > leave or (self._pending and self._pending[0].done()):
            wait([self._pending[0]])
            self._pending.popleft().result()

    def load_checkpoint(self, path: Any, map_location: Any = "cpu", weights_only: bool | None = True) -> dict[str, Any]:
        """Wait until every checkpoint is on disk, then read one; see :func:`load_checkpoint`."""
        self.wait()
        return load_checkpoint(Path(path))

    def teardown(self) -> None:
        """Wait until every checkpoint is on disk, and end the thread; Lightning calls this when a fit ends, is interrupted or fails."""
        try:
            self.wait()
        finally:
            if self._thread is not None:
                self._thread.shutdown()
            self._thread = None
            self._pending.clear()


def host_copy(checkpoint: dict[str, Any]) -> dict[str, Any]:
    """Return the same nested dicts, lists and tuples, with the tensors copied into the host's memory.

    The tensors are read on the current stream: after the work that is enqueued there, and before later work, such as replayed graphs,
    overwrites them. The copies are complete when this returns. They are views of one tensor for each device and dtype, so that there is
    only one transfer for each.
    """
    alike: dict[tuple[torch.device, torch.dtype], dict[int, Tensor]] = {}
    for tensor in _tensors(checkpoint):
        alike.setdefault((tensor.device, tensor.dtype), {})[id(tensor)] = tensor
    copies: dict[int, Tensor] = {}
    for tensors in alike.values():
        together = torch.cat([tensor.detach().reshape(-1) for tensor in tensors.values()]).cpu()
        parts = together.split([tensor.numel() for tensor in tensors.values()])
        copies |= {key: part.view(tensor.shape) for (key, tensor), part in zip(tensors.items(), parts, strict=True)}
    return _mapped(checkpoint, lambda tensor: copies[id(tensor)])


def _tensors(value: Any) -> Iterator[Tensor]:
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, (dict, list, tuple)):
        for item in value.values() if isinstance(value, dict) else value:
            yield from _tensors(item)


def _mapped(value: Any, change: Callable[[Tensor], Tensor]) -> Any:
    if isinstance(value, Tensor):
        return change(value)
    if isinstance(value, dict):
        changed = copy.copy(value)  # keeps the attributes of a module's state dict
        changed.update({key: _mapped(item, change) for key, item in value.items()})
        return changed
    return type(value)(_mapped(item, change) for item in value) if isinstance(value, (list, tuple)) else value


def _write_in_background(write_file: Write, checkpoint: dict[str, Any], path: Path) -> None:
    """Write a :func:`host_copy` while training goes on.

    Pickling holds Python's global lock. By default a thread hands it over after 5 ms, which is as long as many training steps.
    """
    before = sys.getswitchinterval()
    sys.setswitchinterval(min(before, _SWITCH_INTERVAL))
    try:
        write_file(_mapped(checkpoint, Tensor.clone), path)  # a view would be saved with the whole storage that it shares
    finally:
        sys.setswitchinterval(before)
