"""Graphs and calls of the attention operator that its tests share."""

import torch

from molgcn.ops.attention import AttentionInputs
from molgcn.ops.attention_reference import attention_reference

DIFFERENTIABLE = ("source", "targets", "edges", "att")


def random_edges(num_src, num_dst, num_edges, seed=0):
    """Return edges with duplicates and self-loops, a fifth of them at node 0 and none at the last node."""
    generator = torch.Generator().manual_seed(seed)
    rows = [torch.randint(0, max(count - 1, 1), (num_edges,), generator=generator) for count in (num_src, num_dst)]
    edges = torch.stack(rows)
    edges[0, : num_edges // 5] = 0
    edges[1, num_edges // 10 : num_edges // 5 + num_edges // 10] = 0
    return edges[:, torch.randperm(num_edges, generator=generator)]


def random_inputs(
    num_src=40,
    num_dst=40,
    num_edges=200,
    heads=3,
    channels=5,
    v2=False,
    edges=False,
    together=False,
    spare=0,
    seed=0,
    dtype=torch.float64,
    **options,
):
    """Return the inputs of a random call; `spare` columns of the source are not read."""
    torch.manual_seed(seed)
    inputs = AttentionInputs(
        torch.empty(0), None, None, None, random_edges(num_src, num_dst, num_edges, seed), None, num_dst, heads, channels
    )
    inputs = inputs._replace(att=torch.empty(0) if v2 else None, **options)
    if inputs.reverse:
        inputs = inputs._replace(edge_index=inputs.edge_index.flip(0))
    columns = inputs.target_offset + inputs.num_scores * together + spare
    return inputs._replace(
        source=torch.randn(num_src, columns, dtype=dtype),
        targets=None if together else torch.randn(num_dst, inputs.num_scores, dtype=dtype),
        edges=torch.randn(inputs.num_entries, inputs.num_scores, dtype=dtype) if edges else None,
        att=torch.randn(heads, channels, dtype=dtype) / channels**0.5 if v2 else None,
        seed=torch.tensor([123456789123]) if inputs.dropout > 0 else None,
    )


def gradient_for(inputs):
    """Return a gradient of the output."""
    count = inputs.num_targets * inputs.width
    return torch.sin(torch.arange(count, dtype=torch.float64)).view(-1, inputs.width).to(inputs.source)


def expected(inputs):
    """Return output and gradients of the oracle in float64."""
    wide = inputs._replace(**{name: getattr(inputs, name).detach().cpu().double() for name in present(inputs)})
    wide = wide._replace(edge_index=wide.edge_index.cpu(), seed=None if wide.seed is None else wide.seed.cpu())
    leaves = {name: getattr(wide, name).requires_grad_() for name in present(inputs)}
    out = attention_reference(wide)
    gradients = torch.autograd.grad(out, list(leaves.values()), gradient_for(wide), allow_unused=True)
    filled = (torch.zeros_like(leaf) if gradient is None else gradient for gradient, leaf in zip(gradients, leaves.values(), strict=True))
    return {"out": out.detach(), **dict(zip(leaves, filled, strict=True))}


def present(inputs):
    """Return the names of the differentiable arguments that are given."""
    return [name for name in DIFFERENTIABLE if getattr(inputs, name) is not None]


def assert_close(found, wanted, tolerance):
    """Assert that every tensor is within a tolerance, relative to the largest element of the expected one."""
    assert list(found) == list(wanted)
    for name, value in wanted.items():
        scale = max(value.abs().max().item() if value.numel() else 0.0, 1e-6)
        assert found[name].shape == value.shape, name
        error = (found[name].cpu().double() - value).abs()
        assert not error.numel() or error.max() <= tolerance * scale, (name, error.max().item() / scale)  # NaN is no error below it


CASES = [
    {},
    {"num_edges": 0},
    {"v2": True},
    {"v2": True, "edges": True, "dropout": 0.4, "num_loops": 40},
    {"edges": True, "dropout": 0.4, "num_loops": 40, "together": True, "spare": 2},
    {"v2": True, "together": True, "channels": 8, "reverse": True},
    {"num_src": 30, "num_dst": 50, "num_loops": 30, "edges": True},
    {"num_src": 50, "num_dst": 30, "v2": True, "edges": True, "reverse": True},
    {"heads": 1, "channels": 64, "together": True, "spare": 2, "num_loops": 40},
    {"heads": 8, "channels": 8, "num_edges": 1500, "together": True, "num_loops": 40, "edges": True},  # long rows
    {"heads": 2, "channels": 12, "num_edges": 1500, "v2": True, "edges": True, "together": True},
    {"heads": 5, "channels": 40, "num_edges": 1500, "v2": True, "dropout": 0.2},
    {"heads": 1, "channels": 260, "num_edges": 60},
    {"dropout": 1.0},
]
