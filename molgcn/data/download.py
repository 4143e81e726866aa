"""Downloads files: resumes broken downloads, checks what arrives, and tries the next mirror on failure."""

from __future__ import annotations

import hashlib
import json
import logging
import os
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from molgcn.data.archive import WrongContentError, unpack
from molgcn.data.locks import exclusive
from molgcn.errors import UserError
from molgcn.process.progress import progress_bar

log = logging.getLogger(__name__)

ATTEMPTS = 3  # for each mirror; a broken connection resumes where it stopped
TIMEOUT = (10.0, 60.0)  # seconds to connect, and between two pieces of the answer
PIECE = 1 << 16  # bytes that a broken connection loses at most


@dataclass(frozen=True)
class RemoteFile:
    r"""A file to download."""

    name: str  # name of the file on disk
    urls: tuple[str, ...]  # addresses of the mirrors, tried in turn
    size: int | None = None  # published size in bytes, or None
    git_blob: str | None = None  # published git object id of the content (sha1 of "blob <size>\0" and the content), or None
    check: Callable[[Path], None] | None = None  # function that raises WrongContentError when the content is not what it should be, or None


def download(remote: RemoteFile, folder: Path) -> Path:
    """Download a file into a folder on the first call, and return its path.

    Its sha256 is recorded beside it as `<name>.sha256.json`. On later calls a file whose size or time has changed is compared with the
    record, and so is a file that is downloaded again.
    """
    path = folder / remote.name

    def accept(partial: Path) -> None:
        _record(partial, path)
        partial.replace(path)

    return _once(remote, folder, [path], accept)[0]


def download_archive(remote: RemoteFile, members: dict[str, Callable[[Path], None]], folder: Path) -> list[Path]:
    """Download an archive, zip or tar, and unpack members of it into a folder on the first call, and return their paths.

    The archive itself is not kept. For each file name of a member, `members` has a function that raises WrongContentError when its content
    is wrong. Their sha256 is recorded, and errors are raised, as by :func:`download`.
    """
    paths = [folder / name for name in members]

    def accept(partial: Path) -> None:
        with tempfile.TemporaryDirectory(dir=folder, prefix=".unpack-") as scratch:
            fresh = unpack(partial, list(members), Path(scratch))
            for content, check in zip(fresh, members.values(), strict=True):
                check(content)
            for content, path in zip(fresh, paths, strict=True):
                path.parent.mkdir(parents=True, exist_ok=True)
                _record(content, path)
                content.replace(path)
        partial.unlink()

    return _once(remote, folder, paths, accept)


def _once(remote: RemoteFile, folder: Path, paths: list[Path], accept: Callable[[Path], None]) -> list[Path]:
    """Return files that are made from a download, after checking those that are there, or fetch it and pass it to `accept`."""
    with exclusive(folder / remote.name):
        if all(path.exists() for path in paths):
            for path in paths:
                recorded_hash(path)
        else:
            _from_mirrors(remote, folder, accept)
    return paths


def _from_mirrors(remote: RemoteFile, folder: Path, accept: Callable[[Path], None]) -> None:
    """Fetch the file from the first mirror that gives the right one, and pass it to `accept`, which may also refuse it."""
    path = folder / remote.name
    failures = []
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for url in remote.urls:
            try:
                partial = _fetch(url, path)
                _check(partial, remote)
                accept(partial)
            except WrongContentError as error:
                path.with_name(f"{path.name}.partial").unlink(missing_ok=True)
                failures.append(f"{url}: {error}")
            except _ConnectionFailedError as error:
                failures.append(f"{url}: {error}")
            else:
                log.info("Downloaded %s from %s", remote.name, url)
                return
    except OSError as error:
        raise UserError(
            f"{path} cannot be written: {error.strerror or error}. Free the disk, set dataset.cache_dir=<folder>, or give the file "
            "itself as dataset.path."
        ) from error
    raise UserError(
        f"{remote.name} could not be downloaded. Tried {'; '.join(failures)}. Without internet access, give the data as "
        "dataset.path=<file>; data/README.md says where to get it."
    )


class _ConnectionFailedError(Exception):
    """Raised for a server that does not answer, an error status, or a connection that breaks repeatedly."""


