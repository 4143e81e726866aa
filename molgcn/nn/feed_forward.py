"""The feed-forward block after a layer."""

from __future__ import annotations

from collections.abc import Callable

import torch.nn.functional as F
from torch import Tensor, nn

from molgcn.nn.norms import NORMS, normalised


class FeedForward(nn.Module):
    r"""The block that GNN+ puts after every layer, with atoms in place of a transformer's tokens.

    .. math::
        H' = \mathrm{norm}_2(H_1 + \mathrm{dropout}(W_2\,\mathrm{dropout}(\mathrm{act}(W_1 H_1 + b_1)) + b_2)), \qquad
        H_1 = \mathrm{norm}_1(H)

    The first `count` of the rows [N, d] are real atoms of a padded batch; None means that all are. The hidden layer has width 2 d.

    Source: Luo, Shi and Wu, "Unlocking the Potential of Classic GNNs for Graph-level Tasks", ICML 2025, equation 9 and code.
    """

    def __init__(self, channels: int, norm: str | None, activation: Callable[[], nn.Module]) -> None:
        super().__init__()
        self.norm1, self.norm2 = (NORMS[norm](channels) if norm else None for _ in range(2))
        self.lin1 = nn.Linear(channels, 2 * channels)
        self.lin2 = nn.Linear(2 * channels, channels)
        self.activation = activation()

    def forward(self, x: Tensor, dropout: float = 0.0, count: Tensor | None = None) -> Tensor:
        """Return the atoms' new states [N, d]."""
        x = x if self.norm1 is None else normalised(self.norm1, x, count)
        hidden = F.dropout(self.activation(self.lin1(x)), dropout, self.training)
        x = x + F.dropout(self.lin2(hidden), dropout, self.training)
        return x if self.norm2 is None else normalised(self.norm2, x, count)
