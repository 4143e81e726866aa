import pytest
from hypothesis import given
from hypothesis import strategies as st

from molgcn.errors import shown


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
