"""CUDA graphs of the work of one object, each captured when it is first needed and replayed from then on."""

from __future__ import annotations

import gc
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from threading import RLock
from typing import Any, NamedTuple

import torch

from molgcn.errors import UserError

ONE_AT_A_TIME = RLock()
"""Held while a graph is captured: PyTorch's random numbers on a GPU cannot be drawn in another thread meanwhile."""


class _Captured(NamedTuple):
    graph: torch.cuda.CUDAGraph
    result: Any


class Graphs:
    """CUDA graphs that share a pool of memory on a GPU, by the keys of what they do."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self._stream = torch.cuda.Stream(device)  # PyTorch's default is on the GPU on which the process captured first
        self._pool = torch.cuda.graph_pool_handle()
        self._captured: dict[Hashable, _Captured] = {}
        self._branches: list[torch.cuda.Stream] = []

    @staticmethod
    def why_not(device: torch.device) -> str | None:
        """Return why work on a device cannot be captured, in words; None where it can."""
        return None if device.type == "cuda" else "it needs a GPU"

    def __contains__(self, key: Hashable) -> bool:
        return key in self._captured

    def clear(self) -> None:
        """Drop all graphs, once none runs any more."""
        if self._captured:
            torch.cuda.synchronize(self.device)
            self._captured.clear()
            self._pool = torch.cuda.graph_pool_handle()

    def run(self, key: Hashable, work: Callable[[], Any]) -> Any:
        """Do the work that belongs to a key by replaying its graph, which is captured first where there is none.

        The work is the same at every call. It has been done before without a graph, so that kernels and all else that is made on first use
        exist. What it returned while it was captured is returned each time: a replay writes new values into the same tensors.
        """
        captured = self._captured.get(key)
        if captured is None:
            captured = self._captured[key] = self._capture(work)
        captured.graph.replay()
        return captured.result

    @contextmanager
    def beside(self) -> Iterator[None]:
        """Put what is enqueued inside a `with` block beside what follows it in the work that is being captured."""
        side = torch.cuda.Stream(self.device)
        side.wait_stream(torch.cuda.current_stream(self.device))
        with torch.cuda.stream(side):
            yield
        self._branches.append(side)

    def num_kernels(self, key: Hashable) -> int:
        """Return the number of kernels that a graph launches."""
        from cuda.bindings import driver

        handle = driver.CUgraph(self._captured[key].graph.raw_cuda_graph())
        _, _, count = driver.cuGraphGetNodes(handle)
        _, nodes, _ = driver.cuGraphGetNodes(handle, count)
        kernel = driver.CUgraphNodeType.CU_GRAPH_NODE_TYPE_KERNEL
        return sum(driver.cuGraphNodeGetType(node)[1] == kernel for node in nodes)

    def _capture(self, work: Callable[[], Any]) -> _Captured:
        graph, self._branches = torch.cuda.CUDAGraph(keep_graph=True), []
        # other threads may allocate meanwhile, to plan the next epoch
        capture = torch.cuda.graph(graph, self._pool, self._stream, capture_error_mode="thread_local")
        torch.clear_autocast_cache()  # weights that were cast earlier would stay as they were
        try:
            # where capturing fails, only the first leaves the stream
            with ONE_AT_A_TIME, torch.cuda.stream(self._stream), _without_collection(), capture:
                try:
                    result = work()
                finally:
                    for branch in self._branches:
                        torch.cuda.current_stream(self.device).wait_stream(branch)
        except BaseException:
            if not self._captured:  # PyTorch gives a pool back with its only graph, and then refuses it
                self._pool = torch.cuda.graph_pool_handle()
            raise
        finally:
            torch.clear_autocast_cache()  # what the graph casts lies in its memory
        graph.instantiate()
        return _Captured(graph, result)


@contextmanager
def _without_collection() -> Iterator[None]:
    """Collect no garbage inside a `with` block: where another graph is destroyed, CUDA ends the capture."""
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()


def refuse_within_capture() -> None:
    """Raise UserError where a CUDA graph is being captured on the current stream."""
    if torch.cuda.is_current_stream_capturing():
        raise UserError(
            "What molgcn.capture returns replays CUDA graphs of its own and cannot be called while another one is captured. Capture the "
            "network itself instead, or call the step outside of torch.cuda.graph."
        )
