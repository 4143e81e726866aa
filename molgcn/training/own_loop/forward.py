"""Predictions in a user's loop."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from molgcn.training.own_loop.loop import Loop
from molgcn.training.steps.captured import CapturedForward
from molgcn.training.steps.graphs import ONE_AT_A_TIME


class LoopForward(Loop):
    """Computes a network's predictions without gradients, from CUDA graphs where it can; see :func:`molgcn.capture`."""

    _captured: CapturedForward | None
    _made_with: list[Any] | None = None

    def __call__(self, batch: Any) -> Tensor:
        """Return the predictions [B, T] for a :class:`molgcn.data.GraphBatch` or PyG's `Batch` of B molecules, on any device.

        Raises:
            UserError: while another CUDA graph is being captured.
        """
        with ONE_AT_A_TIME, torch.no_grad():
            self.begin()
            if self._captured is None or self._made_with != self.switches():
                if (reason := self.why_not()) is not None:
                    self.say(reason)
                    self._captured = None
                    return self.model(self.as_it_is(batch))
                self._captured, self._made_with = CapturedForward(self.model), self.switches()
            placed = self.put(batch)
            if placed is None:
                return self.model(self.as_it_is(batch))
            if self._captured.watch.has_hooks():
                self.say("there are hooks on layers or weights, which a replay would not call")
            forward, self._captured = self._captured, None  # if this raises an error, what a graph relies on may not exist
            predictions = forward(placed.slot.padded)[: placed.num_graphs]
            self._captured = forward
            return predictions
