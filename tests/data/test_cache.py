import os
import shutil
import time
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest

from molgcn.data import cache, storage
from molgcn.data.packed import PackedMolecules
from molgcn.data.rows import SkippedRow
from molgcn.errors import UserError


def pack():
    molecules = PackedMolecules.from_smiles(["C", "CCO", "c1ccccc1"], targets=np.array([[1.0], [np.nan], [3.0]]))
    molecules.skipped.append(SkippedRow(3, "C(", "syntax"))
    return molecules


def never():
    raise AssertionError("packed again")


def test_the_second_time_comes_from_disk_by_memory_map(tmp_path):
    first = cache.load_or_pack("csv", {"a": 1}, pack, tmp_path)
    second = cache.load_or_pack("csv", {"a": 1}, never, tmp_path)
    assert isinstance(second.neighbors, np.memmap)
    assert second.content_hash() == first.content_hash() == pack().content_hash()
    assert second.skipped == [SkippedRow(3, "C(", "syntax")]
    assert list(second.smiles) == ["C", "CCO", "c1ccccc1"]


def test_other_content_or_options_are_other_caches(tmp_path):
    cache.load_or_pack("csv", {"file": "x", "features": ["qm9", 1]}, pack, tmp_path)
    for identity in ({"file": "y", "features": ["qm9", 1]}, {"file": "x", "features": ["qm9", 2]}):
        with pytest.raises(AssertionError, match="packed again"):
            cache.load_or_pack("csv", identity, never, tmp_path)
    assert cache.identity_hash({"a": 1, "b": 2}) == cache.identity_hash({"b": 2, "a": 1})


def cut(content):
    return content[: len(content) // 2]


def flip_the_last_bit(content):
    return content[:-1] + bytes([content[-1] ^ 1])


@pytest.mark.parametrize(
    ("damaged", "damage"),
    [
        *(("meta.json", damage) for damage in (cut, lambda content: content.replace(storage.FORMAT.encode(), b"molgcn-packed-2"))),
        *((f"{name}.npy", damage) for name in ("neighbors", "targets", "rows", "smiles") for damage in (cut, flip_the_last_bit)),
    ],
)
def test_a_damaged_or_older_cache_is_rebuilt_with_one_line(tmp_path, caplog, damaged, damage):
    cache.load_or_pack("csv", {"a": 1}, pack, tmp_path)
    (folder,) = (tmp_path / "packed").glob("csv-*")
    (folder / damaged).write_bytes(damage((folder / damaged).read_bytes()))
    rebuilt = cache.load_or_pack("csv", {"a": 1}, pack, tmp_path)
    assert rebuilt.content_hash() == pack().content_hash()
    assert rebuilt.rows.tolist() == [0, 1, 2] and list(rebuilt.smiles) == ["C", "CCO", "c1ccccc1"]
    assert len(caplog.records) == 1
    assert "rebuilt" in caplog.text
    cache.load_or_pack("csv", {"a": 1}, never, tmp_path)


def test_a_full_disk_does_not_stop_training(tmp_path, caplog, monkeypatch):
    def full(_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(storage.os, "fsync", full)
    molecules = cache.load_or_pack("csv", {"a": 1}, pack, tmp_path)
    assert len(molecules) == 3
    assert "No space left on device" in caplog.text
    assert "dataset.cache_dir" in caplog.text
    assert [path for path in (tmp_path / "packed").iterdir() if path.suffix != ".lock"] == []


def test_another_process_that_removes_the_set_does_not_stop_training(tmp_path, caplog, monkeypatch):
    """This can happen on a file system without locks."""
    save = PackedMolecules.save

    def save_and_lose(molecules, folder):
        save(molecules, folder)
        shutil.rmtree(folder)

    monkeypatch.setattr(PackedMolecules, "save", save_and_lose)
    assert len(cache.load_or_pack("csv", {"a": 1}, pack, tmp_path)) == 3
    assert "not cached" in caplog.text


def test_a_folder_that_cannot_be_made_does_not_stop_training(tmp_path, caplog):
    (tmp_path / "file").write_text("in the way")
    assert len(cache.load_or_pack("csv", {"a": 1}, pack, tmp_path / "file")) == 3
    assert "not cached" in caplog.text


@pytest.fixture
def nobody():
    """Run a test as a user without special rights if it is started by root, who may read and write anywhere."""
    before = os.geteuid()
    if before == 0:
        os.seteuid(65534)
    yield
    os.seteuid(before)


@pytest.mark.parametrize("mode", [0o500, 0o000], ids=["not written", "not entered"])
def test_no_permission_does_not_stop_training(caplog, nobody, mode):
    with TemporaryDirectory() as name:  # those of pytest only their owner can enter
        folder = Path(name)
        folder.chmod(mode)
        assert len(cache.load_or_pack("csv", {"a": 1}, pack, folder)) == 3
    assert "Permission denied" in caplog.text


def test_default_folder_follows_the_platform(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache.cache_folder() == tmp_path / "molgcn"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert cache.cache_folder() == tmp_path / ".cache" / "molgcn"
    assert cache.cache_folder("~/x") == tmp_path / "x"


def test_a_user_without_a_home_is_told(monkeypatch):
    def nobody():
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(Path, "home", nobody)
    with pytest.raises(UserError, match=r"dataset\.cache_dir= or XDG_CACHE_HOME"):
        cache.cache_folder()


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(UserError, match="cannot be read: No such file"):
        cache.file_hash(tmp_path / "none")


def test_identity_ignores_time(tmp_path):
    path = tmp_path / "x"
    path.write_text("content")
    before = cache.file_hash(path)
    os.utime(path, (time.time() + 5, time.time() + 5))
    assert cache.file_hash(path) == before


def test_what_a_killed_process_left_is_removed(tmp_path):
    """Only files of the requested set, whose lock is held, are removed; those of another set may be in use."""
    cache.load_or_pack("csv", {"a": 1}, pack, tmp_path)
    (folder,) = (tmp_path / "packed").glob("csv-*")
    own, others = (folder.parent / f".{name}-{'0' * 32}" for name in (folder.name, "csv-another"))
    for left in (own, others):
        left.mkdir()
        (left / "x.npy").write_bytes(b"half")
    cache.load_or_pack("csv", {"a": 1}, pack, tmp_path)
    assert (own.exists(), others.exists()) == (False, True)
