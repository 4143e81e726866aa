"""What captured training steps and captured predictions in a user's loop have in common."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any, NoReturn

import torch
from torch import Tensor, nn

from molgcn.data.batch import GraphBatch
from molgcn.data.fitting_slots import FittingSlots, Sizes
from molgcn.data.slot_batch import SlotBatch
from molgcn.errors import UserError
from molgcn.ops.precision import allowed_precision
from molgcn.training.own_loop.loss import is_network
from molgcn.training.steps import captured
from molgcn.training.steps.graphs import refuse_within_capture

log = logging.getLogger(__name__)


class Loop:
    """Puts the batches of a user's loop into slots, and says why calls are not captured, each reason once; see :func:`molgcn.capture`.

    Raises:
        UserError: for something that is not a network, or not batches.
    """

    def __init__(self, model: nn.Module, batches: Iterable[Any] | None) -> None:
        if not isinstance(model, nn.Module):
            raise UserError(f"molgcn.capture takes a network of molgcn.nn, not {type(model).__name__}.")
        if next(model.parameters(), None) is None:
            raise UserError(f"molgcn.capture takes a network of molgcn.nn; {type(model).__name__} has no parameters.")
        self.model: Any = model
        self.device: torch.device = next(model.parameters()).device  # the device of the network's weights
        self._stream: torch.cuda.Stream | None = None
        self._expected = _expected(batches)
        self._captured: Any = None
        self._slots: FittingSlots | None = None
        self._reasons: set[str] = set()

    def __reduce_ex__(self, protocol: Any) -> NoReturn:
        raise UserError(
            "What molgcn.capture returns cannot be copied or saved: it belongs to one network and one GPU. Copy or save the network, and "
            "call molgcn.capture for the copy."
        )

    def begin(self) -> None:
        """Begin a call: see whether layers were replaced and where the network is now, and wait for an earlier call on another stream."""
        if self._captured is not None and not self._captured.watch.is_still_of(self.model):
            self._captured = None
        self.device = next(iter(self.parameters())).device
        if self._captured is not None and self._captured.device != self.device:
            self._captured = None
        if self.device.type == "cuda":
            refuse_within_capture()
            self._follow_last_call()

    def parameters(self) -> Iterable[Tensor]:
        """Return the network's parameters, from a list where there is one: to look for them takes longer than the replay of a step."""
        return self.model.parameters() if self._captured is None else self._captured.watch.parameters

    def _follow_last_call(self) -> None:
        """Let the current stream wait for the last call if that was on another stream."""
        stream = torch.cuda.current_stream(self.device)
        if self._stream is not None and stream != self._stream:
            stream.wait_stream(self._stream)
        self._stream = stream

    def why_not(self) -> str | None:
        """Return why calls cannot be captured now, in words; None where they can."""
        if not is_network(self.model):
            return f"{type(self.model).__name__} is not a network of molgcn.nn; capture the network that it holds"
        if (reason := captured.why_not(self.model)) is not None:
            return reason
        if any(parameter.device != self.device for parameter in self.model.parameters()):
            return "the weights are on several devices"
        if torch.is_autocast_enabled("cuda") and torch.get_autocast_dtype("cuda") == torch.float16:
            return "float16 needs a GradScaler, which reads gradients back; use torch.autocast with torch.bfloat16"
        return None

    def switches(self) -> list[Any]:
        """Return the settings of PyTorch that a graph takes as constant."""
        autocast = torch.get_autocast_dtype("cuda") if torch.is_autocast_enabled("cuda") else allowed_precision(self.device)
        return [autocast, torch.are_deterministic_algorithms_enabled(), torch.is_anomaly_enabled()]

    def say(self, reason: str) -> None:
        """Say why a call was not captured, unless it has been said before."""
        if reason not in self._reasons:
            self._reasons.add(reason)
            log.warning("Not captured as a CUDA graph, but run plainly with the same results: %s.", reason)

    def put(self, batch: Any) -> SlotBatch | None:
        """Return the batch in a slot on the network's device, or None for one that is to be taken as it is."""
        if self._slots is not None and self._slots.device == self.device and self._slots.holds(batch) and batch.num_nodes > 1:
            return batch
        if not _is_batch(batch):
            return None
        if min(Sizes.of(batch)[:2]) == 0 or batch.num_nodes < 2:  # batch norm refuses a single atom
            return None
        fields = vars(batch).get if isinstance(batch, GraphBatch) else partial(getattr, batch)  # some are only found when asked for
        if any(isinstance(rows := fields(name, None), Tensor) and rows.requires_grad for name in ("x", "edge_attr")):
            self.say("the features of a batch want a gradient, which a replay does not compute")
            return None
        if self._slots is None or self._slots.device != self.device:
            model, dtype = self.model, next(self.model.parameters()).dtype
            self._slots = FittingSlots(self.device, model.optional_inputs, (model.rwse, model.bond_rw), dtype, self._expected)
        return self._slots(batch)

    def as_it_is(self, batch: Any) -> Any:
        """Return what must be a batch on the network's device."""
        if not hasattr(batch, "to") or (is_network(self.model) and not _is_batch(batch)):
            raise UserError(f"The batch is {type(batch).__name__}. Expected molgcn.data.GraphBatch or PyG's Batch.")
        return batch.to(self.device)


def _is_batch(batch: Any) -> bool:
    return isinstance(batch, GraphBatch) or hasattr(batch, "edge_index")


def _expected(batches: Iterable[Any] | None) -> Sizes | None:
    """Return what is known of the sizes of batches before they come."""
    if batches is None:
        return None
    capacity, batch_size = getattr(batches, "capacity", None), getattr(batches, "batch_size", None)
    if capacity is not None:
        return Sizes(capacity.graphs, capacity.nodes, capacity.edges)
    if isinstance(batches, Sequence):
        sizes = Sizes()
        for batch in batches:
            if not _is_batch(batch):
                raise UserError(f"batches holds {type(batch).__name__}. Expected molgcn.data.GraphBatch or PyG's Batch.")
            sizes = sizes.largest(Sizes.of(batch))
        return sizes
    if not isinstance(batches, Iterable):
        raise UserError(f"batches={batches!r} is not an iterable of batches. Give a loader, a list of batches, or leave it out.")
    return Sizes(graphs=batch_size) if isinstance(batch_size, int) else None
