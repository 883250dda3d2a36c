"""When a run has waited long enough for processes that do not come, or do not answer."""

from __future__ import annotations

from seedbus.agents.errors import Unfinishable
from seedbus.bus import Registration
from seedbus.bus.clock import wall_seconds
from seedbus.scenarios.transports.placement import Placement

MAX_STALLS = 3  # processes in a row that joined and did not answer, without a round between them


class Patience:
    """Ends a run whose clients no process hosts for too long.

    The time without clients counts until a round closes. While a process has an offer of all missing clients, it gets
    the time to join, once. Processes that join and then do not answer end the run after `MAX_STALLS` of them.
    """

    def __init__(self, placement: Placement) -> None:
        self._placement = placement
        self._looked_s = wall_seconds()
        self._without_offer_s = 0.0
        self._without_clients_s = 0.0
        self._rounds = 0
        self._stalls = 0

    def check(self, registration: Registration, stalls: int) -> None:
        """Look at the run once more.

        Args:
            registration: who is there.
            stalls: how many processes so far were taken to be gone because they did not answer.

        Raises:
            Unfinishable: the run has waited for too long.
        """
        now_s = wall_seconds()
        passed_s, self._looked_s = now_s - self._looked_s, now_s
        if registration.rounds_closed > self._rounds or not registration.was_complete:
            self._rounds = registration.rounds_closed
            self._stalls = stalls
            self._without_clients_s = self._without_offer_s = 0.0
        if registration.can_go_on or not registration.was_complete:
            self._without_offer_s = 0.0
        else:
            self._without_clients_s += passed_s
            self._without_offer_s += 0.0 if registration.could_go_on else passed_s
        most_s = self._placement.patience_s + self._placement.join_s
        if self._without_offer_s > self._placement.patience_s:
            raise Unfinishable(_nobody_hosts(registration, self._placement.patience_s))
        if self._without_clients_s > most_s:
            raise Unfinishable(_nobody_hosts(registration, most_s))
        if stalls - self._stalls >= MAX_STALLS:
            raise Unfinishable(
                f"round {registration.rounds_closed}: {MAX_STALLS} processes joined and did not answer for "
                f"{self._placement.answer_within_s:.0f} s each (--answer-within); "
                "every closed round is kept"
            )


def _nobody_hosts(registration: Registration, lasted_s: float) -> str:
    clients = sorted(client for client in registration.missing if client >= 0)
    some = ", ".join(map(str, clients[:5])) + (", …" if len(clients) > 5 else "")
    who = f"{len(clients)} clients ({some})" if clients else "the evaluator"
    return (
        f"no process has hosted {who} for {lasted_s:.0f} s; every closed round is kept, "
        "and a resumed run goes on from there"
    )
