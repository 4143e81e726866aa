"""Buffers that are needed at the same time do not overlap."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from molgcn.ops.layer_network.memory import ALIGNMENT, Span, lay_out, side_by_side, spans

SPANS = st.lists(st.tuples(st.integers(0, 300), st.integers(0, 9), st.integers(0, 9)), max_size=12).map(
    lambda rows: {key: Span(size, min(times), max(times)) for key, (size, *times) in enumerate(rows)}
)


@given(SPANS)
def test_no_overlap(pieces):
    layout = lay_out(pieces)
    assert set(layout.offsets) == set(pieces)
    for key, span in pieces.items():
        at = layout.offsets[key]
        assert at % ALIGNMENT == 0
        assert at + span.size <= layout.size
        for other, its in pieces.items():
            together = key != other and span.first <= its.last and its.first <= span.last
            apart = at + span.size <= layout.offsets[other] or layout.offsets[other] + its.size <= at
            assert apart or not together or not (span.size and its.size)


def test_memory_is_used_again():
    layout = lay_out({0: Span(100, 0, 1), 1: Span(100, 1, 2), 2: Span(100, 2, 3)})
    assert layout.size == 256
    assert layout.offsets[0] == layout.offsets[2]


def test_small_pieces_leave_room_for_a_large_one():
    """In the order of time, the last piece would not fit where the first two were."""
    layout = lay_out({0: Span(64, 0, 2), 1: Span(64, 1, 1), 2: Span(192, 2, 4), 3: Span(192, 3, 5)})
    assert layout.size == 384


def test_spans_of_steps():
    found = spans({0: 5, 1: 6, 2: 7}, [(0,), (0, 1), (1, 2, 9)], until_end=(2,))
    assert found == {0: Span(5, 0, 1), 1: Span(6, 1, 2), 2: Span(7, 2, 3)}


@given(st.dictionaries(st.integers(0, 20), st.integers(0, 300)))
def test_side_by_side(sizes):
    layout = side_by_side(sizes)
    ends = {layout.offsets[key] + size for key, size in sizes.items()}
    assert max(ends, default=0) <= layout.size
    extents = sorted((layout.offsets[key], layout.offsets[key] + size) for key, size in sizes.items() if size)
    assert all(end <= begin for (_, end), (begin, _) in pairwise(extents))
    assert all(at % ALIGNMENT == 0 for at in layout.offsets.values())
