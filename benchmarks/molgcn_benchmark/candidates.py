"""The candidates of the comparison: this project's operator, and PyTorch Geometric as written, with hoisted normalisation and compiled."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from molgcn.config.training import TrainingConfig
from molgcn.data import GraphBatch
from molgcn.nn import GCN
from molgcn.ops.gcn_tile_plan import limit_shared_memory
from molgcn.ops.read_again import capturing_both_ways
from molgcn.tasks.losses import MaskedLoss

CANDIDATES = ("fused", "fused_captured", "fused_99kb", "pyg", "pyg_hoisted", "pyg_compiled")
CAPTURED = ("fused_captured", "fused_99kb")  # need a GPU
Model = Callable[[Any], Tensor]


@dataclass(frozen=True)
class Candidate:
    """One way to compute a model.

    Attributes:
        name: one of :data:`CANDIDATES`.
        module: the module that holds the weights.
        convert: function that turns a GraphBatch into the model's input.
        model: the module, or its compiled form, which is called with the input.
        loss: function that returns the mean squared error for an input and targets [B, 1].
    """

    name: str
    module: nn.Module
    convert: Callable[[GraphBatch], Any]
    model: Model
    loss: Callable[[Any, Tensor], Tensor]

    def prepare(self, call: Callable[[], object]) -> Callable[[], object]:
        """Return the call as it is timed, which replays a CUDA graph if the candidate is in :data:`CAPTURED`.

        "fused_99kb" is planned for a GPU with 99 KiB of shared memory.
        """
        if self.name in CAPTURED:
            with limit_shared_memory(99 * 1024) if self.name == "fused_99kb" else nullcontext():
                return capture(call)
        return self._marked(call) if self.name == "pyg_compiled" else call

    def _marked(self, call: Callable[[], object]) -> Callable[[], object]:
        def step() -> object:
            torch.compiler.cudagraph_mark_step_begin()  # the last call's results are no longer needed
            return call()

        return step


class HoistedGCN(nn.Module):
    """PyG's layers on a normalised adjacency that is computed once, before the clock starts."""

    def __init__(self, model: GCN) -> None:
        super().__init__()
        from torch_geometric.nn import global_add_pool, global_max_pool, global_mean_pool

        self.model = model.on_backend("pyg")
        for conv in self.model.convs:
            conv.normalize = False  # type: ignore[assignment]
        self.pool = {"mean": global_mean_pool, "sum": global_add_pool, "max": global_max_pool}[model.pool]

    def forward(self, batch: Any) -> Tensor:
        """Return the predictions [B, T] for a batch of :func:`hoisted`, which has `edge_weight` and edges with self-loops."""
        h = batch["x"] if self.model.embed is None else self.model.embed(batch["x"])
        for index, conv in enumerate(self.model.convs):
            norm, activated, residual = self.model.layer_options(index)
            out = conv(h, batch["edge_index"], batch["edge_weight"])
            out = out if norm is None else norm(out)
            out = F.dropout(F.relu(out), self.model.dropout, self.training) if activated else out
            h = out + h if residual else out
        return self.model.head(self.pool(h, batch["batch"], batch["targets"].shape[0]))


def build(name: str, model: GCN, device: torch.device) -> Candidate:
    """Return a candidate with the weights of `model` on a device."""
    if name.startswith("fused"):
        copy = model.on_backend("fused").to(device)
        return Candidate(name, copy, _same, copy, fused_loss(copy) if device.type == "cuda" else _plain_loss(copy))
    if name == "pyg":
        copy = model.on_backend("pyg").to(device)
        return Candidate(name, copy, GraphBatch.to_pyg, copy, _plain_loss(copy))
    module, convert = HoistedGCN(model).to(device), partial(hoisted, add_self_loops=model.add_self_loops)
    if name == "pyg_hoisted":
        return Candidate(name, module, convert, module, _plain_loss(module))
    mode = "reduce-overhead" if device.type == "cuda" else "default"
    compiled = torch.compile(module, dynamic=False, mode=mode)
    return Candidate(name, module, convert, compiled, _plain_loss(compiled))


def fused_loss(model: GCN) -> Callable[[GraphBatch, Tensor], Tensor]:
    """Return the function that computes the mean squared error of a fused model on a GPU as training does."""
    loss, device = MaskedLoss(TrainingConfig(loss="mse"), fused=True), next(model.parameters()).device
    mean, std = torch.zeros(model.out_channels, device=device), torch.ones(model.out_channels, device=device)
    return lambda batch, targets: model.loss(batch, loss.objective(targets, mean, std))[0]


def _plain_loss(model: Model) -> Callable[[Any, Tensor], Tensor]:
    return lambda inputs, targets: F.mse_loss(model(inputs), targets)


def capture(call: Callable[[], object]) -> Callable[[], object]:
    """Return the replay of a CUDA graph of one call, recorded after calls that did all work of a first use."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            call()
    torch.cuda.current_stream().wait_stream(stream)
    torch._C._cuda_clearCublasWorkspaces()  # the graph gets its own workspace: torch.compile frees the shared ones
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream), capturing_both_ways():
        call()
    return partial(_replay, graph, call)


def _replay(graph: torch.cuda.CUDAGraph, kept: object) -> None:
    """Replay a graph. `kept` is the recorded call, which keeps alive what the graph writes to, such as an optimiser's state."""
    graph.replay()


def hoisted(batch: GraphBatch, add_self_loops: bool = True) -> dict[str, Tensor]:
    """Return the input of :class:`HoistedGCN`: the batch with its normalised edges."""
    from torch_geometric.nn.conv.gcn_conv import gcn_norm

    edge_index, edge_weight = gcn_norm(batch.edge_index, None, batch.num_nodes, add_self_loops=add_self_loops, dtype=batch.x.dtype)
    return {"x": batch.x, "edge_index": edge_index, "edge_weight": edge_weight, "batch": batch.batch, "targets": batch.targets}


def _same(batch: GraphBatch) -> GraphBatch:
    return batch
