"""The encoder that turns random-walk probabilities into part of the atoms' first states."""

from __future__ import annotations

from torch import Tensor, nn

from molgcn.nn.norms import BatchNorm, normalised


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
        """Return the encoding [N, channels]."""
        return self.lin(normalised(self.norm, walks, count))
