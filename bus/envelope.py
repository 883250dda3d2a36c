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
from typing import Any, Literal, NamedTuple, Self, get_args

from seedbus.bus.records import Count, Whole

FORMAT = 1
HEADER_LIMIT = 16
NUMBER_LIMIT = 2**32
ARRAY_LIMIT = 64
DEPTH_LIMIT = 6
FRAME_LIMIT = 2**34
"""Maximum bytes of a message that carries vectors: four billion weights in float32."""
SHORT = 2**16
"""Maximum bytes of an envelope whose kind carries no vectors, and of a REPORT unless the run sets a higher limit."""

SERVER = -1
EVALUATOR = -2
HOST = -3  # hosts of clients take -3, -4, …; msgpack encodes the first thirty in one byte, the others in at most three
LOWEST_ADDRESS = -(2**15)
Way = Literal["up", "down", "between"]


class Kind(enum.IntEnum):
    """The kind of a message. This table is all that is said of kinds.

    The numbers are part of the wire format. They also order messages that arrive at one instant: the evaluator's come
    first, so that it knows a version before any client claims to hold it. The names are part of draws.

    LINK and WAKE are not messages. LINK marks ledger rows for bytes of a transport that belong to no message. A WAKE
    frame passes between the simulation and a client only: it tells the client that it is available again, or it tells
    the simulation which parts of a snapshot the client has. PEAK announces the maximum of a quantity that clients have
    reported, and has no reply. ASK asks a client what a round needs beside reports, and TELL brings it. FLOOD and HAVE
    pass between nodes of a run without a server: commits, and which commits a node has. MEASURE brings a client to a
    version that it is to measure, and MEASURED the sums to the server.

    Attributes:
        way: up: to the server; down: from it; between: from node to node.
        is_algorithms: whether they are the algorithm's, whose bytes count: neither a session's nor an instrument's.
        limit: maximum bytes of an envelope of this kind. For a REPORT the run sets what its server accepts.
    """

    LINK = 0, "down", False, FRAME_LIMIT
    JOIN = 1, "up", False, SHORT
    WELCOME = 2, "down", False, FRAME_LIMIT
    REFUSE = 3, "down", False, FRAME_LIMIT
    COMMIT = 4, "down", False, FRAME_LIMIT
    EVALUATION = 5, "up", False, SHORT
    PLAN = 6, "down", True, FRAME_LIMIT
    REPORT = 7, "up", True, FRAME_LIMIT
    BYE = 8, "down", False, FRAME_LIMIT
    DECLINE = 9, "up", True, SHORT
    WAKE = 10, "down", False, FRAME_LIMIT
    PEAK = 11, "down", True, SHORT
    SNAPSHOT = 12, "down", True, SHORT
    PULL = 13, "up", True, SHORT
    FETCH = 14, "down", True, SHORT
    PIECE = 15, "up", True, SHORT
    ASK = 16, "down", True, SHORT  # the tags from here on are 32 and more, which no other format version uses
    TELL = 17, "up", True, SHORT
    FLOOD = 18, "between", True, FRAME_LIMIT
    HAVE = 19, "between", True, FRAME_LIMIT
    MEASURE = 20, "down", True, FRAME_LIMIT
    MEASURED = 21, "up", True, SHORT

    way: Way
    is_algorithms: bool
    limit: int
    is_upward: bool
    is_between: bool

    def __new__(cls, number: int, *row: Any) -> Self:
        kind = int.__new__(cls, number)
        kind._value_ = number
        kind.way, kind.is_algorithms, kind.limit = row
        kind.is_upward, kind.is_between = kind.way == "up", kind.way == "between"
        return kind

    __hash__ = int.__hash__  # faster than Enum's, which is written in Python; every message is looked up by its kind


# Messages of the algorithm: from clients, to them, and between nodes.
UP, DOWN, BETWEEN = (tuple(kind for kind in Kind if kind.is_algorithms and kind.way == way) for way in get_args(Way))
# Access to a member of an enumeration is slow in Python 3.11: code that runs for every message uses these names.
REFUSE, PLAN, REPORT, SNAPSHOT, MEASURE = Kind.REFUSE, Kind.PLAN, Kind.REPORT, Kind.SNAPSHOT, Kind.MEASURE
ADVANCES = frozenset({PLAN, Kind.COMMIT, SNAPSHOT, MEASURE})
"""Kinds that bring a follower to their version, of which its answer tells the simulation."""
ANSWERS = {
    PLAN: (REPORT, Kind.DECLINE),
    Kind.ASK: (Kind.TELL,),
    MEASURE: (Kind.MEASURED,),
    Kind.FETCH: (Kind.PIECE,),
    SNAPSHOT: (Kind.PULL, Kind.JOIN),
}
"""Kinds to a client, and those that answer them."""


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
