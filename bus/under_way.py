"""What a bus has under way: messages, and answers that are still to be given."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from seedbus.bus.envelope import Envelope, Kind, Tally, ends
from seedbus.bus.ledger import Fate, Row

Key = tuple[Kind, int, int, int]  # what a message is called: kind, client, round, occurrence


@dataclass(slots=True)
class Flight:
    """A message under way: due at a nanosecond, with all that its row needs.

    envelope: what `frame` holds, where that is known already.
    """

    due_ns: int
    sent_ns: int
    key: Key
    base: int
    header: int
    tally: Tally
    frame: bytes
    envelope: Envelope | None = None

    @property
    def ends(self) -> tuple[int, int]:
        return ends(*self.key[:2])

    def row(self, fate: Fate, now_ns: int, framing_bytes: int) -> Row:
        """Its row in the ledger, now that its fate is known; framing_bytes: what it has of that if it was carried."""
        (kind, _, round, _), (sender, recipient) = self.key, self.ends
        tally, has_arrived = self.tally, fate in (Fate.DELIVERED, Fate.REFUSED)
        return Row(
            sent_ns=self.sent_ns,
            arrived_ns=now_ns if has_arrived else -1,
            round=round,
            kind=kind,
            sender=sender,
            recipient=recipient,
            header_bytes=self.header,
            payload_bytes=len(self.frame) - self.header,
            # what travels up has come over the wire by the time that a rule loses it; what travels down has not
            framing_bytes=framing_bytes if has_arrived or kind.is_upward else 0,
            digest_bytes=tally.digest_bytes,
            catchup_bytes=tally.catchup_bytes,
            scalars=tally.scalars,
            seeds=tally.seeds,
            fate=fate,
        )


@dataclass(slots=True)
class Answer:
    """What a follower says to a message: it counts as sent at `due_ns`, and may not be there before."""

    due_ns: int
    key: Key
    base: int
    frames: list[bytes] | None = None
    is_late: bool = field(default=False, compare=False)
    """True while simulated time stands still for it."""


def next_key(occurrences: Counter[tuple[Kind, int, int]], kind: Kind, client: int, round: int) -> Key:
    """The name of the next message of a kind, client and round."""
    occurrence = occurrences[kind, client, round]
    occurrences[kind, client, round] = occurrence + 1
    return kind, client, round, occurrence
