"""Encoders of inputs: the scale of given features, random-walk probabilities for the atoms' first states, and descriptors for the head."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn

from molgcn.data.packed_arrays import MOLECULES_AT_ONCE
from molgcn.errors import UserError
from molgcn.nn.norms import BatchNorm, normalised


class Scale(nn.Module):
    r"""Standardise columns of numbers by the training part's mean and deviation.

    .. math::
        Z = (X - \mu) / \sigma

    :math:`\mu` and :math:`\sigma` are buffers, so that checkpoints and exported networks have them. They are 0 and 1 for columns that are
    not fitted, which stay as they are.

    Args:
        channels: number of columns, K.

    Shapes:
        - **rows:** [R, K]
        - **output:** [R, K], in the dtype of `rows`
    """

    mean: Tensor
    std: Tensor

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(channels))
        self.register_buffer("std", torch.ones(channels))

    @torch.no_grad()
    def fit(self, values: np.ndarray) -> None:
        """Set mean and deviation of the last columns from their values [R, k] in the training part, R > 0.

        A column that is constant there is only centred.
        """
        pieces = [values[start : start + MOLECULES_AT_ONCE] for start in range(0, len(values), MOLECULES_AT_ONCE)]
        mean = sum(piece.sum(axis=0, dtype=np.float64) for piece in pieces) / len(values)
        std = np.sqrt(sum(np.square(piece - mean).sum(axis=0) for piece in pieces) / len(values))
        constant = values.min(axis=0) == values.max(axis=0)
        first = len(self.mean) - values.shape[1]
        self.mean[first:] = torch.from_numpy(mean)
        self.std[first:] = torch.from_numpy(np.where(constant, 1.0, std))

    def forward(self, rows: Tensor) -> Tensor:
        return ((rows.to(self.mean.dtype) - self.mean) / self.std).to(rows.dtype)


class Descriptors(Scale):
    r"""Standardise descriptors by the training part's mean and deviation, and concatenate them to the pooled states.

    .. math::
        Z = [P \;|\; (D - \mu) / \sigma]

    A limit keeps a molecule whose
    descriptors are far from all that training saw from a prediction that is as far away. It scales all of a molecule's descriptors alike,
    since the head may weigh differences of descriptors that say nearly the same, such as masses and numbers of atoms.

    Args:
        channels: descriptors per molecule, K.
        limit: largest absolute value of a molecule's standardised descriptors, to which they are scaled down; None is no limit.

    Shapes:
        - **pooled:** [B, H]
        - **descriptors:** [B, K], not standardised
        - **output:** [B, H + K], in the dtype of `pooled`
    """

    def __init__(self, channels: int, limit: float | None = None) -> None:
        super().__init__(channels)
        self.limit = limit

    def forward(self, pooled: Tensor, descriptors: Tensor | None) -> Tensor:  # type: ignore[override]
        """Return the input of the head [B, H + K].

        Raises:
            UserError: for a batch without descriptors, or with another number of them than the network was made for.
        """
        channels = self.mean.shape[0]
        if descriptors is None:
            raise UserError(
                f"The network reads {channels} `descriptors` per molecule, which the batch does not have. Add them to its molecules "
                "with molgcn.data.descriptors.attach.with_descriptors."
            )
        rows = descriptors.reshape(pooled.shape[0], -1)
        if rows.shape[1] != channels:
            raise UserError(
                f"The batch has {rows.shape[1]} `descriptors` per molecule, but the network was made for {channels}. Give it molecules "
                "with the descriptors that it was trained on."
            )
        scaled = super().forward(rows.to(self.mean.dtype))
        if self.limit is not None:
            scaled = scaled * (self.limit / scaled.abs().amax(dim=1, keepdim=True)).clamp(max=1)
        return torch.cat([pooled, scaled.to(pooled.dtype)], dim=1)


class WalkEncoder(nn.Module):
    """A batch norm of k random-walk probabilities, then a linear map, as GNN+ encodes atoms.

    Shapes:
        - **walks:** float [N, k]
        - **count:** integer [], number of real rows of a padded batch, or None where all are real
        - **output:** [N, channels]
    """

    def __init__(self, steps: int, channels: int) -> None:
        super().__init__()
        self.norm = BatchNorm(steps)
        self.lin = nn.Linear(steps, channels)

    def forward(self, walks: Tensor, count: Tensor | None = None) -> Tensor:
        return self.lin(normalised(self.norm, walks, count))
