"""The paragraphs that a user sees instead of the exceptions of other packages."""

from __future__ import annotations

import errno
import os
import re
import traceback

from hydra.errors import HydraException
from omegaconf.errors import OmegaConfBaseException
from yaml import YAMLError

from molgcn.config.overrides import misfit
from molgcn.errors import UserError

_MEMORY_FULL = re.compile("out of memory|can't allocate memory")
_FULL = (errno.ENOSPC, errno.EDQUOT)
_UNWRITABLE = (*_FULL, errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR, errno.EEXIST, errno.ENAMETOOLONG, errno.ELOOP)


def is_killed_job(error: Exception) -> bool:
    """Return whether joblib or submitit says that a job was killed."""
    return type(error).__name__ in ("TerminatedWorkerError", "UncompletedJobError")


def _refuses_folders(error: OSError) -> bool:
    """Return whether no folder can be made where folders are files of the system, as in /proc, which says that there is none."""
    *_, (frame, _) = traceback.walk_tb(error.__traceback__)
    return error.errno == errno.ENOENT and frame.f_code.co_name in ("mkdir", "makedirs")


def as_mistake(error: Exception) -> UserError | None:
    """Return what the user can mend as a UserError, or None where the exception is a bug of molgcn."""
    if isinstance(error, UserError):
        return error
    if isinstance(error, HydraException):
        return misfit(error)
    if isinstance(error, YAMLError):
        return UserError(f"A file of the configuration is not YAML: {' '.join(str(error).split())}. Correct it, or leave its preset out.")
    if isinstance(error, OmegaConfBaseException):
        return UserError(f"The configuration cannot be read: {' '.join(str(error).split())}")
    if isinstance(error, MemoryError) or (isinstance(error, RuntimeError) and _MEMORY_FULL.search(str(error))):
        said = ". ".join(" ".join(str(error).split()).split(". ")[:3]).rstrip(".")
        return UserError(
            f"Memory is full: {said}. Lower the batch size (dataset.batch_size= in training, batch_size= "
            "elsewhere), model.hidden_channels= or model.num_layers=, or free memory that other processes hold."
        )
    if is_killed_job(error):
        return UserError(
            "A job of the sweep was killed, as the system does when memory is full, and with launcher=joblib that ends those beside it. "
            "Start again those without a result, with fewer at once (hydra.launcher.n_jobs=) or smaller ones."
        )
    if type(error).__name__ == "FailedJobError" and (refused := re.search("sbatch: (?:error: )?(.*)", str(error))):
        return UserError(
            f"SLURM refused the jobs of the sweep: {refused[1].rstrip('.')}. Change what a job asks for with "
            "hydra.launcher.gpus_per_node=, hydra.launcher.cpus_per_task=, hydra.launcher.timeout_min= or "
            "hydra.launcher.partition=; null leaves it to the cluster."
        )
    if isinstance(error, ValueError) and isinstance(error.__cause__, OSError):  # logging cannot open its file
        error = error.__cause__
    if isinstance(error, RuntimeError) and "home directory" in str(error):  # pathlib raises it
        return UserError("A path begins with ~ and the name of a user who is not known here. Give it in full, or as ./~name for a folder.")
    if isinstance(error, OSError) and (error.errno in _UNWRITABLE or _refuses_folders(error)):
        place = f" at {error.filename}" if error.filename else ""
        lost = error.filename and os.path.islink(error.filename) and not os.path.exists(error.filename)
        reason = "it links to a folder that is not there" if lost else error.strerror or error
        choose = "Free disk space, or choose" if error.errno in _FULL else "Choose"
        return UserError(
            f"Writing failed{place}: {reason}. {choose} a folder that can be written with hydra.run.dir= (runs) or dataset.cache_dir= "
            "(packed molecules). What was written before is intact."
        )
    return None
