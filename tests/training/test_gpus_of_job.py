"""Jobs that run at the same time take GPUs in turn."""

import logging
import os

import pytest
import torch

from molgcn.training.gpus_of_job import MPS, mps_runs, take_gpus


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
        take_gpus(job, devices, at_once=1)
        taken.append(os.environ.get("CUDA_VISIBLE_DEVICES"))
    assert taken == expected


def test_a_process_that_takes_a_second_job_stays_on_its_gpu(monkeypatch):
    """CUDA would ignore a change, since it reads the variable once."""
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    for job in (1, 2):
        take_gpus(job, 1, at_once=1)
        assert os.environ["CUDA_VISIBLE_DEVICES"] == "1"


@pytest.fixture
def mps(tmp_path, monkeypatch):
    """Return a function that puts a Multi-Process Service on the path that runs or does not."""

    def install(runs):
        program = tmp_path / MPS
        program.write_text(f"#!/bin/sh\nread command\n[ $command = get_server_list ] && exit {0 if runs else 1}\n")
        program.chmod(0o755)
        monkeypatch.setenv("PATH", str(tmp_path))

    monkeypatch.setenv("PATH", str(tmp_path))
    return install


def test_whether_mps_runs(mps):
    assert not mps_runs()  # not installed
    mps(runs=False)
    assert not mps_runs()
    mps(runs=True)
    assert mps_runs()


@pytest.mark.parametrize(
    ("count", "devices", "at_once", "runs", "told"),
    [
        (1, 1, 8, False, [1]),
        (1, 1, -1, False, [1]),
        (3, 1, 8, False, [3]),
        (3, 2, 8, False, [1]),
        (1, 1, 8, True, []),  # they compute at the same time
        (1, 1, 8, None, []),  # not installed
        (1, 1, 1, False, []),  # one after the other
        (2, 1, 2, False, []),
        (0, 1, 8, False, []),
    ],
)
def test_one_job_says_that_jobs_take_turns_on_a_gpu(count, devices, at_once, runs, told, mps, monkeypatch, caplog):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: count)
    if runs is not None:
        mps(runs)
    caplog.set_level(logging.INFO)
    said = []
    for job in range(8):
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
        caplog.clear()
        take_gpus(job, devices, at_once)
        if f"{MPS} -d" in caplog.text:
            said.append(job)
    assert said == told
