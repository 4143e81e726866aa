"""Training steps and evaluation as CUDA graphs, captured once for each form of a batch and replayed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from molgcn.data.batch import GraphBatch
from molgcn.data.slot_batch import SlotBatch
from molgcn.ops.read_again import capturing_both_ways
from molgcn.training.steps import graphs
from molgcn.training.steps.base import Work
from molgcn.training.steps.device_options import DeviceOptions
from molgcn.training.steps.watch import Watch

if TYPE_CHECKING:
    from molgcn.nn.molecule_net import MoleculeNet

_WHAT = (
    "where weights, statistics and other tensors lie",
    "which weights learn",
    "the modes of layers",
    "an option of a norm",
    "an option of the network",
    "the loss, the form of batches or PyTorch's precision",
    "an option of the optimiser",
    "the optimiser's groups of parameters",
)
"""What the entries of a captured step's state say, in words."""


def why_not(model: MoleculeNet) -> str | None:
    """Return why calls of a network cannot be captured now, in words; None where they can."""
    first = next(model.parameters())
    if (reason := graphs.Graphs.why_not(first.device)) is not None:
        return reason
    if model.backend.name == "pyg":
        return "shapes differ from batch to batch with backend=pyg; use backend=fused or reference"
    if first.dtype == torch.float64:
        return "the network is in float64, for which each batch is made anew; use float32"
    if torch.is_anomaly_enabled():
        return "anomaly detection reads values back within a step"
    return None


