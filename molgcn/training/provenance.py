"""Record what a run was made with: versions, commit, data, device and seed; and compare its version of molgcn with this one."""

from __future__ import annotations

import platform
import subprocess
import sys
from collections.abc import Iterable, Mapping
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from packaging.version import InvalidVersion, Version

if TYPE_CHECKING:
    import torch

_PACKAGES = ("molgcn", "torch", "torch-geometric", "rdkit", "lightning", "hydra-core", "numpy", "wandb", "lightgbm")
_ROOT = Path(__file__).resolve().parents[2]


def provenance(data_hash: str, device: torch.device, seed: int) -> dict[str, Any]:
    """Return the plain values of `provenance.json` in a run's folder."""
    import torch  # what only compares versions does without it

    return {
        "versions": versions(),
        "git_commit": _own_commit(),
        "data_hash": data_hash,
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else f"{platform.processor() or platform.machine()} CPU",
        "threads": torch.get_num_threads(),
        "platform": platform.platform(),
        "seed": seed,
        "command": sys.argv,
    }


def versions(packages: Iterable[str] = _PACKAGES) -> dict[str, str | None]:
    """Return Python's and the packages' versions; None for a package that is not installed."""
    return {"python": platform.python_version(), **{name: _version(name) for name in packages}}


@cache  # reading a package's metadata takes milliseconds, and every checkpoint holds the versions
def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


@cache  # a process runs what it has imported, whatever is changed meanwhile
def _own_commit() -> str | None:
    return git_commit(_ROOT)


def git_commit(root: Path) -> str | None:
    """Return the commit of the checkout at `root`, followed by "+changes" where tracked files differ from it.

    Without a checkout, as when molgcn was installed from a wheel, it is None.
    """
    if not (root / ".git").exists():
        return None
    try:
        commit = _git(root, "rev-parse", "HEAD")
        return commit + ("+changes" if _git(root, "status", "--porcelain", "--untracked-files=no") else "")
    except (OSError, subprocess.CalledProcessError):
        return None


def _git(root: Path, *arguments: str) -> str:
    return subprocess.run(["git", "-C", str(root), *arguments], capture_output=True, text=True, check=True).stdout.strip()


@cache
def this_version() -> str:
    return version("molgcn")


def newer_writer(versions: object) -> str | None:
    """Return the version of molgcn that wrote a file if it is newer than this one, else None; the file records `versions` by package."""
    writer = versions.get("molgcn") if isinstance(versions, Mapping) else None
    try:
        return writer[:50] if isinstance(writer, str) and Version(writer) > Version(this_version()) else None
    except (InvalidVersion, PackageNotFoundError):
        return None
