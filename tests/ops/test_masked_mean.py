"""The mean of a loss counts known targets only."""

import pytest
import torch

from molgcn.ops.masked_mean import masked_mean


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_terms_of_missing_targets_do_not_count(dtype):
    terms = torch.tensor([[1.0, 2.0], [3.0, 1e30]], dtype=dtype, requires_grad=True)
    mean, sums = masked_mean(terms, torch.tensor([[True, True], [True, False]]))
    (gradient,) = torch.autograd.grad(mean, terms)
    assert (mean.item(), mean.dtype) == (2.0, dtype)
    assert (sums.tolist(), sums.dtype, sums.requires_grad) == ([6.0, 3.0], torch.float64, False)
    torch.testing.assert_close(gradient, torch.tensor([[1 / 3, 1 / 3], [1 / 3, 0]], dtype=dtype))


def test_nothing_known_is_zero():
    mean, sums = masked_mean(torch.ones(2, 1), torch.zeros(2, 1, dtype=torch.bool))
    assert mean == 0 and sums.tolist() == [0, 0]
