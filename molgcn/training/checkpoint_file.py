"""Read checkpoints without executing anything in them, and write them as a whole or not at all."""

from __future__ import annotations

import io
import os
import zipfile
from pathlib import Path
from typing import Any, BinaryIO

import torch

from molgcn.config.overrides import as_typed
from molgcn.errors import UserError
from molgcn.files.whole_file import whole
from molgcn.training.checkpoint_format import upgrade

_FOLDER = 0x10  # MS-DOS's bit: PyTorch would read nothing for such a part and leave its tensor uninitialised
BEST, LAST = "best.ckpt", "last.ckpt"


def load_checkpoint(path: Path) -> dict[str, Any]:
    """Read a checkpoint onto the CPU, without executing anything in it; UserError where it is missing, damaged or not of this molgcn.

    Its description of itself, under the key "molgcn", is brought to the present format.
    """
    if not path.is_file():
        raise UserError(f"There is no checkpoint {path}. Expected the folder of a run, as in runs/<run>, or one of its .ckpt files.")
    with open(path, "rb") as file:
        reason = damage(file)
        if reason is None:
            try:
                checkpoint = torch.load(file, map_location="cpu", weights_only=True)
            except Exception:  # torch's restricted unpickler raises all kinds, and advises to do without it
                reason = "it holds something other than tensors and plain values"
    if reason is not None:
        raise UserError(f"{path} is not a readable checkpoint: {reason}. {_instead(path)}")
    if not isinstance(checkpoint, dict) or "molgcn" not in checkpoint:
        raise UserError(
            f"{path} was not written by molgcn. Expected a .ckpt file of a run, for example <run folder>/checkpoints/best.ckpt."
        )
    checkpoint["molgcn"] = upgrade(checkpoint["molgcn"], path)
    return checkpoint


def damage(file: BinaryIO) -> str | None:
    """Return why the file is not as PyTorch wrote it, in words, or None where it is; PyTorch itself checks no checksum."""
    try:
        with zipfile.ZipFile(file) as archive:
            if any(entry.compress_type != zipfile.ZIP_STORED or entry.external_attr & _FOLDER for entry in archive.infolist()):
                return "it has parts that are compressed or folders, which PyTorch does not write"
            damaged = archive.testzip()
        file.seek(0)
    except Exception as error:  # zipfile raises many kinds for a damaged directory
        return f"it is cut off, damaged or something else ({' '.join(str(error).split())[:100]})"
    return None if damaged is None else f"it is damaged, the checksum of {damaged[:50]} does not match"


def _instead(path: Path) -> str:
    for other in (path.with_name(name) for name in (BEST, LAST) if name != path.name):
        if other.is_file():
            with open(other, "rb") as file:
                if damage(file) is None:
                    return (
                        f"{other.name} beside it is intact: {as_typed('ckpt', other)} predicts with it, and {as_typed('ckpt_path', other)} "
                        "starts a new run from its weights."
                    )
    return "Expected a .ckpt file that molgcn wrote. Restore it from a copy, or train again."


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
