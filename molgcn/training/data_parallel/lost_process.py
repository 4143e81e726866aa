"""End the processes of a training when one of them has ended early, for which the others would wait forever."""

from __future__ import annotations

import os
import re
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path

import torch

from molgcn.config.overrides import as_typed
from molgcn.training.members import FILE as MEMBERS
from molgcn.training.ranks import host_group
from molgcn.training.resume import holds_run

_INTERVAL = 1.0  # seconds between two looks
_SILENCE = 40.0  # seconds after which a process that says nothing, as on a machine that is off, counts as lost
_GRACE = 10.0  # seconds that a process has to end by itself
_TRAINS, _AWAY, _ENDS = b"+", b"-", b"!"
_FIRST = "MOLGCN_FIRST_PROCESS"  # the variable by which processes know the one that has started them
_LOST_CONNECTION = re.compile("gloo|NCCL|by peer|Broken pipe")


class LostProcess(threading.Thread):
    """Watches the other processes of a training from a thread, and ends this one with a message when one of them is gone.

    The first process has a connection with each of the others, on which both sides say each second whether they train. The system closes it
    when a process ends. Between a training and the next a process may end.
    """

    def __init__(self) -> None:
        super().__init__(daemon=True, name="molgcn-lost-process")
        self.folder: Path | None = None
        self.children: Sequence[subprocess.Popen[bytes]] = ()
        self.rank, self.world_size = 0, 1
        self._peers: dict[socket.socket, _Peer] = {}
        self._gone: str | None = None  # who has ended between two trainings, in words
        self._away = True
        self._ends_at: float | None = None

    @staticmethod
    @cache
    def of_this_process() -> LostProcess:
        """Return the one for all trainings of this process, which starts on first use."""
        watching = LostProcess()
        watching.start()
        return watching

    def started(self, children: Sequence[subprocess.Popen[bytes]], world_size: int, folder: Path) -> None:
        """Watch processes that this one, the first of a group, has started, of the ranks from 1 on."""
        self.children, self.world_size, self.folder = children, world_size, folder

    @staticmethod
    def name_first() -> None:
        """Let processes that this one starts know it."""
        os.environ[_FIRST] = str(os.getpid())

    def starts(self, rank: int, folder: Path) -> None:
        """Watch the process that has started this one until they are connected; `rank` counts the processes of this machine."""
        if not self._peers and self._gone is None:
            self.rank, self.folder = rank, folder

    def connect(self, host: str, rank: int, world_size: int) -> None:
        """Connect to the other processes of PyTorch's group, of which the first is on `host`, once; every process has to call this."""
        if self._peers or self._gone or world_size == 1:
            return
        self.rank, self.world_size = rank, world_size
        server = socket.create_server(("", 0), backlog=world_size) if rank == 0 else None
        port = [server.getsockname()[1] if server else 0]
        torch.distributed.broadcast_object_list(port, 0, host_group())
        if server is None:
            connection = socket.create_connection((host, port[0]), _GRACE)
            connection.sendall(rank.to_bytes(4))
            self._peers = {connection: _Peer(0)}
            return
        server.settimeout(_SILENCE)
        with server:
            accepted = [server.accept()[0] for _ in range(1, world_size)]
        self._peers = {connection: _Peer(int.from_bytes(connection.recv(4, socket.MSG_WAITALL))) for connection in accepted}

    def watch(self, folder: Path) -> None:
        """Watch during a training in a folder, which the message names, until :meth:`pause`."""
        for peer in self._peers.values():
            peer.heard = time.monotonic()
        self.folder, self._away = folder, False

    def pause(self) -> None:
        """Let other processes end, and say that this one does not take part in a training now."""
        self._away = True
        self._say(_AWAY)

    def end_soon(self) -> None:
        """End this process in ten seconds where it does not end by itself before, since it was told to."""
        self._ends_at = time.monotonic() + _GRACE

    def on_exception(self, exception: BaseException) -> None:
        """Tell the other processes that this one ends, or wait for the message where the exception says that another has ended."""
        if self._ends_at is not None:
            return
        lost = isinstance(exception, RuntimeError) and _LOST_CONNECTION.search(str(exception))
        if self.rank == 0 and not lost:
            self._say(_ENDS)
        elif isinstance(exception, Exception):  # the first process may end for the same reason, and says so
            self.join(_SILENCE + _GRACE if lost else 2 * _INTERVAL)

    def run(self) -> None:
        """Look at the others each second."""
        while True:
            who = self._lost_first() or self._lost_peer() or self._lost_child()
            if self._ends_at is not None:
                if time.monotonic() > self._ends_at:
                    self._end(128 + signal.SIGTERM, "Terminated.")
            elif who is not None:
                self._end(1, f"Error: {who}, and the others of this training cannot go on without it.")

    def _lost_first(self) -> str | None:
        """Return that the process which has started this one ended before they were connected, in words."""
        first = os.environ.get(_FIRST) if self.rank > 0 and not self._peers and self._gone is None else None
        return "The first process has ended" if first is not None and int(first) != os.getppid() else None

    def _lost_child(self) -> str | None:
        for rank, child in enumerate(self.children, 1):
            code = child.poll()
            if code is not None and code < 0:
                return f"Process {rank + 1} of {self.world_size} was killed by {signal.Signals(-code).name}"
            if code:
                time.sleep(_GRACE)  # this process may be about to end for the same reason
                return f"Process {rank + 1} of {self.world_size} has ended with exit code {code}"
        return None

    def _lost_peer(self) -> str | None:
        """Listen to the others for a second, and return who is lost, in words; None where all are there."""
        self._say(_AWAY if self._away else _TRAINS)
        if not self._peers:
            time.sleep(_INTERVAL)
        until = time.monotonic() + _INTERVAL
        while self._peers and (left := until - time.monotonic()) > 0:
            for connection in select.select(list(self._peers), [], [], left)[0]:
                peer, said = self._peers[connection], _received(connection)
                if not said:
                    del self._peers[connection]
                    self._gone = f"Process {peer.rank + 1} of {self.world_size} has ended"
                    if not peer.away:
                        time.sleep(0.2)  # until the system says how a child has ended
                        return self._lost_child() or self._gone
                    continue
                if _ENDS in said:
                    os._exit(1)
                peer.heard, peer.away = time.monotonic(), said.endswith(_AWAY)
        if self._gone and not self._away:
            return self._gone
        for peer in self._peers.values():
            if not self._away and time.monotonic() - peer.heard > _SILENCE:
                return f"Process {peer.rank + 1} of {self.world_size} has not been heard of for {_SILENCE:.0f} seconds"
        return None

    def _say(self, what: bytes) -> None:
        for connection in list(self._peers):
            with suppress(OSError):  # what it has left is read next
                connection.sendall(what)

    def _end(self, code: int, message: str) -> None:
        if self.rank <= 1:  # the second process speaks where the first one cannot
            print(f"\n{message} {self._how_to_go_on()}", file=sys.stderr, flush=True)
        if self.rank == 0:
            self._say(_ENDS)
        for child in self.children:
            child.kill()
        os._exit(code)

    def _how_to_go_on(self) -> str:
        folder = self.folder
        if folder is not None and (folder.parent / MEMBERS).is_file():
            folder = folder.parent
        if folder is not None and holds_run(folder):
            return f"Continue from the last checkpoint with {as_typed('resume', folder)}."
        return "There was no checkpoint yet: start it again."


class _Peer:
    """What is known of another process."""

    def __init__(self, rank: int) -> None:
        self.rank = rank
        self.heard = time.monotonic()
        self.away = False


def _received(connection: socket.socket) -> bytes:
    try:
        return connection.recv(4096)
    except OSError:
        return b""
