"""Run every launch path of the CUDA kernels once on small batches, which compute-sanitizer can follow.

It is a program: `compute-sanitizer --tool memcheck python tests/ops/launch_paths.py [NAME...]` runs the paths whose names begin so, or all;
`1/8` before them runs the second of eight shares.
`test_launch_paths.py` checks that no kernel and no variant of one is missing. Results are checked elsewhere.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    tests = Path(__file__).parents[1]
    sys.path[:0] = [str(tests.parent), *(str(tests / name) for name in ("", "ops", "data", "nn"))]

import aggregate_cases
import attention_cases
import test_encode
import test_gine
import torch
from layer_network_cases import options_of, passes, random_call
from merged_leaves_cases import inputs_of
from stack_cases import changed, converted, layers_of, mapped, random_batch, random_inputs
from test_adam_cuda import options_of as adam_options
from test_adam_cuda import states_of

from molgcn.cuda_runtime.launch import Gpu, Launcher, launching_by
from molgcn.ops import aggregate_cuda, attention_cuda, encode_cuda, gine_cuda, head_loss_cuda
from molgcn.ops.adam_cuda import adam_step
from molgcn.ops.gcn_network import GcnCall
from molgcn.ops.gcn_tile_plan import next_fit
from molgcn.ops.head_loss import Objective
from molgcn.ops.layer_network.implementation import Kept
from molgcn.ops.layer_network.implementation_cuda import EACH
from molgcn.ops.layer_network.steps_cuda import CudaSteps
from molgcn.ops.layer_network.tiles_cuda import TileSteps
from molgcn.ops.loss_sum import add_loss
from molgcn.ops.running_statistics import copy_by_kernel

Path_ = Callable[[str], None]
FEW, MANY = [5, 9, 0, 18, 1, 30, 1, 7], [25] * 330  # sizes of molecules; a large batch has more than 8,192 atoms
TILES = [5, 9, 18, 1, 30, 7, 22, 40, 64, 3] * 2
LARGE = [5, 70, 3, 200, 1, 8, 30, 40]


class FewMultiprocessors(Launcher):
    """A launcher that plans as for a part of the GPU, so that blocks have several tiles."""

    def __init__(self, real: Launcher, count: int) -> None:
        super().__init__()
        self._real, self._count = real, count

    def gpu(self, device: torch.device) -> Gpu:
        return self._real.gpu(device)._replace(num_multiprocessors=self._count)

    def kernel(self, *args: Any, **options: Any) -> Any:
        return self._real.kernel(*args, **options)


def network(name: str, hidden: int, kernels: str, sizes: list[int], device: str, **options: Any) -> None:
    """Run both passes of one of the networks of `layer_network_cases`."""
    own = {option: options.pop(option) for option in ("recompute", "precision") if option in options}
    dtype, layers = options.pop("dtype", torch.float32), options.pop("num_layers", 2)
    call = random_call(options_of(name, hidden, num_layers=layers), sizes=sizes, dtype=dtype, device=device, **options)
    graph = call.graph.mapped(lambda tensor: tensor.to(device))
    passes(call._replace(graph=graph, options=call.options._replace(**own)), {"rows": CudaSteps, "tiles": TileSteps}[kernels])


def gcn(hidden: int, sizes: list[int], device: str, *, columns: int = 11, targets: int = 0, leaves: bool = False, **options: Any) -> None:
    """Run both passes of three graph convolutions by the schedule's kernels, with a head, and its loss in training, if it has targets."""
    if leaves:
        call: GcnCall = inputs_of([max(size, 2) for size in sizes], columns, hidden, 3, **options)[0]
    else:
        call = random_inputs(random_batch(sizes, columns, bonds_per_atom=1.2), hidden, 3, **options)
    call = converted(call, torch.float32)
    if call.graph.tile_ptr is None:
        call = changed(call, tile_ptr=next_fit(call.graph.ptr, call.graph.tile_nodes))
    if targets:
        head = torch.randn(targets, hidden), torch.randn(targets)
        objective = Objective(torch.randn(call.graph.num_graphs, targets), torch.zeros(targets), torch.ones(targets), "huber", 1.0)
        call = call._replace(head=head, objective=objective if call.options.save_for_backward else None)
    whole = layers_of(mapped(call, lambda tensor: tensor.detach().to(device)))
    with torch.no_grad():
        out, _ = EACH.forward(whole)
        if call.options.save_for_backward:
            kept, given = Kept(out.saved, (None, None), out.of_loss), torch.ones_like(out.pooled)
            whole = whole._replace(objective=None, statistics=[] if whole.batch_statistics else whole.statistics)
            EACH.backward(whole, kept, given, True, False)


def encoder(case: Mapping[str, Any], device: str) -> None:
    inputs = test_encode.example(**{"device": device, **case})
    out = encode_cuda.forward(*inputs)
    encode_cuda.backward(torch.ones_like(out.states), out.moments, *inputs)


