"""The one hook through which a scenario interferes with messages.

A rule is asked about every message twice, at the hub only: when it is sent and when it would arrive. It answers with
a verdict. Verdicts of several rules combine so that their order does not matter: drops win and delays add.
A rule draws by key (what it says, the message, the occurrence), never from a generator with a state.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol, runtime_checkable

from seedbus.bus.draws import Key, Luck, with_luck
from seedbus.bus.envelope import Kind


class Verdict(NamedTuple):
    """What becomes of a message. delay_ns counts on sending only."""

    delay_ns: int = 0
    drop: bool = False


PASS = Verdict()
_SESSIONS = frozenset({Kind.JOIN, Kind.WELCOME, Kind.REFUSE})


@dataclass(frozen=True, slots=True)
class Passage:
    """One message at one of the two moments, as a rule sees it."""

    kind: Kind
    client: int
    round: int
    occurrence: int
    now_ns: int
    arriving: bool
    luck: Luck
    """The rule's own."""

    def draw(self, *key: Key) -> float:
        """A uniform number in (0, 1), keyed by rule, message and whatever else is given."""
        return self.luck.draw(self.client, self.kind.name, self.round, self.occurrence, *key)


@runtime_checkable
class Rule(Protocol):
    """Implemented by the faults of a scenario. Its repr keys its draws: all that the rule is, and nothing else."""

    def judge(self, passage: Passage) -> Verdict: ...


class Rules:
    """All the rules of a run, judged as one. clients: how many there are, for rules about a share of them."""

    def __init__(self, rules: Sequence[Rule], seed: int, clients: int = 0) -> None:
        self._rules = with_luck(rules, seed, clients)

    def judge(
        self, kind: Kind, client: int, round: int, occurrence: int, now_ns: int, *, arriving: bool = False
    ) -> Verdict:
        """The combined verdict. Rules are about clients: the evaluator and hosts are instruments.

        Who introduces itself does so until it is heard, which is told here as if it were heard at once.
        """
        if client < 0 or kind in _SESSIONS or not self._rules:
            return PASS
        delay_ns, drop = 0, False
        for rule, luck in self._rules:
            verdict = rule.judge(Passage(kind, client, round, occurrence, now_ns, arriving, luck))
            delay_ns += verdict.delay_ns
            drop = drop or verdict.drop
        return Verdict(delay_ns, drop)
