"""Which GPUs a job of a sweep trains on where jobs run side by side on one machine."""

from __future__ import annotations

import os
from typing import Any


def take_gpus(job: int, devices: Any) -> None:
    """Leaves this process as many GPUs as the job trains on, in turn of those that there are; before anything uses one.

    Args:
        job: its number, from 0.
        devices: `trainer.devices`; where it is not a number that there are, all GPUs stay.
    """
    import torch

    listed = os.environ.get("CUDA_VISIBLE_DEVICES")
    gpus = [str(gpu) for gpu in range(torch.cuda.device_count())] if listed is None else listed.split(",")
    if isinstance(devices, int) and 0 < devices <= len(gpus):
        os.environ["CUDA_VISIBLE_DEVICES"] = ",".join(gpus[(job * devices + i) % len(gpus)] for i in range(devices))
