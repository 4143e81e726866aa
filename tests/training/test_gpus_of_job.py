"""Jobs that run at the same time take GPUs in turn."""

import os

import pytest
import torch

from molgcn.training.gpus_of_job import take_gpus


@pytest.mark.parametrize(
    ("count", "visible", "devices", "expected"),
    [
        (3, None, 1, ["0", "1", "2", "0"]),
        (4, None, 2, ["0,1", "2,3", "0,1", "2,3"]),
        (2, None, 3, [None] * 4),
        (2, None, "auto", [None] * 4),
        (2, "4,GPU-7ab", 1, ["4", "GPU-7ab", "4", "GPU-7ab"]),
        (0, None, 1, [None] * 4),
    ],
)
def test_in_turn(count, visible, devices, expected, monkeypatch):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: count)
    taken = []
    for job in range(4):
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
        if visible is not None:
            monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
        take_gpus(job, devices)
        taken.append(os.environ.get("CUDA_VISIBLE_DEVICES"))
    assert taken == expected


def test_a_process_that_takes_a_second_job_stays_on_its_gpu(monkeypatch):
    """CUDA would ignore a change, since it reads the variable once."""
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    for job in (1, 2):
        take_gpus(job, 1)
        assert os.environ["CUDA_VISIBLE_DEVICES"] == "1"
