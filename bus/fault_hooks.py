"""Fault injection: the hooks through which a scenario's faults act on messages.

A scenario's faults are sorted by the protocols that they implement; a fault may implement several. The bus asks a
`Rule` about every message twice, on the server's side only: when the message is sent and when it would arrive. The
rule returns a verdict. Verdicts of several rules combine in any order: drops win, delays and copies add, two flips of
one bit cancel. A `Silence` is asked when a client has computed and is about to report. Links and the speed of clients
have hooks of their own, in `network`.

All draws are keyed (by the fault, the message, its occurrence and its copy); there is no stateful generator.
`FaultHooks` counts what each fault did, and checkpoints contain these counts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from operator import index
from typing import Any, NamedTuple, Protocol, runtime_checkable

from seedbus.bus.envelope import SERVER, Kind
from seedbus.bus.errors import Unusable
from seedbus.bus.event_queue import LAST_NS
from seedbus.bus.in_flight import Key, random_key
from seedbus.bus.keyed_random import KeyedRandom, with_random
from seedbus.bus.records import Text, Whole
from seedbus.settings import draw_key

FaultCounts = list[list[tuple[Text, Whole]]]
"""Of each fault (what, how often), by name: what a checkpoint stores. A time that a fault saved is below 0."""


class Verdict(NamedTuple):
    """What happens to a message. When a message arrives, only `drop` has an effect.

    Attributes:
        delay_ns: how much later it arrives.
        drop: whether it is lost.
        copies: number of duplicates; a duplicate is judged like any message, but not duplicated again.
        flips: positions of the bits that flip on its way, as fractions of its length.
    """

    delay_ns: int = 0
    drop: bool = False
    copies: int = 0
    flips: tuple[float, ...] = ()


PASS = Verdict()
MOST_NS = 2**63 - 1
"""The largest sum of delays that is counted, 292 years; a checkpoint has no room for more."""


@dataclass(frozen=True, slots=True)
class Passage:
    """A message that is sent or arrives, as a rule sees it.

    Attributes:
        kind: the message's kind.
        client: the client that sends or receives it.
        round: its round.
        occurrence: its number among the messages of this kind, client and round.
        copy: number of the duplicate; 0 for the original.
        now_ns: the current time.
        arriving: True if it arrives, False if it is sent.
        random: draws of the rule that is asked.
        peer: the node that it is sent to, if `client` is a node that sends it; otherwise `SERVER`.
    """

    kind: Kind
    client: int
    round: int
    occurrence: int
    copy: int
    now_ns: int
    arriving: bool
    random: KeyedRandom
    peer: int = SERVER

    @property
    def clients(self) -> tuple[int, ...]:
        """The ends of the message that are clients, or nodes."""
        return (self.client,) if self.peer == SERVER else (self.client, self.peer)

    def draw(self, what: str, *key: int | str) -> float:
        """Return a uniform number in (0, 1), keyed by the rule, the message, the purpose `what` and `key`."""
        message = (self.kind, self.client, self.round, self.occurrence, self.copy)
        return self.random.draw(*random_key(message), what, *key)


@runtime_checkable
class Rule(Protocol):
    """A fault that acts on messages. Its `draw_key` is its complete configuration and nothing else."""

    def judge(self, passage: Passage) -> Verdict: ...


@runtime_checkable
class Silence(Protocol):
    """A fault by which clients do the work of a round and then send nothing."""

    def is_silent(self, client: int, round: int, random: KeyedRandom) -> bool: ...


@runtime_checkable
class Dropping(Protocol):
    """A fault by which clients drop out of rounds; without a server, a node then makes no commit."""

    def drops_out(self, client: int, round: int, random: KeyedRandom) -> bool: ...


@runtime_checkable
class ByzantineHook(Protocol):
    """A fault that falsifies reports, where clients create them or in a commit; here it is only counted."""

    def lies(self, client: int, round: int, random: KeyedRandom) -> bool: ...


@runtime_checkable
class Mislabelling(Protocol):
    """A fault by which clients learn from wrong labels, where they compute; here it is only counted."""

    def mislabels(self, client: int, round: int, random: KeyedRandom) -> bool: ...


@runtime_checkable
class Forger(Protocol):
    """A fault that replaces any answers where clients create them; here it is only counted."""

    def forges(self, client: int, round: int, random: KeyedRandom) -> bool: ...


class Stop(Protocol):
    """Drops messages from and to unavailable clients; it draws nothing at random."""

    def stops(self, key: Key, arriving: bool) -> bool: ...

    def count_dropped(self, client: int) -> ActiveFault | None:
        """Count a message from or to a client that it has stopped, for each fault that is a reason.

        Returns the first of these.
        """
        ...


@dataclass(frozen=True, slots=True)
class ActiveFault:
    """A fault of the running scenario.

    Attributes:
        number: its place in the scenario, from 0.
        fault: the fault as configured.
        random: its draws.
        counts: what it did and how often; a name that ends in `_ns` is a sum of nanoseconds.
    """

    number: int
    fault: Any
    random: KeyedRandom
    counts: Counter[str] = field(default_factory=Counter)

    def count_delay(self, what: str, by_ns: int) -> None:
        """Count a message or a computation that the fault makes `by_ns` later; a sum stays within ±`MOST_NS`."""
        self.counts[what] += 1
        self.counts[f"{what}_ns"] = max(-MOST_NS, min(self.counts[f"{what}_ns"] + by_ns, MOST_NS))


class FaultHooks:
    """All faults of a scenario, applied together.

    Args:
        faults: the faults as configured.
        seed: the scenario's seed.
        clients: number of clients in the run, for faults of a share of them.

    Attributes:
        faults: the same faults, with their draws and counts.
        clients: number of clients in the run.
        is_empty: whether nothing acts on messages, so that the other methods need not be called.
        dropping: number of the fault, the first of several, for which `judge` last dropped a message; −1: of none.
    """

    def __init__(self, faults: Sequence[object], seed: int, clients: int = 0) -> None:
        self.clients = clients
        drawing = with_random(faults, seed, clients)
        self.faults = [ActiveFault(number, fault, random) for number, (fault, random) in enumerate(drawing)]
        self._rules = self.of_kind(Rule)
        self._silences = self.of_kind(Silence)
        self._dropping = self.of_kind(Dropping)
        liars = sorted(self.of_kind(ByzantineHook), key=lambda each: draw_key(each.fault))
        # a report obeys the first where it is made (agents.client.tampering) and in a commit (agents.server.collusion)
        self._liars = [[each for each in liars if hasattr(each.fault, "collude") is late] for late in (False, True)]
        self._mislabelling = self.of_kind(Mislabelling)
        self._forgers = self.of_kind(Forger)
        self._stops: list[Stop] = []
        self.is_empty = not self.faults
        self.dropping = -1

    def of_kind(self, protocol: Any) -> list[ActiveFault]:
        """Return the faults that implement a protocol, in the scenario's order."""
        return [each for each in self.faults if isinstance(each.fault, protocol)]

    def add(self, stop: Stop) -> None:
        """Add what the run itself drops, such as messages to clients that are away."""
        self._stops.append(stop)
        self.is_empty = False

    def judge(self, key: Key, now_ns: int, *, arriving: bool = False, peer: int = SERVER) -> Verdict:
        """Return the combined verdict on a message.

        Messages of the evaluator and of hosts always pass: these are instruments of the simulation.

        Args:
            key: identity of the message.
            now_ns: the current time.
            arriving: True if it arrives, False if it is sent.
            peer: the node that it is sent to, if it is sent between nodes.
        """
        if key[1] < 0:
            return PASS
        for stop in self._stops:
            for client in (key[1], peer) if peer >= 0 else key[1:2]:
                if stop.stops((key[0], client, *key[2:]), arriving):
                    reason = stop.count_dropped(client)
                    self.dropping = -1 if reason is None else reason.number
                    return Verdict(drop=True)
        if not self._rules:
            return PASS
        delay_ns, drop, copies, flips = 0, False, 0, list[float]()
        for each in self._rules:
            verdict = each.fault.judge(Passage(*key, now_ns, arriving, each.random, peer))
            if verdict is PASS:
                continue
            verdict = _checked(verdict, each.fault)
            if verdict.drop:
                each.counts["dropped"] += 1
                self.dropping = self.dropping if drop else each.number
                drop = True
            if arriving:
                continue
            if verdict.delay_ns:
                each.count_delay("delayed", verdict.delay_ns)
                delay_ns += verdict.delay_ns
            if verdict.copies and not key[4]:
                each.counts["duplicated"] += verdict.copies
                copies += verdict.copies
            if verdict.flips:
                each.counts["corrupted"] += 1
                flips += verdict.flips
        return Verdict(delay_ns, drop, copies, tuple(sorted(flips)))

    def is_silent(self, client: int, round: int) -> bool:
        """Return whether a client's report of a round is never sent; count the faults that silence it."""
        for stop in self._stops:
            if stop.stops((Kind.REPORT, client, round, 0, 0), False):
                return True
        silencing = [each for each in self._silences if each.fault.is_silent(client, round, each.random)]
        for each in silencing:
            each.counts["silenced"] += 1
        return bool(silencing)

    def drops_out(self, client: int, round: int) -> bool:
        """Return whether a node makes no commit in a round; count the faults that keep it from that."""
        dropping = [each for each in self._dropping if each.fault.drops_out(client, round, each.random)]
        for each in dropping:
            each.counts["dropped"] += 1
        return bool(dropping)

    def reported(self, client: int, round: int) -> None:
        """Count the faults that gave a client wrong labels, and those that falsify its report, sent or in a commit."""
        for each in self._mislabelling:
            if each.fault.mislabels(client, round, each.random):
                each.counts["mislabelled"] += 1
        for liars in self._liars:
            first = next((each for each in liars if each.fault.lies(client, round, each.random)), None)
            if first is not None:
                first.counts["lied"] += 1

    def answered(self, client: int, round: int) -> None:
        """Count the faults that forge a client's answer to a message of a round."""
        for each in self._forgers:
            if client >= 0 and each.fault.forges(client, round, each.random):
                each.counts["forged"] += 1

    def counts(self) -> list[dict[str, float]]:
        """Return what each fault did and how often, in the scenario's order; names that end in `_s` are seconds."""
        return [dict(_in_seconds(name, number) for name, number in sorted(each.counts.items())) for each in self.faults]

    def checkpoint(self) -> FaultCounts:
        """Return the counts of all faults."""
        return [sorted(each.counts.items()) for each in self.faults]

    def restore(self, checkpoint: FaultCounts) -> None:
        """Set the counts that `checkpoint` returned."""
        for each, counts in zip(self.faults, checkpoint, strict=True):
            each.counts.clear()
            each.counts.update(dict(counts))


def _checked(verdict: Any, fault: object) -> Verdict:
    """Return a verdict with plain numbers. Raises `Unusable` unless a message can be given it."""
    if isinstance(verdict, Verdict):
        delay_ns, drop, copies, flips = verdict
        try:
            # whatever is later than the last instant never arrives
            plain = Verdict(min(index(delay_ns), LAST_NS + 1), bool(drop), index(copies), tuple(map(float, flips)))
            if plain.delay_ns >= 0 and plain.copies >= 0 and all(0 <= place < 1 for place in plain.flips):
                return plain
        except (TypeError, ValueError, OverflowError):
            pass
        what = f"{verdict!r}"[:200]
    else:
        what = type(verdict).__name__
    expected = "a Verdict with whole numbers delay_ns and copies, not below 0, and fractions as flips, below 1"
    raise Unusable.of_fault(fault, f"judged a message by {what}", expected)


def _in_seconds(name: str, number: int) -> tuple[str, float]:
    return (f"{name[:-3]}_s", number / 1e9) if name.endswith("_ns") else (name, number)
