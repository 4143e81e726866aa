"""Fill in what the kernels of a pass of the layer network read, and compare what they write."""

from __future__ import annotations

import torch
from torch import Tensor

from molgcn.ops.layer_network.passes import Pass, Rows
from molgcn.ops.layer_network.steps import Finish, Gather

SPREAD = (1e-12, 1e-4, 1.0, 1.0, 1.0, 1e6)  # sizes of rows


def num_real(run: Pass, kind: str) -> int:
    """Return how many rows of "atoms" or "bonds" are not padding."""
    atoms = int(run.graph.ptr[-1])
    return atoms if kind == "atoms" else int(run.graph.rowptr[atoms])


def fill(run: Pass, rows: Rows, kind: str, *, even: bool = False, seed: int = 0) -> Tensor:
    """Fill rows with numbers of all magnitudes, or if `even` of one, and padding with NaN, and return the real rows."""
    count = num_real(run, kind)
    generator = torch.Generator().manual_seed(rows.width + count + seed)
    numbers = torch.randn(count, rows.width, generator=generator)
    sizes = torch.ones(()) if even else torch.tensor(SPREAD)[torch.randint(len(SPREAD), (count, 1), generator=generator)]
    rows.tensor.zero_()
    rows.tensor[count:] = torch.nan
    rows.values[:count] = (numbers * sizes).to(rows.tensor.device)
    return rows.values[:count].clone()


def keep_moments(run: Pass, step: Finish, source: Tensor) -> None:
    """Store the moments of a norm's input, as the forward pass does."""
    if step.norm is not None and len(source):
        variance, mean = torch.var_mean(source.double(), 0, correction=0)
        run.moments(step.norm).copy_(torch.stack([mean, (variance + run.program.eps).rsqrt()]))


def keep_signs(run: Pass, value: int, kind: str) -> Tensor:
    """Store which numbers of a value are positive, as the forward pass does, fill its rows if it has any, and return that."""
    width = run.program.values[value].width
    drawn = torch.randn(num_real(run, kind), width, generator=torch.Generator().manual_seed(width)).to(run.saved.device)
    positive = (drawn if value in run.signs_alone else fill(run, run.rows(value), kind)) > 0
    signs = run.signs(value)
    groups, chunks = signs.shape[:2]
    places = positive.new_zeros(8 * groups, 16 * chunks)
    places[: len(positive), : positive.shape[1]] = positive
    lanes = places.view(groups, 8, chunks, 8, 2)[:, [0, 1, 3, 2, 4, 5, 7, 6]]  # of eight rows, a lane has 2 t and 2 t + 1 in this order
    bits = lanes.view(groups, 4, 2, chunks, 8, 2).permute(0, 3, 2, 5, 4, 1).reshape(groups, chunks, 4, 32)  # 4 g + t of words 2 i + j
    words = (bits.long() << torch.arange(32, device=bits.device)).sum(-1)
    signs.view(torch.int32).copy_(torch.where(words < 2**31, words, words - 2**32))
    return positive


def gathered(run: Pass, step: Gather, source: Tensor, bonds: Tensor | None) -> tuple[Tensor, Tensor]:
    """Return the sums along the bonds, and the sums of their terms' absolute values, in float64."""
    atoms = torch.arange(len(source), device=source.device)
    to_atom = atoms.repeat_interleave(run.graph.rowptr.diff()[: len(source)])
    message = source[run.graph.col[: len(to_atom)].long()]
    message = message if bonds is None else (message + bonds).relu()
    if step.eps is not None:
        to_atom, message = torch.cat([to_atom, atoms]), torch.cat([message, (1 + run.parameter(step.eps).double()) * source])
    if step.aggr == "mean":
        message = message / torch.bincount(to_atom, minlength=len(source))[to_atom, None]
    zeros = torch.zeros_like(source)
    return zeros.index_add(0, to_atom, message), zeros.index_add(0, to_atom, message.abs())


def row_error(run: Pass, out: Rows, expected: Tensor, size: Tensor, kind: str) -> float:
    """Return the largest error of a row relative to `size`."""
    count = num_real(run, kind)
    assert not out.tensor[count:].any(), "padding is zeros"
    assert not out.tensor[:, out.width :].any(), "columns between width and stride are zeros"
    errors = (out.values[:count].double() - expected).norm(dim=1) / size.norm(dim=1)
    return float(errors.amax()) if count else 0.0


def relative_error(found: Tensor, expected: Tensor, scale: Tensor) -> float:
    """Return the error relative to the expected value, or to a millionth of `scale` where that cancels out."""
    return float((found.double() - expected).norm() / (expected.norm() + 1e-6 * scale + 1e-30))
