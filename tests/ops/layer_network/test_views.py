"""Views of one piece of memory are where they should be, however they lie."""

import torch
from hypothesis import given
from hypothesis import strategies as st

from molgcn.ops.layer_network.views import Views

SHAPES = [torch.Size(shape) for shape in ((4,), (1,), (), (2, 3), (3, 2), (2, 2, 2))]


@given(st.lists(st.tuples(st.sampled_from(SHAPES), st.integers(0, 3), st.booleans()), max_size=12), st.randoms())
def test_views_are_where_they_should_be(tensors, random):
    places, end = [], 0
    for shape, gap, transposed in tensors:
        strides = torch.empty(shape).stride()
        if transposed and len(shape) == 2:
            strides = (1, shape[0])
        places.append((shape, strides, end + gap))
        end += gap + shape.numel()
    places += [None] * (len(places) % 3)
    random.shuffle(places)
    memory = torch.arange(float(end))
    found = Views(places).of(memory)
    assert len(found) == len(places)
    for view, place in zip(found, places, strict=True):
        if place is None:
            assert view is None
        else:
            expected = memory.as_strided(*place)
            assert torch.equal(view, expected)
            assert (view.shape, view.stride(), view.data_ptr()) == (expected.shape, expected.stride(), expected.data_ptr())
