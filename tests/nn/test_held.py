"""Both ways to compare what dictionaries hold look at objects and not at values."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from molgcn.nn.held import are_held, are_held_in_python

WAYS = pytest.mark.parametrize("way", [are_held, are_held_in_python])


@WAYS
@given(st.data())
def test_the_very_objects_in_their_order(way, data):
    objects = [[], [], None, 1000]  # of which two are equal
    place = st.integers(0, len(objects) - 1)
    places = data.draw(st.lists(st.lists(place, max_size=3), max_size=4))
    others = data.draw(st.just([one for some in places for one in some]) | st.lists(place, max_size=12))
    dictionaries = [{str(key): objects[one] for key, one in enumerate(some)} for some in places]
    held = [id(value) for dictionary in dictionaries for value in dictionary.values()]
    assert way(dictionaries, [objects[one] for one in others]) == (held == [id(objects[one]) for one in others])


@WAYS
def test_of_dictionaries_that_change(way):
    first, second = object(), object()
    dictionary = {"a": first, "b": second}
    held = [first, second]
    assert way([dictionary], held)
    dictionary["a"], dictionary["b"] = second, first
    assert not way([dictionary], held)
    del dictionary["a"], dictionary["b"]
    assert not way([dictionary], held) and way([dictionary, {}], [])
    dictionary |= {"c": first, "d": second}
    assert way([dictionary], held) and not way([dictionary, {"e": first}], held)


def test_the_compiled_one_takes_dictionaries_alone():
    pytest.importorskip("molgcn._members", exc_type=ImportError)
    with pytest.raises(TypeError, match="expected dictionaries"):
        are_held([[1]], [1])
