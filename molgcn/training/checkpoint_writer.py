"""Write checkpoints in the background; training waits only until the host has a copy of them."""

from __future__ import annotations

import copy
import io
import os
import sys
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from molgcn.config.overrides import as_typed
from molgcn.errors import UserError
from molgcn.files.whole_file import whole

BEST, LAST = "best.ckpt", "last.ckpt"

_MAX_PENDING = 2  # most copies in memory: an epoch may end with best.ckpt and last.ckpt
_SWITCH_INTERVAL = 1e-4  # seconds
Write = Callable[[dict[str, Any], Path], None]


class CheckpointWriter:
    """Writes checkpoints in one thread, in the order in which they were given.

    Args:
        write_file: writes one checkpoint to its path; None is :func:`write`.
    """

    def __init__(self, write_file: Write | None = None) -> None:
        self._write_file = write_file or write
        self._thread: ThreadPoolExecutor | None = None
        self._pending: deque[Future[None]] = deque()

    def write(self, checkpoint: dict[str, Any], path: Path) -> None:
        """Write a copy of the checkpoint to `path` in the background; its tensors may change as soon as this returns.

        Raises:
            UserError: If an earlier checkpoint could not be written.
        """
        self.wait(_MAX_PENDING - 1)
        self._thread = self._thread or ThreadPoolExecutor(1, "molgcn-checkpoint")
        self._pending.append(self._thread.submit(_write_in_background, self._write_file, host_copy(checkpoint), path))

    def wait(self, leave: int = 0) -> None:
        """Wait until all but `leave` checkpoints are on disk.

        Raises:
            UserError: If a checkpoint could not be written.
        """
        while len(self._pending) > leave or (self._pending and self._pending[0].done()):
            wait([self._pending[0]])
            self._pending.popleft().result()

    def close(self) -> None:
        """Wait until all checkpoints are on disk, and end the thread; a later :meth:`write` starts another.

        Raises:
            UserError: If a checkpoint could not be written.
        """
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


def write(checkpoint: dict[str, Any], path: Path) -> None:
    """Replace `path` by the checkpoint, or leave it as it is.

    The checkpoint is written to a temporary name, synced to disk and renamed.

    Raises:
        UserError: If the disk is full or the folder cannot be written to.
    """
    content = io.BytesIO()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        torch.save(checkpoint, content)  # into memory: on a full disk PyTorch's own writer raises an error that does not say so
        with whole(path) as temporary, open(temporary, "wb") as file:
            file.write(content.getbuffer())
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        earlier = path.with_name(LAST)
        advice = (
            f"{as_typed('resume', earlier.parents[1])} continues from the earlier {LAST}, which is untouched"
            if earlier.is_file()
            else "it was the run's first, so that the run has to be started again"
        )
        raise UserError(
            f"The checkpoint {path} could not be written: {error.strerror}. Free disk space or choose another folder with "
            f"hydra.run.dir=; {advice}."
        ) from error
    descriptor = os.open(path.parent, os.O_RDONLY)
    os.fsync(descriptor)
    os.close(descriptor)
