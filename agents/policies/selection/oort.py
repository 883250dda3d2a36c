"""Oort: clients whose latest reports were large, unless their answers are slow; and some that have not reported yet.

Lai, Zhu, Madhyastha, Chowdhury: "Oort: Efficient Federated Learning via Guided Participant Selection", OSDI 2021,
arXiv:2010.06081, Algorithm 1. What differs, and why:

- A client's statistical utility is there |B| times the root of its mean squared loss, which stands for the norms of
  gradients: these would be the better measure, and cost too much (section 4.2). Here it is the norm of the values that
  the client last reported. For gradient scalars it estimates the norm of the gradient, at no cost; a scalar-only report
  has no loss.
- Utilities are clipped at a quantile and scaled to [0, 1], as in the authors' code, so that they can be added to what a
  client gains while it is not asked.
- The preferred duration T is a quantile of the times of clients' latest answers, and the pacer raises that quantile, as
  in the authors' code. It says of no task how many seconds are few.
- Nothing is known of a client before its first answer, so clients to explore are drawn uniformly, and not by speed.
- No client is excluded after ten rounds: of a few dozen clients all would be.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import ClassVar, Literal

from pydantic import Field

from seedbus.agents.policies.selection.known import Known
from seedbus.agents.policies.selection.selection import Selection, drawn
from seedbus.bus.keyed_random import uniform

_DECAY, _LEAST = 0.98, 0.2  # of exploration: its factor from round to round, and where it stops
_PACE_STEP = 0.05  # Δ: added to `pace` whenever reports have become smaller
_CUT_OFF = 0.95  # c: of the least utility among the best
_CLIP = 0.95  # the quantile of utilities beyond which they count as equal
_MOST = 1e290  # the largest norm that counts as itself: so many as there may be add up to a finite sum


class Oort(Selection):
    """Large reports and fast answers first, a share of clients that have not reported yet, as Oort does."""

    needs_known: ClassVar[bool] = True

    policy: Literal["oort"] = "oort"
    exploration: float = Field(
        default=0.9, ge=0, le=1, description="share of the first cohort for clients that never reported; falls to 0.2"
    )
    penalty: float = Field(
        default=2.0, ge=0, le=100, description="a utility is multiplied by (T/t)^penalty where an answer took t > T (α)"
    )
    pace: float = Field(
        default=0.3, gt=0, le=1, description="T is at first this quantile of the answers' times; 1: no limit"
    )
    window: int = Field(default=20, ge=1, le=10_000, description="rounds whose reports are compared with those before")

    def choose(self, members: Sequence[int], count: int, known: Known, seed: int, round: int) -> list[int]:
        """Return `count` of the members, ascending. It looks at all members."""
        heard = sorted(client for client in known.worth if client in members)
        share = max(min(_LEAST, self.exploration), self.exploration * _DECAY**round)
        wanted = math.floor(share * count + uniform(seed, "oort exploration", round))
        explored = min(wanted, len(members) - len(heard))
        exploited = min(count - explored, len(heard))
        explored = count - exploited
        limit_ns = self._limit_ns(known, round)
        chosen = _sampled(self._utilities(heard, known, limit_ns, round), exploited, seed, round)
        if explored:
            chosen += drawn([client for client in members if client not in known.worth], explored, seed, round)
        return sorted(chosen)

    def _utilities(self, heard: Sequence[int], known: Known, limit_ns: float, round: int) -> dict[int, float]:
        """Return the utility of each client that has reported."""
        worths = {client: _bounded(known.worth[client]) for client in heard}
        if not worths:
            return {}
        ascending = sorted(worths.values())
        least, most = ascending[0], ascending[min(int(_CLIP * len(ascending)), len(ascending) - 1)]
        utilities = {}
        for client, worth in worths.items():
            scaled = (min(worth, most) - least) / ((most - least) or 1.0)
            utility = scaled + math.sqrt(0.1 * math.log(round + 1) / (known.latest[client] + 1))
            took_ns = known.answer_ns[client]
            utilities[client] = utility * (limit_ns / took_ns) ** self.penalty if took_ns > limit_ns else utility
        return utilities

    def _limit_ns(self, known: Known, round: int) -> float:
        """Return the preferred duration T; its pacer remembers how often it has risen, and the rounds' utilities."""
        if not known.worth:
            return math.inf
        risen, *sums = map(_bounded, known.memory or [0.0])
        last = (_bounded(known.worth[client]) for client, latest in known.latest.items() if latest == round - 1)
        sums.append(math.fsum(last))
        if len(sums) == 2 * self.window:
            risen += math.fsum(sums[: self.window]) > math.fsum(sums[self.window :])
            del sums[: self.window]
        known.memory = [risen, *sums]
        quantile = self.pace + risen * _PACE_STEP
        if quantile >= 1:
            return math.inf
        times_ns = sorted(known.answer_ns.values())
        return times_ns[int(quantile * len(times_ns))]


def _bounded(number: float) -> float:
    """Return a number as one from 0 to 10²⁹⁰. A plug-in's report may have any norm, a foreign checkpoint anything."""
    return max(0.0, min(_MOST, number))  # in this order: NaN becomes the largest


def _sampled(utilities: dict[int, float], count: int, seed: int, round: int) -> list[int]:
    """Draw clients whose utility is nearly among the `count` largest, each in proportion to its utility.

    Without replacement: in the order of exponential draws with these rates (Efraimidis, Spirakis 2006).
    """
    if not count:
        return []
    cut = _CUT_OFF * sorted(utilities.values(), reverse=True)[count - 1]
    waits = {
        client: (-math.log1p(-uniform(seed, "oort", round, client)) / utility if utility else math.inf, client)
        for client, utility in utilities.items()
        if utility >= cut
    }
    return sorted(waits, key=waits.__getitem__)[:count]
