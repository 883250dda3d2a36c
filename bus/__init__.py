"""How messages move: envelopes, the bus that counts and delivers them, clocks, links, fault hooks and the ledger.

Doors: `clock`, `codec`, `envelope`, `errors`, `event_queue`, `fault_hooks`, `files`, `in_flight`, `keyed_random`,
`ledger`, `mailbox`, `network`, `pending_replies`, `records`, `spans`, `speeds`, `text`, `transport`, `wire`, `words`,
`zeromq`.
"""

from seedbus.bus.bus import Bus, BusState, Callbacks
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
from seedbus.bus.fault_hooks import PASS, FaultHooks, Passage, Rule, Silence, Verdict
from seedbus.bus.keyed_random import KeyedRandom
from seedbus.bus.ledger import Fate, Ledger, ledger_hash, read_ledger
from seedbus.bus.mailbox import Mailbox
from seedbus.bus.network import Compute, Duration, Links, Network, Pace, Slowdown, Slowed, Throttle
from seedbus.bus.speeds import Speeds
from seedbus.bus.transport import (
    Declined,
    Follower,
    HostRequest,
    MemoryTransport,
    Offer,
    Recruit,
    Registration,
    Transport,
)

__all__ = [
    "EVALUATOR",
    "HOST",
    "PASS",
    "SERVER",
    "Bus",
    "BusError",
    "BusState",
    "Callbacks",
    "Clock",
    "Compute",
    "Deadlock",
    "Declined",
    "Duration",
    "EndOfTime",
    "Envelope",
    "EnvelopeTooLong",
    "Event",
    "Fate",
    "FaultHooks",
    "Follower",
    "HostRequest",
    "KeyedRandom",
    "Kind",
    "Ledger",
    "LedgerDamaged",
    "Links",
    "LocalError",
    "Mailbox",
    "MalformedEnvelope",
    "MemoryTransport",
    "Network",
    "Offer",
    "Pace",
    "Passage",
    "Recruit",
    "Registration",
    "RemoteError",
    "Rule",
    "Silence",
    "Slowdown",
    "Slowed",
    "Speeds",
    "Tally",
    "Throttle",
    "Transport",
    "UnknownAddress",
    "Verdict",
    "VirtualClock",
    "WallClock",
    "decode",
    "encode",
    "ledger_hash",
    "read_ledger",
]
