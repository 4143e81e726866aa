"""Inputs of `molgcn::aggregate`, and checks against its float64 oracle, which tests on the CPU, a GPU and the emulator share."""

import torch

from molgcn.ops.aggregate import AggregateInputs
from molgcn.ops.aggregate_reference import aggregate_reference

WIDTHS = [(1, 0), (16, 0), (16, 1), (24, 4), (40, 2), (12, 12), (7, 7), (70, 1), (300, 300), (0, 0)]  # channels, weights of an edge
BOUNDS = {torch.float32: 1e-6, torch.float64: 1e-14, torch.bfloat16: 1e-2, torch.float16: 2e-3}


def random_inputs(
    channels, weights, *, own=False, num_src=30, num_dst=20, num_edges=150, hub=0, seed=0, dtype=torch.float64, device="cpu", **options
):
    """Return inputs with random edges, `hub` more to target 3 and as many from source 2.

    Features have few distinct values, so that some are equal. With `own` a node's own features are added, and sources are targets.
    """
    num_dst = num_src if own else num_dst
    generator = torch.Generator().manual_seed(seed)
    ends = [torch.randint(0, max(count, 1), (num_edges + 2 * hub,), generator=generator) for count in (num_src, num_dst)]
    ends[1][num_edges : num_edges + hub], ends[0][num_edges + hub :] = 3, 2
    x = torch.randint(-8, 9, (num_src, channels), generator=generator) / 4
    weight = torch.randint(1, 9, (num_edges + 2 * hub, weights), generator=generator) / 8 if weights else None
    edge_index = torch.stack(ends)[:, torch.randperm(num_edges + 2 * hub, generator=generator)]
    return AggregateInputs(
        x.to(device, dtype),
        edge_index.to(device),
        None if weight is None else weight.to(device, dtype),
        torch.tensor([0.75], dtype=dtype, device=device) if own else None,
        num_dst,
        **options,
    )


def leaves(inputs):
    return {name: tensor for name in ("x", "edge_weight", "own_weight") for tensor in [getattr(inputs, name)] if tensor is not None}


def gradient_of(out):
    """Return a non-uniform gradient of the result, exact in every dtype."""
    return ((torch.arange(out.numel(), device=out.device) % 7 - 3) / 4).view(out.shape).to(out.dtype)


def run(function, inputs):
    """Return the result and the gradients of x and the weights."""
    given = {name: tensor.detach().clone().requires_grad_() for name, tensor in leaves(inputs).items()}
    out = function(inputs._replace(**given))
    return {"out": out.detach(), **dict(zip(given, torch.autograd.grad(out, list(given.values()), gradient_of(out)), strict=True))}


def expected_of(inputs):
    return run(aggregate_reference, inputs._replace(**{name: tensor.double() for name, tensor in leaves(inputs).items()}))


def operator(inputs):
    return torch.ops.molgcn.aggregate(*inputs)


def worst(actual, expected):
    """Return the largest relative L2 error, where a norm below 0.1 counts as 0.1, since its terms may cancel."""
    assert actual.keys() == expected.keys()
    return max(((actual[k].double() - e).norm() / e.norm().clamp(min=0.1)).item() for k, e in expected.items())
