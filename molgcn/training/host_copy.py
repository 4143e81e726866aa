"""A copy of a checkpoint in the host's memory, made in little time while training waits."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

_PLAIN = frozenset({str, int, float, bool, type(None)})


class _Place(NamedTuple):
    """What stands in the place of a tensor: its number among all of the checkpoint."""

    number: int


class HostCopy:
    """The same nested dicts, lists and tuples as a checkpoint, with its tensors in the host's memory.

    The tensors are read on the current stream: after the work that is enqueued there, and before later work, such as replayed graphs,
    overwrites them. They are copied when this returns, with one transfer for each device and dtype.

    Args:
        checkpoint: nested dicts, lists and tuples of tensors and plain values.
    """

    def __init__(self, checkpoint: dict[str, Any]) -> None:
        tensors: list[Tensor] = []

        def place(tensor: Tensor) -> _Place:
            tensors.append(tensor)
            return _Place(len(tensors) - 1)

        self._values = _mapped(checkpoint, Tensor, place)
        self._shapes = [tensor.shape for tensor in tensors]
        alike: dict[tuple[torch.device, torch.dtype], list[int]] = {}
        for number, tensor in enumerate(tensors):
            alike.setdefault((tensor.device, tensor.dtype), []).append(number)
        with torch.no_grad():
            self._together = [(numbers, _in_one_piece([tensors[number] for number in numbers])) for numbers in alike.values()]
        for device, _ in alike:
            if device.type == "cuda":
                torch.cuda.current_stream(device).synchronize()

    def checkpoint(self) -> dict[str, Any]:
        """Return the checkpoint. Each tensor has a storage of its own: a view would be saved with the whole storage that it shares."""
        found: dict[int, Tensor] = {}
        for numbers, together in self._together:
            parts = together.split([self._shapes[number].numel() for number in numbers])
            found |= {number: part.clone().view(self._shapes[number]) for number, part in zip(numbers, parts, strict=True)}
        return _mapped(self._values, _Place, lambda place: found[place.number])


def _in_one_piece(tensors: list[Tensor]) -> Tensor:
    """Return the elements of tensors in the host's memory; the copy from a GPU is complete when its stream is."""
    together = torch._C._nn.flatten_dense_tensors(tensors)
    if together.device.type != "cuda":
        return together.clone() if len(tensors) == 1 else together  # a single one is not copied
    return torch.empty(together.shape, dtype=together.dtype, pin_memory=True).copy_(together, non_blocking=True)


def _mapped(value: Any, kind: type, change: Callable[[Any], Any]) -> Any:
    """Return the same nested dicts, lists and tuples with everything of a kind changed."""
    if isinstance(value, kind):
        return change(value)
    if isinstance(value, dict):
        items = {key: item if type(item) in _PLAIN else _mapped(item, kind, change) for key, item in value.items()}
        if type(value) is dict:
            return items
        changed = copy.copy(value)  # keeps the attributes of a module's state dict
        changed.update(items)
        return changed
    if isinstance(value, (list, tuple)):
        return type(value)([item if type(item) in _PLAIN else _mapped(item, kind, change) for item in value])
    return value
