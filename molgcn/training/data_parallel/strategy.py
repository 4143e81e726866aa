"""Lightning's strategy for several processes, of which each trains on a device of its own."""

from __future__ import annotations

from typing import Any

import torch
from lightning import Trainer
from lightning.pytorch.strategies import DDPStrategy
from torch import Tensor


class DataParallel(DDPStrategy):
    """Starts processes and connects them as Lightning's DDP does, without wrapping the network in PyTorch's.

    A training step itself adds up gradients over all processes (:class:`.mean_gradients.MeanGradients`), so that a CUDA graph can hold it.
    """

    def configure_ddp(self) -> None:
        """Give every process the weights of the first one."""
        assert self.model is not None
        for tensor in self.model.state_dict().values():
            torch.distributed.broadcast(tensor, 0)

    def reduce(self, tensor: Tensor, group: Any = None, reduce_op: Any = "mean") -> Tensor:
        """Reduce a tensor in place over all processes, without the barrier of Lightning's own; "mean" is the default."""
        if not isinstance(tensor, Tensor) or not torch.distributed.is_initialized():
            return tensor
        mean = reduce_op in ("mean", "avg")
        name = "SUM" if mean else reduce_op.upper() if isinstance(reduce_op, str) else None
        torch.distributed.all_reduce(tensor, reduce_op if name is None else getattr(torch.distributed.ReduceOp, name), group)
        return tensor.copy_(tensor / self.world_size) if mean else tensor


def without_exchanges_of_signals(trainer: Trainer) -> Trainer:
    """Return a trainer whose processes do not tell each other of SIGTERM, for which Lightning's wait for the device at every batch.

    A process that gets SIGTERM passes it to those that it has started, and ends after its batch.
    """
    connector: Any = trainer._signal_connector

    def note(number: int, _: Any) -> None:
        if not connector.received_sigterm and trainer.strategy.launcher is not None:
            trainer.strategy.launcher.kill(number)
        connector.received_sigterm = True

    connector._sigterm_notifier_fn = note
    trainer.fit_loop.epoch_loop._broadcast_sigterm_tensor = lambda: None  # type: ignore[method-assign]
    return trainer
