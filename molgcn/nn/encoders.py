"""How atoms and bonds get their first states."""

from __future__ import annotations

from torch import Tensor, nn

from molgcn.nn.norms import BatchNorm, normalised


class WalkEncoder(nn.Module):
    """A batch norm of k random-walk probabilities, then a linear map: GNN+'s encoding of atoms.

    Args:
        steps: k.
        channels: width of the encoding.

    Shapes:
        - **walks:** float [N, k]; **count:** integer [], real rows, or None
        - **output:** [N, channels]
    """

    def __init__(self, steps: int, channels: int) -> None:
        super().__init__()
        self.norm = BatchNorm(steps)
        self.lin = nn.Linear(steps, channels)

    def forward(self, walks: Tensor, count: Tensor | None = None) -> Tensor:
        """Return the encoding [N, channels]."""
        return self.lin(normalised(self.norm, walks, count))
