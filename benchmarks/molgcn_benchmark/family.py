"""Compare training steps of networks with the different layers on the fused backend with PyG's, as written and compiled."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from molgcn.config.run import ModelConfig
from molgcn.data import GraphBatch, PackedMolecules
from molgcn.errors import UserError
from molgcn.nn import MoleculeNet
from molgcn.nn.registry import get_kind
from molgcn.ops.head_loss import Objective
from molgcn.training.clipped_adam import ClippedAdam
from molgcn_benchmark.batches import random_batch
from molgcn_benchmark.candidates import capture
from molgcn_benchmark.measure import count_kernels, interleaved, medians
from molgcn_benchmark.memory import captured_mb, peak_mb
from molgcn_benchmark.results import Row, Table

PLUS = {"residual": True, "feed_forward": True, "feed_forward_norm": "batch", "pool": "sum", "head_layers": 2}
BATCH, LAYER = {"norm": "batch", "residual": True}, {"norm": "layer", "residual": True}
NETWORKS: dict[str, tuple[str, int, int, dict[str, Any]]] = {
    "GIN+ 12 x 80": ("gine", 12, 80, PLUS),
    "GCN+ 12 x 64": ("gcn_edge", 12, 64, {**PLUS, "norm": "batch"}),
    "GINE 12 x 64": ("gine", 12, 64, BATCH),
    "GIN 16 x 124": ("gin", 16, 124, BATCH),
    "SAGE 16 x 100": ("sage", 16, 100, BATCH),
    "GINE 5 x 300": ("gine", 5, 300, BATCH),
    "GAT 16 x (8 x 22)": ("gat", 16, 176, {**BATCH, "heads": 8}),
    "GATv2 5 x (8 x 16), bonds": ("gatv2", 5, 128, {**BATCH, "heads": 8, "bonds": True}),
    "GatedGCN+ 9 x 70": ("gated_gcn", 9, 70, {**PLUS, "norm": "batch"}),
    "GatedGCN 16 x 78": ("gated_gcn", 16, 78, BATCH),
    "D-MPNN 3 x 300": ("dmpnn", 3, 300, {"bonds": True}),
    "GCN 28 x 32": ("gcn", 28, 32, {}),
    "GCN 12 x 128": ("gcn", 12, 128, {}),
    "GCN 6 x 256": ("gcn", 6, 256, {}),
    **{f"{conv} 12 x 64, layer norm": (conv, 12, 64, LAYER) for conv in ("gin", "gine", "gcn_edge", "sage")},
}
"""The networks by name: layer, number of layers, width and other options, with `bonds` where a layer that need not see them does. Atoms and
bonds are embedded; there are no encodings."""

KEY = ("network", "device", "work", "batch_size", "precision")
WORKS = ("forward", "forward_backward", "step")
CANDIDATES = ("fused", "fused_captured", "fused_recomputed", "pyg", "pyg_compiled")
CAPTURED = ("fused_captured", "fused_recomputed")  # replays of a CUDA graph, which need a GPU; the second with backend.recompute
_BOUNDS = {"highest": 1e-4, "high": 5e-2}  # largest relative L2 error of outputs in evaluation against float64


def network(name: str, molecules: PackedMolecules, depth: int | None = None) -> MoleculeNet:
    """Return a network on backend=pyg, drawn with a fixed seed.

    Args:
        name: one of :data:`NETWORKS`.
        molecules: the set that determines the numbers of features.
        depth: number of layers in place of the network's own.
    """
    conv, num_layers, width, options = NETWORKS[name]
    sees_bonds = options.get("bonds", get_kind(conv).bonds == "always")
    bonds = molecules.num_edge_features if sees_bonds else None
    torch.manual_seed(0)
    return MoleculeNet(
        molecules.num_features,
        width,
        depth or num_layers,
        1,
        conv=conv,
        edge_channels=bonds,
        embed=True,
        embed_bonds=bonds is not None,
        backend="pyg",
        **{option: value for option, value in options.items() if option != "bonds"},
    )


def measure(
    molecules: PackedMolecules, keys: list[Row], candidates: tuple[str, ...], repeats: int, table: Table, *, check: bool = True
) -> Iterator[Row]:
    """Measure the rows that `table` lacks or has without all times and memories, add each to it and yield it.

    Args:
        molecules: the set, from which the batches are drawn.
        keys: columns :data:`KEY` of each row.
        candidates: names in :data:`CANDIDATES`; PyG's candidates get PyG's own batch.
        repeats: number of timed calls of each candidate, in turn.
        table: table with the key columns :data:`KEY`.
        check: whether predictions are first compared with those in float64.

    Raises:
        UserError: for a candidate whose predictions are wrong.
    """
    before = torch.get_float32_matmul_precision()
    for key in keys:
        found = table.find(**key)
        if found is not None and all(found.get(name) is not None for name in _columns(candidates, key["device"])):
            continue
        torch.set_float32_matmul_precision(key["precision"])
        try:
            yield table.add({**key, **_measure_row(molecules, key, candidates, repeats, check)})
        finally:
            torch.set_float32_matmul_precision(before)
            torch.compiler.reset()
            gc.collect()


def _columns(candidates: tuple[str, ...], device: str) -> list[str]:
    """Return the names of a row's times and memories."""
    return [*(f"{name}_us" for name in candidates), *(_memories(candidates) if device == "cuda" else ())]


