"""Descriptors of molecules on their way into the head."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn

from molgcn.errors import UserError


class Descriptors(nn.Module):
    r"""Standardise descriptors as those of the training part and put them beside the pooled states.

    .. math::
        Z = [P \;|\; (D - \mu) / \sigma]

    :math:`\mu` and :math:`\sigma` are buffers, so that checkpoints and exported networks have them.

    Args:
        channels: descriptors a molecule, K.

    Shapes:
        - **pooled:** [B, H]
        - **descriptors:** [B, K], as they are in files
        - **output:** [B, H + K], in the dtype of `pooled`
    """

    mean: Tensor
    std: Tensor

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(channels))
        self.register_buffer("std", torch.ones(channels))

    @torch.no_grad()
    def fit(self, descriptors: np.ndarray) -> None:
        """Take mean and deviation of the training part, float [M, K]; a column that is constant there is only centred."""
        mean, std = descriptors.mean(axis=0, dtype=np.float64), descriptors.std(axis=0, dtype=np.float64)
        constant = descriptors.min(axis=0) == descriptors.max(axis=0)
        self.mean.copy_(torch.from_numpy(mean))
        self.std.copy_(torch.from_numpy(np.where(constant, 1.0, std)))

    def forward(self, pooled: Tensor, descriptors: Tensor | None) -> Tensor:
        """Return what the head takes.

        Raises:
            UserError: where the batch has no descriptors, or others than the network was made for.
        """
        channels = self.mean.shape[0]
        if descriptors is None:
            raise UserError(
                f"The network reads {channels} `descriptors` a molecule, which the batch does not have. Put them beside its molecules "
                "with molgcn.data.descriptors.attach.with_descriptors."
            )
        rows = descriptors.reshape(pooled.shape[0], -1)
        if rows.shape[1] != channels:
            raise UserError(
                f"The batch's `descriptors` are {rows.shape[1]} of each molecule, and the network was made for {channels}. Give it "
                "molecules with those that it was trained on."
            )
        scaled = (rows.to(self.mean.dtype) - self.mean) / self.std
        return torch.cat([pooled, scaled.to(pooled.dtype)], dim=1)
