"""The envelope: what travels, and its limits.

On the wire an envelope is one msgpack array of five:

    [tag, client, round, base, body]     tag = format version × 16 + kind

`client` is the party that is not the server (a client, or a negative address: the evaluator, a host of clients), so
sender and recipient follow from the kind. Everything but the body is the header: at most 16 bytes. The body is what
its kind says: msgpack scalars, byte strings and arrays of at most 64 elements; gradient scalars travel raw,
little-endian, in one byte string. `codec` writes and reads it.
"""

from __future__ import annotations

import enum
from typing import Any, NamedTuple

FORMAT = 1
HEADER_LIMIT = 16
NUMBER_LIMIT = 2**32
ARRAY_LIMIT = 64
DEPTH_LIMIT = 6
FRAME_LIMIT = 2**28
SHORT = 2**16
"""Bytes that a kind has at most that carries no vectors; and of a REPORT, unless a run says that its own are longer."""

SERVER = -1
EVALUATOR = -2
HOST = -3  # hosts of clients take -3, -4, …; the first thirty fit one byte of msgpack, all of them three
LOWEST_ADDRESS = -(2**15)


class Kind(enum.IntEnum):
    """What a message is. The numbers are the wire's; they also order messages that arrive at one instant:
    of those, the evaluator's come first, so that it knows a version before anybody claims to hold it.

    LINK never travels: its rows in the ledger are bytes of a transport that belong to no message. WAKE is no message
    either: the simulation's word to a client that it is there again; and a client's to the simulation, of what it has
    of a snapshot. PEAK tells the largest of what clients said of their reports, and is not answered."""

    LINK = 0
    JOIN = 1
    WELCOME = 2
    REFUSE = 3
    COMMIT = 4
    EVALUATION = 5
    PLAN = 6
    REPORT = 7
    BYE = 8
    DECLINE = 9
    WAKE = 10
    PEAK = 11
    SNAPSHOT = 12
    PULL = 13
    FETCH = 14
    PIECE = 15

    __hash__ = int.__hash__  # Enum's own is a function of Python's, and every message is found by its kind

    is_upward: bool
    """True if it travels towards the server."""
    limit: int
    """The longest envelope of this kind, in bytes. What a server accepts of a REPORT is a property of its run."""


_UPWARD = frozenset({Kind.JOIN, Kind.REPORT, Kind.EVALUATION, Kind.DECLINE, Kind.PULL, Kind.PIECE})
# what clients send for the algorithm's sake, and what they are sent
UP = (Kind.REPORT, Kind.DECLINE, Kind.PULL, Kind.PIECE)
DOWN = (Kind.PLAN, Kind.PEAK, Kind.SNAPSHOT, Kind.FETCH)
_SHORT = _UPWARD - {Kind.REPORT} | {Kind.PEAK, Kind.SNAPSHOT, Kind.FETCH}
# of an enumeration Python 3.11 fetches a member by a detour: what every message passes has those that it needs at hand
REFUSE, PLAN, REPORT, SNAPSHOT = Kind.REFUSE, Kind.PLAN, Kind.REPORT, Kind.SNAPSHOT
for _kind in Kind:
    _kind.is_upward, _kind.limit = _kind in _UPWARD, SHORT if _kind in _SHORT else FRAME_LIMIT


class Tally(NamedTuple):
    """What a payload carries beside its length: the papers' units, and the bytes that the ledger keeps apart."""

    scalars: int = 0
    seeds: int = 0
    catchup_bytes: int = 0
    digest_bytes: int = 0


NO_TALLY = Tally()


_EMPTY: list[Any] = []


class Envelope(NamedTuple):
    """One message. round and base are below 2³²; base is the version that the message refers to. Nobody changes a body:
    several may share it."""

    kind: Kind
    client: int
    round: int
    base: int
    body: list[Any] = _EMPTY

    @property
    def sender(self) -> int:
        return ends(self.kind, self.client)[0]

    @property
    def recipient(self) -> int:
        return ends(self.kind, self.client)[1]


def ends(kind: Kind, client: int) -> tuple[int, int]:
    """Sender and recipient of a message between the server and `client`."""
    return (client, SERVER) if kind.is_upward else (SERVER, client)
