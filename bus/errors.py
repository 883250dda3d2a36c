"""The errors of the bus.

    BusError
    ├── LocalError             this process used the bus wrongly, or cannot go on
    │   ├── Deadlock           every actor waits and no event is scheduled
    │   ├── EndOfTime          simulated time would pass the last instant that the clock represents exactly
    │   ├── EnvelopeTooLong    a message longer than its kind allows; it is not sent
    │   ├── UnknownAddress     no mailbox is open at the address
    │   ├── BadEndpoint        an address that cannot be bound or connected to
    │   ├── BadKey             a key, or a table of keys, that cannot be used
    │   ├── TooFewFiles        the limit on open files is too low for the connections
    │   └── LedgerDamaged      a segment of the message ledger is missing or cannot be read
    └── RemoteError            a peer misbehaved, is gone, or sends this process away
        ├── MalformedEnvelope  bytes that are not an envelope; the error names the sender and the run goes on
        ├── MalformedPacket    bytes that are not a packet of the ZeroMQ transport; likewise
        ├── BadServer          a server sent something invalid; this process ends
        ├── ServerGone         no server answers
        └── SentAway           a server sends this process away and gives a reason

Each error carries its data as attributes and builds its message from them.
"""

from __future__ import annotations

from collections.abc import Sequence


class BusError(Exception):
    """The base class of all errors of the bus."""


class LocalError(BusError):
    """This process used the bus wrongly, or cannot go on."""


class RemoteError(BusError):
    """A peer sent something invalid, is gone, or sends this process away."""


class Deadlock(LocalError):
    """Every actor waits, no message is under way and no timer is set."""

    def __init__(self, now_ns: int, waiting: Sequence[str]) -> None:
        self.now_ns = now_ns
        self.waiting = tuple(waiting)
        super().__init__(now_ns, waiting)

    def __str__(self) -> str:
        waiting = "; ".join(self.waiting) or "nobody in particular"
        return f"nothing can happen any more at {self.now_ns / 1e9:.3f} simulated seconds; waiting: {waiting}"


class EndOfTime(LocalError):
    """An instant after the last one that the clock represents to the nanosecond."""

    def __init__(self, when_ns: int, last_ns: int) -> None:
        self.when_ns = when_ns
        self.last_ns = last_ns
        super().__init__(when_ns, last_ns)

    def __str__(self) -> str:
        return f"the run's time would reach {self.when_ns / 1e9:,.0f} s; it ends at {self.last_ns / 1e9:,.0f} s"


class EnvelopeTooLong(LocalError):
    """A message longer than its kind allows; sizes in bytes."""

    def __init__(self, what: str, size: int, limit: int) -> None:
        self.what = what
        self.size = size
        self.limit = limit
        super().__init__(what, size, limit)

    def __str__(self) -> str:
        return f"{self.what} is {self.size:,} bytes; at most {self.limit:,} are accepted"


class UnknownAddress(LocalError):
    """A message to an address that has no mailbox."""

    def __init__(self, address: int) -> None:
        self.address = address
        super().__init__(address)

    def __str__(self) -> str:
        return f"no mailbox is open at address {self.address}"


class LedgerDamaged(LocalError):
    """A segment of the message ledger that is missing or cannot be read."""

    def __init__(self, path: str, what: str) -> None:
        self.path = path
        self.what = what
        super().__init__(path, what)

    def __str__(self) -> str:
        return f"{self.path}: {self.what}; the run's messages are incomplete"


class MalformedEnvelope(RemoteError):
    """Bytes that are not an envelope.

    Attributes:
        what: the rule that is broken.
        where: the part of the envelope that breaks it.
        peer: address of the sender; None if unknown.
    """

    def __init__(self, what: str, where: str, peer: int | None = None) -> None:
        self.what = what
        self.where = where
        self.peer = peer
        super().__init__(what, where, peer)

    def __str__(self) -> str:
        peer = "an unknown peer" if self.peer is None else f"address {self.peer}"
        return f"malformed envelope from {peer}: {self.where} {self.what}"


class MalformedPacket(RemoteError):
    """Bytes that are not a packet, or a packet that is not allowed at this point.

    Attributes:
        reason: one word; refusals are counted by it.
        detail: what is wrong, for people.
    """

    def __init__(self, reason: str, detail: str) -> None:
        self.reason = reason
        self.detail = detail
        super().__init__(reason, detail)

    def __str__(self) -> str:
        return self.detail


class BadServer(RemoteError):
    """A server sent something that this process did not ask for or cannot use.

    Attributes:
        endpoint: address of the server.
        detail: what it sent, and what would be accepted.
    """

    def __init__(self, endpoint: str, detail: str) -> None:
        self.endpoint = endpoint
        self.detail = detail
        super().__init__(endpoint, detail)

    def __str__(self) -> str:
        return f"the server at {self.endpoint} is not to be trusted: {self.detail}"


class ServerGone(RemoteError):
    """No server answers.

    Attributes:
        endpoint: address at which it was expected.
        seconds: how long this process waited.
        hint: a possible cause; may be empty.
    """

    def __init__(self, endpoint: str, seconds: float, hint: str = "") -> None:
        self.endpoint = endpoint
        self.seconds = seconds
        self.hint = hint
        super().__init__(endpoint, seconds, hint)

    def __str__(self) -> str:
        hint = f" ({self.hint})" if self.hint else ""
        return f"no server answers at {self.endpoint}; gave up after {self.seconds:,.10g} s{hint}"


class SentAway(RemoteError):
    """A server sends this process away.

    Attributes:
        endpoint: address of the server.
        reason: one word, as the server gave it.
        detail: the server's explanation.
    """

    def __init__(self, endpoint: str, reason: str, detail: str) -> None:
        self.endpoint = endpoint
        self.reason = reason
        self.detail = detail
        super().__init__(endpoint, reason, detail)

    def __str__(self) -> str:
        return f"the server at {self.endpoint} sends this process away ({self.reason}): {self.detail}"


class BadEndpoint(LocalError):
    """An address that cannot be bound or connected to."""

    def __init__(self, endpoint: str, why: str, expected: str) -> None:
        self.endpoint = endpoint
        self.why = why
        self.expected = expected
        super().__init__(endpoint, why, expected)

    def __str__(self) -> str:
        return f"{self.endpoint} cannot be used ({self.why}); expected {self.expected}"


class BadKey(LocalError):
    """A key, its file, or a table of keys that cannot be used."""

    def __init__(self, what: str, why: str, expected: str) -> None:
        self.what = what
        self.why = why
        self.expected = expected
        super().__init__(what, why, expected)

    def __str__(self) -> str:
        return f"{self.what} cannot be used ({self.why}); expected {self.expected}"


class Unusable(Exception):
    """Code outside the bus gave it what it cannot use: a verdict that is none, or content that no message can have."""

    @classmethod
    def of_fault(cls, fault: object, what: str, expected: str) -> Unusable:
        """Return the error for what a fault's hook has returned; what: what the fault did by it."""
        return cls(f"the fault {getattr(fault, 'fault', type(fault).__name__)} {what}; expected {expected}")


class TooFewFiles(LocalError):
    """The limit on open files is too low; at the limit ZeroMQ stops accepting connections without an error."""

    def __init__(self, needed: int, limit: int) -> None:
        self.needed = needed
        self.limit = limit
        super().__init__(needed, limit)

    def __str__(self) -> str:
        return (
            f"this process may open {self.limit} files, and {self.needed} are needed for its connections; "
            f"raise the limit (`ulimit -n {self.needed}`) or let a process host more clients"
        )
