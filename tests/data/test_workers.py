import multiprocessing
import os
import re
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import psutil
import pytest
from waiting import wait_until

from molgcn.data import workers
from molgcn.errors import UserError


def scale(chunk, factor):
    return [factor * item for item in chunk]


def fail(chunk):
    if chunk[0]:
        time.sleep(600)
    raise ValueError("broken chunk")


@pytest.mark.parametrize("num_workers", [0, 2])
def test_results_come_in_order_with_and_without_processes(num_workers):
    items = list(range(5000))
    parts = list(workers.map_chunks(partial(scale, factor=3), items, num_workers=num_workers, progress=False))
    assert [value for part in parts for value in part] == [3 * item for item in items]
    assert len(parts) == 5


def test_an_exception_of_the_function_reaches_the_caller_and_other_workers_stop():
    with pytest.raises(ValueError, match="broken chunk"):
        list(workers.map_chunks(fail, list(range(3000)), num_workers=2, progress=False))


def test_a_worker_that_is_stopped_takes_no_further_chunk(monkeypatch):
    monkeypatch.setattr(workers._Worker, "stopped", False)
    assert workers._work(len, [0]) == 1
    workers._Worker.stop()  # between two chunks, or while a result is returned
    with pytest.raises(KeyboardInterrupt):
        workers._work(fail, [0])


def test_short_lists_start_no_processes():
    assert workers.choose_workers(workers.POOL_THRESHOLD - 1, None) == 0
    assert workers.choose_workers(100, 8) == 0
    assert workers.choose_workers(10 * workers.POOL_THRESHOLD, None) == (workers.available_cores() if workers.available_cores() > 1 else 0)


def test_a_negative_number_of_workers_is_refused():
    with pytest.raises(UserError, match="num_workers=-1"):
        workers.choose_workers(10, -1)


def test_progress_bar_shows_the_description(capsys):
    list(workers.map_chunks(partial(scale, factor=1), list(range(2048)), num_workers=0, description="reading", progress=True))
    assert "reading" in capsys.readouterr().err


def sleep(chunk, folder):
    (folder / str(os.getpid())).touch()
    time.sleep(60)


def work(folder):
    list(workers.map_chunks(partial(sleep, folder=folder), list(range(3000)), num_workers=2, progress=False))


@pytest.mark.slow
def test_workers_end_with_a_parent_that_was_killed(tmp_path):
    parent = multiprocessing.get_context("spawn").Process(target=work, args=(tmp_path,))
    parent.start()
    wait_until(lambda: len(list(tmp_path.iterdir())) == 2)
    children = [psutil.Process(int(path.name)) for path in tmp_path.iterdir()]
    parent.kill()
    assert not psutil.wait_procs(children, timeout=10)[1]


def semaphores(maps):
    return {Path(name) for name in re.findall(r"/dev/shm/sem\.\S+", maps.read_text())}


@pytest.mark.skipif(not Path("/dev/shm").is_dir(), reason="semaphores are files on Linux only")
def test_semaphores_end_with_a_parent_that_was_killed():
    """Python's resource tracker removes them, unless it is killed too."""
    program = "import time; from molgcn.data.workers import map_stream; list(map_stream(time.sleep, [(60, None)], 1))"
    with subprocess.Popen([sys.executable, "-c", program]) as parent:
        maps = Path(f"/proc/{parent.pid}/maps")
        wait_until(lambda: len(semaphores(maps)) == 5)
        made = semaphores(maps)
        parent.kill()
    wait_until(lambda: not any(path.exists() for path in made))
