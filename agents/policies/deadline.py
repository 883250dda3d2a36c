"""When a round is over at the latest: after a fixed time, or one that adapts to how long the latest answers took."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Iterator, Sequence

from pydantic import Field

from seedbus.bus.network import round_ns
from seedbus.capabilities import Fact, Needs, Statement
from seedbus.settings import Settings


class Deadline(Settings):
    """A deadline that adapts: a quantile of the times that the latest answers took, multiplied by a factor.

    After a round that it ended without a commit it forgets those times. Otherwise a deadline that is too short for all
    clients would never see a slower answer, and would stay too short.
    """

    quantile: float = Field(default=0.9, gt=0, le=1, description="of the times that the latest answers took")
    factor: float = Field(default=1.5, gt=0, le=1000, description="a round may take this many times that quantile")
    window: int = Field(default=100, ge=1, le=10_000, description="how many of the latest answers count")

    def capabilities(self) -> Iterator[Statement]:
        yield Needs(Fact.OPEN_COHORTS, "adapts to those whom rounds asked, so that who is in time tells of them")

    def after_ns(self, times_ns: Sequence[int]) -> int:
        """Return the nanoseconds that a round may take, given the times of at least one answer."""
        rank = rounded_up(self.quantile * len(times_ns))
        return round(sorted(times_ns)[rank - 1] * self.factor)


class Deadlines:
    """The deadlines of a run's rounds, one after the other.

    Args:
        most_s: seconds that a round may take at most; None: rounds have no deadline.
        adapting: how it adapts; None: it is the same in all rounds.
    """

    def __init__(self, most_s: float | None, adapting: Deadline | None) -> None:
        self._most_ns = None if most_s is None else round_ns(most_s)
        self._adapting = adapting
        self._times_ns = deque[int](maxlen=0 if adapting is None else adapting.window)

    @property
    def ns(self) -> int | None:
        """Nanoseconds that a round may take if it opens now; None: until all of its cohort have answered."""
        if self._most_ns is None or self._adapting is None or not self._times_ns:
            return self._most_ns
        return min(self._most_ns, self._adapting.after_ns(self._times_ns))

    def answered(self, took_ns: int) -> None:
        """A client has answered, after so long."""
        self._times_ns.append(took_ns)

    def missed(self) -> None:
        """A round made no commit, since it was over too early."""
        self._times_ns.clear()

    def pack(self) -> list[int]:
        """Return how long the latest answers took, oldest first; [] if the deadline does not adapt."""
        return list(self._times_ns)

    def unpack(self, times_ns: Iterable[int]) -> None:
        self._times_ns.clear()
        self._times_ns.extend(times_ns)


def rounded_up(product: float) -> int:
    """Round a product of decimal fractions up, to at least 1. Floating-point error is ignored: 100 × 1.1 gives 110."""
    return max(1, math.ceil(round(product, 6)))
