"""Choose the GPUs of a sweep's job where jobs run side by side on one machine."""

from __future__ import annotations

import logging
import os
import shutil
import subprocess
from typing import Any

log = logging.getLogger(__name__)

MPS = "nvidia-cuda-mps-control"


def take_gpus(job: int, devices: Any, at_once: int) -> None:
    """Leave this process as many GPUs as its job, counted from 0, trains on; the jobs take the GPUs in turn.

    All GPUs stay where `trainer.devices` is not a number from 1 to that of the GPUs. The first job that shares a GPU with another of those
    that run at once logs how they compute on it at the same time, where they would not.

    This sets CUDA_VISIBLE_DEVICES, so that it must be called before anything uses a GPU.
    """
    import torch

    listed = os.environ.get("CUDA_VISIBLE_DEVICES")
    gpus = [str(gpu) for gpu in range(torch.cuda.device_count())] if listed is None else listed.split(",")
    if not isinstance(devices, int) or not 0 < devices <= len(gpus):
        return
    os.environ["CUDA_VISIBLE_DEVICES"] = ",".join(gpus[(job * devices + i) % len(gpus)] for i in range(devices))
    alone = len(gpus) // devices  # jobs that share no GPU
    if job == alone and not 0 < at_once <= alone and torch.cuda.device_count() and shutil.which(MPS) and not mps_runs():
        log.info("Jobs share a GPU and take turns on it. `%s -d` before the sweep lets them compute at the same time", MPS)


def mps_runs() -> bool:
    """Return whether NVIDIA's Multi-Process Service runs, under which processes compute on a GPU at the same time."""
    try:
        return subprocess.run([MPS], input="get_server_list\n", text=True, capture_output=True, timeout=10).returncode == 0
    except (OSError, subprocess.TimeoutExpired):  # it is not installed, or hangs
        return False
