"""How long a run will take, judged by its first rounds."""

from __future__ import annotations

import math

from seedbus.agents.server.stopping import MOST_ROUNDS, Stop
from seedbus.bus.clock import wall_seconds
from seedbus.scenarios.schema.scenario import Scenario

LONG_S = 60.0  # a run that takes less is not announced
JUDGED_S = 3.0  # by so many seconds of rounds, and two rounds at least


def expected_rounds(stop: Stop, done: int, now_ns: int) -> int | None:
    """Return how many rounds a run will have had at its end, if it goes on as before; None: nothing says it yet.

    Args:
        stop: when it ends.
        done: how many rounds are over, at least 1.
        now_ns: the run's clock.
    """
    return rounds_within(stop.rounds, stop.simulated_s, done, now_ns / 1e9)


def rounds_within(rounds: int | None, limit_s: float | None, done: int, now_s: float) -> int | None:
    """Return what `expected_rounds` does; rounds, limit_s: `stop.rounds` and `stop.simulated_s`."""
    if limit_s is None or not now_s:
        return rounds
    most = MOST_ROUNDS if rounds is None else rounds
    return min(most, max(done, math.ceil(min(most, done * limit_s / now_s))))


class Outlook:
    """Says once that a run will take long.

    A round takes time in proportion to how often its clients evaluate the loss. The first round that is seen does not
    count, because it includes the start.
    """

    def __init__(self, scenario: Scenario) -> None:
        self._scenario = scenario
        self._first: tuple[int, float] | None = None
        self._is_judged = False

    def closed(self, round: int, now_ns: int) -> str | None:
        """Return a sentence if a run of more than a minute is foreseen at the end of this round, and None if not.

        now_ns: the run's clock.
        """
        if self._first is None:
            self._first = round, wall_seconds()
        first, since_s = self._first
        elapsed_s = wall_seconds() - since_s
        stop = self._scenario.stop
        rounds = expected_rounds(stop, round + 1, now_ns)
        if self._is_judged or round < first + 2 or elapsed_s < JUDGED_S or rounds is None:
            return None
        self._is_judged = True
        total_s = elapsed_s / self._work(first + 1, round + 1) * self._work(first + 1, rounds)
        if total_s <= LONG_S:
            return None
        most = "at most about" if stop.target or stop.bytes or stop.simulated_s or stop.epsilon else "about"
        return f"this run will take {most} {duration(total_s)}, judged by its first {round - first} rounds"

    def _work(self, start: int, end: int) -> int:
        return sum(self._scenario.algorithm.work(round).evaluations for round in range(start, end))


def duration(seconds: float) -> str:
    """Return seconds in the unit that people would use."""
    if seconds < 90:
        return f"{seconds:.1f} s"
    return f"{seconds / 60:.0f} minutes" if seconds < 5400 else f"{seconds / 3600:,.1f} hours"


def roughly(seconds: float) -> str:
    """Return a time that is known roughly, such as 40 s, 12 min, 3.5 h or 3 days."""
    if seconds < 120:
        return f"{max(0, seconds):.0f} s"
    if seconds < 7200:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:,.1f} h" if seconds < 172_800 else f"{seconds / 86_400:,.0f} days"
