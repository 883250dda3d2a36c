"""The one hook through which a scenario interferes with messages.

A rule is asked about every message twice, at the hub only: when it is sent and when it would arrive. It answers with
a verdict. Verdicts of several rules combine so that their order does not matter: drops win and delays add.
A rule draws by key (its own place in the scenario, the message, the occurrence), never from a generator with a state.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from seedbus.bus.draws import uniform
from seedbus.bus.envelope import Kind


class Verdict(NamedTuple):
    """What becomes of a message. delay_ns counts on sending only."""

    delay_ns: int = 0
    drop: bool = False


PASS = Verdict()


@dataclass(frozen=True, slots=True)
class Passage:
    """One message at one of the two moments, as a rule sees it."""

    kind: Kind
    client: int
    round: int
    occurrence: int
    now_ns: int
    arriving: bool
    draw: Callable[..., float]
    """A uniform number in (0, 1), keyed by rule, message and whatever else is given."""


class Rule(Protocol):
    """Implemented by the faults of a scenario."""

    def judge(self, passage: Passage) -> Verdict: ...


class Rules:
    """All the rules of a run, judged as one."""

    def __init__(self, rules: Sequence[Rule], seed: int) -> None:
        self._rules, self._seed = tuple(rules), seed

    def judge(
        self, kind: Kind, client: int, round: int, occurrence: int, now_ns: int, *, arriving: bool = False
    ) -> Verdict:
        """The combined verdict. Rules are about clients: the evaluator and hosts are instruments."""
        if client < 0 or not self._rules:
            return PASS
        delay_ns, drop = 0, False
        for number, rule in enumerate(self._rules):

            def draw(*key: int | str, number: int = number) -> float:
                return uniform(self._seed, "rule", number, client, kind.name, round, occurrence, *key)

            verdict = rule.judge(Passage(kind, client, round, occurrence, now_ns, arriving, draw))
            delay_ns += verdict.delay_ns
            drop = drop or verdict.drop
        return Verdict(delay_ns, drop)
