"""What is made from a tensor is kept until the tensor changes or is freed."""

import gc
import weakref

import pytest
import torch

from molgcn.ops.remembered import alike, remembered


class Result:
    """A result that can be watched."""


@pytest.mark.parametrize(
    "change",
    [
        lambda tensor: tensor.add_(1),
        lambda tensor: setattr(tensor, "data", torch.ones(3)),
        lambda tensor: tensor.resize_(5),
    ],
    ids=["written to", "other data", "other size"],
)
def test_made_again_after_a_change(change):
    tensor = torch.zeros(3)
    first = remembered(tensor, "key", Result)
    assert remembered(tensor, "key", Result) is first
    assert remembered(tensor, "other key", Result) is not first
    change(tensor)
    alive = weakref.ref(first)
    del first
    second = remembered(tensor, "key", Result)
    assert alive() is None  # nothing of the earlier state is kept
    assert remembered(tensor, "key", Result) is second


def test_dropped_with_the_tensor():
    tensor = torch.zeros(3)
    alive = weakref.ref(remembered(tensor, "key", Result))
    assert alive() is not None
    del tensor
    gc.collect()
    assert alive() is None


def test_a_tensor_that_only_autograd_holds_keeps_its_results():
    x, index = torch.ones(2, requires_grad=True), torch.zeros(2, dtype=torch.int64)
    first = remembered(index, "key", Result)
    seen = []

    class Keep(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, index):
            ctx.save_for_backward(index)
            return x * 2

        @staticmethod
        def backward(ctx, grad):
            seen.append(remembered(ctx.saved_tensors[0], "key", Result))
            return grad * 2, None

    out = Keep.apply(x, index)
    del index
    gc.collect()
    out.sum().backward()
    assert seen == [first]


def test_failures_and_inference_tensors_are_not_remembered():
    def fail():
        raise ValueError("no")

    tensor = torch.zeros(3)
    with pytest.raises(ValueError, match="no"):
        remembered(tensor, "key", fail)
    assert isinstance(remembered(tensor, "key", Result), Result)
    with torch.inference_mode():
        tensor = torch.zeros(3)
    assert remembered(tensor, "key", Result) is not remembered(tensor, "key", Result)


def test_alike():
    x, y = torch.zeros(2, 3), torch.ones(2, 3)
    assert alike((x, None, 1.5)) == alike((y, None, 1.5))
    assert len({alike((x,)), alike((x.double(),)), alike((x[:1],)), alike((x.to("meta"),)), alike((None,))}) == 5
