"""The version of molgcn that wrote a run or a checkpoint, compared with this one."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version

from packaging.version import InvalidVersion, Version


def this_version() -> str:
    return version("molgcn")


def newer_writer(versions: object) -> str | None:
    """Return the version of molgcn that wrote a file if it is newer than this one, else None; the file records `versions` by package."""
    writer = versions.get("molgcn") if isinstance(versions, Mapping) else None
    try:
        return writer[:50] if isinstance(writer, str) and Version(writer) > Version(this_version()) else None
    except (InvalidVersion, PackageNotFoundError):
        return None
