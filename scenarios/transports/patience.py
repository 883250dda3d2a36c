"""When a run stops waiting for processes that do not connect or do not answer."""

from __future__ import annotations

from seedbus.agents.errors import Unfinishable
from seedbus.bus import Registration
from seedbus.bus.clock import wall_seconds
from seedbus.bus.text import counted, listed
from seedbus.scenarios.transports.placement import Placement

MAX_STALLS = 3  # processes that join and then do not answer, one after another without a closed round between them


class Patience:
    """Ends a run if too many clients are without a process for too long.

    The time without clients adds up until a round closes; while this process is stopped, as by Ctrl-Z, it stands still.
    It may last `patience_s`; while processes have offers that cover enough clients, `join_s` more in total, so that
    they can join. The run also ends after `MAX_STALLS` processes in a row that joined and did not answer.
    """

    def __init__(self, placement: Placement) -> None:
        self._placement = placement
        self._checked_s = wall_seconds()  # time of the last check
        self._without_offer_s = 0.0
        self._without_clients_s = 0.0
        self._rounds = 0
        self._stalls = 0

    def check(self, registration: Registration, stalls: int) -> None:
        """Check how long the run has waited; to be called once a heartbeat.

        Args:
            registration: knows which clients have a process.
            stalls: number of processes so far that were removed because they did not answer.

        Raises:
            Unfinishable: the run has waited for too long.
        """
        now_s = wall_seconds()
        # a pause of this process is not the others' absence: they could not reach it
        passed_s = min(now_s - self._checked_s, 2 * self._placement.heartbeat_s)
        self._checked_s = now_s
        if registration.rounds_closed > self._rounds or not registration.has_begun:
            self._rounds = registration.rounds_closed
            self._stalls = stalls
            self._without_clients_s = self._without_offer_s = 0.0
        if registration.can_go_on or not registration.has_begun:
            self._without_offer_s = 0.0
        else:
            self._without_clients_s += passed_s
            self._without_offer_s += 0.0 if registration.could_go_on else passed_s
        max_wait_s = self._placement.patience_s + self._placement.join_s
        if self._without_offer_s > self._placement.patience_s:
            raise Unfinishable(_unhosted(registration, self._placement.patience_s))
        if self._without_clients_s > max_wait_s:
            raise Unfinishable(_unhosted(registration, max_wait_s))
        if stalls - self._stalls >= MAX_STALLS:
            raise Unfinishable(
                f"round {registration.rounds_closed}: {MAX_STALLS} processes joined and did not answer for "
                f"{self._placement.answer_within_s:.0f} s each (--answer-within); "
                "every closed round is kept"
            )


def _unhosted(registration: Registration, lasted_s: float) -> str:
    """Return the sentence that names the missing clients."""
    clients = sorted(client for client in registration.missing if client >= 0)
    missing = f"{counted(len(clients), 'client')} ({listed(clients)})" if clients else "the evaluator"
    return (
        f"no process has hosted {missing} for {lasted_s:.0f} s; every closed round is kept, "
        "and a resumed run goes on from there"
    )
