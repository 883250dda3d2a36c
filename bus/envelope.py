"""The envelope: one message on the bus, and the limits of its encoding.

On the wire an envelope is one msgpack array of five:

    [tag, client, round, base, body]     tag = format version × 16 + kind

`client` is the end that is not the server: a client, or a negative address (the evaluator, or a process that hosts
clients). So the kind determines sender and recipient. Between nodes, without a server, `client` is the sender and
`base` the recipient. Everything but the body is the header, at most 16 bytes. The body's content depends on the kind:
msgpack scalars, byte strings and arrays of at most 64 elements. Gradient scalars travel raw, little-endian, in one byte
string. `codec` encodes and decodes envelopes.
"""

from __future__ import annotations

import enum
from typing import Any, NamedTuple

from seedbus.bus.records import Count, Whole

FORMAT = 1
HEADER_LIMIT = 16
NUMBER_LIMIT = 2**32
ARRAY_LIMIT = 64
DEPTH_LIMIT = 6
FRAME_LIMIT = 2**28
SHORT = 2**16
"""Maximum bytes of an envelope whose kind carries no vectors, and of a REPORT unless the run sets a higher limit."""

SERVER = -1
EVALUATOR = -2
HOST = -3  # hosts of clients take -3, -4, …; msgpack encodes the first thirty in one byte, the others in at most three
LOWEST_ADDRESS = -(2**15)


class Kind(enum.IntEnum):
    """The kind of a message.

    The numbers are part of the wire format. They also order messages that arrive at one instant: the evaluator's come
    first, so that it knows a version before any client claims to hold it.

    LINK and WAKE are not messages. LINK marks ledger rows for bytes of a transport that belong to no message. A WAKE
    frame passes between the simulation and a client only: it tells the client that it is available again, or it tells
    the simulation which parts of a snapshot the client has. PEAK announces the maximum of a quantity that clients have
    reported, and has no reply. ASK asks a client for its part in secure aggregation, and TELL brings it. FLOOD and HAVE
    pass between nodes of a run without a server: commits, and which commits a node has.
    """

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
    ASK = 16  # the tags from here on are 32 and more, which no other format version uses
    TELL = 17
    FLOOD = 18
    HAVE = 19

    __hash__ = int.__hash__  # faster than Enum's, which is written in Python; every message is looked up by its kind

    is_upward: bool
    """True if messages of this kind travel to the server."""
    is_between: bool
    """True if messages of this kind travel between nodes."""
    limit: int
    """Maximum bytes of an envelope of this kind. For a REPORT the run sets what its server accepts."""


_UPWARD = frozenset({Kind.JOIN, Kind.REPORT, Kind.EVALUATION, Kind.DECLINE, Kind.PULL, Kind.PIECE, Kind.TELL})
# Messages of the algorithm: from clients, to them, and between nodes.
UP = (Kind.REPORT, Kind.DECLINE, Kind.PULL, Kind.PIECE, Kind.TELL)
DOWN = (Kind.PLAN, Kind.PEAK, Kind.SNAPSHOT, Kind.FETCH, Kind.ASK)
BETWEEN = (Kind.FLOOD, Kind.HAVE)
_SHORT = _UPWARD - {Kind.REPORT} | {Kind.PEAK, Kind.SNAPSHOT, Kind.FETCH, Kind.ASK}
# Access to a member of an enumeration is slow in Python 3.11: code that runs for every message uses these names.
REFUSE, PLAN, REPORT, SNAPSHOT = Kind.REFUSE, Kind.PLAN, Kind.REPORT, Kind.SNAPSHOT
for _kind in Kind:
    _kind.is_upward, _kind.is_between = _kind in _UPWARD, _kind in BETWEEN
    _kind.limit = SHORT if _kind in _SHORT else FRAME_LIMIT


class Tally(NamedTuple):
    """What is known of a payload beside its length. The ledger records the numbers.

    Attributes:
        scalars: gradient scalars, the papers' unit of traffic.
        seeds: seeds of perturbations.
        catchup_bytes: bytes of the payload that bring a client up to date.
        digest_bytes: bytes of the payload that are digests for verification.
        since: the version from which the commits in a plan lead to the plan's; a later one does as well.
        is_sum: whether these commits are one sum, so that no later version does.
    """

    scalars: Whole = 0
    seeds: Whole = 0
    catchup_bytes: Whole = 0
    digest_bytes: Whole = 0
    since: Count = 0
    is_sum: bool = False


NO_TALLY = Tally()


_EMPTY: list[Any] = []


class Envelope(NamedTuple):
    """One message.

    Attributes:
        kind: what it is.
        client: address of the end that is not the server.
        round: the round it belongs to, below 2³².
        base: the model version it refers to, below 2³²; between nodes, the recipient.
        body: its content. Several envelopes may share a body, so it must not be changed.
    """

    kind: Kind
    client: int
    round: int
    base: int
    body: list[Any] = _EMPTY

    @property
    def sender(self) -> int:
        return ends(self.kind, self.client, self.base)[0]

    @property
    def recipient(self) -> int:
        return ends(self.kind, self.client, self.base)[1]


def ends(kind: Kind, client: int, base: int) -> tuple[int, int]:
    """Return sender and recipient of a message, from three numbers of its header."""
    if kind.is_between:
        return client, base
    return (client, SERVER) if kind.is_upward else (SERVER, client)
