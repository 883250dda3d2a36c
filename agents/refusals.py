"""Messages that were refused, counted by reason and sender."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Flag, StrEnum, auto
from itertools import starmap
from typing import Any, NamedTuple, Self

from seedbus.bus.in_flight import Address
from seedbus.bus.records import Count, Text
from seedbus.bus.text import printable

NOBODY = -(2**31)
"""The client of a refusal that concerns no client."""
MAX_PEERS = 1000
"""How many pairs of stranger and reason are counted one by one; all further ones are counted together."""
MAX_NOTED = 5
"""How many refusals of one stranger for one reason observers are told of; the rest are only counted."""

MAX_DETAIL = 500
"""How many characters of a detail are kept."""


class Mark(Flag):
    """What follows from a refusal, or what it shows about the sender."""

    NONE = 0
    BAD_ANSWER = auto()
    """It counts as the sender's answer to its plan: no other answer is awaited."""
    DISHONEST = auto()
    """A client that keeps to the protocol is never refused for it, even if its messages are lost, late or doubled."""
    TOO_LARGE = auto()
    """Its numbers are too large to compute with, as they are once training diverges."""
    FROM_X0 = auto()
    """The client's state is of no use in this run; it may join again from x₀."""


class Reason(StrEnum):
    """Why a member's message is refused. Strangers' messages are refused for other reasons too.

    Attributes:
        mark: what follows from it.
    """

    mark: Mark

    def __new__(cls, word: str, mark: Mark = Mark.NONE) -> Self:
        member = str.__new__(cls, word)
        member._value_ = word
        member.mark = mark
        return member

    ABSURD = "absurd", Mark.BAD_ANSWER | Mark.TOO_LARGE
    ASKS_FOR_BOTH = "asks-for-both"
    BAD_JOIN = "bad-join"
    BAD_PAYLOAD = "bad-payload", Mark.BAD_ANSWER | Mark.DISHONEST
    BAD_SHARES = "bad-shares"
    BAD_SNAPSHOT = "bad-snapshot", Mark.DISHONEST
    CLAIMS_ANOTHER = "claims-another", Mark.BAD_ANSWER | Mark.DISHONEST
    DIVERGED = "diverged", Mark.BAD_ANSWER | Mark.DISHONEST
    DUPLICATE = "duplicate"
    EQUIVOCATES = "equivocates"
    FOREIGN_VERSION = "foreign-version", Mark.BAD_ANSWER | Mark.FROM_X0
    JOINS_AGAIN = "joins-again", Mark.BAD_ANSWER
    LATE = "late"
    LOSSES = "losses", Mark.BAD_ANSWER | Mark.DISHONEST
    MALFORMED = "malformed", Mark.BAD_ANSWER | Mark.DISHONEST
    NO_ANSWER = "no-answer", Mark.BAD_ANSWER | Mark.DISHONEST
    NO_CHUNK = "no-chunk"
    NO_MASKS = "no-masks"
    NO_SNAPSHOT = "no-snapshot"
    NOT_A_MEMBER = "not-a-member"
    NOT_ASKED = "not-asked"
    NOT_FETCHED = "not-fetched"
    MASK = "mask", Mark.BAD_ANSWER | Mark.DISHONEST
    NOT_FINITE = "not-finite", Mark.BAD_ANSWER | Mark.TOO_LARGE
    NOT_OFFERED = "not-offered"
    OVERFLOW = "overflow", Mark.TOO_LARGE
    PLUGINS = "plugins", Mark.BAD_ANSWER | Mark.DISHONEST
    PULLS_AGAIN = "pulls-again"
    SELFTEST = "selftest", Mark.BAD_ANSWER | Mark.DISHONEST
    SHAPE = "shape", Mark.BAD_ANSWER
    UNCONFIRMED = "unconfirmed"
    UNMASKED = "unmasked", Mark.BAD_ANSWER | Mark.DISHONEST
    UNKNOWN_CLIENT = "unknown-client"
    WRONG_KIND = "wrong-kind", Mark.DISHONEST
    WRONG_NORM = "wrong-norm", Mark.BAD_ANSWER
    WRONG_ROUND = "wrong-round", Mark.DISHONEST
    WRONG_VERSION = "wrong-version", Mark.BAD_ANSWER | Mark.DISHONEST
    X0 = "x0", Mark.BAD_ANSWER | Mark.DISHONEST | Mark.FROM_X0

    @classmethod
    def marked(cls, mark: Mark) -> frozenset[str]:
        """Return all reasons with a mark."""
        return frozenset(reason for reason in cls if mark in reason.mark)


@dataclass(frozen=True, slots=True)
class Refusal:
    """A message that was not acted upon.

    Attributes:
        client: the client or host that sent it; `NOBODY`: a stranger.
        round: the round that it was for, or the open one.
        reason: one word; of a member, a `Reason`.
        detail: a sentence.
    """

    client: int
    round: int
    reason: str
    detail: str


class RefusedState(NamedTuple):
    """What a checkpoint stores of a sender and a reason; the first entry of each reason has its detail too."""

    sender: Address | Text
    reason: Text
    times: Count
    detail: Text | None = None


class Refusals:
    """How often messages were refused.

    Attributes:
        clients: (client or host, reason) → count.
        peers: (address, reason) → count, of strangers.
        reasons: reason → count, of all of them.
        details: reason → the sentence of the first refusal for it.
    """

    def __init__(self) -> None:
        self.clients: Counter[tuple[int, str]] = Counter()
        self.peers: Counter[tuple[str, str]] = Counter()
        self.reasons: Counter[str] = Counter()
        self.details: dict[str, str] = {}

    def of_client(self, client: int, reason: str, detail: str) -> None:
        """Count a refusal of a client or host."""
        self.clients[client, reason] += 1
        self.reasons[reason] += 1
        self._keep(reason, detail)

    def of_peer(self, peer: str, reason: str, detail: str) -> bool:
        """Count a refusal of a stranger. Returns whether observers are to be told of it."""
        self._keep(reason, detail)
        is_counted_alone = (peer, reason) in self.peers or len(self.peers) < MAX_PEERS
        sender = peer if is_counted_alone else "others"
        self.peers[sender, reason] += 1
        self.reasons[reason] += 1
        return self.peers[sender, reason] <= MAX_NOTED

    def by_reason(self) -> dict[str, dict[str, int]]:
        """Return reason → sender → count."""
        counts: dict[str, dict[str, int]] = {}
        for sender, reason, count, *_ in self.pack():
            counts.setdefault(reason, {})[str(sender)] = count
        return counts

    def pack(self) -> list[Any]:
        """Return what a checkpoint stores: each `RefusedState`, clients before strangers, both ascending."""
        pairs = [*sorted(self.clients.items()), *sorted(self.peers.items())]
        details = dict(self.details)
        return [
            (sender, reason, count, *([details.pop(reason)] if reason in details else []))
            for (sender, reason), count in pairs
        ]

    def unpack(self, packed: Iterable[Sequence[Any]]) -> None:
        """Go on from what `pack` returned."""
        for sender, reason, count, detail in starmap(RefusedState, packed):
            self.reasons[reason] += count
            if detail is not None:
                self._keep(reason, detail)
            if isinstance(sender, int):
                self.clients[sender, reason] = count
            else:
                self.peers[sender, reason] = count

    def _keep(self, reason: str, detail: str) -> None:
        if reason not in self.details:
            self.details[reason] = printable(detail, MAX_DETAIL)
