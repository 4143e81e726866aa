"""Choose the GPUs of a sweep's job where jobs run side by side on one machine."""

from __future__ import annotations

import os
from typing import Any


def take_gpus(job: int, devices: Any) -> None:
    """Leave this process as many GPUs as its job trains on; the jobs take the GPUs in turn.

    This sets CUDA_VISIBLE_DEVICES, so that it must be called before anything uses a GPU.

    Args:
        job: the number of the job, from 0.
        devices: `trainer.devices`. Where it is not a number from 1 to that of the GPUs, all GPUs stay.
    """
    import torch

    listed = os.environ.get("CUDA_VISIBLE_DEVICES")
    gpus = [str(gpu) for gpu in range(torch.cuda.device_count())] if listed is None else listed.split(",")
    if isinstance(devices, int) and 0 < devices <= len(gpus):
        os.environ["CUDA_VISIBLE_DEVICES"] = ",".join(gpus[(job * devices + i) % len(gpus)] for i in range(devices))
