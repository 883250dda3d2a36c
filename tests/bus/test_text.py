"""Text from other processes is printed as text, without control characters."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from seedbus.bus.text import counted, printable


def test_foreign_text_reaches_the_terminal_as_printable_characters_only() -> None:
    foreign = "\x1b]0;title\x07 two\r\nlines \u202eevil \ud800 café 雪"
    assert printable(foreign) == " ]0;title  two  lines  evil   café 雪"


@given(st.text(), st.integers(1, 50))
def test_a_shown_text_is_one_printable_line_of_bounded_length(text: str, most: int) -> None:
    shown = printable(text, most)
    assert shown.isprintable()
    assert len(shown) <= most
    assert shown == text[:most] or not text.isprintable() or shown.endswith("…")


def test_one_thing_is_not_plural() -> None:
    assert [counted(count, "round") for count in (0, 1, 3000)] == ["0 rounds", "1 round", "3,000 rounds"]
    assert [counted(count, "process", "processes") for count in (1, 2)] == ["1 process", "2 processes"]
