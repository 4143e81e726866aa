"""Kernels are launched on a GPU. `pytest -m gpu`."""

from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from test_head_loss import example

from molgcn.cuda_runtime.launch import kernel
from molgcn.cuda_runtime.structs import fill
from molgcn.ops.head_loss import Objective, head_loss
from molgcn.ops.head_loss_cuda import HEADER, source

pytestmark = pytest.mark.gpu


def has_context():
    from cuda.bindings import driver

    return int(driver.cuCtxGetCurrent()[1]) != 0


@pytest.mark.parametrize("how", [{}, {"cooperative": True}, {"overlap": True}], ids=str)
def test_a_launch_needs_no_context_in_its_thread(how):
    """A thread has no context until CUDA's runtime has worked in it, as autograd's thread at its first backward."""
    x, _, _, targets = example(1500, (2,), device="cuda")
    expected, expected_sums = head_loss(x, [], [], Objective(*targets, "mse"))
    value, sums = torch.full_like(expected, torch.nan), torch.full_like(expected_sums, torch.nan)
    tensors = dict(zip(("x", "target", "mean", "std"), (x, *targets), strict=True))
    parameters = fill(HEADER.ctype()(num_graphs=1500, num_targets=2), {**tensors, "derivatives": x.clone(), "loss": value, "sums": sums})
    file, defines = source(2)
    function = kernel(file, "masked_loss_forward", defines, value.device)

    def launch():
        before = has_context()
        function.launch(1, 1024, 16 * 1024, parameters, **how)
        return before, has_context()

    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(launch).result() == (False, False)
    torch.cuda.synchronize()
    assert torch.equal(value, expected)
    assert torch.equal(sums, expected_sums)
