"""Write a checkpoint's file, as a whole or not at all."""

from __future__ import annotations

import io
import os
from pathlib import Path
from typing import Any

import torch

from molgcn.config.overrides import as_typed
from molgcn.errors import UserError
from molgcn.files.whole_file import whole

BEST, LAST = "best.ckpt", "last.ckpt"


def write(checkpoint: dict[str, Any], path: Path) -> None:
    """Replace `path` by the checkpoint, or leave it as it is and raise UserError where it cannot be written.

    The checkpoint is written to a temporary name, synced to disk and renamed.
    """
    content = io.BytesIO()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        torch.save(checkpoint, content)  # into memory: on a full disk PyTorch's own writer raises an error that does not say so
        with whole(path) as temporary, open(temporary, "wb") as file:
            file.write(content.getbuffer())
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        earlier = path.with_name(LAST)
        advice = (
            f"{as_typed('resume', earlier.parents[1])} continues from the earlier {LAST}, which is untouched"
            if earlier.is_file()
            else "it was the run's first, so that the run has to be started again"
        )
        raise UserError(
            f"The checkpoint {path} could not be written: {error.strerror}. Free disk space or choose another folder with "
            f"hydra.run.dir=; {advice}."
        ) from error
    descriptor = os.open(path.parent, os.O_RDONLY)
    os.fsync(descriptor)
    os.close(descriptor)
