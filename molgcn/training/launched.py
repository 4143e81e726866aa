"""Give the processes that torchrun or SLURM has started for one run one folder, and let them go on after a restart."""

from __future__ import annotations

import json
import os
import time
from functools import cache
from pathlib import Path
from typing import Any
from uuid import uuid4

from molgcn.config.overrides import quote, values_of
from molgcn.errors import UserError
from molgcn.training.resume import check_new, holds_run

_OF_NO_RUN = {"-c", "--cfg", "-i", "--info", "-h", "--help", "--hydra-help"}


def launched() -> tuple[int, int, str] | None:
    """Return the rank of this process, the number of processes and their launcher; None where torchrun or SLURM did not start several."""
    for launcher, of_it, rank, size in (
        ("torchrun", "TORCHELASTIC_RUN_ID", "RANK", "WORLD_SIZE"),
        ("srun", "SLURM_STEP_ID", "SLURM_PROCID", "SLURM_NTASKS"),
    ):
        if of_it in os.environ:
            number = int(os.environ.get(size, 1))
            return (int(os.environ[rank]), number, launcher) if number > 1 else None
    return None


def with_one_folder(arguments: list[str]) -> list[str]:
    """Return the command line of one of several processes of a run, with the run's folder, as the first process decides.

    Without `hydra.run.dir=` the folder is called by the time at which torchrun's first process started, or by SLURM's numbers of job and
    step. Processes that were started again, by `torchrun --max-restarts` or a requeued job, continue the run from its last checkpoint on
    the devices that there are now.
    """
    if (found := launched()) is None or not _OF_NO_RUN.isdisjoint(argument.partition("=")[0] for argument in arguments):
        return arguments
    rank, size, launcher = found
    if {"-m", "--multirun"} & set(arguments) or any(argument.startswith("sweep=") for argument in arguments):
        raise UserError(
            f"{launcher} has started {size} processes of one run, which does not go with --multirun or sweep=. Start a sweep by itself, "
            "with launcher=joblib or launcher=submitit."
        )
    if launcher == "torchrun":
        all_attempts, attempt = _stores()
        if rank == 0:
            attempt.set("arguments", json.dumps(_of_torchrun(arguments, all_attempts)))
        arguments = json.loads(attempt.get("arguments"))
    else:
        if "SLURM_NTASKS_PER_NODE" not in os.environ:  # Lightning wants it
            raise UserError(f"srun has started {size} processes by --ntasks. Use --ntasks-per-node=, with as many as trainer.devices.")
        job, step = (os.environ[f"SLURM_{name}"] for name in ("JOB_ID", "STEP_ID"))
        devices = [argument for argument in arguments if argument.startswith(("trainer.devices=", "trainer.num_nodes="))]
        restarted = int(os.environ.get("SLURM_RESTART_COUNT", 0)) > 0
        arguments = _in_folder(arguments, _folder(arguments, f"slurm_{job}_{step}"), restarted, devices)
    return arguments if rank == 0 else [*arguments, "hydra.output_subdir=null", f"hydra.job.name=train_ddp_process_{rank}"]


def _of_torchrun(arguments: list[str], store: Any) -> list[str]:
    restarted = store.check(["folder"])
    folder = Path(store.get("folder").decode()) if restarted else _folder(arguments, time.strftime("%Y-%m-%d_%H-%M-%S"))
    local = int(os.environ["LOCAL_WORLD_SIZE"])
    nodes = int(os.environ["WORLD_SIZE"]) // local
    found = _in_folder(arguments, folder, restarted, [f"trainer.devices={local}", f"trainer.num_nodes={nodes}"])
    store.set("folder", str(folder))
    return found


def _folder(arguments: list[str], name: str) -> Path:
    runs = (values_of("paths.runs", arguments) or ["runs"])[-1]
    return Path((values_of("hydra.run.dir", arguments) or values_of("resume", arguments) or [f"{runs}/{name}"])[-1])


def _in_folder(arguments: list[str], folder: Path, restarted: bool, devices: list[str]) -> list[str]:
    """Return the command line of a run in `folder`, which goes on after a restart if it has reached a checkpoint."""
    if values_of("resume", arguments):
        return arguments
    if restarted and holds_run(folder):
        return [f"resume={quote(str(folder))}", *devices]
    check_new(folder)
    return [*(argument for argument in arguments if not argument.startswith("hydra.run.dir=")), f"hydra.run.dir={quote(str(folder))}"]


def store_of_attempt() -> Any:
    """Return a store for those processes alone that torchrun has started together; None without torchrun."""
    found = launched()
    return _stores()[1] if found is not None and found[2] == "torchrun" else None


@cache
def _stores() -> tuple[Any, Any]:
    """Return torchrun's store for the processes of all attempts, and for those of this one.

    torchrun keeps its store when it starts lost processes again, and PyTorch's groups read there what those before have left. The number of
    restarts does not tell attempts apart, since each machine counts its own. So the first process gives this attempt a name, and takes part
    with those that have answered to this name; any other reads names until its answer is among those that were taken.
    """
    from torch.distributed import PrefixStore, TCPStore  # type: ignore[attr-defined]

    rank, size, me = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]), uuid4().hex
    store = PrefixStore("molgcn", TCPStore(os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]), is_master=False))
    if rank == 0:
        store.set("attempt", me)
        answers = [store.get(f"{me}/{other}").decode() for other in range(1, size)]  # waits for each
        store.set(me, json.dumps(answers))
        return store, PrefixStore(me, store)
    while True:
        name = store.get("attempt").decode()
        store.set(f"{name}/{rank}", me)
        if store.check([name]) and me in json.loads(store.get(name)):
            return store, PrefixStore(name, store)
        time.sleep(0.05)
