"""Call the CPU's operators as `torch.ops.molgcn.*`, with arguments that fit or with one that does not fit the others.

As a program it makes many such calls with another build of the extension, which tests compile with a sanitizer:
`python direct_calls.py <path of _cpu> <number of calls>`.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

Call = tuple[Callable[..., Any], list[Any]]
REFUSALS = (ValueError, TypeError, IndexError, RuntimeError)  # raised by the operators, or by PyTorch for a wrong schema


def calls() -> dict[str, Call]:
    """Return operators with arguments that fit."""
    from stack_cases import changed, random_batch, random_inputs

    ops = torch.ops.molgcn
    cases: dict[str, Call] = {}
    for name, options in (("batch", {"norm": "batch", "training": True}), ("layer", {"norm": "layer", "residual": True}), ("none", {})):
        inputs = random_inputs(random_batch([5, 9, 1, 2], 6), 8, 3, **options)
        pooled, _, saved, _ = ops.message_network(*map(detached, inputs.arguments))
        cases[f"message_network {name}"] = ops.message_network, [detached(value) for value in inputs.arguments]
        if name == "batch":  # like autograd, whose backward pass does not take the running statistics
            inputs = changed(inputs, running_means=(), running_vars=())
        arguments = [torch.ones_like(pooled), saved, [], True, *map(detached, inputs.arguments)]
        cases[f"message_network_backward {name}"] = ops.message_network_backward, arguments
    inference = changed(inputs, save_for_backward=False, head=(pooled.new_ones(3, 8), pooled.new_ones(3)))
    cases["message_network with a head"] = ops.message_network, [detached(value) for value in inference.arguments]

    x, target, vector = torch.randn(4, 8), torch.randn(4, 2), torch.ones(2)
    weights, biases = [torch.randn(5, 8), torch.randn(2, 5)], [torch.zeros(5), torch.zeros(2)]
    cases["head_loss"] = ops.head_loss, [x, weights, biases, target, vector, vector, "mse", 1.0]
    _, sums, derivatives, hidden = ops.head_loss(x, weights, biases, target, vector, vector, "mse", 1.0)
    cases["head_loss without maps"] = ops.head_loss, [target, [], [], target, vector, vector, "mse", 1.0]
    cases["head_loss_backward"] = ops.head_loss_backward, [torch.ones(()), sums, derivatives, hidden, x, weights]

    edge_index = torch.randint(0, 4, (2, 12))
    edge_index[:, 0] = 3  # the last node has edges
    conv = [x, torch.randn(3, 8), torch.zeros(3), edge_index, torch.rand(12), True, True, 1.0, False]
    cases["gcn_conv"] = ops.gcn_conv, conv
    cases["gcn_conv_backward"] = ops.gcn_conv_backward, [torch.randn(4, 3), [True] * 4, *conv]
    largest = [torch.randn(4, 9), edge_index, torch.rand(12, 3), None, 4, "max", "auto", True, False, 0, 0]
    cases["aggregate"] = ops.aggregate, largest
    cases["aggregate_backward"] = ops.aggregate_backward, [torch.randn(4, 9), ops.aggregate(*largest), [True, True, False], *largest]
    own = [torch.randn(4, 9), edge_index, torch.rand(12, 3), torch.ones(1), 4, "sum", "auto", True, False, 0, 0]
    cases["aggregate with own features"] = ops.aggregate, own
    return cases


def detached(value: Any) -> Any:
    """Return a tensor, or a list of tensors, detached; other values are returned unchanged."""
    return [detached(one) for one in value] if isinstance(value, list) else value.detach() if isinstance(value, Tensor) else value


def shapes_that_do_not_fit(tensor: Tensor) -> Iterator[Tensor]:
    """Yield the tensor cut and extended along each dimension, without its last dimension, with another one, and empty."""
    for dim in range(tensor.dim()):
        yield tensor.narrow(dim, 0, max(tensor.shape[dim] - 1, 0))
        yield torch.cat([tensor, tensor.narrow(dim, 0, min(tensor.shape[dim], 1))], dim)
    yield tensor[None]
    yield tensor.new_empty(0)


def with_misfits(arguments: list[Any]) -> Iterator[tuple[str, list[Any]]]:
    """Yield the arguments with one tensor, or one list of tensors, of another shape or dtype, each way once."""
    for place, value in enumerate(arguments):
        tensors = value if isinstance(value, list) and value and isinstance(value[0], Tensor) else [value]
        for number, tensor in enumerate(tensors):
            if not isinstance(tensor, Tensor):
                continue
            for misfit in (*shapes_that_do_not_fit(tensor), tensor.to(torch.int16 if tensor.is_floating_point() else torch.float32)):
                if misfit.shape == tensor.shape and misfit.dtype == tensor.dtype:
                    continue
                changed = misfit if tensors is not value else [*value[:number], misfit, *value[number + 1 :]]
                what = f"{place}.{number}: {list(tensor.shape)} -> {list(misfit.shape)} {misfit.dtype}"
                yield what, [*arguments[:place], changed, *arguments[place + 1 :]]
        if tensors is value:
            for changed in (value[:-1], [*value, value[-1]], []):
                yield f"{place}: {len(value)} -> {len(changed)} tensors", [*arguments[:place], changed, *arguments[place + 1 :]]


def with_other_numbers(arguments: list[Any], rng: np.random.Generator) -> list[Any]:
    """Return the arguments with some elements of one integer tensor replaced by random integers."""
    integers = (torch.int32, torch.int64)
    places = [i for i, value in enumerate(arguments) if isinstance(value, Tensor) and value.dtype in integers and value.numel()]
    if not places:
        return arguments
    place = int(rng.choice(places))
    changed = arguments[place].clone()
    for _ in range(int(rng.integers(1, 4))):
        changed.view(-1)[int(rng.integers(changed.numel()))] = int(rng.choice([-(2**31), -1, 0, 1, 3, 17, 1000, 2**31 - 1]))
    return [*arguments[:place], changed, *arguments[place + 1 :]]


def main(extension: Path, count: int) -> None:
    """Call with every misfit, and `count` times with random integers; a sanitizer ends the process at a wrong memory access."""
    spec = importlib.util.spec_from_file_location("molgcn._cpu", extension)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    import molgcn

    sys.modules["molgcn._cpu"] = molgcn._cpu = module  # type: ignore[attr-defined]
    rng, made, refused = np.random.default_rng(0), 0, 0
    for call, arguments in calls().values():
        several = (with_other_numbers(arguments, rng) for _ in range(count // 10))
        for changed in (*(changed for _, changed in with_misfits(arguments)), *several):
            made += 1
            try:
                call(*changed)
            except REFUSALS:
                refused += 1
    print(f"{made} calls, {refused} refused")


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
