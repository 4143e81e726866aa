"""Graphs, inputs and comparisons that the stack operator's tests share."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from molgcn.cuda_runtime.launch import Gpu
from molgcn.data import GraphBatch, PackedMolecules
from molgcn.ops import StackInputs
from molgcn.ops.gcn_stack_plan import Plan, Saved, backward_plan, forward_plan, next_fit, width_of

H100, A100, RTX = 227 * 1024, 163 * 1024, 99 * 1024  # bytes of shared memory that a block may have


def random_batch(sizes: list[int], channels: int, seed: int = 0, bonds_per_atom: float = 1.0, kinds: int | None = None) -> GraphBatch:
    """Random graphs: isolated atoms, several components, duplicate bonds and self-loops all occur; with few `kinds` of atoms twins too."""
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
) -> StackInputs:
    """Weights that keep activations' scale through many layers; a true promise about large molecules."""
    torch.manual_seed(seed)
    norm = options.get("norm")
    options.setdefault("large_molecules", int(batch.ptr.diff().max()) > options.get("tile_nodes", 64))  # type: ignore[operator]
    norms = (num_layers if options.get("last_activation") else num_layers - 1) if norm else 0
    statistics = norms if norm == "batch" else 0

    def draw(count: int, scale: float, shift: float = 0.0) -> list[Tensor]:
        return [(shift + scale * torch.randn(hidden, dtype=torch.float64)).to(dtype).requires_grad_() for _ in range(count)]

    widths = [batch.x.shape[1]] + [hidden] * (num_layers - 1)
    weights = [(torch.randn(hidden, n, dtype=torch.float64) * gain * (2 / n) ** 0.5).to(dtype).requires_grad_() for n in widths]
    return StackInputs(
        batch.x.to(dtype).clone().requires_grad_(),
        batch.ptr,
        batch.rowptr,
        batch.col,
        None,
        weights,
        draw(num_layers, 0.1),
        draw(norms, 0.2, 1.0),
        draw(norms, 0.2),
        [tensor.detach() for tensor in draw(statistics, 0.3)],
        [tensor.detach().abs() + 0.5 for tensor in draw(statistics, 1.0)],
        torch.tensor([seed + 2**40]),
        **options,  # type: ignore[arg-type]
    )


def leaves(inputs: StackInputs) -> dict[str, Tensor]:
    """What the operator is differentiable in, by name."""
    features = {"x": inputs.x} if inputs.x.requires_grad else {}
    lists = {name: getattr(inputs, name) for name in ("weights", "biases", "norm_weights", "norm_biases")}
    return features | {f"{name}[{i}]": tensor for name, tensors in lists.items() for i, tensor in enumerate(tensors)}


def converted(inputs: StackInputs, dtype: torch.dtype) -> StackInputs:
    """The same numbers in another dtype, as leaves."""

    def convert(value: object) -> object:
        if isinstance(value, list):
            return [convert(item) for item in value]
        if isinstance(value, Tensor) and value.is_floating_point():
            return value.detach().to(dtype).requires_grad_(value.requires_grad)
        return value

    return StackInputs(*(convert(value) for value in inputs))  # type: ignore[arg-type]


@dataclass
class Result:
    """Outputs and gradients of one loss, by name."""

    outputs: dict[str, Tensor]
    gradients: dict[str, Tensor]


def run(operator, inputs: StackInputs, grad_pooled: Tensor | None = None) -> Result:
    pooled, means, variances = operator(inputs)
    if grad_pooled is None:
        grad_pooled = torch.sin(torch.arange(pooled.numel(), dtype=torch.float64)).view_as(pooled)
    variables = leaves(inputs)
    gradients = torch.autograd.grad(pooled, list(variables.values()), grad_pooled.to(pooled.dtype))
    outputs = {"pooled": pooled.detach(), "running_means": means, "running_vars": variances}
    return Result(outputs, dict(zip(variables, gradients, strict=True)))


def errors(actual: dict[str, Tensor], expected: dict[str, Tensor], floor: float = 1e-9) -> dict[str, float]:
    """Relative L2 error of each tensor, infinite for NaN; absolute where the truth is below `floor`: 0 but for rounding, or nearly so."""
    found = {}
    for name, right in expected.items():
        left, right = actual[name].double(), right.double()
        assert left.shape == right.shape, (name, left.shape, right.shape)
        size = right.norm().item()
        error = (left - right).norm().item() / (size if size > floor else 1.0)
        found[name] = math.inf if math.isnan(error) else error  # max() passes over NaN
    return found


