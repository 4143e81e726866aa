"""Processes that run at the same time make what they all need only once."""

import logging
import multiprocessing
import os
import time
from pathlib import Path

import pytest

from molgcn.data import locks
from molgcn.data.cache import load_or_pack
from molgcn.data.packed import PackedMolecules


def pack_slowly(folder: str) -> PackedMolecules:
    with open(Path(folder) / "log", "a") as file:
        file.write(f"{os.getpid()}\n")
    time.sleep(0.3)
    return PackedMolecules.from_smiles(["C", "CCO"])


def load(folder: str) -> int:
    return len(load_or_pack("csv", {"a": 1}, lambda: pack_slowly(folder), folder))


def test_of_four_processes_one_packs(tmp_path):
    with multiprocessing.get_context("spawn").Pool(4) as pool:
        assert pool.map(load, [str(tmp_path)] * 4, chunksize=1) == [2] * 4
    assert len((tmp_path / "log").read_text().splitlines()) == 1


def hold(path: str, held: object) -> None:
    with locks.exclusive(Path(path)):
        held.set()
        time.sleep(60)


def test_a_wait_is_announced_and_ends_with_the_process_that_held(tmp_path, caplog, monkeypatch):
    monkeypatch.setattr(locks, "PATIENCE", 0.05)
    context = multiprocessing.get_context("spawn")
    held = context.Event()
    process = context.Process(target=hold, args=(str(tmp_path / "set"), held))
    process.start()
    assert held.wait(30)

    class KillsOnce(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            process.kill()

    handler = KillsOnce()
    locks.log.addHandler(handler)
    caplog.set_level(logging.INFO)
    try:
        with locks.exclusive(tmp_path / "set"):
            assert f"Waiting for another process to finish {tmp_path / 'set'}" in caplog.text
    finally:
        locks.log.removeHandler(handler)
        process.join()


@pytest.mark.parametrize("folder", ["file/below", "/proc"])
def test_nobody_waits_where_no_lock_can_be_made(folder, tmp_path):
    (tmp_path / "file").touch()
    with locks.exclusive(tmp_path / folder / "set"):
        pass


def test_an_error_inside_frees_the_lock(tmp_path, caplog):
    for _ in range(2):
        with pytest.raises(ValueError, match="inside"), locks.exclusive(tmp_path / "set"):
            raise ValueError("inside")
    assert "Waiting" not in caplog.text


def test_a_folder_is_claimed_once(tmp_path):
    folder = tmp_path / "run"
    with locks.claimed(folder) as first, locks.claimed(folder) as second, locks.claimed(folder, wanted=False) as rank:
        assert (first, second, rank) == (True, False, True)
    with locks.claimed(folder) as again:
        assert again


def test_where_nothing_can_be_written_nobody_is_kept_out(tmp_path):
    (tmp_path / "file").write_text("")
    with locks.claimed(tmp_path / "file" / "run") as free:
        assert free
