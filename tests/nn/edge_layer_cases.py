"""Graphs and comparisons that the tests of layers with bonds share."""

import torch
from torch import Tensor, nn


def molecule_like(num_atoms: int, num_bonds: int, loops: int = 0, seed: int = 0) -> Tensor:
    """Return both directions of random bonds, duplicates among them, and self-loops, in random order: int64 [2, E]."""
    generator = torch.Generator().manual_seed(seed)
    one = torch.randint(num_atoms, (num_bonds,), generator=generator)
    other = (one + torch.randint(1, max(num_atoms, 2), (num_bonds,), generator=generator)) % num_atoms
    own = torch.randint(num_atoms, (loops,), generator=generator)
    edges = torch.stack([torch.cat([one, other, own]), torch.cat([other, one, own])])
    return edges[:, torch.randperm(edges.shape[1], generator=generator)]


def padded(edge_index: Tensor, num_atoms: int, padding: int) -> Tensor:
    """Return the bonds with `padding` self-loops of the last atom added at the end."""
    return torch.cat([edge_index, torch.full((2, padding), num_atoms - 1)], dim=1)


GRAPHS: dict[str, tuple[int, Tensor]] = {
    "one molecule": (9, molecule_like(9, 10)),
    "isolated atoms": (12, molecule_like(5, 6)),
    "no bonds": (4, torch.empty(2, 0, dtype=torch.int64)),
    "one atom": (1, torch.empty(2, 0, dtype=torch.int64)),
    "duplicate bonds": (3, molecule_like(3, 12)),
    "self-loops": (6, molecule_like(6, 8, loops=5)),
    "one atom with itself": (1, torch.zeros(2, 3, dtype=torch.int64)),
    "300 atoms": (300, molecule_like(300, 330)),
    "padding": (11, padded(molecule_like(8, 9), 11, 7)),
}


def assert_same(one: nn.Module, other: nn.Module, graph: tuple[int, Tensor], in_channels: int, edge_channels: int | None) -> None:
    """Assert that two float64 modules give outputs and gradients of everything equal to 1e-10.

    Weights and inputs are drawn at random; both see the same random numbers in dropout. Outputs are one tensor or a tuple of them.
    """
    num_atoms, edge_index = graph
    torch.manual_seed(0)
    for parameter in one.parameters():
        nn.init.normal_(parameter, std=0.3)
    x = torch.randn(num_atoms, in_channels, dtype=torch.float64)
    edge_attr = None if edge_channels is None else torch.randn(edge_index.shape[1], edge_channels, dtype=torch.float64)
    other.load_state_dict(one.state_dict())
    results = [_results(layer, x, edge_index, edge_attr) for layer in (one, other)]
    assert results[0].keys() == results[1].keys()
    for name, value in results[0].items():
        torch.testing.assert_close(results[1][name], value, rtol=1e-10, atol=1e-10, msg=lambda text, name=name: f"{name}: {text}")


def _results(layer: nn.Module, x: Tensor, edge_index: Tensor, edge_attr: Tensor | None) -> dict[str, Tensor]:
    """Return the outputs and every gradient of a weighted sum of them; zeros where no output depends on a tensor."""
    inputs = dict(layer.named_parameters(), x=x.clone().requires_grad_())
    if edge_attr is not None:
        inputs["edge_attr"] = edge_attr.clone().requires_grad_()
    torch.manual_seed(1)
    outputs = layer(inputs["x"], edge_index, inputs.get("edge_attr"))
    outputs = outputs if isinstance(outputs, tuple) else (outputs,)
    loss = sum((out * torch.randn_like(out)).sum() for out in outputs)
    gradients = torch.autograd.grad(loss, list(inputs.values()), materialize_grads=True, allow_unused=True)
    results = {f"output {place}": out.detach() for place, out in enumerate(outputs)}
    return results | {f"gradient of {name}": gradient for name, gradient in zip(inputs, gradients, strict=True)}