def worst(actual: dict[str, Tensor], expected: dict[str, Tensor], floor: float = 1e-9) -> float:
    return max(errors(actual, expected, floor).values())


def worst_molecule(actual: Tensor, expected: Tensor, floor: float = 1e-9) -> float:
    """Relative L2 error of the molecule that is furthest off, as :func:`errors`: bounds hold for each by itself. [B, H] each."""
    assert actual.shape == expected.shape
    size = expected.double().norm(dim=1)
    error = (actual.double() - expected.double()).norm(dim=1) / torch.where(size > floor, size, 1.0)
    return error.max().nan_to_num(nan=math.inf).item()


def with_nan(inputs: StackInputs, place: str) -> StackInputs:
    """The inputs in float32 with one NaN as CUDA makes it, all bits set."""
    inputs = converted(inputs, torch.float32)
    leaves(inputs)[place].detach().view(torch.int32).view(-1)[5] = 0x7FFFFFFF
    return inputs


def not_finite(result: Result) -> dict[str, list[list[int]]]:
    """Where outputs and gradients are NaN or infinite."""
    return {name: tensor.isfinite().logical_not().nonzero().tolist() for name, tensor in (result.outputs | result.gradients).items()}


def warps_of(inputs: StackInputs, gpu: Gpu) -> list[int]:
    """A tile's in forward and backward."""
    with_tiles = inputs._replace(tile_ptr=next_fit(inputs.ptr))
    return [plan(with_tiles, gpu).warps for plan in (forward_plan, backward_plan)]


