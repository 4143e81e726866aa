"""Takes expected files, and nothing else, out of a zip or tar archive."""

from __future__ import annotations

import errno
import lzma
import shutil
import tarfile
import zipfile
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any

_DAMAGED = (zipfile.BadZipFile, tarfile.TarError, zlib.error, lzma.LZMAError, EOFError, ValueError, RuntimeError)


class WrongContentError(Exception):
    """Raised for a file that is not what was asked for. The text says why."""


def unpack(archive: Path, names: Sequence[str], folder: Path) -> list[Path]:
    """Write the named members of an archive, zip or tar, to `folder` and return their paths, whatever folder they lie in inside it.

    A name may have a folder itself, as in "ames/test.csv", where the archive has several members of one name.
    WrongContentError says why an archive is refused.
    """
    try:
        if zipfile.is_zipfile(archive):
            with zipfile.ZipFile(archive) as zipped:
                members = {info.filename: info for info in zipped.infolist() if not info.is_dir()}
                return [_store(zipped.open(_member(members, name)), _place(folder, name)) for name in names]
        with tarfile.open(archive) as tarred:
            entries = {entry.name: entry for entry in tarred.getmembers() if entry.isfile()}
            stored = [_store(tarred.extractfile(_member(entries, name)), _place(folder, name)) for name in names]
            while tarred.fileobj is not None and tarred.fileobj.read(1 << 20):
                pass  # reading to the end checks the checksum
            return stored
    except _DAMAGED as error:
        raise WrongContentError(f"it is not a readable archive ({error})") from error
    except OSError as error:
        if error.errno not in (None, errno.EINVAL):  # an error of the disk; decoders give no errno, a seek to a wrong offset gives EINVAL
            raise
        raise WrongContentError(f"it is not a readable archive ({error})") from error


def _place(folder: Path, name: str) -> Path:
    if len(Path(name).parts) > 1:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
    return folder / name


def _member(members: dict[str, Any], name: str) -> Any:
    parts = Path(name).parts
    found = [member for path, member in members.items() if Path(path).parts[-len(parts) :] == parts]
    if not found:
        raise WrongContentError(f"the archive has no {name}")
    return found[-1]


def _store(stream: IO[bytes] | None, path: Path) -> Path:
    assert stream is not None  # every member asked for is a file
    with stream, open(path, "wb") as file:
        shutil.copyfileobj(stream, file, 1 << 20)
    return path
