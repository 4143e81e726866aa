"""Graphs, inputs and comparisons that the stack operator's tests share."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from molgcn.data import GraphBatch, PackedMolecules
from molgcn.ops import StackInputs


def random_batch(sizes: list[int], channels: int, seed: int = 0, bonds_per_atom: float = 1.0, kinds: int | None = None) -> GraphBatch:
    """Random graphs: isolated atoms, several components, duplicate bonds and self-loops all occur; with few `kinds` of atoms twins too."""
    rng = np.random.default_rng(seed)
    pairs = [rng.integers(0, n, (2, round(n * bonds_per_atom))) for n in sizes]
    edges = [np.concatenate([pair, pair[::-1]], axis=1) for pair in pairs]
    x = rng.normal(size=(sum(sizes), channels)).astype(np.float32)
    if kinds is not None:
        x = x[rng.integers(0, kinds, sum(sizes))]
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
    """Weights that keep activations' scale through many layers."""
    torch.manual_seed(seed)
    norm = options.get("norm")
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
    lists = {name: getattr(inputs, name) for name in ("weights", "biases", "norm_weights", "norm_biases")}
    return {"x": inputs.x} | {f"{name}[{i}]": tensor for name, tensors in lists.items() for i, tensor in enumerate(tensors)}


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
    """Relative L2 error of each tensor, infinite for NaN; absolute below `floor`, where the truth is zero (a bias before batch norm)."""
    found = {}
    for name, right in expected.items():
        left, right = actual[name].double(), right.double()
        assert left.shape == right.shape, (name, left.shape, right.shape)
        error = ((left - right).norm() / max(right.norm().item(), floor)).item() if right.norm() > floor else left.norm().item()
        found[name] = math.inf if math.isnan(error) else error  # max() passes over NaN
    return found


def worst(actual: dict[str, Tensor], expected: dict[str, Tensor], floor: float = 1e-9) -> float:
    return max(errors(actual, expected, floor).values())