def kept_activations(inputs: StackInputs, saved: Tensor, plan: Plan) -> Tensor:
    """Which activations the CUDA operator's forward kept: bool [L - 1, N, H]. Layout: `mask_at` of cuda/gcn_stack.cuh."""
    assert inputs.tile_ptr is not None
    width, num_nodes, device = width_of(inputs.hidden_channels), inputs.x.shape[0], inputs.x.device
    span, own = (32, 8) if inputs.precision == "bf16" and width >= 32 else (16, 4)
    tiles, places = inputs.tile_ptr.shape[0] - 1, 16 * plan.warps * plan.row_tiles
    words = (plan.row_tiles * 2 * width // 4 + 31) // 32
    strips = 2 * tiles + num_nodes // places + 1
    begin, size = Saved(inputs).offsets["masks"], 4 * (inputs.num_layers - 1) * strips * plan.warps * words * 32
    masks = saved[begin : begin + size].view(torch.int32).view(-1, strips, plan.warps, words, 32)
    firsts = inputs.ptr[inputs.tile_ptr.long()].long()
    tile = torch.repeat_interleave(torch.arange(tiles, device=device), firsts.diff())
    first = firsts[tile]
    row = torch.arange(num_nodes, device=device) - first
    by_degree = torch.argsort(8 * tile - inputs.rowptr.diff().clamp(max=4), stable=True)  # a tile's rows: most bonds first
    row = torch.where(firsts.diff()[tile] > places, row, row[torch.argsort(by_degree)])
    strip = torch.where(firsts.diff()[tile] > places, tiles + first // places + tile + row // places, tile)[:, None]
    row_tile = row % places // 16  # of six, one warp has the first, fourth and fifth: `Group::row_tile`
    order = [0, 3, 4, 1, 2, 5] if (plan.warps, plan.row_tiles) == (2, 3) else range(places // 16)
    place = 16 * torch.tensor(list(order), device=device)[row_tile] + row % 16
    warp, rest = place // (16 * plan.row_tiles), place % (16 * plan.row_tiles)
    column = torch.arange(inputs.hidden_channels, device=device)
    bit = (rest // 8 * (width // span))[:, None] * own + column // span * own + column % own
    lane = 4 * (rest % 8)[:, None] + column % span // own
    return masks[:, strip, warp[:, None], bit // 32, lane] >> (31 - bit % 32) & 1 == 1


def with_masks(masks: Tensor) -> Callable[[StackInputs], tuple[Tensor, Tensor, Tensor]]:
    """The operator's formula, for norm=None and layer and mean pooling, with relu replaced by a product with `masks`.

    An activation within rounding of zero may fall on its other side, which costs up to 1e-3 of a gradient in any float32 implementation
    (more in lower precisions) and is no error of a backward pass: that is compared with one that makes forward's choices.
    """

    def operator(inputs: StackInputs) -> tuple[Tensor, Tensor, Tensor]:
        num_nodes, device = inputs.x.shape[0], inputs.x.device
        nodes = torch.arange(num_nodes, device=device)
        target, source = torch.repeat_interleave(nodes, inputs.rowptr.diff()), inputs.col.long()
        bonds = target != source
        index = torch.stack([torch.cat([target[bonds], nodes]), torch.cat([source[bonds], nodes])])
        scale = torch.bincount(index[0], minlength=num_nodes).to(inputs.x.dtype).rsqrt()
        adjacency = torch.sparse_coo_tensor(index, scale[index[0]] * scale[index[1]], (num_nodes, num_nodes))
        h = inputs.x
        for layer, (weight, bias) in enumerate(zip(inputs.weights, inputs.biases, strict=True)):
            z = torch.sparse.mm(adjacency, h) @ weight.T + bias
            if layer < inputs.num_layers - 1:
                if inputs.norm == "layer":
                    z = F.layer_norm(z, z.shape[1:], inputs.norm_weights[layer], inputs.norm_biases[layer], inputs.eps)
                z = z * masks[layer]
            h = z + h if inputs.residual and z.shape == h.shape else z
        sizes = inputs.ptr.diff().long()
        graph = torch.repeat_interleave(torch.arange(inputs.num_graphs, device=device), sizes)
        pooled = torch.zeros(inputs.num_graphs, h.shape[1], dtype=h.dtype, device=device).index_add(0, graph, h)
        return pooled / sizes.clamp(min=1)[:, None], torch.empty(0), torch.empty(0)

    return operator


def check_broken_promise(run: Callable[[StackInputs, Tensor], Result], hidden: int) -> None:
    """Molecules larger than a tile, said not to be there, are NaN; all others are as if they were alone, and so are weights' gradients."""
    sizes = [5, 9, 130, 18, 30, 350, 1, 40]
    inputs = random_inputs(random_batch(sizes, 11), hidden, 3)
    large = torch.tensor(sizes) > 64
    grad_pooled = torch.sin(torch.arange(len(sizes) * hidden, dtype=torch.float64)).view(-1, hidden) * ~large[:, None]
    broken, expected = (run(inputs._replace(large_molecules=allowed), grad_pooled) for allowed in (False, True))
    nodes = torch.repeat_interleave(large, torch.tensor(sizes))
    for name, rows in (("pooled", large), ("x", nodes)):
        actual, right = ((result.outputs | result.gradients)[name].cpu() for result in (broken, expected))
        assert actual[rows].isnan().all() and torch.equal(actual[~rows], right[~rows]), name
    del broken.gradients["x"], expected.gradients["x"]
    assert worst(broken.gradients, expected.gradients) < 1e-6  # large molecules' zeros change in which tiles the others are added up


def check_independence(run: Callable[[StackInputs, Tensor], Result], inputs: StackInputs) -> None:
    """The first molecule's results bit for bit, whatever the others' values and gradients are."""
    first = inputs.ptr[1]
    grad_pooled = torch.sin(torch.arange(1.0, 1 + inputs.num_graphs * inputs.hidden_channels, dtype=torch.float64))
    grad_pooled = grad_pooled.view(inputs.num_graphs, -1)
    large_x, large_grad = inputs.x.detach().clone(), grad_pooled.clone()
    large_x[first:] *= 1e6
    large_grad[1:] *= 1e6
    alone, beside = run(inputs, grad_pooled), run(inputs._replace(x=large_x.requires_grad_()), large_grad)
    assert not torch.equal(alone.outputs["pooled"][1:], beside.outputs["pooled"][1:])
    assert torch.equal(alone.outputs["pooled"][0], beside.outputs["pooled"][0])
    assert torch.equal(alone.gradients["x"][:first], beside.gradients["x"][:first])
