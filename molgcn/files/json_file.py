"""The small JSON files of a run. Each is written completely or not at all."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from molgcn.errors import UserError
from molgcn.files.whole_file import write_text


def write_json(path: Path, values: Any) -> None:
    """Write values to `path`. Where writing fails, the earlier file stays as it was."""
    write_text(path, json.dumps(values, indent=2) + "\n")


def read_json(path: Path) -> Any:
    """Read the values that :func:`write_json` wrote.

    Raises:
        UserError: when the file cannot be read.
    """
    try:
        return json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise UserError(f"{path} is damaged or cannot be read: {error}. Restore the file, or use another run.") from error
