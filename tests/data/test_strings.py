import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from molgcn.data import strings as strings_module
from molgcn.data.strings import PackedStrings

texts = st.lists(st.text(max_size=8), max_size=20)


@given(texts)
def test_is_the_list_it_was_made_from(strings):
    packed = PackedStrings.from_strings(strings)
    assert len(packed) == len(strings) and list(packed) == strings
    assert packed[1:-1] == strings[1:-1] and packed[::-2] == strings[::-2]
    for i in range(-len(strings), len(strings)):
        assert packed[i] == strings[i]


@given(st.lists(st.tuples(st.text(max_size=4), st.text(max_size=4)), max_size=12), st.integers(1, 5))
def test_columns(rows, at_once):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(strings_module, "STRINGS_AT_ONCE", at_once)
        columns = PackedStrings.columns(rows)
        assert [list(column) for column in columns] == [list(column) for column in zip(*rows, strict=True)]


def test_equal_to_any_sequence_of_the_same_strings():
    packed = PackedStrings.from_strings(["C", "CC"])
    assert packed == ["C", "CC"] and packed == ["C", "CC"] and packed == PackedStrings.from_strings(("C", "CC"))
    assert packed != ["C", "N"] and packed != ["C"] and packed != "C" and PackedStrings.from_strings("C") != "C"


@given(texts, texts)
def test_concat(first, second):
    assert list(PackedStrings.concat([PackedStrings.from_strings(first), PackedStrings.from_strings(second)])) == first + second


@given(texts.filter(len), st.lists(st.integers(0, 10**6), max_size=20))
def test_take(strings, places):
    indices = np.array([place % len(strings) for place in places], np.int64)
    assert list(PackedStrings.from_strings(strings).take(indices)) == [strings[i] for i in indices]


def test_more_than_are_encoded_at_once():
    strings = [f"C{i % 1000}é" for i in range(150_000)]
    assert list(PackedStrings.from_strings(text for text in strings)) == strings


def test_index_out_of_range():
    with pytest.raises(IndexError):
        _ = PackedStrings.from_strings(["C"])[1]