def _memories(candidates: tuple[str, ...]) -> Mapping[str, tuple[str, Callable[[Callable[[], object]], float]]]:
    """Return the candidate of each column of memory, and how it is measured: plain calls of both sides, and what CUDA graphs keep."""
    plain = {"fused_mb": ("fused", "fused_captured"), "pyg_mb": ("pyg",)}
    found = {column: (name, peak_mb) for column, names in plain.items() for name in names if name in candidates}
    return found | {f"{name}_mb": (name, captured_mb) for name in CAPTURED if name in candidates}


def _measure_row(molecules: PackedMolecules, key: Row, candidates: tuple[str, ...], repeats: int, check: bool) -> Row:
    device, model = torch.device(key["device"]), network(key["network"], molecules)
    batch = _batch(key["network"], molecules, key["batch_size"], device)
    made = {name: _Candidate(name, model, batch) for name in candidates}
    if check:
        _check(made, model, batch, _BOUNDS[key["precision"]])
    calls = {name: one.prepared(key["work"]) for name, one in made.items()}
    row: Row = {f"{name}_us": round(1000 * time, 1) for name, time in medians(interleaved(calls, device, repeats)).items()}
    if device.type == "cuda":
        row |= {f"{name}_launches": count_kernels(call, device) for name, call in calls.items()}
        calls.clear()  # and their graphs' memory
        for column, (name, measured) in _memories(candidates).items():
            call = made[name].call(key["work"])
            call()  # makes what later calls find, such as the optimiser's state
            made[name].model.zero_grad()
            row[column] = round(measured(call), 1)
    return row


def fused_step(molecules: PackedMolecules, name: str, depth: int, batch_size: int, device: torch.device) -> Callable[[], object]:
    """Return a function that does one training step of a network on the fused backend: forward, backward and AdamW.

    Args:
        molecules: the set, from which the batch is drawn.
        name: one of :data:`NETWORKS`.
        depth: number of layers in place of the network's own.
        batch_size: number of molecules.
        device: device that computes.
    """
    return _Candidate("fused", network(name, molecules, depth), _batch(name, molecules, batch_size, device)).call("step")


def _batch(name: str, molecules: PackedMolecules, batch_size: int, device: torch.device) -> GraphBatch:
    """Return a random batch in the tiles that the training loader makes for the network."""
    conv, num_layers, width, options = NETWORKS[name]
    options = {"norm": None, "residual": False, **options}  # what MoleculeNet does without them
    model = ModelConfig(name=conv, num_layers=num_layers, hidden_channels=width, **options)
    batch = random_batch(molecules, batch_size, device, model)
    batch.targets = torch.zeros(batch.num_graphs, 1, device=device)
    return batch