def head(count: int, widths: tuple[int, ...], device: str) -> None:
    """Run a head of linear maps with such widths, or without maps the loss of one target."""
    weights = [torch.randn(narrow, wide, device=device) for wide, narrow in pairwise(widths)]
    x, biases = torch.randn(count, widths[0], device=device), [torch.zeros(len(weight), device=device) for weight in weights]
    target, mean, std = torch.randn(count, widths[-1], device=device), *(torch.ones(2, widths[-1], device=device))
    _, *kept = head_loss_cuda.forward(x, weights, biases, target, mean, std, "mse", 1.0)
    head_loss_cuda.backward(torch.ones((), device=device), *kept, x, weights)


def small_kernels(device: str) -> None:
    """Run Adam with clipped gradients, sums of losses and copies of statistics."""
    adam_step([(adam_options(), states_of([torch.randn(80, 40), torch.randn(7)], device))], 0.5)
    sums, finite = torch.zeros(2, dtype=torch.double, device=device), torch.zeros((), dtype=torch.int64, device=device)
    add_loss(torch.ones(2, dtype=torch.double, device=device), sums, finite)
    copy_by_kernel([torch.zeros(9, device=device) for _ in range(4)], [finite, finite.clone()], torch.ones(4, 9, device=device))


def loader(device: str) -> None:
    """Gather batches on the GPU, from the set and from pieces of it."""
    if device == "cuda":
        from test_resident import KINDS, random_set

        from molgcn.data.loader import PackedLoader

        for resident in (True, False):
            [batch.x.sum() for kind in KINDS for batch in PackedLoader(random_set(**KINDS[kind]), 7, device="cuda", resident=resident)]


def any_graph(name: str, device: str, **options: Any) -> None:
    """Run both passes of a layer on any graph, some of whose rows are long."""
    if name == "aggregate":
        inputs = aggregate_cases.random_inputs(hub=700, dtype=torch.float32, device=device, **options)
        out = aggregate_cuda.forward(*inputs)
        wanted = [True, inputs.edge_weight is not None, False]
        aggregate_cuda.backward(aggregate_cases.gradient_of(out), out if inputs.reduce == "max" else None, wanted, *inputs)
    elif name == "gine":
        of_gine = test_gine.random_inputs(columns=64, num_edges=1500, dtype=torch.float32, device=device)
        gine_cuda.backward(gine_cuda.forward(*of_gine), *of_gine)
    else:
        made = attention_cases.random_inputs(dtype=torch.float32, num_edges=1500, **options)
        gradient = attention_cases.gradient_for(made).to(device)
        made = type(made)(*(value.to(device) if isinstance(value, torch.Tensor) else value for value in made))
        out, softmax = attention_cuda.forward(*made)
        attention_cuda.backward(gradient, out, softmax, *made)


def few(path: Path_, count: int = 2) -> Path_:
    """Return a path whose kernels are planned for so many multiprocessors."""

    def run(device: str) -> None:
        from molgcn.cuda_runtime.launch import launcher

        with launching_by(FewMultiprocessors(launcher(), count)):
            path(device)

    return run


