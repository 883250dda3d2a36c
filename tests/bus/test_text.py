"""Text from other processes is printed as text, without control characters."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from seedbus.bus.text import printable


def test_foreign_text_reaches_the_terminal_as_printable_characters_only() -> None:
    foreign = "\x1b]0;title\x07 two\r\nlines \u202eevil \ud800 café 雪"
    assert printable(foreign) == " ]0;title  two  lines  evil   café 雪"


@given(st.text(), st.integers(1, 50))
def test_a_shown_text_is_one_printable_line_of_bounded_length(text: str, most: int) -> None:
    shown = printable(text, most)
    assert shown.isprintable()
    assert len(shown) <= most
    assert shown == text[:most] or not text.isprintable() or shown.endswith("…")
