"""A folder of its own for each run and sweep, also where several start in the same second."""

from __future__ import annotations

from itertools import count
from pathlib import Path

from omegaconf import OmegaConf


def new_folder(name: str, shared: str | None = None) -> str:
    """Make the folder `name`, or the first of `<name>_2`, `<name>_3`, ... that does not exist.

    Hydra's configuration asks for it as `${new_folder:<name>}`, and gets the same answer for the whole run.

    Args:
        name: the folder's name.
        shared: a folder that several runs share, such as a search's, which takes the place of a new one; None where there is none.

    Returns:
        `shared`, or the folder that was made. Where none can be made it is `name`, and the first write to it raises the error.
    """
    if shared is not None:
        return shared
    folder = Path(name)
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        for number in count(2):
            try:
                folder.mkdir()
                break
            except FileExistsError:
                folder = Path(f"{name}_{number}")
    except OSError:
        return name
    return str(folder)


OmegaConf.register_new_resolver("new_folder", new_folder, use_cache=True, replace=True)
