"""Lightning's plugin for checkpoints: they are written in the background, and training waits only until the host has a copy of them."""

from __future__ import annotations

import math
import sys
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from pathlib import Path
from threading import Event, Lock
from typing import Any

from lightning.pytorch.plugins import TorchCheckpointIO

from molgcn.training.checkpoint_file import load_checkpoint, write
from molgcn.training.host_copy import HostCopy

_MAX_PENDING = 2  # most copies in memory: an epoch may end with best.ckpt and last.ckpt
_SWITCH_INTERVAL = 1e-4  # seconds
Write = Callable[[dict[str, Any], Path], None]


class AtomicCheckpointIO(TorchCheckpointIO):
    """Writes checkpoints in one thread, in the order in which they were given, and reads plain tensors and values only.

    Each file is written as a whole or not at all. All methods but :meth:`load_checkpoint` raise a UserError where a checkpoint could not be
    written.
    """

    def __init__(self, write_file: Write = write) -> None:
        super().__init__()
        self._write_file = write_file
        self._thread: ThreadPoolExecutor | None = None
        self._pending: deque[_Pending] = deque()
        self._due: dict[Path, float] = {}  # when the last writing of each file was due

    def save_checkpoint(self, checkpoint: dict[str, Any], path: Any, storage_options: Any = None) -> None:
        """Write a copy of the checkpoint to `path` in the background; its tensors may change as soon as this returns.

        Args:
            checkpoint: nested dicts, lists and tuples of tensors and plain values.
            path: the file.
            storage_options: least time in seconds between two writes of the file. Meanwhile the newest checkpoint waits, in the place of
                one that was waiting, until that time is over, another file is to be written or :meth:`wait` is called. None writes each
                checkpoint, at once.
        """
        path, now = Path(path), time.monotonic()
        waiting = self._pending[-1] if storage_options is not None and self._pending and self._pending[-1].path == path else None
        self.wait(_MAX_PENDING if waiting else _MAX_PENDING - 1)
        copied = HostCopy(checkpoint)
        if waiting is not None and waiting.replace(copied):
            return
        self.wait(_MAX_PENDING - 1)
        for earlier in self._pending:
            earlier.hurry()
        self._due[path] = due = now if storage_options is None else max(now, self._due.get(path, -math.inf) + storage_options)
        self._thread = self._thread or ThreadPoolExecutor(1, "molgcn-checkpoint")
        self._pending.append(_Pending(path, copied, due, self._thread, self._write_file))

    def wait(self, leave: int = 0) -> None:
        """Wait until all but `leave` checkpoints are on disk."""
        while len(self._pending) > leave or (self._pending and self._pending[0].written.done()):
            self._pending[0].hurry()
            wait([self._pending[0].written])
            self._pending.popleft().written.result()

    def load_checkpoint(self, path: Any, map_location: Any = "cpu", weights_only: bool | None = True) -> dict[str, Any]:
        """Wait until every checkpoint is on disk, then read one; see :func:`load_checkpoint`."""
        self.wait()
        return load_checkpoint(Path(path))

    def teardown(self) -> None:
        """Wait until every checkpoint is on disk, and end the thread; Lightning calls this when a fit ends, is interrupted or fails."""
        try:
            self.wait()
        finally:
            for left in self._pending:
                left.hurry()
            if self._thread is not None:
                self._thread.shutdown()
            self._thread = None
            self._pending.clear()
            self._due.clear()


class _Pending:
    """A checkpoint that a thread writes once it is due, and sooner where it is hurried."""

    def __init__(self, path: Path, copied: HostCopy, due: float, thread: ThreadPoolExecutor, write_file: Write) -> None:
        self.path = path
        self._copied: HostCopy | None = copied
        self._due = due
        self._hurried, self._lock = Event(), Lock()
        self.written: Future[None] = thread.submit(self._write, write_file)  # tells when it is written

    def replace(self, copied: HostCopy) -> bool:
        """Put a newer checkpoint in the place of this one, unless it is being written or was."""
        with self._lock:
            if self._copied is None:
                return False
            self._copied = copied
            return True

    def hurry(self) -> None:
        """Let the checkpoint be written as soon as the earlier ones are."""
        self._hurried.set()

    def _write(self, write_file: Write) -> None:
        """Write the checkpoint while training goes on.

        Pickling holds Python's global lock. By default a thread hands it over after 5 ms, which is as long as many training steps.
        """
        self._hurried.wait(max(self._due - time.monotonic(), 0.0))
        with self._lock:
            copied, self._copied = self._copied, None
        assert copied is not None
        before = sys.getswitchinterval()
        sys.setswitchinterval(min(before, _SWITCH_INTERVAL))
        try:
            write_file(copied.checkpoint(), self.path)
        finally:
            sys.setswitchinterval(before)
