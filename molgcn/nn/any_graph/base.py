"""The base of the fused layers for any graph, which decides what is left to PyG's own path, and why."""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch_geometric import EdgeIndex
from torch_geometric.nn import MessagePassing
from torch_geometric.nn.dense.linear import Linear

from molgcn.nn.hooks import has_hooks
from molgcn.ops import HAS_CPU_EXTENSION
from molgcn.ops.transforms import transformed

DTYPES = (torch.float32, torch.float64)
_AUTOCAST = (torch.bfloat16, torch.float16)
_STEPS = ("propagate", "message", "aggregate", "message_and_aggregate", "edge_update")
_HOOKS = tuple(f"_{step}_forward{kind}_hooks" for step in _STEPS for kind in ("", "_pre"))
_METHODS = ("message", "message_and_aggregate", "aggregate", "update", "edge_update")


class AnyGraphConv(MessagePassing, ABC):
    """Base of the fused layers; a layer is a subclass of this and of PyG's layer, in this order.

    Attributes:
        original: PyG's layer.
        aggregations: the aggregations that the layer accelerates.
        merged: names of attributes that hold linear maps without bias. The layer reads their weights and does not call their `forward`.
        smallest: constructor arguments of the smallest possible layer.
    """

    original: ClassVar[type[MessagePassing]] = MessagePassing
    aggregations: ClassVar[tuple[str, ...]] = ("add", "sum")
    merged: ClassVar[tuple[str, ...]] = ()
    smallest: ClassVar[tuple[Any, ...]] = (1, 1)
    _overridden: ClassVar[str | None] = None
    # PyG keeps the `propagate` that a class has at its first use as the general one. An inherited one may by then be the form that PyG
    # specialised for its own layer, which ignores an explanation's mask.
    propagate = MessagePassing.propagate
    edge_updater = MessagePassing.edge_updater

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        own = [name for name in ("propagate", "edge_updater") if name in vars(cls)]
        for name in ("propagate", "edge_updater"):
            if name not in own:
                setattr(cls, name, getattr(MessagePassing, name))
        own += [name for name in _METHODS if getattr(cls, name) is not getattr(cls.original, name)]
        cls._overridden = own[0] if own else cls._overridden

    def why_not(self, *args: Any, **kwargs: Any) -> str | None:
        """Return why a call with these arguments takes PyG's own path; None where it is accelerated."""
        return self._why_not_layer() or self._why_not_inputs(*args, **kwargs)

    def _why_not_layer(self) -> str | None:
        """Return what in the layer itself, such as a hook, has to see or change the steps of PyG's path; None if nothing does."""
        if self._overridden is not None:
            return f"a subclass has a {self._overridden}() of its own"
        if self.aggr not in self.aggregations:
            return f"aggregation {self.aggr!r} has no kernel here"
        if self.node_dim not in (-2, 0):
            return f"node_dim is {self.node_dim}"
        if self.decomposed_layers != 1:
            return f"decomposed_layers is {self.decomposed_layers}"
        if self._explain:
            return "an explanation looks into the messages"
        if any(map(vars(self).get, _HOOKS)):
            return "a hook looks into the messages"
        for name in self.merged:
            linear = self._modules.get(name)
            if linear is not None and (reason := _why_not_linear(name, linear)):
                return reason
        return None

    @abstractmethod
    def _why_not_inputs(self, *args: Any, **kwargs: Any) -> str | None:
        """Return why kernels do not take the inputs of a call; None where they do. Every layer says this for its own inputs."""

    def __repr__(self) -> str:
        return super().__repr__().replace(self.__class__.__name__, self.original.__name__, 1)

    def __prepare_scriptable__(self) -> MessagePassing:
        scriptable = self.original(*self.smallest)  # the constructor makes the methods that TorchScript compiles
        vars(scriptable).update(copy.copy(vars(self)))
        return scriptable


def why_not_graph(x: Any, edge_index: Any) -> str | None:
    """Return why kernels do not take these edges, and node features [N, F] or a pair for sources and targets; None where they do."""
    if not isinstance(edge_index, Tensor) or edge_index.layout != torch.strided:
        return "edge_index is a sparse matrix"
    if isinstance(edge_index, EdgeIndex):
        return "edge_index is an EdgeIndex"
    if edge_index.dim() != 2 or edge_index.shape[0] != 2 or edge_index.dtype != torch.int64:
        return "edge_index is not int64 [2, E]"
    device = edge_index.device
    if device.type == "cpu" and not HAS_CPU_EXTENSION:
        return "molgcn has no C++ extension for this machine"
    if device.type not in ("cpu", "cuda"):
        return f"there are no kernels for {device.type}"
    if transformed():
        return "torch.func and forward-mode derivatives go through PyTorch's own operations"
    for rows in x if isinstance(x, (tuple, list)) else (x,):
        if not isinstance(rows, Tensor):
            return "x has no features of the targets"
        if reason := why_not_rows("x", rows, device):
            return reason
    return None


def why_not_rows(name: str, rows: Tensor, device: torch.device) -> str | None:
    """Return why kernels do not take a dense matrix, which must be on a device; None where they do."""
    if rows.dim() != 2 or rows.layout != torch.strided:
        return f"{name} is not a dense matrix"
    if rows.device != device:
        return f"{name} is on {rows.device}, and edge_index on {device}"
    if rows.dtype not in DTYPES and not (rows.dtype in _AUTOCAST and torch.is_autocast_enabled(device.type)):
        return f"{name} is {rows.dtype}" + " outside autocast" * (rows.dtype in _AUTOCAST)
    return None


def wide(rows: Tensor) -> Tensor:
    """Return rows in a dtype that kernels take: float32 in place of the 16-bit dtypes of autocast."""
    return rows.float() if rows.dtype in _AUTOCAST else rows


def _why_not_linear(name: str, linear: Any) -> str | None:
    if type(linear) is not Linear:
        return f"{name} is a {type(linear).__name__}"
    if has_hooks(linear):  # also a width that the first input decides
        return f"{name} has hooks, or no width yet"
    if linear.bias is not None:
        return f"{name} has a bias"
    return None
