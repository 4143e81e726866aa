import io
import tarfile
import zipfile

import pytest

from molgcn.data.archive import WrongContentError, unpack


def make_zip(path, members):
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        for name, content in members.items():
            file.writestr(name, content)
    return path


def make_tar(path, members):
    with tarfile.open(path, "w:gz") as file:
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
