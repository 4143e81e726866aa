"""Graphs, inputs and comparisons that the tests of graph convolutions share."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from molgcn.cuda_runtime.launch import Gpu
from molgcn.data import GraphBatch, PackedMolecules
from molgcn.nn.network_steps import NetworkOptions, program_of
from molgcn.ops.gcn_network import GcnCall, GcnNetwork, Parameters, gcn_pattern
from molgcn.ops.gcn_tile_plan import Plan, Saved, backward_plan, forward_plan, next_fit, width_of
from molgcn.ops.graph import Graph
from molgcn.ops.head_loss import Objective
from molgcn.ops.layer_network.call import LayerNetworkCall
from molgcn.ops.layer_network.implementation import Outputs
from molgcn.ops.layer_network.operator import layer_network
from molgcn.ops.layer_network.program import Program

H100, A100, RTX = 227 * 1024, 163 * 1024, 99 * 1024  # bytes of shared memory that a block may have


def random_batch(sizes: list[int], channels: int, seed: int = 0, bonds_per_atom: float = 1.0, kinds: int | None = None) -> GraphBatch:
    """Return random graphs with isolated atoms, several components, duplicate bonds and self-loops.

    With few `kinds` of atoms they have equal leaves too.
    """
    rng = np.random.default_rng(seed)
    pairs = [rng.integers(0, n, (2, round(n * bonds_per_atom))) for n in sizes]
    edges = [np.concatenate([pair, pair[::-1]], axis=1) for pair in pairs]
    x = rng.normal(size=(sum(sizes), channels)).astype(np.float32)
    if kinds is not None:
        x = x[rng.integers(0, min(kinds, sum(sizes)), sum(sizes))]
    packed = PackedMolecules.from_arrays(np.array(sizes), np.array([e.shape[1] for e in edges]), np.concatenate(edges, axis=1), x=x)
    return packed.batch(slice(None))


def random_inputs(
    batch: GraphBatch,
    hidden: int,
    num_layers: int,
    dtype: torch.dtype = torch.float64,
    *,
    seed: int = 0,
    gain: float = 1.0,
    **options: object,
) -> GcnCall:
    """Return a call with weights that keep the activations' scale through many layers, and a true `large_molecules`.

    Args:
        batch: the molecules.
        hidden: width of the layers.
        num_layers: number of layers.
        dtype: dtype of all floating-point tensors.
        seed: seed of the weights.
        gain: factor on the weights.
        **options: values for fields of the call's records, see :func:`changed`.
    """
    torch.manual_seed(seed)
    options.setdefault("large_molecules", int(batch.ptr.diff().max()) > options.get("tile_nodes", 64))  # type: ignore[operator]

    def draw(count: int, scale: float, shift: float = 0.0) -> list[Tensor]:
        return [(shift + scale * torch.randn(hidden, dtype=torch.float64)).to(dtype).requires_grad_() for _ in range(count)]

    static = {name: options.pop(name) for name in list(options) if name in GcnNetwork.__dataclass_fields__}
    network = GcnNetwork(batch.x.shape[1], hidden, num_layers, **static)  # type: ignore[arg-type]
    norms = network.num_norms
    statistics = norms if network.norm == "batch" else 0
    shapes = [(hidden, network.in_channels if layer == 0 else hidden) for layer in range(num_layers)]
    weights = [(torch.randn(shape, dtype=torch.float64) * gain * (2 / shape[1]) ** 0.5).to(dtype).requires_grad_() for shape in shapes]
    parameters = Parameters(
        weights,
        draw(num_layers, 0.1),
        draw(norms, 0.2, 1.0),
        draw(norms, 0.2),
        [tensor.detach() for tensor in draw(statistics, 0.3)],
        [tensor.detach().abs() + 0.5 for tensor in draw(statistics, 1.0)],
    )
    graph = Graph(batch.x.to(dtype).clone().requires_grad_(), None, batch.ptr, batch.rowptr, batch.col)
    return changed(GcnCall(graph, network, parameters, torch.tensor([seed + 2**40])), **options)


def changed(call: GcnCall, **changes: Any) -> GcnCall:
    """Return the call with other values for fields of its records, whose names are all different."""
    for name, value in changes.items():
        if name in GcnNetwork.__dataclass_fields__:
            call = call._replace(network=replace(call.network, **{name: value}))
        elif name in GcnCall._fields:
            call = call._replace(**{name: value})
        else:
            (place,) = [place for place, record in enumerate(call) if name in getattr(record, "_fields", ())]
            field = GcnCall._fields[place]
            call = call._replace(**{field: call[place]._replace(**{name: value})})
    return call


def program(network: GcnNetwork) -> Program:
    """Return the program of a network, which :func:`molgcn.ops.gcn_network.gcn_pattern` has to recognise."""
    fields = {name: getattr(network, name) for name in vars(network) if name != "add_self_loops"}
    made = program_of(NetworkOptions("gcn", **fields, settings=(("add_self_loops", network.add_self_loops),)))
    assert gcn_pattern(made) is not None
    return made


def layers_of(call: GcnCall) -> LayerNetworkCall:
    """Return a call as one of `molgcn::layer_network`, whose program drops nothing in evaluation."""
    network = replace(call.network, dropout=call.dropout_rate)
    lists = call.parameters.tensors, call.parameters.statistics
    return LayerNetworkCall(call.graph, program(network), *lists, call.seed, call.options, head=call.head, objective=call.objective)


def gcn(call: GcnCall) -> Outputs:
    """Call the operator."""
    return layer_network(layers_of(call))


def planned_alone(call: GcnCall) -> Outputs:
    """Return the outputs of a call that is planned by itself, as a capture plans it, and not for all batches of about its size."""
    return Outputs(*torch.ops.molgcn.layer_network(*layers_of(call).arguments))


def leaves(call: GcnCall) -> dict[str, Tensor]:
    """Return the differentiable arguments by name."""
    features = {"x": call.graph.x} if call.graph.x.requires_grad else {}
    return features | dict(zip(program(call.network).parameters, call.parameters.tensors, strict=True))


def mapped(call: GcnCall, function: Callable[[Tensor], Tensor]) -> GcnCall:
    """Return the call with a function applied to each of its tensors."""

    def of(value: Any) -> Any:
        if isinstance(value, (list, tuple)):
            return [of(item) for item in value]
        return function(value) if isinstance(value, Tensor) else value

    parameters, objective = Parameters(*map(of, call.parameters)), call.objective and Objective(*map(of, call.objective))
    return GcnCall(call.graph.mapped(function), call.network, parameters, function(call.seed), call.options, of(call.head), objective)


def converted(call: GcnCall, dtype: torch.dtype) -> GcnCall:
    """Return the call in another dtype, with tensors that are leaves of the autograd graph."""

    def convert(tensor: Tensor) -> Tensor:
        return tensor.detach().to(dtype).requires_grad_(tensor.requires_grad) if tensor.is_floating_point() else tensor

    return mapped(call, convert)


@dataclass
class Result:
    """The outputs and the gradients of one loss, by name."""

    outputs: dict[str, Tensor]
    gradients: dict[str, Tensor]


def run(operator, inputs: GcnCall, grad_pooled: Tensor | None = None) -> Result:
    pooled, statistics, *_ = operator(inputs)
    if grad_pooled is None:
        grad_pooled = torch.sin(torch.arange(pooled.numel(), dtype=torch.float64)).view_as(pooled)
    variables = leaves(inputs)
    gradients = torch.autograd.grad(pooled, list(variables.values()), grad_pooled.to(pooled.dtype))
    outputs = {"pooled": pooled.detach(), "statistics": statistics.detach()}
    return Result(outputs, dict(zip(variables, gradients, strict=True)))


def errors(actual: dict[str, Tensor], expected: dict[str, Tensor], floor: float = 1e-9) -> dict[str, float]:
    """Return the relative L2 error of each tensor, infinite for NaN.

    It is absolute where the expected norm is below `floor`, that is 0 but for rounding.
    """
    found = {}
    for name, right in expected.items():
        left, right = actual[name].double(), right.double()
        assert left.shape == right.shape, (name, left.shape, right.shape)
        size = right.norm().item()
        error = (left - right).norm().item() / (size if size > floor else 1.0)
        found[name] = math.inf if math.isnan(error) else error  # max() ignores NaN
    return found


def worst(actual: dict[str, Tensor], expected: dict[str, Tensor], floor: float = 1e-9) -> float:
    return max(errors(actual, expected, floor).values())


def worst_molecule(actual: Tensor, expected: Tensor, floor: float = 1e-9) -> float:
    """Return the largest relative L2 error of a molecule, by the rule of :func:`errors`, for tensors [B, H]."""
    assert actual.shape == expected.shape
    size = expected.double().norm(dim=1)
    error = (actual.double() - expected.double()).norm(dim=1) / torch.where(size > floor, size, 1.0)
    return error.max().nan_to_num(nan=math.inf).item()


def with_nan(inputs: GcnCall, place: str) -> GcnCall:
    """Return the inputs in float32 with one NaN as CUDA makes it, with all bits set."""
    inputs = converted(inputs, torch.float32)
    leaves(inputs)[place].detach().view(torch.int32).view(-1)[5] = 0x7FFFFFFF
    return inputs


def not_finite(result: Result) -> dict[str, list[list[int]]]:
    """Return the indices at which outputs and gradients are NaN or infinite."""
    return {name: tensor.isfinite().logical_not().nonzero().tolist() for name, tensor in (result.outputs | result.gradients).items()}


def warps_of(inputs: GcnCall, gpu: Gpu) -> list[int]:
    """Return the warps of a tile in forward and backward."""
    with_tiles = changed(inputs, tile_ptr=next_fit(inputs.graph.ptr))
    return [plan(with_tiles, gpu).warps for plan in (forward_plan, backward_plan)]


def kept_activations(inputs: GcnCall, saved: Tensor, plan: Plan) -> Tensor:
    """Return which activations the CUDA operator's forward kept, bool [L - 1, N, H].

    `mask_at` of cuda/gcn_tile.cuh defines the layout.
    """
    assert inputs.graph.tile_ptr is not None
    width, num_nodes, device = width_of(inputs.network.hidden_channels), inputs.graph.x.shape[0], inputs.graph.x.device
    span, own = (32, 8) if inputs.options.precision == "bf16" and width >= 32 else (16, 4)
    tiles, tile_rows = inputs.graph.tile_ptr.shape[0] - 1, 16 * plan.warps * plan.row_tiles
    words = (plan.row_tiles * 2 * width // 4 + 31) // 32
    strips = 2 * tiles + num_nodes // tile_rows + 1
    begin, size = Saved(inputs).offsets["masks"], 4 * (inputs.network.num_layers - 1) * strips * plan.warps * words * 32
    masks = saved.view(torch.uint8)[begin : begin + size].view(torch.int32).view(-1, strips, plan.warps, words, 32)
    firsts = inputs.graph.ptr[inputs.graph.tile_ptr.long()].long()
    tile = torch.repeat_interleave(torch.arange(tiles, device=device), firsts.diff())
    first = firsts[tile]
    row = torch.arange(num_nodes, device=device) - first
    by_degree = torch.argsort(8 * tile - inputs.graph.rowptr.diff().clamp(max=4), stable=True)  # a tile's rows: most bonds first
    row = torch.where(firsts.diff()[tile] > tile_rows, row, row[torch.argsort(by_degree)])
    strip = torch.where(firsts.diff()[tile] > tile_rows, tiles + first // tile_rows + tile + row // tile_rows, tile)[:, None]
    row_tile = row % tile_rows // 16  # one warp has row tiles 0, 3 and 4 of six: `Group::row_tile`
    order = [0, 3, 4, 1, 2, 5] if (plan.warps, plan.row_tiles) == (2, 3) else range(tile_rows // 16)
    place = 16 * torch.tensor(list(order), device=device)[row_tile] + row % 16
    warp, rest = place // (16 * plan.row_tiles), place % (16 * plan.row_tiles)
    column = torch.arange(inputs.network.hidden_channels, device=device)
    bit = (rest // 8 * (width // span))[:, None] * own + column // span * own + column % own
    lane = 4 * (rest % 8)[:, None] + column % span // own
    return masks[:, strip, warp[:, None], bit // 32, lane] >> (31 - bit % 32) & 1 == 1


def with_masks(masks: Tensor) -> Callable[[GcnCall], tuple[Tensor, Tensor]]:
    """Return the operator's formula for norm=None or layer and mean pooling, with relu replaced by a product with `masks`.

    An activation within rounding of zero may fall on its other side, which costs up to 1e-3 of a gradient in any float32 implementation
    (more in lower precisions) and is no error of a backward pass: that is compared with one that makes forward's choices.
    """

    def operator(inputs: GcnCall) -> tuple[Tensor, Tensor]:
        num_nodes, device = inputs.graph.x.shape[0], inputs.graph.x.device
        nodes = torch.arange(num_nodes, device=device)
        target, source = torch.repeat_interleave(nodes, inputs.graph.rowptr.diff()), inputs.graph.col.long()
        bonds = target != source
        index = torch.stack([torch.cat([target[bonds], nodes]), torch.cat([source[bonds], nodes])])
        scale = torch.bincount(index[0], minlength=num_nodes).to(inputs.graph.x.dtype).rsqrt()
        adjacency = torch.sparse_coo_tensor(index, scale[index[0]] * scale[index[1]], (num_nodes, num_nodes))
        h = inputs.graph.x
        for layer, (weight, bias) in enumerate(zip(inputs.parameters.weights, inputs.parameters.biases, strict=True)):
            z = torch.sparse.mm(adjacency, h) @ weight.T + bias
            if layer < inputs.network.num_layers - 1:
                if inputs.network.norm == "layer":
                    z = F.layer_norm(
                        z, z.shape[1:], inputs.parameters.norm_weights[layer], inputs.parameters.norm_biases[layer], inputs.network.eps
                    )
                z = z * masks[layer]
            h = z + h if inputs.network.residual and z.shape == h.shape else z
        sizes = inputs.graph.ptr.diff().long()
        graph = torch.repeat_interleave(torch.arange(inputs.graph.num_graphs, device=device), sizes)
        pooled = torch.zeros(inputs.graph.num_graphs, h.shape[1], dtype=h.dtype, device=device).index_add(0, graph, h)
        return pooled / sizes.clamp(min=1)[:, None], torch.empty(0)

    return operator


def check_broken_promise(run: Callable[[GcnCall, Tensor], Result], hidden: int) -> None:
    """Check that molecules larger than a tile, against `large_molecules=False`, are NaN and do not change the others.

    The weights' gradients are those of the other molecules too.
    """
    sizes = [5, 9, 130, 18, 30, 350, 1, 40]
    inputs = random_inputs(random_batch(sizes, 11), hidden, 3)
    large = torch.tensor(sizes) > 64
    grad_pooled = torch.sin(torch.arange(len(sizes) * hidden, dtype=torch.float64)).view(-1, hidden) * ~large[:, None]
    broken, expected = (run(changed(inputs, large_molecules=allowed), grad_pooled) for allowed in (False, True))
    nodes = torch.repeat_interleave(large, torch.tensor(sizes))
    for name, rows in (("pooled", large), ("x", nodes)):
        actual, right = ((result.outputs | result.gradients)[name].cpu() for result in (broken, expected))
        assert actual[rows].isnan().all() and torch.equal(actual[~rows], right[~rows]), name
    del broken.gradients["x"], expected.gradients["x"]
    assert worst(broken.gradients, expected.gradients) < 1e-6  # large molecules' zeros change in which tiles the others are added up


def check_independence(run: Callable[[GcnCall, Tensor], Result], inputs: GcnCall) -> None:
    """Check that the first molecule's results have the same bits whatever the others' values and gradients are."""
    first = inputs.graph.ptr[1]
    grad_pooled = torch.sin(torch.arange(1.0, 1 + inputs.graph.num_graphs * inputs.network.hidden_channels, dtype=torch.float64))
    grad_pooled = grad_pooled.view(inputs.graph.num_graphs, -1)
    large_x, large_grad = inputs.graph.x.detach().clone(), grad_pooled.clone()
    large_x[first:] *= 1e6
    large_grad[1:] *= 1e6
    alone, beside = run(inputs, grad_pooled), run(changed(inputs, x=large_x.requires_grad_()), large_grad)
    assert not torch.equal(alone.outputs["pooled"][1:], beside.outputs["pooled"][1:])
    assert torch.equal(alone.outputs["pooled"][0], beside.outputs["pooled"][0])
    assert torch.equal(alone.gradients["x"][:first], beside.gradients["x"][:first])
