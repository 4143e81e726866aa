"""Models on both backends, and molecules, that the tests of backend=fused share."""

import torch
from torch import nn

from molgcn.data import GraphBatch, PackedMolecules
from molgcn.nn import GCN

SMILES = ["CCO", "c1ccccc1O", "C", "N#Cc1ccncc1", "O=C(C)Oc1ccccc1C(=O)O", "[H][H]", "CC(C)CC(N)C(=O)O", "C1CC1"] * 4


def molecules_with_targets() -> PackedMolecules:
    torch.manual_seed(0)
    return PackedMolecules.from_smiles(SMILES, targets=torch.randn(len(SMILES), 2).numpy(), num_workers=0)


def pair(dtype=torch.float64, seed=0, **options) -> tuple[GCN, GCN]:
    """Return the same model on both backends."""
    models = []
    for name in ("fused", "pyg"):
        torch.manual_seed(seed)
        models.append(GCN(11, 32, options.get("num_layers", 4), 2, backend=name, **{k: v for k, v in options.items() if k != "num_layers"}))
    return models[0].to(dtype), models[1].to(dtype)


def as_dtype(batch: GraphBatch, dtype: torch.dtype) -> GraphBatch:
    return GraphBatch(batch.x.to(dtype), batch.ptr, batch.rowptr, batch.col, batch.targets.to(dtype))


def relative(a: torch.Tensor, b: torch.Tensor, floor: float = 1e-9) -> float:
    return ((a - b).norm() / max(b.norm().item(), floor)).item()


def train(model: GCN, batches: list[GraphBatch], steps: int) -> list[float]:
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    losses = []
    for step in range(steps):
        batch = batches[step % len(batches)]
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(batch), batch.targets)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses
