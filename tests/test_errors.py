import pytest
from hypothesis import given
from hypothesis import strategies as st

from molgcn.errors import counted, first_of, shown


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("C[C@H](N)C(=O)O", "C[C@H](N)C(=O)O"),
        ("\x1b[31mC\r\n", "\\x1b[31mC\\r\\n"),
        ("a\u202eb", "a\\u202eb"),
        ("\u00df", "\u00df"),
        ("C" * 80, "C" * 80),
        ("C" * 81, "C" * 77 + "..."),
    ],
)
def test_what_messages_show_of_a_text(text, expected):
    assert shown(text) == expected


@given(st.text())
def test_is_short_and_printable(text):
    assert len(shown(text)) <= 80
    assert shown(text).isprintable()


def test_things_are_counted_in_words():
    assert [counted(number, "row") for number in (0, 1, 2, 1200)] == ["0 rows", "1 row", "2 rows", "1,200 rows"]
    assert first_of(1, 1200) == "It is the only such row of 1,200."
    assert first_of(13, 1200, "cell", " read so far") == "It is the first of 13 such cells of 1,200 read so far."
