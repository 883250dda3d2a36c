"""Everything that can go wrong on the bus.

    BusError
    ├── LocalError             this process used the bus wrongly, or cannot go on
    │   ├── Deadlock           everybody waits and nothing can ever arrive
    │   ├── EndOfTime          simulated time would pass what the clock can tell exactly
    │   ├── EnvelopeTooLong    a message past its kind's limit, refused before it is sent
    │   ├── UnknownAddress     nobody opened that mailbox
    │   └── LedgerDamaged      a segment of the message ledger that cannot be read
    └── RemoteError            a peer did
        └── MalformedEnvelope  bytes that are not an envelope; the sender is named and the run goes on

Each carries its data and builds its own sentence.
"""

from __future__ import annotations

from collections.abc import Sequence


class BusError(Exception):
    """Any error of the bus."""


class LocalError(BusError):
    """This process used the bus wrongly, or cannot go on."""


class RemoteError(BusError):
    """A peer sent something that it should not have sent."""


class Deadlock(LocalError):
    """Every actor waits, no message is under way and no timer is set."""

    def __init__(self, now_ns: int, waiting: Sequence[str]) -> None:
        self.now_ns, self.waiting = now_ns, tuple(waiting)
        super().__init__(now_ns, waiting)

    def __str__(self) -> str:
        who = "; ".join(self.waiting) or "nobody in particular"
        return f"nothing can happen any more at {self.now_ns / 1e9:.3f} simulated seconds; waiting: {who}"


class EndOfTime(LocalError):
    """An instant past the last one that the clock can tell to the nanosecond."""

    def __init__(self, when_ns: int, last_ns: int) -> None:
        self.when_ns, self.last_ns = when_ns, last_ns
        super().__init__(when_ns, last_ns)

    def __str__(self) -> str:
        return f"simulated time would reach {self.when_ns / 1e9:,.0f} s; it ends at {self.last_ns / 1e9:,.0f} s"


class EnvelopeTooLong(LocalError):
    """A message past the limit of its kind."""

    def __init__(self, what: str, size: int, limit: int) -> None:
        self.what, self.size, self.limit = what, size, limit
        super().__init__(what, size, limit)

    def __str__(self) -> str:
        return f"{self.what} is {self.size:,} bytes; at most {self.limit:,} are accepted"


class UnknownAddress(LocalError):
    """A message for an address that has no mailbox."""

    def __init__(self, address: int) -> None:
        self.address = address
        super().__init__(address)

    def __str__(self) -> str:
        return f"no mailbox is open at address {self.address}"


class LedgerDamaged(LocalError):
    """A segment of the message ledger that is missing or cannot be read."""

    def __init__(self, path: str, what: str) -> None:
        self.path, self.what = path, what
        super().__init__(path, what)

    def __str__(self) -> str:
        return f"{self.path}: {self.what}; the run's messages are incomplete"


class MalformedEnvelope(RemoteError):
    """Bytes that are not an envelope. what: the rule broken; where: the part; peer: its address, if known."""

    def __init__(self, what: str, where: str, peer: int | None = None) -> None:
        self.what, self.where, self.peer = what, where, peer
        super().__init__(what, where, peer)

    def __str__(self) -> str:
        peer = "an unknown peer" if self.peer is None else f"address {self.peer}"
        return f"malformed envelope from {peer}: {self.where} {self.what}"
