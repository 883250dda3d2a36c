"""A message's kind and ends in words, as files, commands and logs have them."""

from __future__ import annotations

from seedbus.bus.envelope import EVALUATOR, SERVER, Kind

KINDS = {kind.value: kind.name.lower() for kind in Kind}
_SINGLE = {SERVER: "server", EVALUATOR: "evaluator"}
_MOST_DIGITS = 10  # addresses are below 2³²


def end_in_words(address: int) -> str:
    """Return who has an address: "server", "evaluator", "client 17", or "process 2", which hosts clients."""
    return f"client {address}" if address >= 0 else _SINGLE.get(address) or f"process {-2 - address}"


def address_of(words: str) -> int:
    """Return the address that `end_in_words` has put into these words. Raises `ValueError` for all others."""
    who, _, digits = words.partition(" ")
    number = int(digits) if digits.isdecimal() and len(digits) <= _MOST_DIGITS else 0
    address = {"server": SERVER, "evaluator": EVALUATOR, "process": -2 - number}.get(who, number)
    if end_in_words(address) != words:
        raise ValueError(f"{words!r:.50} is no end of a message")
    return address
