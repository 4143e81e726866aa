"""Read Chemprop's files without Chemprop: of the objects in them, only names and plain values are kept, and nothing is imported."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.serialization import get_unsafe_globals_in_checkpoint, safe_globals

from molgcn.errors import UserError, shown
from molgcn.training.checkpoint_file import damage

PACKAGES = ("chemprop", "torch", "torchmetrics", "lightning", "lightning_fabric", "pytorch_lightning", "numpy")
_DICTS = ("lightning.fabric.utilities.data.AttributeDict", "lightning_fabric.utilities.data.AttributeDict")


class Record:
    """Stands for an object in a file. Its class was neither imported nor called."""

    name: ClassVar[str]  # the full name of the object's class, such as "chemprop.nn.agg.MeanAggregation"
    arguments: tuple[Any, ...] = ()  # what the class would have been called with
    state: Any = None  # the object's attributes

    def __init__(self, *arguments: Any) -> None:
        self.arguments = arguments

    def __setstate__(self, state: Any) -> None:
        self.state = state


@dataclass(frozen=True)
class ChempropFile:
    """A file of Chemprop: a whole model, or its message passing alone."""

    path: Path  # the file
    parameters: Mapping[str, Any]  # the arguments of the model's parts, in which classes are subclasses of `Record`
    weights: Mapping[str, Tensor]  # the tensors by name
    columns: list[str] | None  # the names of the targets, or None where the file does not say

    def refused(self, reason: str) -> UserError:
        """Return the error that the file cannot be converted for a reason."""
        return UserError(f"{self.path} cannot be converted: {reason}")


def read_chemprop(path: Path) -> ChempropFile:
    """Read a model (model.pt, best.pt), a checkpoint of its training (.ckpt) or message passing alone of Chemprop 2.

    Raises:
        UserError: If it is another or a damaged file, or names code that no model of Chemprop consists of.
    """
    if not path.is_file():
        raise UserError(f"There is no file chemprop={path}. Expected a model of Chemprop 2, such as model_0/best.pt.")
    with open(path, "rb") as file:
        reason, content = damage(file), None
        if reason is None:
            try:
                named = get_unsafe_globals_in_checkpoint(file)
                foreign = next((name for name in named if name.partition(".")[0] not in PACKAGES), None)
                if foreign is None:
                    file.seek(0)
                    with safe_globals([_stand_in(name) for name in named]):
                        content = torch.load(file, map_location="cpu", weights_only=True)
                else:
                    reason = f"it names {shown(foreign)[:100]}, which no model consists of. Nothing was run; the file may be malicious"
            except Exception as error:  # torch's restricted unpickler raises all kinds
                reason = f"it holds what cannot be read ({' '.join(str(error).split())[:100]})"
    if reason is not None:
        raise UserError(f"{path} is not a readable model of Chemprop: {reason}. Get the file anew, from those who made it.")
    return _checked(content, path)


def _stand_in(name: str) -> tuple[type, str]:
    """Return what is taken for a class or function, with its name, as `safe_globals` wants them."""
    return (dict, name) if name in _DICTS else (type(name.rpartition(".")[2], (Record,), {"name": name}), name)


def _checked(content: Any, path: Path) -> ChempropFile:
    expected = "Expected a model of Chemprop 2, as `chemprop train` and chemprop.models.save_model write it, or its message passing"
    if isinstance(content, dict) and "state_dict" in content and "args" in content:
        raise UserError(f"{path} is a model of Chemprop 1. Turn it into one of Chemprop 2 with `chemprop convert` first.")
    parameters, weights = (content.get(key) if isinstance(content, dict) else None for key in ("hyper_parameters", "state_dict"))
    if not isinstance(parameters, dict) or not isinstance(weights, dict) or not all(isinstance(one, Tensor) for one in weights.values()):
        raise UserError(f"{path} is not a model of Chemprop: it has no hyper_parameters or no state_dict. {expected}.")
    columns = content.get("output_columns")
    named = isinstance(columns, list | tuple) and all(isinstance(one, str) for one in columns)
    return ChempropFile(path, parameters, weights, list(columns) if named else None)
