"""What was refused, counted by reason and by whom."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from enum import Flag, StrEnum, auto
from typing import Any, Self

NOBODY = -(2**31)  # the client of a refusal that concerns no client
PEERS = 1000  # so many strangers are told apart
TOLD = 5  # so many refusals of one stranger for one reason are told, the rest counted


class Mark(Flag):
    """What follows from a refusal, or what it says of its sender."""

    NONE = 0
    BAD_ANSWER = auto()
    """It counts as the sender's answer to its plan: nobody waits for another."""
    DISHONEST = auto()
    """No client that keeps to the protocol is refused for it, whatever befalls its messages."""
    FROM_X0 = auto()
    """What the client holds is of no use in this run; from x₀ on it may join."""


class Reason(StrEnum):
    """What members' messages are refused for; strangers' are refused for others too. `mark` says what follows."""

    mark: Mark

    def __new__(cls, word: str, mark: Mark = Mark.NONE) -> Self:
        member = str.__new__(cls, word)
        member._value_ = word
        member.mark = mark
        return member

    ABSURD = "absurd", Mark.BAD_ANSWER
    BAD_JOIN = "bad-join"
    BAD_PAYLOAD = "bad-payload", Mark.BAD_ANSWER | Mark.DISHONEST
    BAD_SNAPSHOT = "bad-snapshot", Mark.DISHONEST
    CLAIMS_ANOTHER = "claims-another", Mark.BAD_ANSWER | Mark.DISHONEST
    DIVERGED = "diverged", Mark.BAD_ANSWER | Mark.DISHONEST
    DUPLICATE = "duplicate"
    FOREIGN_VERSION = "foreign-version", Mark.BAD_ANSWER | Mark.FROM_X0
    JOINS_AGAIN = "joins-again", Mark.BAD_ANSWER
    LATE = "late"
    LOSSES = "losses", Mark.BAD_ANSWER | Mark.DISHONEST
    MALFORMED = "malformed", Mark.BAD_ANSWER | Mark.DISHONEST
    NO_CHUNK = "no-chunk"
    NO_SNAPSHOT = "no-snapshot"
    NOT_A_MEMBER = "not-a-member"
    NOT_ASKED = "not-asked"
    NOT_FETCHED = "not-fetched"
    NOT_FINITE = "not-finite", Mark.BAD_ANSWER
    NOT_OFFERED = "not-offered"
    OVERFLOW = "overflow"
    PULLS_AGAIN = "pulls-again"
    SELFTEST = "selftest", Mark.BAD_ANSWER | Mark.DISHONEST
    SHAPE = "shape", Mark.BAD_ANSWER
    UNKNOWN_CLIENT = "unknown-client"
    WRONG_KIND = "wrong-kind", Mark.DISHONEST
    WRONG_NORM = "wrong-norm", Mark.BAD_ANSWER
    WRONG_ROUND = "wrong-round", Mark.DISHONEST
    WRONG_VERSION = "wrong-version", Mark.BAD_ANSWER | Mark.DISHONEST
    X0 = "x0", Mark.BAD_ANSWER | Mark.DISHONEST | Mark.FROM_X0

    @classmethod
    def marked(cls, mark: Mark) -> frozenset[str]:
        """All reasons with that mark."""
        return frozenset(reason for reason in cls if mark in reason.mark)


@dataclass(frozen=True, slots=True)
class Refusal:
    """A message that was not acted upon: who sent it, one word why, and a sentence."""

    client: int
    round: int
    reason: str
    detail: str


class Refusals:
    """How often what was refused. clients: by (client or host, reason); peers: by (address, reason), of strangers."""

    def __init__(self) -> None:
        self.clients: Counter[tuple[int, str]] = Counter()
        self.peers: Counter[tuple[str, str]] = Counter()

    def of_peer(self, peer: str, reason: str) -> bool:
        """Count one of a stranger's; true if it is worth telling."""
        is_known = (peer, reason) in self.peers or len(self.peers) < PEERS
        who = peer if is_known else "others"
        self.peers[who, reason] += 1
        return self.peers[who, reason] <= TOLD

    def by_reason(self) -> dict[str, dict[str, int]]:
        """reason → who → how often."""
        found: dict[str, dict[str, int]] = {}
        for who, reason, count in self.pack():
            found.setdefault(reason, {})[str(who)] = count
        return found

    def pack(self) -> list[list[Any]]:
        """[who, reason, count] of each, in order."""
        clients = [[client, reason, count] for (client, reason), count in sorted(self.clients.items())]
        return clients + [[peer, reason, count] for (peer, reason), count in sorted(self.peers.items())]

    def unpack(self, packed: list[list[Any]]) -> None:
        for who, reason, count in packed:
            if isinstance(who, int):
                self.clients[who, reason] = count
            else:
                self.peers[who, reason] = count
