"""Everything that can go wrong on the bus.

    BusError
    ├── LocalError             this process used the bus wrongly, or cannot go on
    │   ├── Deadlock           everybody waits and nothing can ever arrive
    │   ├── EndOfTime          simulated time would pass what the clock can tell exactly
    │   ├── EnvelopeTooLong    a message past its kind's limit, refused before it is sent
    │   ├── UnknownAddress     nobody opened that mailbox
    │   ├── BadEndpoint        an address that cannot be bound, or connected to
    │   ├── BadKey             a key, or a table of keys, that cannot be used
    │   ├── TooFewFiles        a limit on open files that is too low for the connections
    │   └── LedgerDamaged      a segment of the message ledger that cannot be read
    └── RemoteError            a peer did
        ├── MalformedEnvelope  bytes that are not an envelope; the sender is named and the run goes on
        ├── MalformedParcel    bytes that are not a packet of the ZeroMQ transport; likewise
        ├── BadServer          what no server of this project sends; this process goes
        ├── ServerGone         no server answers
        └── Turned             a server sends this process away, and says why

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
        return f"the run's time would reach {self.when_ns / 1e9:,.0f} s; it ends at {self.last_ns / 1e9:,.0f} s"


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


class MalformedPacket(RemoteError):
    """Bytes that are not a packet, or one out of place. reason: one word that refusals are counted by."""

    def __init__(self, reason: str, detail: str) -> None:
        self.reason, self.detail = reason, detail
        super().__init__(reason, detail)

    def __str__(self) -> str:
        return self.detail


class BadServer(RemoteError):
    """A server sent what this process neither asked for nor can use. detail: what, and what is accepted."""

    def __init__(self, endpoint: str, detail: str) -> None:
        self.endpoint, self.detail = endpoint, detail
        super().__init__(endpoint, detail)

    def __str__(self) -> str:
        return f"the server at {self.endpoint} is not to be trusted: {self.detail}"


class ServerGone(RemoteError):
    """No server answers."""

    def __init__(self, endpoint: str, seconds: float, hint: str = "") -> None:
        self.endpoint, self.seconds, self.hint = endpoint, seconds, hint
        super().__init__(endpoint, seconds, hint)

    def __str__(self) -> str:
        hint = f" ({self.hint})" if self.hint else ""
        return f"no server answers at {self.endpoint}; gave up after {self.seconds:.0f} s{hint}"


class Turned(RemoteError):
    """A server has nothing for this process to do."""

    def __init__(self, endpoint: str, reason: str, detail: str) -> None:
        self.endpoint, self.reason, self.detail = endpoint, reason, detail
        super().__init__(endpoint, reason, detail)

    def __str__(self) -> str:
        return f"the server at {self.endpoint} sends this process away ({self.reason}): {self.detail}"


class BadEndpoint(LocalError):
    """An address that cannot be bound, or connected to."""

    def __init__(self, endpoint: str, why: str, expected: str) -> None:
        self.endpoint, self.why, self.expected = endpoint, why, expected
        super().__init__(endpoint, why, expected)

    def __str__(self) -> str:
        return f"{self.endpoint} cannot be used ({self.why}); expected {self.expected}"


class BadKey(LocalError):
    """A key, its file, or a table of keys that cannot be used."""

    def __init__(self, what: str, why: str, expected: str) -> None:
        self.what, self.why, self.expected = what, why, expected
        super().__init__(what, why, expected)

    def __str__(self) -> str:
        return f"{self.what} cannot be used ({self.why}); expected {self.expected}"


class TooFewFiles(LocalError):
    """The limit on open files is too low: at it, ZeroMQ just stops accepting connections, without an error."""

    def __init__(self, needed: int, limit: int) -> None:
        self.needed, self.limit = needed, limit
        super().__init__(needed, limit)

    def __str__(self) -> str:
        return (
            f"this process may open {self.limit} files, and {self.needed} are needed for its connections; "
            f"raise the limit (`ulimit -n {self.needed}`) or let a process host more clients"
        )
