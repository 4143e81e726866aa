"""Training steps and validation as CUDA graphs, captured once for each slot and replayed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.optim import Optimizer
from torch.optim.lr_scheduler import OneCycleLR

from molgcn.data.batch import GraphBatch
from molgcn.data.slots import SlotBatch
from molgcn.ops.gcn_tile_discard import capturing_both_ways
from molgcn.training.steps.watch import Watch

if TYPE_CHECKING:
    from molgcn.nn.molecule_net import MoleculeNet
    from molgcn.training.module import MoleculeModule


class CapturedStep:
    """Replays training steps from CUDA graphs: one graph for each slot and kind of step (first or last batch of an accumulation).

    The steps up to the first of the optimiser are taken plainly, so that everything made on first use exists: kernels and optimiser state.
    A graph holds forward, loss, backward, sums, clipping, optimiser and moving average, and beside the last three the filling of the other
    slot. The learning rate and the batch to fill in are read from the device. Where anything else has changed since the capture (what
    learns, modes, options, or where weights and optimiser state lie), graphs are made anew in the same way. Steps with hooks are taken
    plainly.

    Args:
        module: the module that is trained.
        optimizer: the PyTorch optimiser in its fused form, without Lightning's wrapper.
    """

    def __init__(self, module: MoleculeModule, optimizer: Optimizer) -> None:
        self.module = module
        self.optimizer = optimizer
        self.watch = Watch(module.model, optimizer)
        self.num_kernels: int | None = None
        self._averages = [] if module.ema is None else list(module.ema.parameters())
        self._warm = False
        self._graphs: dict[tuple[GraphBatch, bool, bool], torch.cuda.CUDAGraph] = {}
        self._stream = torch.cuda.Stream(module.device)  # PyTorch's default is on the GPU on which the process captured first
        self._made_of: list[Any] = []
        self._start_anew(self._state())

    @staticmethod
    def why_not(module: MoleculeModule, optimizer: Optimizer, batch: Any) -> str | None:
        """Return why this run's steps cannot be captured, in words; None where they can."""
        if module.device.type != "cuda":
            return "it needs a GPU"
        if module.model.backend.name == "pyg":
            return "shapes differ from batch to batch with backend=pyg; use backend=fused or reference"
        if module.dtype == torch.float64:
            return "trainer.precision=64-true makes each batch anew; use trainer.precision=32-true"
        if getattr(batch, "padded", None) is None:
            return "shapes differ from batch to batch with this loader; use loader=packed"
        if module.trainer.world_size > 1:
            return "several devices exchange gradients within a step; use trainer.devices=1"
        if isinstance(module.lr_schedulers(), OneCycleLR):
            return "scheduler=onecycle changes the momentum at every step; use scheduler=cosine with scheduler.warmup_epochs"
        if torch.is_anomaly_enabled():
            return "trainer.detect_anomaly reads values back within a step"
        if (name := module.listener()) is not None:
            return f"{name} is to be called within each step, a replay calls nobody"
        return None

    def __call__(self, batch: SlotBatch, first: bool, last: bool) -> bool:
        """Replay the step of a slot's batch; see :meth:`molgcn.training.steps.base.TrainingStep.__call__`."""
        state, hooked = self._state(), self.watch.has_hooks()
        if state != self._made_of or (hooked and self._warm):
            if self._warm and not first:
                for parameter, gradient in self._gradients.items():
                    parameter.grad = gradient  # the sum over the accumulation's earlier batches
            self._start_anew(state)
        if not self._warm:
            self._warm = last and not hooked
            return False
        for place, (group, rate) in enumerate(zip(self.optimizer.param_groups, self._rates, strict=True)):
            if group["lr"] != self._written[place]:
                rate.fill_(group["lr"])
                self._written[place] = group["lr"]
        key = batch.padded, first, last
        graph = self._graphs.get(key)
        if graph is None:
            graph = self._graphs[key] = self._capture(batch, first, last)
        graph.replay()
        batch.next_is_enqueued()
        return True

    def _state(self) -> list[Any]:
        """Return what must not change between two replays; values of weights and learning rates may."""
        module, optimizer = self.module, self.optimizer
        options = [{key: value for key, value in group.items() if key not in ("params", "lr")} for group in optimizer.param_groups]
        return [
            *self.watch.state((*module.statistics, *self._averages)),
            module.loss.options,
            options,
            [id(optimizer.state), *map(id, optimizer.param_groups)],
        ]

    def _start_anew(self, state: list[Any]) -> None:
        if self._graphs:
            torch.cuda.synchronize(self.module.device)  # a graph may still run
            self._graphs.clear()
        self._warm, self._made_of, self._pool = False, state, torch.cuda.graph_pool_handle()
        self._kept = self.optimizer.state, *self.optimizer.param_groups  # kept alive, so that no new object gets their id
        device = self.module.device
        self._rates = [torch.zeros((), device=device) for _ in self.optimizer.param_groups]
        self._written: list[float | None] = [None for _ in self._rates]
        accumulates = self.module.config.training.accumulate_batches > 1
        learning = [parameter for parameter in self.watch.parameters if accumulates and parameter.requires_grad]
        self._gradients = {parameter: torch.zeros_like(parameter) for parameter in learning}

    def _capture(self, batch: SlotBatch, first: bool, last: bool) -> torch.cuda.CUDAGraph:
        for parameter, gradient in self._gradients.items():
            parameter.grad = gradient
        graph, side = torch.cuda.CUDAGraph(keep_graph=True), torch.cuda.Stream(self.module.device)
        # other threads may allocate meanwhile, to plan the next epoch
        capture = torch.cuda.graph(graph, self._pool, self._stream, capture_error_mode="thread_local")
        with _rates_on_device(self.optimizer, self._rates), capture:
            current = torch.cuda.current_stream(self.module.device)
            if first and self._gradients:
                torch._foreach_zero_(list(self._gradients.values()))
            with capturing_both_ways():
                self.module.add_gradients(batch.padded)
            # Not from the start: the second kernel of a graph that begins with two branches started 8 us late on an H100.
            side.wait_stream(current)
            with torch.cuda.stream(side):
                batch.enqueue_next()
            if last:
                self.module.update_weights(self.optimizer)
            current.wait_stream(side)
        if not self._gradients:
            self.optimizer.zero_grad()
        if last:
            self.num_kernels = _num_kernels(graph)
        graph.instantiate()
        return graph


