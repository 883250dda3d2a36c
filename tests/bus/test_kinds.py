"""All places that list kinds of messages agree with the one table of them, `Kind`."""

from __future__ import annotations

from typing import get_args

import pytest

from seedbus.bus import SERVER, Envelope, Kind
from seedbus.bus.codec import decode, encode
from seedbus.bus.envelope import BETWEEN, DOWN, UP
from seedbus.bus.words import KINDS
from seedbus.scenarios.faults.base import MessageSelector

TRAVELLING = [kind for kind in Kind if kind is not Kind.LINK]


def test_numbers_and_names_are_those_of_the_wire_and_of_draws() -> None:
    assert "".join(f"{kind}{kind.name} " for kind in Kind) == (
        "0LINK 1JOIN 2WELCOME 3REFUSE 4COMMIT 5EVALUATION 6PLAN 7REPORT 8BYE 9DECLINE 10WAKE 11PEAK 12SNAPSHOT 13PULL "
        "14FETCH 15PIECE 16ASK 17TELL 18FLOOD 19HAVE 20MEASURE 21MEASURED "
    )
    assert [Kind(int(kind)) for kind in Kind] == list(Kind) and KINDS == {int(k): k.name.lower() for k in Kind}


@pytest.mark.parametrize("kind", TRAVELLING, ids=str)
def test_a_kind_travels_as_its_row_says(kind: Kind) -> None:
    envelope = Envelope(kind, 3, 4, 5)
    assert decode(encode(envelope)[0]) == envelope
    ends = {"up": (3, SERVER), "down": (SERVER, 3), "between": (3, 5)}
    assert (envelope.sender, envelope.recipient) == ends[kind.way]
    families = {"up": UP, "down": DOWN, "between": BETWEEN}
    assert all((kind in of_way) == (kind.is_algorithms and kind.way == way) for way, of_way in families.items())


def test_faults_select_messages_by_names_of_kinds() -> None:
    literal, _ = get_args(MessageSelector.model_fields["kind"].annotation)
    assert {Kind[name.upper()] for name in get_args(literal)} <= set(TRAVELLING)
