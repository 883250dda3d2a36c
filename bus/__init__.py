"""How bytes move: envelopes, a bus that counts them, simulated time, links, rules and the ledger."""

from seedbus.bus.bus import Bus
from seedbus.bus.clock import Clock, VirtualClock, WallClock
from seedbus.bus.codec import decode, encode
from seedbus.bus.envelope import EVALUATOR, HOST, SERVER, Envelope, Kind, Tally
from seedbus.bus.errors import (
    BusError,
    Deadlock,
    EndOfTime,
    EnvelopeTooLong,
    LedgerDamaged,
    LocalError,
    MalformedEnvelope,
    RemoteError,
    UnknownAddress,
)
from seedbus.bus.event_queue import Event
from seedbus.bus.fault_hooks import PASS, Passage, Rule, Rules, Silence, Verdict
from seedbus.bus.keyed_random import Luck
from seedbus.bus.ledger import Fate, Ledger, ledger_hash, read_ledger
from seedbus.bus.mailbox import Mailbox
from seedbus.bus.network import Compute, Drag, Duration, Links, Network, Pace, Slowed, Throttle
from seedbus.bus.transport import (
    Declined,
    Follower,
    MemoryTransport,
    Offer,
    Reception,
    Recruit,
    Transport,
    Wish,
)

__all__ = [
    "EVALUATOR",
    "HOST",
    "PASS",
    "SERVER",
    "Bus",
    "BusError",
    "Clock",
    "Compute",
    "Deadlock",
    "Declined",
    "Drag",
    "Duration",
    "EndOfTime",
    "Envelope",
    "EnvelopeTooLong",
    "Event",
    "Fate",
    "Follower",
    "Kind",
    "Ledger",
    "LedgerDamaged",
    "Links",
    "LocalError",
    "Luck",
    "Mailbox",
    "MalformedEnvelope",
    "MemoryTransport",
    "Network",
    "Offer",
    "Pace",
    "Passage",
    "Reception",
    "Recruit",
    "RemoteError",
    "Rule",
    "Rules",
    "Silence",
    "Slowed",
    "Tally",
    "Throttle",
    "Transport",
    "UnknownAddress",
    "Verdict",
    "VirtualClock",
    "WallClock",
    "Wish",
    "decode",
    "encode",
    "ledger_hash",
    "read_ledger",
]
