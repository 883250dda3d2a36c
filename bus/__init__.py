"""How bytes move: envelopes, a bus that counts them, simulated time, links, rules and the ledger."""

from seedbus.bus.bus import Bus, Mailbox
from seedbus.bus.clock import Event, VirtualClock
from seedbus.bus.envelope import EVALUATOR, HOST, SERVER, Envelope, Kind, Tally, decode, encode
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
from seedbus.bus.ledger import Fate, Ledger, ledger_hash, read_ledger
from seedbus.bus.network import Compute, Duration, Links, Network
from seedbus.bus.rules import PASS, Passage, Rule, Rules, Verdict
from seedbus.bus.transport import MemoryTransport, Transport

__all__ = [
    "EVALUATOR",
    "HOST",
    "PASS",
    "SERVER",
    "Bus",
    "BusError",
    "Compute",
    "Deadlock",
    "Duration",
    "EndOfTime",
    "Envelope",
    "EnvelopeTooLong",
    "Event",
    "Fate",
    "Kind",
    "Ledger",
    "LedgerDamaged",
    "Links",
    "LocalError",
    "Mailbox",
    "MalformedEnvelope",
    "MemoryTransport",
    "Network",
    "Passage",
    "RemoteError",
    "Rule",
    "Rules",
    "Tally",
    "Transport",
    "UnknownAddress",
    "Verdict",
    "VirtualClock",
    "decode",
    "encode",
    "ledger_hash",
    "read_ledger",
]
