"""Large tensors on the CPU use memory one after another."""

import pytest
import torch

from molgcn.ops.reused_memory import reused_empty

LARGE = 3 << 20  # numbers
LARGER = 50 << 20  # more than other tests leave in this process


def test_a_tensor_of_about_the_size_takes_the_memory():
    first = reused_empty(LARGER, torch.float32)
    address = first.data_ptr()
    del first
    second = reused_empty(LARGER + LARGER // 16, torch.float32)
    assert second.data_ptr() == address
    assert (second.shape, second.dtype) == ((LARGER + LARGER // 16,), torch.float32)


def test_memory_in_use_is_left_alone():
    """A view holds it as well as the tensor itself does."""
    first = reused_empty(LARGE, torch.float32)
    view = first.view(-1, 2)[5:].detach().fill_(7)
    del first
    second = reused_empty(LARGE, torch.float32).fill_(1)
    assert second.data_ptr() != view.data_ptr() - 5 * 2 * 4
    assert bool((view == 7).all())


@pytest.mark.parametrize(("numbers", "dtype"), [(0, torch.float32), (10, torch.float64), (LARGE, torch.float64)])
def test_tensors_are_aligned(numbers, dtype):
    made = reused_empty(numbers, dtype)
    assert (made.shape, made.dtype, made.data_ptr() % 64) == ((numbers,), dtype, 0)


def test_tensors_of_another_size_do_not_take_it():
    first = reused_empty(8 * LARGE, torch.float32)
    address = first.data_ptr()
    del first
    assert reused_empty(LARGE, torch.float32).data_ptr() != address
