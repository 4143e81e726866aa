"""Lightning's strategy for several processes, of which each trains on a device of its own."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from lightning import Trainer
from lightning.fabric.utilities.distributed import _init_dist_connection, _set_num_threads_if_needed
from lightning.fabric.utilities.seed import reset_seed
from lightning.pytorch.strategies import DDPStrategy
from lightning.pytorch.strategies.launchers import _SubprocessScriptLauncher
from torch import Tensor

from molgcn.nn.norms import BatchNorm
from molgcn.training.data_parallel.lost_process import LostProcess
from molgcn.training.launched import store_of_attempt
from molgcn.training.ranks import host_group


class DataParallel(DDPStrategy):
    """Starts processes and connects them as Lightning's DDP does, without wrapping the network in PyTorch's.

    A training step itself adds up gradients over all processes (:class:`.mean_gradients.MeanGradients`), so that a CUDA graph can hold it.

    Args:
        folder: the run's folder.
        one_norm: whether batch norms in training take the statistics of all processes.
    """

    def __init__(self, folder: Path, one_norm: bool = False) -> None:
        super().__init__()
        self.folder = folder
        self.one_norm = one_norm

    def _configure_launcher(self) -> None:
        assert self.cluster_environment is not None
        self._launcher = _Launcher(self.cluster_environment, self.num_processes, self.num_nodes)

    def setup_environment(self) -> None:
        """Connect the processes, and watch whether all are there."""
        assert self.cluster_environment is not None
        watching = LostProcess.of_this_process()
        watching.starts(self.cluster_environment.local_rank(), self.folder)
        super().setup_environment()
        host_group()
        watching.connect(self.cluster_environment.main_address, self.global_rank, self.world_size)
        watching.watch(self.folder)

    def setup_distributed(self) -> None:
        """Connect the processes as Lightning does, but not through what torchrun's store holds of processes before a restart."""
        reset_seed()
        self.set_world_ranks()
        assert self.cluster_environment is not None
        self._process_group_backend = self._get_process_group_backend()
        device = None if self.root_device.type == "cpu" else self.root_device
        store = store_of_attempt()
        _init_dist_connection(self.cluster_environment, self._process_group_backend, timeout=self._timeout, device_id=device, store=store)

    def configure_ddp(self) -> None:
        """Give every process the weights of the first one, and random numbers of its own for dropout."""
        assert self.model is not None
        for tensor in self.model.state_dict().values():
            torch.distributed.broadcast(tensor, 0)
        torch.manual_seed(torch.initial_seed() + self.global_rank)
        self._set_norms(self.one_norm)

    def _set_norms(self, one: bool) -> None:
        for norm in self.model.modules() if self.model is not None else ():
            if isinstance(norm, BatchNorm):
                norm.of_all_processes = one

    def reduce(self, tensor: Tensor, group: Any = None, reduce_op: Any = "mean") -> Tensor:
        """Reduce a tensor in place over all processes, without the barrier of Lightning's own; "mean" is the default."""
        if not isinstance(tensor, Tensor) or not torch.distributed.is_initialized():
            return tensor
        mean = reduce_op in ("mean", "avg")
        name = "SUM" if mean else reduce_op.upper() if isinstance(reduce_op, str) else None
        torch.distributed.all_reduce(tensor, reduce_op if name is None else getattr(torch.distributed.ReduceOp, name), group)
        return tensor.copy_(tensor / self.world_size) if mean else tensor

    def reduce_boolean_decision(self, decision: bool, all: bool = True) -> bool:
        """Return whether all processes decide so, or any."""
        decided = torch.tensor(int(decision))
        torch.distributed.all_reduce(decided, torch.distributed.ReduceOp.MIN if all else torch.distributed.ReduceOp.MAX, host_group())
        return bool(decided)

    def broadcast(self, obj: Any, src: int = 0) -> Any:
        """Return the object of process `src`."""
        values = [obj]
        torch.distributed.broadcast_object_list(values, src, host_group())
        return values[0]

    def barrier(self, *args: Any, **kwargs: Any) -> None:
        """Wait for the other processes, whose GPUs may work on, but not after each checkpoint, which is written later."""
        if torch.distributed.is_initialized() and "Trainer.save_checkpoint" not in args:
            torch.distributed.barrier(host_group())

    def on_exception(self, exception: BaseException) -> None:
        """See :meth:`.lost_process.LostProcess.on_exception`."""
        LostProcess.of_this_process().on_exception(exception)

    def teardown(self) -> None:
        """Let other processes end."""
        LostProcess.of_this_process().pause()
        self._set_norms(False)
        super().teardown()


class _Launcher(_SubprocessScriptLauncher):
    """Starts processes as Lightning's launcher does; :class:`LostProcess` watches them, with a message where Lightning kills in silence."""

    def launch(self, function: Callable[..., Any], *args: Any, trainer: Any = None, **kwargs: Any) -> Any:
        self.cluster_environment.validate_settings(num_devices=self.num_processes, num_nodes=self.num_nodes)
        if not self.cluster_environment.creates_processes_externally:
            os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")  # of PyTorch's own warnings where the first process is lost
            LostProcess.name_first()
            self._call_children_scripts()
            LostProcess.of_this_process().started(self.procs, self.num_processes * self.num_nodes, Path(trainer.default_root_dir))
        _set_num_threads_if_needed(self.num_processes)
        return function(*args, **kwargs)


def end_on_signals(trainer: Trainer) -> Trainer:
    """Return a trainer of which each process ends by itself on SIGTERM, after its batch or in ten seconds.

    Lightning's processes ask each other at every batch whether one of them got it, and wait for the device to do so.
    """
    connector: Any = trainer._signal_connector

    def note(number: int, _: Any) -> None:
        if not connector.received_sigterm and trainer.strategy.launcher is not None:
            trainer.strategy.launcher.kill(number)
        LostProcess.of_this_process().end_soon()
        connector.received_sigterm = True

    connector._sigterm_notifier_fn = note
    trainer.fit_loop.epoch_loop._broadcast_sigterm_tensor = lambda: None  # type: ignore[method-assign]
    return trainer
