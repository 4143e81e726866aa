"""Files are written completely or not at all, and remains of a killed process are removed."""

import os
import subprocess
import sys
import time

import pytest

from molgcn.files.whole_file import remove_leftovers, whole


def test_a_file_takes_its_place_at_the_end(tmp_path):
    path = tmp_path / "a.json"
    path.write_text("before")
    with whole(path) as temporary:
        temporary.write_text("after")
        assert path.read_text() == "before"
    assert path.read_text() == "after"
    assert os.listdir(tmp_path) == ["a.json"]


def test_a_file_that_fails_is_not_there(tmp_path):
    def fail():
        with whole(tmp_path / "a.json") as temporary:
            temporary.write_text("half")
            raise KeyError

    (tmp_path / "a.json").write_text("before")
    with pytest.raises(KeyError):
        fail()
    assert (tmp_path / "a.json").read_text() == "before"
    assert os.listdir(tmp_path) == ["a.json"]


def test_what_a_killed_process_left_is_removed(tmp_path):
    program = (
        "import os, sys; from pathlib import Path; from molgcn.files.whole_file import whole\n"
        "with whole(Path(sys.argv[1])) as temporary: temporary.write_text('half'); os.kill(os.getpid(), 9)"
    )
    for name in ("a.json", "other.json"):
        subprocess.run([sys.executable, "-c", program, str(tmp_path / name)], check=False)
    (tmp_path / ".last.ckpt.4711").touch()  # as earlier versions named them
    kept = [".lock", ".a.json.lock", ".hidden", "a.json", ".a-b.csv.4711"]
    for name in kept:
        (tmp_path / name).touch()
    assert len(os.listdir(tmp_path)) == len(kept) + 3
    remove_leftovers(tmp_path, "a.json")
    assert len(os.listdir(tmp_path)) == len(kept) + 2  # the others may be under way
    for path in tmp_path.iterdir():
        os.utime(path, (time.time() - 90_000,) * 2)
    remove_leftovers(tmp_path, "a.json")
    assert sorted(os.listdir(tmp_path)) == sorted(kept)
    (tmp_path / f".set-{'0' * 32}").mkdir()
    remove_leftovers(tmp_path)
    remove_leftovers(tmp_path / "nowhere")
    assert sorted(os.listdir(tmp_path)) == sorted(kept)
