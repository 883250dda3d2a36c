"""Texts that are one value in several spellings, and those that only look like one.

Equal numbers (`1`, `1.0`, `01`) and the same truth value (`true`, `True`) are one value. Texts that differ in upper and
lower case or in spaces stay different values, of which a note tells.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable
from decimal import Decimal

_NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]{1,3})?")
_LONGEST = 400  # characters of a number


def value_of(text: str) -> Decimal | str:
    """Return what a text stands for; it is equal for texts that are one value."""
    text = text.strip()
    if len(text) <= _LONGEST and _NUMBER.fullmatch(text):
        return Decimal(text)
    return text.lower() if text.lower() in ("true", "false") else text


def other_spellings(texts: Iterable[str], others: Iterable[str] = ()) -> dict[str, str]:
    """Return, for each text that stands for the same value as another one, that other one.

    Args:
        texts: those of the training part. Of several spellings of a value here the shortest one is kept, in lower case.
        others: such as those of the test set; they take the spelling that `texts` have.
    """
    own = set(texts)
    kept: dict[Decimal | str, str] = {}
    found = {}
    for group in (own, set(others) - own):
        for text in sorted(group, key=lambda each: (len(each), each.swapcase())):
            first = kept.setdefault(value_of(text), text)
            if first != text:
                found[text] = first
    return found


def taken_as_one(what: str, spellings: dict[str, str]) -> list[str]:
    """Return a sentence if texts were spelled in several ways, as `other_spellings` returns them; what: has them."""
    if not spellings:
        return []
    kept = min(spellings.values())
    same = " and ".join(map(repr, [kept, *sorted(text for text, first in spellings.items() if first == kept)][:3]))
    return [f"{what} has {same}, which are taken as one, {kept!r}"]


def spelled_alike(what: str, names: Iterable[str], noun: str = "classes") -> list[str]:
    """Return a sentence if names differ only in upper and lower case or spaces, or are equal numbers.

    Args:
        what: has these names.
        names: such as those of classes.
        noun: what they are, in the plural.
    """
    groups: dict[Decimal | str, list[str]] = {}
    for name in names:
        groups.setdefault(folded(name), []).append(name)
    first = next((names for names in groups.values() if len(names) > 1), None)
    if first is None:
        return []
    alike = " and ".join(map(repr, first[:3]))
    return [f"{what} has the {noun} {alike}, each of its own; spell them alike if they are one"]


def folded(name: str) -> Decimal | str:
    """Return a name without what upper and lower case, spaces, and accents as characters of their own tell apart.

    It is a number's value, if the name is one.
    """
    value = value_of(name)
    return " ".join(unicodedata.normalize("NFC", value).casefold().split()) if isinstance(value, str) else value