def _fetch(url: str, path: Path) -> Path:
    """Download `url` to `<path>.partial`, going on where an earlier attempt at the same address stopped."""
    import requests

    partial, note = path.with_name(f"{path.name}.partial"), path.with_name(f"{path.name}.partial.json")
    state = _read_json(note)
    if state.get("url") != url:
        partial.unlink(missing_ok=True)
        state = {"url": url}
    reason = ""
    for _ in range(ATTEMPTS):
        start = partial.stat().st_size if partial.exists() and state.get("validator") else 0
        headers = {"Accept-Encoding": "identity"}
        if start:
            headers |= {"Range": f"bytes={start}-", "If-Range": state["validator"]}
        try:
            with requests.get(url, headers=headers, stream=True, timeout=TIMEOUT) as answer:
                if answer.status_code == 416:  # the partial file is longer than what the server has
                    partial.unlink(missing_ok=True)
                    continue
                if answer.status_code not in (200, 206):
                    raise _ConnectionFailedError(f"status {answer.status_code} {answer.reason}")
                if "text/html" in answer.headers.get("Content-Type", ""):
                    raise WrongContentError("it is a web page, not the file")
                resumed = answer.status_code == 206 and answer.headers.get("Content-Range", "").startswith(f"bytes {start}-")
                state["validator"] = answer.headers.get("ETag") or answer.headers.get("Last-Modified")
                note.write_text(json.dumps(state))
                expected = (start if resumed else 0) + int(answer.headers.get("Content-Length", -1))
                _write(answer, partial, "ab" if resumed else "wb", expected)
        except requests.RequestException as error:
            arrived = f" after {partial.stat().st_size:,} bytes" if partial.exists() else ""
            reason = f"{type(error).__name__}{arrived}"
            continue
        size = partial.stat().st_size
        if "Content-Length" not in answer.headers or size == expected:
            note.unlink()
            return partial
        reason = f"the connection ended after {size:,} of {expected:,} bytes"
    raise _ConnectionFailedError(reason or "the server refuses to go on where the download stopped")


def _write(answer: Any, partial: Path, mode: str, expected: int) -> None:
    with (
        open(partial, mode) as file,
        progress_bar(total=max(expected, 0) or None, initial=file.tell(), unit="B", unit_scale=True, desc=partial.stem) as bar,
    ):
        for piece in answer.iter_content(PIECE):
            file.write(piece)
            bar.update(len(piece))
        file.flush()
        os.fsync(file.fileno())


def _check(path: Path, remote: RemoteFile) -> None:
    size = path.stat().st_size
    with open(path, "rb") as file:
        head = file.read(512).lstrip().lower()
        if head.startswith((b"<!doctype html", b"<html")):
            raise WrongContentError("it is a web page, not the file")
        if remote.size is not None and size != remote.size:
            raise WrongContentError(f"it has {size:,} bytes where {remote.size:,} are published")
        if remote.git_blob is not None:
            file.seek(0)
            digest = hashlib.sha1(b"blob %d\0" % size, usedforsecurity=False)
            while piece := file.read(PIECE):
                digest.update(piece)
            if digest.hexdigest() != remote.git_blob:
                raise WrongContentError(f"its git object id is {digest.hexdigest()} where {remote.git_blob} is published")
    if remote.check is not None:
        remote.check(path)


def _read_json(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text())
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}


def _record_path(path: Path) -> Path:
    return path.with_name(f"{path.name}.sha256.json")


def _record(content: Path, path: Path) -> None:
    """Record the sha256 of `content` as that of `path`, or raise WrongContentError where another one is already recorded."""
    with open(content, "rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    known = _read_json(_record_path(path)).get("sha256", digest)
    if digest != known:
        raise WrongContentError(
            f"{path.name} has sha256 {digest[:16]}..., but {known[:16]}... at its first download ({_record_path(path)})"
        )
    stat = content.stat()
    _record_path(path).write_text(json.dumps({"sha256": digest, "size": stat.st_size, "mtime_ns": stat.st_mtime_ns}))


def recorded_hash(path: Path) -> str:
    """Return the recorded sha256 of a downloaded file, after checking that the file has not changed.

    The content is read, and compared with the record, only if size or time differ from those of the download.
    """
    record = _read_json(_record_path(path))
    stat = path.stat()
    if "sha256" not in record:
        _record(path, path)
        return str(_read_json(_record_path(path))["sha256"])
    if (stat.st_size, stat.st_mtime_ns) != (record.get("size"), record.get("mtime_ns")):
        try:
            _record(path, path)
        except WrongContentError as error:
            raise UserError(
                f"{path} has changed since it was downloaded: {error}. Delete it to fetch it again, or give your own file as dataset.path."
            ) from error
    return str(record["sha256"])
