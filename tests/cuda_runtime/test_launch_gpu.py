"""Launching on a GPU. `pytest -m gpu`."""

from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from test_masked_loss import example

from molgcn.cuda_runtime.launch import kernel
from molgcn.ops.masked_loss import _parameters as masked_loss_parameters
from molgcn.ops.masked_loss import masked_loss

pytestmark = pytest.mark.gpu


def has_context():
    from cuda.bindings import driver

    return int(driver.cuCtxGetCurrent()[1]) != 0


@pytest.mark.parametrize("how", [{}, {"cooperative": True}, {"overlap": True}], ids=str)
def test_a_launch_needs_no_context_in_its_thread(how):
    """A thread has none until CUDA's runtime has worked in it: so does autograd's at its first backward."""
    tensors = dict(zip(("prediction", "target", "mean", "std"), example("cuda"), strict=True))
    expected, expected_sums = masked_loss(*tensors.values(), "mse")
    value, sums = torch.full_like(expected, torch.nan), torch.full_like(expected_sums, torch.nan)
    parameters = masked_loss_parameters(1.0, loss=value, sums=sums, **tensors)
    function = kernel("masked_loss.cu", "masked_loss_forward", {"LOSS": 0}, value.device)

    def launch():
        before = has_context()
        function.launch(1, 1024, 16 * 1024, parameters, **how)
        return before, has_context()

    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(launch).result() == (False, False)
    torch.cuda.synchronize()
    assert torch.equal(value, expected)
    assert torch.equal(sums, expected_sums)
