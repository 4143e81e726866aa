"""The small JSON files of a run: whole or not there at all."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from molgcn.errors import UserError
from molgcn.whole_file import whole


def write_json(path: Path, values: Any) -> None:
    """Writes `path` at once: where the disk is full or the process dies, what was there stays as it was."""
    with whole(path) as temporary:
        temporary.write_text(json.dumps(values, indent=2) + "\n")


def read_json(path: Path) -> Any:
    """What :func:`write_json` wrote.

    Raises:
        UserError: when it cannot be read.
    """
    try:
        return json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise UserError(f"{path} is damaged or cannot be read: {error}. Restore the file, or do without the run that it is of.") from error
