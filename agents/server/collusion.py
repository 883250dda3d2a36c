"""Colluding clients: their reports in a commit are replaced, just before it is made, by one that they make together.

An attacker that knows the reports of others cannot be played by its own process, which has none of these. So the server
plays it, when the reports of a commit are complete. What a client reported before is honest, on the wire and wherever
else the server looks at it.

A false report depends on the scenario and on the reports of the commit alone, so it is the same after a resumption.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, runtime_checkable

import numpy as np

from seedbus.agents import messages
from seedbus.agents.extensions import ReportFilter
from seedbus.algorithms.contract import Algorithm, BadPayload, ReportRefused
from seedbus.bus.keyed_random import KeyedRandom, ordered
from seedbus.discovery import check_shape


@runtime_checkable
class Collude(Protocol):
    """Implemented by faults whose clients make their reports together.

    The `repr` of such a fault keys its random draws, so it must state all of the fault's settings and nothing else.
    """

    def lies(self, client: int, round: int, random: KeyedRandom) -> bool:
        """Return whether a client is one of the attackers in a round."""
        ...

    def collude(self, own: Sequence[Any], honest: Sequence[Any]) -> Any:
        """Return the report of all attackers, [values]; None: each sends its own.

        Args:
            own: what the attackers would have reported, float32 [values] each, at least one; not to be written to.
            honest: the other reports of the commit, in the same form; maybe none.
        """
        ...


class Collusion:
    """All faults of a run whose clients collude. A client that several select obeys the first, ordered by `repr`."""

    def __init__(self, faults: Sequence[Any], seed: int, clients: int) -> None:
        """Take those of a scenario's faults that implement `Collude`; clients: N."""
        self._faults: list[tuple[Collude, KeyedRandom]] = ordered(faults, Collude, seed, clients)

    def apply(self, algorithm: Algorithm, plan: Any, reports: dict[int, Any]) -> dict[int, Any]:
        """Return the reports of one round with those of attackers replaced, in the order of clients.

        A report that the server would refuse is none that an attacker sends: it sends its own.
        """
        attackers = [
            [client for client in sorted(reports) if fault.lies(client, plan.round, random)]
            for fault, random in self._faults
        ]
        if not any(attackers):
            return reports
        values = {
            client: np.ravel(algorithm.values(report)).astype(np.float32, copy=False)
            for client, report in sorted(reports.items())
        }
        honest = [row for client, row in values.items() if not any(client in group for group in attackers)]
        replaced = dict(sorted(reports.items()))
        taken = set[int]()
        for (fault, _), group in zip(self._faults, attackers, strict=True):
            own = [client for client in group if client not in taken]
            taken.update(own)
            row = fault.collude([values[client] for client in own], honest) if own else None
            if row is None:
                continue
            check_shape(row, (len(values[own[0]]),), f"`collude` of the fault {getattr(fault, 'fault', fault)}")
            for client in own:
                replaced[client] = _sent(algorithm, plan, reports[client], row)
        return replaced


def collusions(faults: Sequence[Any], seed: int, clients: int) -> list[ReportFilter]:
    """Return what replaces the reports of colluding clients; nothing if no fault of a scenario has any."""
    collusion = Collusion(faults, seed, clients)
    return [collusion.apply] if any(isinstance(fault, Collude) for fault in faults) else []


def _sent(algorithm: Algorithm, plan: Any, report: Any, row: Any) -> Any:
    """Return a report with other values, rounded as its message would be."""
    values = algorithm.values(report)
    with np.errstate(over="ignore"):
        false = algorithm.with_values(report, np.asarray(row).reshape(values.shape).astype(values.dtype))
    try:
        return messages.read_report(algorithm, algorithm.pack_report(plan, false).body, plan)
    except (BadPayload, ReportRefused):
        return report
