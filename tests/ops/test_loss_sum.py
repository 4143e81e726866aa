"""The kernel that sums losses compiles for every architecture, and is right under emulation and on a GPU."""

from __future__ import annotations

import math

import pytest
import torch
from architectures import EVERY_ARCHITECTURE
from compiler import needs_compiler
from compiling import compiles

from molgcn.ops.loss_sum import add_loss


@pytest.mark.parametrize("arch", EVERY_ARCHITECTURE)
def test_compiles_for_every_architecture(arch):
    assert compiles("loss_sum.cu", {}, arch)


@pytest.mark.parametrize("bad", [math.nan, math.inf])
@pytest.mark.parametrize("device", [pytest.param("cpu", marks=needs_compiler), pytest.param("cuda", marks=pytest.mark.gpu)])
def test_sums_and_batches_before_the_first_bad_one(device, bad, request):
    if device == "cpu":
        request.getfixturevalue("emulate")
    sums, finite = torch.zeros(2, dtype=torch.double, device=device), torch.zeros((), dtype=torch.int64, device=device)
    losses = [0.1, 0.0, -5.0, 1e300, 0.7]
    for number, loss in enumerate(losses, 1):
        add_loss(torch.tensor([loss, 3.0], dtype=torch.double, device=device), sums, finite)
        assert (sums.tolist(), int(finite)) == ([sum(losses[:number]), 3.0 * number], number)
    for loss in (bad, 1.0, math.inf):
        add_loss(torch.tensor([loss, 3.0], dtype=torch.double, device=device), sums, finite)
        assert not sums[0].isfinite() and int(finite) == len(losses)
