import io
import tarfile
import zipfile
from contextlib import suppress
from functools import partial

import numpy as np
import pytest

from molgcn.data.archive import WrongContentError, unpack


def make_zip(path, members, method=zipfile.ZIP_DEFLATED):
    with zipfile.ZipFile(path, "w", method) as file:
        for name, content in members.items():
            file.writestr(name, content)
    return path


def make_tar(path, members, mode="w:gz"):
    with tarfile.open(path, mode) as file:
        for name, content in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            file.addfile(info, io.BytesIO(content))
    return path


@pytest.mark.parametrize("make", [make_zip, make_tar])
def test_only_expected_names_come_out(tmp_path, make):
    members = {"qm9/a.csv": b"1", "b.sdf": b"22", "../../evil.txt": b"no", "/etc/evil": b"no", "extra.py": b"no"}
    archive = make(tmp_path / "archive", members)
    (tmp_path / "out").mkdir()
    found = unpack(archive, ["a.csv", "b.sdf"], tmp_path / "out")
    assert [path.read_bytes() for path in found] == [b"1", b"22"]
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["a.csv", "b.sdf"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["archive", "out"]


def test_links_are_not_files(tmp_path):
    with tarfile.open(tmp_path / "archive", "w") as file:
        link = tarfile.TarInfo("a.csv")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
        file.addfile(link)
    with pytest.raises(WrongContentError, match=r"no a\.csv"):
        unpack(tmp_path / "archive", ["a.csv"], tmp_path)


@pytest.mark.parametrize("make", [make_zip, make_tar])
def test_damaged_and_incomplete_archives(tmp_path, make):
    archive = make(tmp_path / "archive", {"a.csv": bytes(range(256)) * 400})
    with pytest.raises(WrongContentError, match=r"no b\.csv"):
        unpack(archive, ["b.csv"], tmp_path)
    content = archive.read_bytes()
    archive.write_bytes(content[: len(content) // 2])
    with pytest.raises(WrongContentError, match="not a readable archive"):
        unpack(archive, ["a.csv"], tmp_path)
    archive.write_bytes(b"plain text")
    with pytest.raises(WrongContentError, match="not a readable archive"):
        unpack(archive, ["a.csv"], tmp_path)


@pytest.mark.parametrize(
    "make",
    [
        *(partial(make_tar, mode=f"w:{method}") for method in ("gz", "bz2", "xz")),
        *(partial(make_zip, method=method) for method in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA)),
    ],
    ids=["gz", "bz2", "xz", "stored", "deflated", "bzip2", "lzma"],
)
def test_no_byte_of_an_archive_changes_in_silence(tmp_path, make):
    """Flipped bits and cuts at 150 places are found, half of them in the first or last 300 bytes, which describe the rest."""
    members = {"a.csv": np.random.default_rng(0).integers(65, 70, 3000, np.uint8).tobytes(), "b.sdf": b"xyz" * 500}
    whole = make(tmp_path / "archive", members).read_bytes()
    rng = np.random.default_rng(1)
    for number in range(150):
        content = bytearray(whole)
        place = int(rng.integers(len(whole))) if number % 2 else int(rng.choice([1, -1]) * rng.integers(1, min(300, len(whole))))
        content[place] ^= 1 << rng.integers(8)
        (tmp_path / "archive").write_bytes(content if number % 10 else whole[:place])
        with suppress(WrongContentError):
            found = unpack(tmp_path / "archive", list(members), tmp_path)
            assert [path.read_bytes() for path in found] == list(members.values())


def test_what_the_disk_refuses_is_no_damage(tmp_path):
    archive = make_tar(tmp_path / "archive", {"a.csv": b"1"})
    with pytest.raises(FileNotFoundError):
        unpack(archive, ["a.csv"], tmp_path / "no such folder")
