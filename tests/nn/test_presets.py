"""GCN+, GIN+ and GatedGCN+ agree with loops over bonds and molecules that were written from the paper and its code."""

import pytest
import torch
from network_cases import batch_of

from molgcn.nn import MoleculeNet

PLUS = {"embed": True, "embed_bonds": True, "rwse": 4, "rwse_dim": 3, "bond_rw": 4, "residual": True, "feed_forward": True, "pool": "sum"}


def linear(weights, name, x):
    out = x @ weights[f"{name}.weight"].T
    return out + weights[f"{name}.bias"] if f"{name}.bias" in weights else out


def norm(weights, name, x):
    """Return the rows after batch norm in training."""
    scaled = (x - x.mean(0)) / (x.var(0, unbiased=False) + 1e-5).sqrt()
    return scaled * weights[f"{name}.weight"] + weights[f"{name}.bias"]


def gcn(weights, layer, h, bonds, e):
    rows = linear(weights, f"{layer}.lin", h)
    out = torch.stack([weights[f"{layer}.bias"]] * len(h))
    for (source, target), bond in zip(bonds, e, strict=True):
        out[target] = out[target] + (rows[source] + bond).relu()
    return out, e


def gin(weights, layer, h, bonds, e):
    out = h.clone()
    for (source, target), bond in zip(bonds, e, strict=True):
        out[target] = out[target] + (h[source] + bond).relu()
    return linear(weights, f"{layer}.nn.2", linear(weights, f"{layer}.nn.0", out).relu()), e


def gated(weights, layer, h, bonds, e):
    a, b, d, from_source = (linear(weights, f"{layer}.{name}", h) for name in "ABDE")
    states = [row + d[target] + from_source[source] for row, (source, target) in zip(linear(weights, f"{layer}.C", e), bonds, strict=True)]
    out = []
    for atom, own in enumerate(a):
        gates = [(state.sigmoid(), source) for state, (source, target) in zip(states, bonds, strict=True) if target == atom]
        total = sum((gate for gate, _ in gates), torch.zeros_like(own))
        out.append(own + sum((gate / (total + 1e-6) * b[source] for gate, source in gates), torch.zeros_like(own)))
    return torch.stack(out), torch.stack(states)


def plain(model, batch, layer_of, has_norm, has_states):
    """Return the predictions in training."""
    weights, bonds = dict(model.named_parameters()), list(zip(*batch.edge_index.tolist(), strict=True))
    walks = linear(weights, "rwse_encoder.lin", norm(weights, "rwse_encoder.norm", batch.rwse))
    h = torch.cat([linear(weights, "embed", batch.x), walks], 1)
    e = linear(weights, "bond_embed", batch.edge_attr) + linear(weights, "bond_rw_encoder", batch.bond_rw)
    for index in range(model.num_layers):
        out, new = layer_of(weights, f"convs.{index}", h, bonds, e)
        h = h + (norm(weights, f"norms.{index}", out) if has_norm else out).relu()
        e = e + norm(weights, f"edge_norms.{index}", new).relu() if has_states else e
        block = f"feed_forwards.{index}"
        h = norm(weights, f"{block}.norm1", h)
        h = norm(weights, f"{block}.norm2", h + linear(weights, f"{block}.lin2", linear(weights, f"{block}.lin1", h).relu()))
    sums = torch.stack([h[batch.batch == molecule].sum(0) for molecule in range(batch.num_graphs)])
    return linear(weights, "head.4", linear(weights, "head.2", linear(weights, "head.0", sums).relu()).relu())


@pytest.mark.parametrize(
    ("conv", "layer_of", "has_norm", "has_states"),
    [("gcn_edge", gcn, True, False), ("gine", gin, False, False), ("gated_gcn", gated, True, True)],
)
def test_gnn_plus(conv, layer_of, has_norm, has_states):
    torch.manual_seed(0)
    model = MoleculeNet(6, 12, 3, 2, conv=conv, edge_channels=3, norm="batch" if has_norm else None, head_layers=2, **PLUS).double()
    batch = batch_of("many")
    torch.testing.assert_close(model(batch), plain(model, batch, layer_of, has_norm, has_states), rtol=1e-10, atol=1e-10)