class CapturedStep:
    """Replays training steps from CUDA graphs: one graph for each form of batch and kind of step (first or last batch of an accumulation).

    The steps up to the first of the optimiser are taken plainly, so that everything made on first use exists: kernels and optimiser state.
    A graph holds forward, loss, backward, sums, clipping, optimiser and moving average, and beside the last three the filling of the
    loader's other slot. The options that schedules change and the batch to fill in are read from the device. Where anything else has
    changed since the capture (what learns, modes, options, or where weights and optimiser state lie), graphs are made anew in the same way.
    Steps with hooks are taken plainly.

    Args:
        work: what a step computes.
        optimizer: the PyTorch optimiser, without Lightning's wrapper. Without one a step leaves gradients in the parameters.
    """

    def __init__(self, work: Work, optimizer: Optimizer | None) -> None:
        self.work = work
        self.optimizer = optimizer
        self.watch = Watch(work.model, optimizer)
        self.num_kernels: int | None = None  # kernels that a step with the optimiser launches; None until it is known
        self.result: Any = None  # what the work returned for the last batch, in tensors that the next step overwrites
        self.changes, self.changed = 0, ""  # how often something has changed since the last replay, and what had last, in words
        self.device = work.device
        own = set(map(id, self.watch.parameters))
        groups = [] if optimizer is None else optimizer.param_groups
        self._others = [parameter for group in groups for parameter in group["params"] if id(parameter) not in own]
        self._averages = [] if work.ema is None else list(work.ema.parameters())
        self._warm = False  # whether the optimiser's state exists
        self._computed: set[tuple[int, ...]] = set()  # the shapes of batches for which kernels exist
        self._graphs = graphs.Graphs(work.device)
        self._options: DeviceOptions | None = None
        self._kept: tuple[Any, ...] = ()
        self._start_anew([])

    def __call__(self, batch: SlotBatch, first: bool, last: bool) -> bool:
        """Replay the step of a slot's batch; see :meth:`molgcn.training.steps.base.TrainingStep.__call__`."""
        state, hooked = self._state(), self.watch.has_hooks()
        if state != self._made_of or (hooked and self._warm):
            self._start_anew(state)
        form = self.work.static_form(batch)
        if form is batch:  # changed, so that the slot does not hold it
            return False
        key = form, first, last
        if key not in self._graphs:
            shape = form.num_graphs, form.num_nodes, form.num_edges
            if not self._warm or shape not in self._computed:
                if not hooked:
                    self._warm |= last or self.optimizer is None
                    self._computed.add(shape)
                return False
        if not first:
            self._take_over()
        if self._options is not None:
            self._options.write()
        self.result = self._graphs.run(key, lambda: self._take(form, batch, first, last))
        if self.num_kernels is None and last:
            self.num_kernels = self._graphs.num_kernels(key)
        batch.next_is_enqueued()
        self.changes = 0
        if self._sums:
            for parameter, gradient in self._sums.items():
                parameter.grad = None if last else gradient
        return True

    def _state(self) -> list[Any]:
        """Return what must not change between two replays, in the order of :data:`_WHAT`; values of weights may."""
        tensors, options = self.work.relied_on()
        found = [
            *self.watch.state((*tensors, *self._averages, *self._others)),
            options,
        ]
        if self.optimizer is None or self._options is None:
            return found
        return [*found, self._options.constants(), [id(self.optimizer.state), *map(id, self.optimizer.param_groups)]]

    def _start_anew(self, state: list[Any]) -> None:
        before = getattr(self, "_made_of", [])
        self.changed = next((what for what, old, new in zip(_WHAT, before, state, strict=False) if old != new), self.changed)
        self.changes += 1
        self._graphs.clear()
        self._warm = False
        self._computed.clear()
        if self.optimizer is not None:
            self._options = DeviceOptions(self.optimizer, self.work.device, self.work.rates_on_device)
            self._kept = self.optimizer.state, *self.optimizer.param_groups  # kept alive, so that no new object gets their id
        self._made_of = self._state()
        self._learning = [parameter for parameter in (*self.watch.parameters, *self._others) if parameter.requires_grad]
        adds_up = self.work.accumulates or self.optimizer is None
        self._sums = {parameter: torch.zeros_like(parameter) for parameter in self._learning if adds_up}

    def _take_over(self) -> None:
        """Continue the sums of an accumulation whose earlier batches were taken plainly."""
        for parameter, gradient in self._sums.items():
            if parameter.grad is not gradient:
                gradient.zero_() if parameter.grad is None else gradient.copy_(parameter.grad)

    def _take(self, form: GraphBatch, batch: SlotBatch, first: bool, last: bool) -> Any:
        """Enqueue a step, as it is captured."""
        for parameter in self._learning:
            parameter.grad = None
        try:
            with capturing_both_ways():
                result = self.work.add_gradients(form)
        except BaseException:
            for parameter in self._learning:
                parameter.grad = None if first else self._sums.get(parameter)
            raise
        self._add_up(first)
        # Not from the start: the second kernel of a graph that begins with two branches started 8 us late on an H100.
        with self._graphs.beside():
            batch.enqueue_next()
        if last and self.optimizer is not None and self._options is not None:
            with self._options.in_place():
                self.work.update_weights(self.optimizer)
        return result

    def _add_up(self, first: bool) -> None:
        """Add the gradients of a batch to the sums, which take their place; those without a gradient have no sum either."""
        self._sums = {parameter: gradient for parameter, gradient in self._sums.items() if parameter.grad is not None}
        if self._sums:
            (torch._foreach_copy_ if first else torch._foreach_add_)(list(self._sums.values()), [one.grad for one in self._sums])
        for parameter, gradient in self._sums.items():
            parameter.grad = gradient


class CapturedForward:
    """Replays a model's evaluation from CUDA graphs, one for each slot.

    The first batch of a shape is computed plainly, so that its kernels exist. So it is after a change of more than the weights' values.
    """

    def __init__(self, model: MoleculeNet) -> None:
        self.model = model
        self.watch = Watch(model)
        self.device = next(model.parameters()).device
        self._graphs = graphs.Graphs(self.device)
        self._made_of: list[Any] = []
        self._computed: set[tuple[int, ...]] = set()

    def __call__(self, batch: GraphBatch) -> Tensor:
        """Return the model's outputs [B, O] for a slot's padded batch, or plainly for any other."""
        state = self.watch.state()
        if state != self._made_of:
            self._graphs.clear()
            self._made_of = state
            self._computed.clear()
        shape = batch.num_graphs, batch.num_nodes, batch.num_edges
        if self.watch.has_hooks() or batch.counts is None or shape not in self._computed:
            self._computed.add(shape)
            return self.model(batch)
        return self._graphs.run(batch, lambda: self.model(batch)).clone()
