"""Batch norm over a padded batch's real rows is PyTorch's batch norm over these rows."""

import pytest
import torch
from torch import nn

from molgcn.nn.norms import BatchNorm


def both() -> tuple[BatchNorm, nn.BatchNorm1d]:
    """Return one norm in this project's and in PyTorch's class, with random weights and biases."""
    ours, theirs = BatchNorm(5).double(), nn.BatchNorm1d(5).double()
    nn.init.uniform_(theirs.weight, 0.5, 2)
    nn.init.normal_(theirs.bias)
    ours.load_state_dict(theirs.state_dict())
    return ours, theirs


@pytest.mark.parametrize("padding", [0, 1, 7])
@pytest.mark.parametrize("rows", [2, 30])
def test_real_rows_alone_count(rows, padding):
    ours, theirs = both()
    for _ in range(3):
        x = torch.randn(rows, 5, dtype=torch.double)
        inputs = torch.cat([x, torch.full((padding, 5), 1e3, dtype=torch.double)]).requires_grad_(), x.requires_grad_()
        outputs = ours(inputs[0], torch.tensor(rows))[:rows], theirs(inputs[1])
        for output in outputs:
            (output**3).sum().backward()
        torch.testing.assert_close(outputs[0], outputs[1], rtol=1e-10, atol=1e-10)
        torch.testing.assert_close(inputs[0].grad[:rows], inputs[1].grad, rtol=1e-8, atol=1e-8)
        assert not inputs[0].grad[rows:].any()
    torch.testing.assert_close(ours.state_dict(), theirs.state_dict(), rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(ours.weight.grad, theirs.weight.grad, rtol=1e-8, atol=1e-8)


def test_without_padding_it_is_pytorch_s_bit_for_bit():
    ours, theirs = both()
    x = torch.randn(9, 5, dtype=torch.double)
    assert torch.equal(ours(x), theirs(x))
    assert all(torch.equal(mine, other) for mine, other in zip(ours.state_dict().values(), theirs.state_dict().values(), strict=True))
    assert torch.equal(ours.eval()(x, torch.tensor(3)), theirs.eval()(x))
    with pytest.raises(ValueError, match="more than 1 value per channel"):
        ours.train()(x[:1])


@pytest.mark.parametrize(("rows", "count"), [(0, None), (4, 0)])
def test_without_rows_nothing_is_taken_in(rows, count):
    ours, theirs = both()
    out = ours(torch.randn(rows, 5, dtype=torch.double), None if count is None else torch.tensor(count))
    assert out.shape == (rows, 5)
    assert out.isfinite().all()
    assert torch.equal(ours.running_mean, theirs.running_mean)
    assert torch.equal(ours.running_var, theirs.running_var)
