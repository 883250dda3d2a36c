"""When a message has passed a link, whose speed may change with simulated time."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Sequence
from itertools import pairwise

LEAST_MBPS = 1e-6
"""The lowest speed but 0, a bit per second."""


class Speeds:
    """A limit in Mbit/s that changes at given times. Without a period there is none before the first change.

    Args:
        changes: (nanosecond of simulated time, Mbit/s from then on), with ascending times from 0. A speed is 0 (nothing
            passes), at least 10⁻⁶, or infinite (no limit).
        period_ns: after so many nanoseconds, more than the last time, all begins again, with the last speed until the
            first change; None: the last speed remains.

    Raises:
        ValueError: the times do not ascend, a speed is none, or nothing ever passes any more.
    """

    def __init__(self, changes: Sequence[tuple[int, float]], period_ns: int | None = None) -> None:
        self._times = [when for when, _ in changes]
        self._speeds = [float(mbps) for _, mbps in changes]
        self.period_ns = period_ns
        ends = [*self._times, *([] if period_ns is None else [period_ns])]
        if not changes or ends[0] < 0 or any(later <= earlier for earlier, later in pairwise(ends)):
            raise ValueError(f"times of a link's speeds are {ends[:9]}; expected ascending nanoseconds from 0")
        if wrong := [mbps for mbps in self._speeds if mbps != 0 and not mbps >= LEAST_MBPS]:
            raise ValueError(f"a link's speed is {wrong[0]!r}; expected 0, or at least {LEAST_MBPS} Mbit/s")
        if not (self._speeds[-1] if period_ns is None else any(self._speeds)):
            when = "last" if period_ns is None else "highest"
            raise ValueError(f"a link's {when} speed is 0; expected more, since messages would never arrive")

    def at(self, now_ns: int) -> tuple[float, float]:
        """Return the limit in Mbit/s at a time, and the nanosecond until which it holds; both may be infinite."""
        period_ns = self.period_ns
        began_ns = 0 if period_ns is None else now_ns - now_ns % period_ns
        number = bisect_right(self._times, now_ns - began_ns)
        mbps = self._speeds[number - 1] if number or period_ns is not None else math.inf
        if number < len(self._times):
            return mbps, began_ns + self._times[number]
        return mbps, math.inf if period_ns is None else began_ns + period_ns


def passed_ns(size: int, begins_ns: int, mbps: float, changing: Speeds | None = None) -> int:
    """Return the nanosecond at which a message has passed a link, rounded up.

    Args:
        size: its bytes.
        begins_ns: the nanosecond at which its first bit is sent.
        mbps: the link's limit in Mbit/s; may be infinite.
        changing: another limit; at any time the lower one applies.
    """
    left = size * 8000.0  # Mbit/s times nanoseconds
    if changing is None or not size:  # an empty frame, which a malicious client may send, passes a link that is down
        return begins_ns + math.ceil(left / mbps)
    began_ns, of_period = math.inf, 0.0  # of a whole period: its beginning, and what has passed since
    while True:
        limit, until_ns = changing.at(begins_ns)
        limit = min(limit, mbps)
        passes = limit * (until_ns - begins_ns) if limit else 0.0
        if left <= passes:
            return begins_ns + math.ceil(left / limit)
        left -= passes
        of_period += passes
        begins_ns = int(until_ns)
        if changing.period_ns is not None and begins_ns == began_ns + changing.period_ns:
            whole = int(left / of_period)  # that it outlasts, too; there may be millions
            whole -= whole * of_period >= left  # it ends within the last one
            left -= whole * of_period
            begins_ns += whole * changing.period_ns
        elif began_ns == math.inf:
            began_ns, of_period = begins_ns, 0.0
