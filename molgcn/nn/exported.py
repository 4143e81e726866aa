"""The network as other programs get it: tensors in, values in the targets' units out, plain PyTorch operators between."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from molgcn.nn import forward
from molgcn.nn.graph_inputs import GraphInputs
from molgcn.nn.molecule_net import MoleculeNet
from molgcn.nn.reference import REDUCTIONS


class ExportedNetwork(nn.Module):
    """What a trained network computes in evaluation mode on backend=reference, from tensors, in the targets' units.

    No shape but the number of molecules depends on values, so that the module can be exported with numbers of atoms, bonds and molecules
    left open.

    Args:
        model: the network; its weights are copied.
        target_mean: [T], float32, or float64 where targets need more digits.
        target_std: [T], likewise.

    Shapes:
        - **x:** float [N, F], atom features
        - **edge_index:** int64 [2, E], source and target of every bond, both directions present
        - **batch:** int64 [N], the molecule of every atom, from 0, without gaps
        - **edge_attr:** float [E, D], bond features; these and the next two where they are among the network's `optional_inputs`
        - **rwse:** float [N, k], return probabilities of random walks
        - **bond_rw:** float [E, k], probabilities of random walks from each bond's source to its target
        - **output:** [B, T] in the dtype of `target_mean`, B = the largest number in `batch` + 1
    """

    target_mean: Tensor
    target_std: Tensor

    def __init__(self, model: MoleculeNet, target_mean: Tensor, target_std: Tensor) -> None:
        super().__init__()
        self.network = model.on_backend("reference")
        self.register_buffer("target_mean", target_mean.detach().clone())
        self.register_buffer("target_std", target_std.detach().clone())
        self.eval()

    def forward(
        self,
        x: Tensor,
        edge_index: Tensor,
        batch: Tensor,
        edge_attr: Tensor | None = None,
        rwse: Tensor | None = None,
        bond_rw: Tensor | None = None,
    ) -> Tensor:
        """Return predictions [B, T] in the targets' units."""
        count: int = batch.max().item() + 1  # type: ignore[assignment]  # int() would make it a constant of the export
        torch._check(count >= 1)
        torch._check(count <= batch.shape[0])
        graph = GraphInputs(x, edge_index, batch, count, edge_attr, rwse, bond_rw)
        return forward.predictions(self.network, graph, REDUCTIONS) * self.target_std + self.target_mean
