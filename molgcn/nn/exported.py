"""The network as other programs get it: tensors in, predictions out, plain PyTorch operators between."""

from __future__ import annotations

from copy import deepcopy

import torch
from torch import Tensor, nn

from molgcn.nn import forward
from molgcn.nn.graph_inputs import GraphInputs
from molgcn.nn.molecule_net import MoleculeNet
from molgcn.nn.reference import REDUCTIONS


class ExportedNetwork(nn.Module):
    """What a trained network computes in evaluation mode on backend=reference, from tensors.

    No shape but the number of molecules depends on values, so that the module can be exported with numbers of atoms, bonds and molecules
    left open.

    Args:
        model: the network; its weights are copied.
        output: what turns its outputs [B, P] into predictions, see :mod:`molgcn.nn.output_layers`; it is copied.

    Shapes:
        - **x:** float [N, F], atom features
        - **edge_index:** int64 [2, E], source and target of every bond, both directions present
        - **batch:** int64 [N], the molecule of every atom, from 0, without gaps
        - **edge_attr:** float [E, D], bond features; these and the next four where they are among the network's `optional_inputs`
        - **rwse:** float [N, k], return probabilities of random walks
        - **bond_rw:** float [E, k], probabilities of random walks from each bond's source to its target
        - **descriptors:** float [B, K], numbers of each molecule, not standardised
        - **component:** int64 [N], which of several molecules of a row every atom is of
        - **output:** [B, P] in the dtype that `output` gives, B = the largest number in `batch` + 1
    """

    def __init__(self, model: MoleculeNet, output: nn.Module) -> None:
        super().__init__()
        self.network = model.on_backend("reference")
        self.output = deepcopy(output)
        self.eval()

    def forward(
        self,
        x: Tensor,
        edge_index: Tensor,
        batch: Tensor,
        edge_attr: Tensor | None = None,
        rwse: Tensor | None = None,
        bond_rw: Tensor | None = None,
        descriptors: Tensor | None = None,
        component: Tensor | None = None,
    ) -> Tensor:
        """Return predictions [B, P]."""
        if descriptors is not None:
            count = descriptors.shape[0]
        else:
            count = batch.max().item() + 1  # type: ignore[assignment]  # int() would make it a constant of the export
            torch._check(count >= 1)
            torch._check(count <= batch.shape[0])
        graph = GraphInputs(x, edge_index, batch, count, edge_attr, rwse, bond_rw, descriptors, component)
        if self.network.encoders:  # a component's atoms are as many as values say, but not among padding
            atoms, bonds = (torch.ones_like(one).sum() for one in (batch, edge_index[0]))
            graph = graph.padded(torch.cat([batch, batch.new_full((1,), count)]), atoms, bonds)
        return self.output(forward.predictions(self.network, graph, REDUCTIONS))
