"""The choice of the kernels that compute a call of `molgcn::layer_network` on CUDA: one table of rules, as they were measured."""

from __future__ import annotations

from collections.abc import Callable

import torch

from molgcn.cuda_runtime.launch import gpu
from molgcn.errors import UserError
from molgcn.ops import gcn_chain_cuda
from molgcn.ops.gcn_layers_plan import molecule_blocks
from molgcn.ops.gcn_network import GcnCall
from molgcn.ops.gcn_tile_arguments import MAX_LAYERS
from molgcn.ops.gcn_tile_plan import TILE_MAX_WIDTH
from molgcn.ops.layer_network.call import LayerNetworkCall
from molgcn.ops.layer_network.tiles_plan import pays

# Up to this many features `tile` is faster than a launch for each step on an H100 (docs/decisions/cuda_speed.md). Results are the same with
# both, so that another GPU may take the slower one near this width; backend.strategy chooses.
MAX_AUTOMATIC = 96


def automatic(norm: str | None, hidden_channels: int, num_layers: int) -> str:
    """Return "tile" if it can run graph convolutions in float32, with this norm in training, and is faster; otherwise "layer"."""
    return "tile" if norm != "batch" and hidden_channels <= MAX_AUTOMATIC and num_layers <= MAX_LAYERS else "layer"


def _tile(gcn: GcnCall) -> bool:
    """All layers of graph convolutions, the pooling, head and loss in one launch each way: docs/decisions/cuda_operator.md."""
    it = gcn.network
    if gcn.options.strategy == "auto":
        fits = gcn.graph.x.dtype == torch.float32 and not gcn.options.recompute
        return fits and automatic("batch" if gcn.batch_statistics else None, it.hidden_channels, it.num_layers) == "tile"
    if gcn.options.strategy == "tile":
        _check_tile(gcn)
    return gcn.options.strategy == "tile"


def _chain(gcn: GcnCall) -> bool:
    """One launch for graph convolutions with batch norm, where all blocks of a small batch run at once: docs/decisions/cuda_chain.md."""
    return _takes_layers(gcn) and gcn_chain_cuda.find(gcn) is not None


def _molecules(gcn: GcnCall) -> bool:
    """97 to 256 features of graph convolutions on chip, in large batches: docs/decisions/cuda_wide_molecules.md."""
    return _takes_layers(gcn) and molecule_blocks(gcn, gpu(gcn.graph.x.device)) is not None


def _takes_layers(gcn: GcnCall) -> bool:
    return gcn.graph.x.dtype == torch.float32 and gcn.graph.num_graphs > 0 and not gcn.options.recompute


RULES_OF_GCN: tuple[tuple[str, Callable[[GcnCall], bool]], ...] = (("tile", _tile), ("chain", _chain), ("molecules", _molecules))
"""Kernels made for graph convolutions. The first whose rule holds is the fastest (docs/decisions/cuda_engines.md)."""
RULES: tuple[tuple[str, Callable[[LayerNetworkCall], bool]], ...] = (("tiles", pays), ("rows", lambda call: True))
"""Kernels for every program, in this order: several steps on a tile of molecules, or a launch for each step and its neighbours."""


def engine_of(call: LayerNetworkCall) -> str:
    """Return the name of the kernels that compute a call, in :data:`RULES_OF_GCN` or :data:`RULES`.

    Raises:
        UserError: If the strategy of the call cannot compute it, or its kernels do not take merged leaves.
    """
    gcn = GcnCall.of(call)
    if gcn is None and call.options.strategy == "tile":
        raise UserError("backend.strategy=tile is for graph convolutions with relu and without feed-forward blocks. Use auto.")
    engine = None if gcn is None else next((name for name, holds in RULES_OF_GCN if holds(gcn)), None)
    if call.graph.leaves_merged and engine != "tile":
        raise UserError(
            "These kernels do not take merged leaves, rows that stand for several atoms; those of backend.strategy=tile do. Give a batch "
            "whose leaves are not merged."
        )
    return engine or next(name for name, holds in RULES if holds(call))


def _check_tile(gcn: GcnCall) -> None:
    it, dtype = gcn.network, gcn.graph.x.dtype
    if dtype != torch.float32:
        raise UserError(f"backend.strategy=tile computes in float32, not {dtype}. Convert model and batch, or use auto.")
    for name, value, most in (("hidden_channels", it.hidden_channels, TILE_MAX_WIDTH), ("num_layers", it.num_layers, MAX_LAYERS)):
        if value > most:
            raise UserError(f"model.{name}={value} is too much for backend.strategy=tile, which has at most {most}. Use auto.")
    if gcn.batch_statistics:
        raise UserError("backend.strategy=tile cannot train model.norm=batch, which couples all molecules. Use auto or layer.")
    if gcn.options.recompute:
        raise UserError("backend.strategy=tile computes nothing again in backward. Use backend.recompute=false, or auto.")
