"""Predict packed molecules without a Trainer."""

from __future__ import annotations

import numpy as np
import torch

from molgcn.data.layout import BatchLayout, lay_out
from molgcn.data.loader import PackedLoader
from molgcn.data.packed import PackedMolecules
from molgcn.training.module import MoleculeModule


@torch.no_grad()
def predict_molecules(module: MoleculeModule, molecules: PackedMolecules, batch_size: int) -> np.ndarray:
    """Return the predictions of molecules, computed on the module's device.

    Args:
        module: the trained module; it is left in evaluation mode.
        molecules: M molecules with the features that it was trained on.
        batch_size: molecules per batch.

    Returns:
        float64 [M, P] in the molecules' order; see :meth:`molgcn.tasks.base.Task.decode`.
    """
    module.eval()
    predictions = np.empty((len(molecules), module.task.num_predictions))
    model = module.model
    layout = BatchLayout(bonds=model.edge_channels is not None, rwse=model.rwse, bond_rw=model.bond_rw)
    for batch in PackedLoader(lay_out(molecules, layout), batch_size, shuffle=False):
        indices = batch.indices.numpy()
        predictions[indices] = module(module.ready(batch)).cpu().numpy()
    return predictions