class CapturedForward:
    """Replays a model's evaluation from CUDA graphs, one for each slot.

    The first batch is computed plainly, so that its kernels exist. So is the first batch after a change of more than the weights' values.

    Args:
        model: the model, in evaluation mode.
    """

    def __init__(self, model: MoleculeNet) -> None:
        self.model = model
        self.watch = Watch(model)
        self._made_of: list[Any] = []
        self._graphs: dict[GraphBatch, tuple[torch.cuda.CUDAGraph, Tensor]] = {}

    def __call__(self, batch: GraphBatch) -> Tensor:
        """Return the model's outputs [B, O] for a slot's padded batch."""
        if (state := self.watch.state()) != self._made_of:
            torch.cuda.synchronize(batch.x.device)  # a graph may still run
            self._graphs.clear()
            self._made_of = state
            return self.model(batch)
        if self.watch.has_hooks():
            return self.model(batch)
        if batch not in self._graphs:
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph, stream=torch.cuda.Stream(batch.x.device), capture_error_mode="thread_local"):
                prediction = self.model(batch)
            self._graphs[batch] = graph, prediction
        graph, prediction = self._graphs[batch]
        graph.replay()
        return prediction.clone()


@contextmanager
def _rates_on_device(optimizer: Optimizer, rates: list[Tensor]) -> Iterator[None]:
    """Make the groups' learning rates tensors, which a graph reads anew at each replay."""
    before = [dict(group) for group in optimizer.param_groups]
    for group, rate in zip(optimizer.param_groups, rates, strict=True):
        group["lr"] = rate
        if "capturable" in group:
            group["capturable"] = True
    try:
        yield
    finally:
        for group, old in zip(optimizer.param_groups, before, strict=True):
            group.update({key: old[key] for key in ("lr", "capturable") if key in old})


def _num_kernels(graph: torch.cuda.CUDAGraph) -> int:
    from cuda.bindings import driver

    handle = driver.CUgraph(graph.raw_cuda_graph())
    _, _, count = driver.cuGraphGetNodes(handle)
    _, nodes, _ = driver.cuGraphGetNodes(handle, count)
    kernel = driver.CUgraphNodeType.CU_GRAPH_NODE_TYPE_KERNEL
    return sum(driver.cuGraphNodeGetType(node)[1] == kernel for node in nodes)