class _Candidate:
    """One way to compute a network, together with its batch."""

    def __init__(self, name: str, model: MoleculeNet, batch: GraphBatch) -> None:
        self.name = name
        self.model = model.on_backend("fused" if name.startswith("fused") else "pyg", recompute=name == "fused_recomputed")
        self.model.to(batch.x.device)
        self.batch: Any = batch if name.startswith("fused") else batch.to_pyg()
        mode = "reduce-overhead" if batch.x.is_cuda else "default"
        self.compiled: Callable[..., Tensor] = torch.compile(self.model, dynamic=False, mode=mode) if name == "pyg_compiled" else self.model
        one, none = batch.targets.new_ones(1), batch.targets.new_zeros(1)
        self._objective = Objective(batch.targets, none, one, "mse", 1.0)
        self._one = one.new_ones(())  # made once, as in training, which saves every candidate a kernel

    def loss(self) -> Tensor:
        """Return the mean squared error."""
        if self.name.startswith("fused"):
            return self.model.loss(self.batch, self._objective)[0]
        return nn.functional.mse_loss(self.compiled(self.batch), self._objective.target)

    def call(self, work: str) -> Callable[[], object]:
        """Return a function that does the work once."""
        self.model.train(work != "forward")
        if work == "forward":
            return torch.no_grad()(lambda: self.compiled(self.batch))

        def both() -> None:
            self.model.zero_grad()
            self.loss().backward(self._one)

        if work == "forward_backward":
            return both
        # a learning rate of zero leaves the weights as they are and does the same work
        on_gpu = self._objective.target.is_cuda
        optimizer: torch.optim.Optimizer
        if on_gpu and self.name.startswith("fused"):
            optimizer = ClippedAdam(self.model.parameters(), None, decoupled_weight_decay=True, lr=0.0, weight_decay=0.01)
        else:
            optimizer = torch.optim.AdamW(self.model.parameters(), lr=0.0, fused=True, capturable=on_gpu)

        def step() -> None:
            both()
            optimizer.step()

        return step

    def prepared(self, work: str) -> Callable[[], object]:
        """Return the function that is timed, which may replay a CUDA graph of the work."""
        call = self.call(work)
        if self.name in CAPTURED:
            return capture(call)
        if self.name != "pyg_compiled":
            return call

        def marked() -> object:
            torch.compiler.cudagraph_mark_step_begin()  # the last call's results are no longer needed
            return call()

        return marked


def _check(made: dict[str, _Candidate], model: MoleculeNet, batch: GraphBatch, bound: float) -> None:
    double, inputs = model.on_backend("pyg").double().to(batch.x.device).eval(), batch.to_pyg()
    inputs.x = inputs.x.double()
    with torch.no_grad():
        right = double(inputs)
        for name, one in made.items():
            error = ((one.model.eval()(one.batch).double() - right).norm() / right.norm()).item()
            if not error < bound:
                raise UserError(f"{name}: predictions are off by {error:.1e}, relative to float64; expected less than {bound:.0e}.")


def sheet(rows: list[Row]) -> list[str]:
    """Return a Markdown table of the rows: microseconds, launches, speed-up over PyG, and memory beyond the batch.

    MB is the peak of plain calls, as PyG's. "MB captured" and "MB recomputed" are what CUDA graphs keep for themselves.
    """
    cells = [_cells(row) for row in rows]
    titles = [title for title in cells[0] if any(row[title] for row in cells)] if cells else []
    lines = [
        f"| {' | '.join(titles)} |",
        f"|{'|'.join('---' if title in ('network', 'work', 'precision') else '---:' for title in titles)}|",
    ]
    return lines + [f"| {' | '.join(row[title] for title in titles)} |" for row in cells]


def _cells(row: Row) -> dict[str, str]:
    us = {name: row.get(f"{name}_us") for name in CANDIDATES}
    mb = {name: row.get(f"{name}_mb") for name in ("fused", *CAPTURED, "pyg")}
    ours = min((time for name in ("fused", "fused_captured") if (time := us[name])), default=None)
    return {
        "network": row["network"],
        "B": f"{row['batch_size']:,}",
        "work": row["work"].replace("_", " and "),
        "precision": row["precision"],
        "PyG, us": _number(us["pyg"]),
        "compiled": _number(us["pyg_compiled"]),
        "fused": _number(us["fused"]),
        "captured": _number(us["fused_captured"]),
        "recomputed": _number(us["fused_recomputed"]),
        "launches": str(row.get("fused_captured_launches") or row.get("fused_launches") or ""),
        "times PyG": _ratio(us["pyg"], ours),
        "times compiled": _ratio(us["pyg_compiled"], ours),
        "MB": _number(mb["fused"]),
        "MB captured": _number(mb["fused_captured"]),
        "MB recomputed": _number(mb["fused_recomputed"]),
        "MB, PyG": _number(mb["pyg"]),
        "share of PyG's": _ratio(mb["fused"], mb["pyg"], 2),
        "recomputed, share": _ratio(mb["fused_recomputed"], mb["pyg"], 2),
    }


def _number(value: float | None) -> str:
    return f"{value:,.0f}" if value else ""


def _ratio(value: float | None, of: float | None, digits: int = 1) -> str:
    return f"{value / of:.{digits}f}" if value and of else ""
