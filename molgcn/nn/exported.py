"""The network in the form that is exported, which takes tensors and uses plain PyTorch operators only, and what ONNX's exporter lacks."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from typing import Any

import torch
from torch import Tensor, nn

from molgcn.nn import forward
from molgcn.nn.graph_inputs import GraphInputs
from molgcn.nn.molecule_net import MoleculeNet
from molgcn.nn.reference import REDUCTIONS


class ExportedNetwork(nn.Module):
    """A copy of a trained network in evaluation mode on backend=reference, which takes tensors.

    The number of molecules is the only shape that depends on values. The module can therefore be exported with the numbers of atoms,
    bonds and molecules left open.

    Args:
        model: the network, which is copied.
        output: the module that turns the network's outputs [B, P] into predictions, see :mod:`molgcn.nn.output_layers`. It is copied.

    Shapes:
        - **x:** float [N, F], atom features
        - **edge_index:** int64 [2, E], source and target of every bond, both directions present
        - **batch:** int64 [N], the molecule of every atom, from 0, without gaps
        - **edge_attr:** float [E, D], bond features; this input and the next four are needed if the network's `optional_inputs` name them
        - **rwse:** float [N, k], return probabilities of random walks
        - **bond_rw:** float [E, k], probabilities of random walks from each bond's source to its target
        - **descriptors:** float [B, K], numbers of each molecule, not standardised
        - **component:** int32 [N], which of a row's molecules every atom belongs to
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
            count = batch.max().item() + 1  # type: ignore[assignment]  # int() would become a constant in the export
            torch._check(count >= 1)
            torch._check(count <= batch.shape[0])
        graph = GraphInputs(x, edge_index, batch, count, edge_attr, rwse, bond_rw, descriptors, component)
        if self.network.encoders:  # a component's number of atoms depends on values; in a padded batch no shape does
            atoms, bonds = (torch.ones_like(one).sum() for one in (batch, edge_index[0]))
            graph = graph.padded(torch.cat([batch, batch.new_full((1,), count)]), atoms, bonds)
        return self.output(forward.predictions(self.network, graph, REDUCTIONS))


def _stable_sort(self: Any, *, stable: bool = True, dim: int = -1, descending: bool = False) -> Any:
    """Return the sorted values and their positions by ONNX's TopK, which is stable: the lower position comes first among equals."""
    from onnxscript import opset18

    op: Any = opset18
    length = op.Gather(op.Shape(self), op.Constant(value_ints=[dim]))
    return op.TopK(self, length, axis=dim, largest=int(descending), sorted=1)


TRANSLATIONS: dict[Any, Callable] = {torch.ops.aten.sort.stable: _stable_sort}
"""Translations for `torch.onnx.export(..., custom_translation_table=TRANSLATIONS)`."""
