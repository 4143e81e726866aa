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
    """A file that is not what was asked for; the text says why."""


def unpack(archive: Path, names: Sequence[str], folder: Path) -> list[Path]:
    """Writes the named members to `folder` under those names, whatever folder they lie in inside the archive.

    Raises:
        WrongContentError: when it is not an archive, is damaged, or a name is missing.
    """
    try:
        if zipfile.is_zipfile(archive):
            with zipfile.ZipFile(archive) as zipped:
                members = {Path(info.filename).name: info for info in zipped.infolist() if not info.is_dir()}
                return [_store(zipped.open(_member(members, name)), folder / name) for name in names]
        with tarfile.open(archive) as tarred:
            entries = {Path(entry.name).name: entry for entry in tarred.getmembers() if entry.isfile()}
            stored = [_store(tarred.extractfile(_member(entries, name)), folder / name) for name in names]
            while tarred.fileobj is not None and tarred.fileobj.read(1 << 20):
                pass  # the checksum of what was compressed is at its end
            return stored
    except _DAMAGED as error:
        raise WrongContentError(f"it is not a readable archive ({error})") from error
    except OSError as error:
        if error.errno not in (None, errno.EINVAL):  # the disk's; a decoder's has no number, a seek to a wrong offset has EINVAL
            raise
        raise WrongContentError(f"it is not a readable archive ({error})") from error


def _member(members: dict[str, Any], name: str) -> Any:
    if name not in members:
        raise WrongContentError(f"the archive has no {name}")
    return members[name]


def _store(stream: IO[bytes] | None, path: Path) -> Path:
    assert stream is not None  # only members that are files are asked for
    with stream, open(path, "wb") as file:
        shutil.copyfileobj(stream, file, 1 << 20)
    return path
