import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from molgcn.data.segments import pointers, segment_index, smallest_uint


@given(st.lists(st.tuples(st.integers(0, 1000), st.integers(0, 9)), max_size=20))
def test_segment_index_lists_every_segment(segments):
    starts, sizes = np.array(segments, np.int64).reshape(-1, 2).T
    expected = [i for start, size in segments for i in range(start, start + size)]
    assert segment_index(starts, sizes).tolist() == expected


@given(st.lists(st.integers(0, 100), max_size=20))
def test_pointers_are_running_sums(sizes):
    ptr = pointers(np.array(sizes, np.int64), np.int32)
    assert ptr.tolist() == [sum(sizes[:i]) for i in range(len(sizes) + 1)] and ptr.dtype == np.int32


def test_smallest_uint():
    assert [smallest_uint(n) for n in (0, 255, 256, 65_535)] == [np.uint8, np.uint8, np.uint16, np.uint16]