FLOAT64 = {"dtype": torch.float64}
NETWORKS: list[tuple[str, int, str, list[int], dict[str, Any]]] = [
    ("dmpnn", 12, "rows", FEW, {"precision": "bf16"}),
    ("dmpnn, biases, no bonds", 12, "rows", FEW, {**FLOAT64, "num_layers": 4}),
    ("dmpnn, undirected", 12, "rows", FEW, FLOAT64),
    ("dmpnn, undirected", 12, "rows", FEW, {"precision": "tf32", "num_layers": 3}),
    ("elu", 12, "rows", FEW, FLOAT64),
    ("every layer", 64, "rows", MANY, FLOAT64),
    ("every layer, max", 12, "rows", FEW, {}),
    ("every layer, relu", 12, "rows", FEW, FLOAT64),
    ("feed-forward", 12, "rows", FEW, {}),
    ("feed-forward, layer", 12, "tiles", FEW, {}),
    ("gat", 12, "rows", FEW, FLOAT64),
    ("gat, mean of heads", 300, "rows", MANY, {}),
    ("gatv2, shared", 300, "rows", FEW, {}),
    ("gated_gcn", 12, "rows", FEW, {}),
    ("gated_gcn", 300, "rows", FEW, {"num_layers": 3}),
    ("gated_gcn, feed-forward", 300, "rows", FEW, {}),
    ("gated_gcn, layer", 12, "rows", FEW, FLOAT64),
    ("gcn", 176, "rows", FEW, {}),
    ("gcn without loops", 12, "rows", FEW, FLOAT64),
    ("gcn without loops", 12, "tiles", FEW, {}),
    ("gcn_edge", 64, "rows", MANY, {"recompute": True}),
    ("gin, layer norm, sum", 176, "rows", FEW, {"precision": "tf32"}),
    ("gin, layer norm, sum", 12, "tiles", FEW, {"precision": "tf32"}),
    ("gine, no norm, max", 12, "rows", FEW, {}),
    ("sage", 12, "rows", FEW, FLOAT64),
    ("sage", 12, "tiles", FEW, {"precision": "bf16"}),
    ("sage, batch norm", 12, "rows", FEW, {}),
    ("sage, batch norm", 176, "rows", FEW, {}),
    ("sage, max", 12, "rows", FEW, {"recompute": True}),
    ("sage, sum", 176, "rows", MANY, {}),
    ("silu", 12, "tiles", FEW, {}),
    ("silu", 12, "tiles", FEW, {"coded": False}),
]
TILE: list[tuple[int, list[int], dict[str, Any]]] = [  # several tiles for each of two multiprocessors
    (16, TILES, {}),
    (16, LARGE, {"norm": "batch", "pool": "sum", "last_activation": True}),
    (16, TILES, {"precision": "tf32", "tile_nodes": 96}),
    (16, TILES, {"precision": "bf16", "tile_nodes": 48}),
    (16, TILES, {"dropout": 0.3, "training": True, "add_self_loops": False, "targets": 3}),
    (32, [*TILES, 90], {"tile_nodes": 96}),
    (32, TILES, {"columns": 40}),
    (32, LARGE, {"precision": "bf16", "targets": 1}),
    (32, TILES, {"targets": 2, "leaves": True}),
    (64, LARGE, {"norm": "layer", "residual": True, "pool": "sum"}),
    (64, TILES, {"precision": "bf16"}),
    (64, TILES, {"precision": "tf32", "tile_nodes": 96}),
    (96, TILES, {"save_for_backward": False, "tile_nodes": 128, "targets": 3}),
    (172, TILES, {"targets": 3, "leaves": True, "norm": "layer", "residual": True, "pool": "max"}),
]
BATCH = {"norm": "batch", "training": True}
CHAIN: list[tuple[int, dict[str, Any]]] = [
    (32, {**BATCH, "residual": True, "pool": "max", "last_activation": True}),
    (32, {**BATCH, "precision": "bf16"}),
    (64, {**BATCH, "dropout": 0.3, "pool": "sum", "add_self_loops": False}),
    (172, {**BATCH, "residual": True}),
]
MOLECULES: list[tuple[int, dict[str, Any]]] = [  # two tiles for each multiprocessor
    (128, {"precision": "bf16", "add_self_loops": False}),
    (128, {"norm": "batch", "pool": "sum"}),
    (256, {"norm": "layer", "residual": True, "pool": "max", "dropout": 0.3, "training": True, "last_activation": True}),
]
AGGREGATES: list[dict[str, Any]] = [
    {"channels": 33, "weights": 1},
    {"channels": 64, "weights": 0},
    {"channels": 24, "weights": 4, "reduce": "max"},
    {"channels": 16, "weights": 16, "reduce": "mean"},
    {"channels": 64, "weights": 0, "strategy": "neighbor_group", "group_size": 3, "deterministic": False},
    *({"channels": 24, "weights": count, "strategy": "edge", "deterministic": False} for count in (0, 1, 4)),
    {"channels": 16, "weights": 16, "reduce": "mean", "strategy": "edge", "deterministic": False},
]


def _paths() -> Iterator[tuple[str, Path_]]:
    for name, hidden, kernels, sizes, options in NETWORKS:
        path = partial(network, name, hidden, kernels, sizes, **options)
        yield f"{kernels} {name} {hidden} {options}", few(path) if kernels == "tiles" else path
    for hidden, sizes, options in TILE:
        yield f"gcn tile {hidden} {len(sizes)} {options}", few(partial(gcn, hidden, sizes, strategy="tile", **options))
    for hidden, options in CHAIN:
        yield f"gcn chain {hidden} {options}", partial(gcn, hidden, TILES, strategy="layer", **options)
    for hidden, options in MOLECULES:
        yield f"gcn molecules {hidden} {options}", few(partial(gcn, hidden, TILES, strategy="layer", **options), 1)
    for case in (test_encode.CASES[0], test_encode.CASES[1], test_encode.RARE[5], test_encode.RARE[8]):
        yield f"encoder {case}", partial(encoder, case)
    for count, widths in ((9, (5, 2)), (600, (33, 1)), (40, (32, 16, 3)), (37, (2,))):
        yield f"head {count} {widths}", partial(head, count, widths)
    for options in AGGREGATES:
        yield f"aggregate {options}", partial(any_graph, "aggregate", **options)
    for options in ({}, {"v2": True, "edges": True, "dropout": 0.4, "num_loops": 40}):
        yield f"attention {options}", partial(any_graph, "attention", **options)
    yield "gine", partial(any_graph, "gine")
    yield "small kernels", small_kernels
    yield "loader", loader


PATHS: dict[str, Path_] = dict(_paths())

if __name__ == "__main__":
    begins, (part, parts) = sys.argv[1:], (0, 1)
    if begins and "/" in begins[0]:
        part, parts = map(int, begins.pop(0).split("/"))
    for name in [name for name in PATHS if not begins or name.startswith(tuple(begins))][part::parts]:
        print(name, flush=True)
        PATHS[name]("cuda")
    torch.cuda.synchronize()
