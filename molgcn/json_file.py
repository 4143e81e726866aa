"""The small JSON files of a run: whole or not there at all."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from molgcn.errors import UserError


def write_json(path: Path, values: Any) -> None:
    """Writes `path` at once: where the disk is full or the process dies, what was there stays as it was."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        temporary.write_text(json.dumps(values, indent=2) + "\n")
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def read_json(path: Path) -> Any:
    """What :func:`write_json` wrote.

    Raises:
        UserError: when it cannot be read.
    """
    try:
        return json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise UserError(f"{path} is damaged or cannot be read: {error}. Restore the file, or do without the run that it is of.") from error
