"""torchrun and SLURM start the processes of a run, which find one folder, and go on in it when they are started again."""

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from molgcn.errors import UserError
from molgcn.training.checkpoint_file import load_checkpoint
from molgcn.training.launched import with_one_folder
from molgcn.training.trainer import build_trainer

ROOT = Path(__file__).parents[2]
SLURM = {"SLURM_NTASKS": "2", "SLURM_JOB_ID": "71", "SLURM_STEP_ID": "0", "SLURM_PROCID": "0", "SLURM_NTASKS_PER_NODE": "2"}
OPTIONS = ["dataset.subset=300", "model.hidden_channels=16", "trainer.accelerator=cpu", "training.report=false", "logger=csv"]
OPTIONS += ["trainer.devices=2"]


@pytest.fixture
def environment(monkeypatch):
    """Return a function that sets variables of a launcher, of which there are no others."""
    for name in [name for name in os.environ if name.startswith(("SLURM_", "TORCHELASTIC_", "WORLD_SIZE"))]:
        monkeypatch.delenv(name)
    return lambda variables: [monkeypatch.setenv(name, value) for name, value in variables.items()]


def test_a_process_alone_keeps_its_command_line(environment):
    assert with_one_folder(["seed=1"]) == ["seed=1"]


def test_processes_of_a_job_take_its_number(environment):
    environment(SLURM)
    assert with_one_folder(["seed=1"]) == ["seed=1", "hydra.run.dir='runs/slurm_71_0'"]
    assert with_one_folder(["hydra.run.dir='my run'"]) == ["hydra.run.dir='my run'"]
    environment({"SLURM_PROCID": "1"})
    others = ["hydra.output_subdir=null", "hydra.job.name=train_ddp_process_1"]  # Hydra's files are the first process's
    assert with_one_folder(["seed=1"]) == ["seed=1", "hydra.run.dir='runs/slurm_71_0'", *others]


@pytest.mark.parametrize("reached", [True, False])
def test_a_job_that_is_queued_again_goes_on_where_it_has_a_checkpoint(reached, environment, tmp_path):
    environment({**SLURM, "SLURM_RESTART_COUNT": "1"})
    if reached:
        (tmp_path / "checkpoints").mkdir()
        (tmp_path / "checkpoints" / "last.ckpt").touch()
    given = ["model=gin", "trainer.devices=2", f"hydra.run.dir={tmp_path}"]
    expected = [f"resume='{tmp_path}'", "trainer.devices=2"] if reached else [*given[:2], f"hydra.run.dir='{tmp_path}'"]
    assert with_one_folder(given) == expected


def test_a_job_does_not_go_on_with_a_run_that_it_did_not_start(environment, tmp_path):
    environment(SLURM)
    (tmp_path / "checkpoints").mkdir()
    (tmp_path / "checkpoints" / "last.ckpt").touch()
    with pytest.raises(UserError, match="already holds a run"):
        with_one_folder([f"hydra.run.dir={tmp_path}"])


def test_a_job_says_how_many_processes_a_machine_has(environment, monkeypatch):
    environment(SLURM)
    monkeypatch.delenv("SLURM_NTASKS_PER_NODE")
    with pytest.raises(UserError, match="--ntasks-per-node="):
        with_one_folder([])


@pytest.mark.parametrize("argument", ["--multirun", "sweep=optuna"])
def test_processes_of_one_run_make_no_sweep(argument, environment):
    environment(SLURM)
    with pytest.raises(UserError, match="srun has started 2 processes of one run"):
        with_one_folder(["seed=1,2", argument])


def test_there_is_a_process_for_each_device(environment, tmp_path):
    environment(SLURM)
    with pytest.raises(UserError, match=r"srun has started 2 processes of this run, and trainer\.devices=1 on .* would be 1"):
        build_trainer({"accelerator": "cpu"}, [], [], tmp_path)


def first_checkpoint(folder, processes):
    """Wait for the checkpoint of the run below a folder while its processes train, and return it."""
    start = time.monotonic()
    while not (found := list(folder.glob("runs/*/checkpoints/last.ckpt"))):
        assert all(process.poll() is None for process in processes) and time.monotonic() - start < 120
        time.sleep(0.1)
    return found[0]


@pytest.mark.slow
def test_processes_of_srun_write_one_run(tmp_path):
    places = {"SLURM_NODEID": "0", "SLURM_NODELIST": "localhost", "SLURM_JOB_NAME": "x", "OMP_NUM_THREADS": "1"}
    with socket.create_server(("", 0)) as server:
        places["MASTER_PORT"] = str(server.getsockname()[1])
    processes = [
        subprocess.Popen(
            [sys.executable, str(ROOT / "train.py"), *OPTIONS, "trainer.max_epochs=2"],
            cwd=tmp_path,
            env={**os.environ, **SLURM, **places, "SLURM_PROCID": str(rank), "SLURM_LOCALID": str(rank)},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for rank in range(2)
    ]
    first, second = (process.communicate(timeout=120)[0] for process in processes)
    assert [process.returncode for process in processes] == [0, 0], first + second
    assert first.count("\nepoch 2 ") == 1 and not second
    assert [path.name for path in (tmp_path / "runs").iterdir()] == ["slurm_71_0"]


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="processes are found in /proc")
@pytest.mark.parametrize(("rendezvous", "rank"), [("--standalone", 0), ("--master-port", 1)])
def test_torchrun_starts_lost_processes_again(rendezvous, rank, tmp_path):
    with socket.create_server(("", 0)) as server:
        port = server.getsockname()[1]
    rendezvous = rendezvous if rendezvous == "--standalone" else f"{rendezvous}={port}"
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node=2", "--max-restarts=1", rendezvous]
    with subprocess.Popen(
        [*torchrun, str(ROOT / "train.py"), *OPTIONS, "training.checkpoint_seconds=0", "trainer.max_epochs=60"],
        cwd=tmp_path,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as process:
        checkpoint = first_checkpoint(tmp_path, [process])
        trained = map(int, Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split())
        os.kill(list(trained)[rank], signal.SIGKILL)
        printed, _ = process.communicate(timeout=120)
    assert process.returncode == 0, printed
    assert [path.name for path in (tmp_path / "runs").iterdir()] == [checkpoint.parents[1].name]
    assert load_checkpoint(checkpoint)["global_step"] == 60 and printed.count("\nepoch 60 ") == 1
