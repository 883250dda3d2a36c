"""The one hook through which a scenario interferes with messages.

A rule is asked about every message twice, at the hub only: when it is sent and when it would arrive. It answers with
a verdict. Verdicts of several rules combine so that their order does not matter: drops win and delays add.
A rule draws by key (what it says, the message, the occurrence), never from a generator with a state.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
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
    """Implemented by the faults of a scenario. Its repr keys its draws: all that the rule is, and nothing else."""

    def judge(self, passage: Passage) -> Verdict: ...


class Rules:
    """All the rules of a run, judged as one."""

    def __init__(self, rules: Sequence[Rule], seed: int) -> None:
        # a rule's draws are keyed by what it says, and by how many before it say the same: other rules change nothing
        said: Counter[str] = Counter()
        self._rules: list[tuple[Rule, str, int]] = []
        for rule in rules:
            says = hashlib.blake2b(repr(rule).encode(), digest_size=8).hexdigest()
            self._rules.append((rule, says, said[says]))
            said[says] += 1
        self._seed = seed

    def judge(
        self, kind: Kind, client: int, round: int, occurrence: int, now_ns: int, *, arriving: bool = False
    ) -> Verdict:
        """The combined verdict. Rules are about clients: the evaluator and hosts are instruments."""
        if client < 0 or not self._rules:
            return PASS
        delay_ns, drop = 0, False
        for rule, says, number in self._rules:
            draw = partial(uniform, self._seed, "rule", says, number, client, kind.name, round, occurrence)
            verdict = rule.judge(Passage(kind, client, round, occurrence, now_ns, arriving, draw))
            delay_ns += verdict.delay_ns
            drop = drop or verdict.drop
        return Verdict(delay_ns, drop)
