"""Stores packed sets on disk, under a name made from the content of the source and the options that shaped them."""

from __future__ import annotations

import hashlib
import json
import logging
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from molgcn.data.locks import exclusive
from molgcn.data.packed import PackedMolecules
from molgcn.errors import UserError
from molgcn.files.whole_file import remove_leftovers

log = logging.getLogger(__name__)


def cache_folder(cache_dir: str | Path | None = None) -> Path:
    """Return `cache_dir` if it is given, else `$XDG_CACHE_HOME/molgcn`, by default `~/.cache/molgcn`."""
    if cache_dir is not None:
        return Path(cache_dir).expanduser()
    base = os.environ.get("XDG_CACHE_HOME")
    try:
        return (Path(base) if base else Path.home() / ".cache") / "molgcn"
    except RuntimeError as error:
        raise UserError("This user has no home folder for the cache. Name a folder with dataset.cache_dir= or XDG_CACHE_HOME.") from error


def file_hash(path: Path, option: str = "dataset.path") -> str:
    """Return the sha256 of a file, which messages name by an option."""
    try:
        with open(path, "rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror}. Give a readable file as {option}.") from error


def identity_hash(identity: dict[str, Any]) -> str:
    """Return the sha256 of a JSON-like description, independent of the order of its keys."""
    return hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()


def _folder_of(name: str, identity: dict[str, Any], cache_dir: str | Path | None) -> Path:
    return cache_folder(cache_dir) / "packed" / f"{name}-{identity_hash(identity)[:20]}"


def load_cached(name: str, identity: dict[str, Any], cache_dir: str | Path | None = None) -> PackedMolecules | None:
    """Return the memory-mapped packed set of `identity`, or None if the cache does not have it or it cannot be read."""
    folder = _folder_of(name, identity, cache_dir)
    try:
        return PackedMolecules.load(folder) if folder.exists() else None
    except (UserError, OSError) as error:
        log.debug("%s is not read: %s", folder, error)
        return None


def load_or_pack(
    name: str,
    identity: dict[str, Any],
    pack: Callable[[], PackedMolecules],
    cache_dir: str | Path | None = None,
) -> PackedMolecules:
    """Return the memory-mapped packed set of `identity`, which is packed and saved first if it is not in the cache.

    A cache that cannot be read is rebuilt. A cache that cannot be written is not used. Both log one warning and neither stops a training
    run. When several processes need the same set, one packs it and the others wait. `identity` is everything that determines the set:
    content hashes, options, versions.
    """
    folder = _folder_of(name, identity, cache_dir)
    with exclusive(folder):
        remove_leftovers(folder.parent, folder.name)
        try:
            if folder.exists():
                return PackedMolecules.load(folder)
        except UserError as error:
            log.warning("The cached molecules are rebuilt: %s", error)
        except PermissionError as error:  # saving fails too, and says so
            log.debug("%s is not read: %s", folder, error)
        molecules = pack()
        try:
            molecules.save(folder)
            return PackedMolecules.load(folder)
        except (OSError, UserError) as error:
            log.warning(
                "The packed molecules are not cached in %s (%s); training goes on, and the next run packs them again. Free "
                "the disk or set dataset.cache_dir=<folder>.",
                folder.parent,
                getattr(error, "strerror", None) or error,
            )
        return molecules
