"""Where a scenario interferes: with messages, and through them with all that is built on them.

What a scenario says (its faults) is sorted here by what it can do; a thing may do several. A `Rule` is asked about
every message twice, at the hub only: when it is sent and when it would arrive. It answers with a verdict. Verdicts of
several rules combine so that their order does not matter: drops win, delays and copies add, flips of one bit cancel.
A `Silence` is asked when a client has worked and is about to report. Links and clients' pace have their own hooks, in
`network`.

Everything is drawn by key (what the thing says, the message, its occurrence and copy), never from a generator with a
state. `FaultHooks` counts what each thing did; that is part of a checkpoint.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol, runtime_checkable

from seedbus.bus.envelope import Kind
from seedbus.bus.in_flight import Key, drawn_by
from seedbus.bus.keyed_random import KeyedRandom, with_random


class Verdict(NamedTuple):
    """What becomes of a message. All but `drop` counts on sending only.

    copies: how many more times it is sent; a copy is judged like any message, but not copied again. flips: the bits
    that flip on its way, as fractions of its length.
    """

    delay_ns: int = 0
    drop: bool = False
    copies: int = 0
    flips: tuple[float, ...] = ()


PASS = Verdict()
_SESSIONS = frozenset({Kind.JOIN, Kind.WELCOME, Kind.REFUSE})


@dataclass(frozen=True, slots=True)
class Passage:
    """One message at one of the two moments, as a rule sees it. copy is 0 for the message itself."""

    kind: Kind
    client: int
    round: int
    occurrence: int
    copy: int
    now_ns: int
    arriving: bool
    random: KeyedRandom
    """The rule's own."""

    def draw(self, what: str, *key: int | str) -> float:
        """A uniform number in (0, 1), keyed by rule, message and what it is drawn for."""
        return self.random.draw(*drawn_by((self.kind, self.client, self.round, self.occurrence, self.copy)), what, *key)


@runtime_checkable
class Rule(Protocol):
    """Judges messages. Its repr keys its draws: all that the rule is, and nothing else."""

    def judge(self, passage: Passage) -> Verdict: ...


@runtime_checkable
class Silence(Protocol):
    """Keeps clients that have worked in a round from saying anything."""

    def is_silent(self, client: int, round: int, random: KeyedRandom) -> bool: ...


@runtime_checkable
class ByzantineHook(Protocol):
    """Strikes what clients report, where they make it: here it is only counted."""

    def lies(self, client: int, round: int, random: KeyedRandom) -> bool: ...


@runtime_checkable
class Forger(Protocol):
    """Strikes whatever clients answer, where they make it: here it is only counted."""

    def forges(self, client: int, round: int, random: KeyedRandom) -> bool: ...


class Stop(Protocol):
    """Stops messages from or to those who are not there; no chance is in it."""

    def stops(self, key: Key, arriving: bool) -> bool: ...


@dataclass(frozen=True, slots=True)
class ActiveFault:
    """One thing that a scenario says, with its draws and how often it did what; durations in nanoseconds."""

    thing: Any
    random: KeyedRandom
    did: Counter[str] = field(default_factory=Counter)

    def delays(self, word: str, by_ns: int) -> None:
        """Count a message that comes, or a piece of work that is done, later by so much."""
        self.did[word] += 1
        self.did[f"{word}_ns"] += by_ns


class FaultHooks:
    """All that a scenario says, judged as one. clients: how many there are, for rules about a share of them."""

    def __init__(self, things: Sequence[object], seed: int, clients: int = 0) -> None:
        self.said = [ActiveFault(thing, random) for thing, random in with_random(things, seed, clients)]
        self._rules = [each for each in self.said if isinstance(each.thing, Rule)]
        self._silences = [each for each in self.said if isinstance(each.thing, Silence)]
        self._lies = [each for each in self.said if isinstance(each.thing, ByzantineHook)]
        self._forgers = [each for each in self.said if isinstance(each.thing, Forger)]
        self._stops: list[Stop] = []
        self.are_none = not self.said
        """Whether nothing is said at all, and nobody need ask."""

    def add(self, *stops: Stop) -> None:
        """What the run itself says of messages."""
        self._stops += stops
        self.are_none = not (self.said or self._stops)

    def judge(self, key: Key, now_ns: int, *, arriving: bool = False) -> Verdict:
        """The combined verdict. Rules are about clients: the evaluator and hosts are instruments."""
        if key[1] < 0:
            return PASS
        for stop in self._stops:
            if stop.stops(key, arriving):
                return Verdict(drop=True)
        if not self._rules:
            return PASS
        delay_ns, drop, copies, flips = 0, False, 0, list[float]()
        for each in self._rules:
            verdict = each.thing.judge(Passage(*key, now_ns, arriving, each.random))
            if verdict is PASS:
                continue
            if verdict.drop:
                each.did["dropped"] += 1
                drop = True
            if arriving:
                continue
            if verdict.delay_ns:
                each.delays("delayed", verdict.delay_ns)
                delay_ns += verdict.delay_ns
            if verdict.copies and not key[4]:
                each.did["duplicated"] += verdict.copies
                copies += verdict.copies
            if verdict.flips:
                each.did["corrupted"] += 1
                flips += verdict.flips
        return Verdict(delay_ns, drop, copies, tuple(sorted(flips)))

    def is_silent(self, client: int, round: int) -> bool:
        """True if what a client has to say in a round is never said."""
        for stop in self._stops:
            if stop.stops((Kind.REPORT, client, round, 0, 0), False):
                return True
        silent = [each for each in self._silences if each.thing.is_silent(client, round, each.random)]
        for each in silent:
            each.did["silenced"] += 1
        return bool(silent)

    def reported(self, client: int, round: int) -> None:
        """A client sends its report of a round."""
        for each in self._lies:
            if each.thing.lies(client, round, each.random):
                each.did["lied"] += 1

    def answered(self, client: int, round: int) -> None:
        """A client answers what it was sent in a round."""
        for each in self._forgers:
            if client >= 0 and each.thing.forges(client, round, each.random):
                each.did["forged"] += 1

    def counts(self) -> list[dict[str, float]]:
        """How often each thing did what, in the scenario's order; `…_s` are seconds."""
        return [dict(_in_seconds(word, number) for word, number in sorted(each.did.items())) for each in self.said]

    def checkpoint(self) -> list[list[Any]]:
        return [sorted(each.did.items()) for each in self.said]

    def restore(self, checkpoint: list[list[Any]]) -> None:
        """Put back what `checkpoint` gave."""
        for each, did in zip(self.said, checkpoint, strict=True):
            each.did.clear()
            each.did.update(dict(did))


def _in_seconds(word: str, number: int) -> tuple[str, float]:
    return (f"{word[:-3]}_s", number / 1e9) if word.endswith("_ns") else (word, number)
