"""The session that serves each address, and the deliveries that wait while there is none."""

from __future__ import annotations

from seedbus.bus.envelope import EVALUATOR
from seedbus.bus.zeromq.server.session import Delivery, Session


class Routes:
    """Sessions by the addresses that they host.

    Args:
        redelivers: whether a delivery without a session, or without an answer when its session ends, waits for the next
            session with its address. If not, it is answered with nothing; but deliveries to the evaluator always wait,
            because the evaluator must miss none.
    """

    def __init__(self, redelivers: bool) -> None:
        self._redelivers = redelivers
        self._sessions: dict[int, Session] = {}
        self._parked: dict[int, list[Delivery]] = {}

    def reaches(self, address: int) -> bool:
        """Return whether a delivery to `address` comes to a session, now or later."""
        return address in self._sessions or self._redelivers or address == EVALUATOR

    def deliver(self, delivery: Delivery) -> None:
        """Queue a delivery at its session; without one, park it or answer it with nothing."""
        session = self._sessions.get(delivery.address)
        if session is not None:
            session.queue(delivery)
        elif self.reaches(delivery.address):
            self._parked.setdefault(delivery.address, []).append(delivery)
        else:
            delivery.answered([])

    def open(self, session: Session) -> None:
        """A host has joined: it gets all that waits for its addresses, and all that follows."""
        self._sessions.update(dict.fromkeys(session.addresses, session))
        for address in session.addresses:
            for delivery in self._parked.pop(address, []):
                session.queue(delivery)
        session.flush()

    def close(self, session: Session) -> None:
        """A session is over: its unanswered deliveries are delivered again."""
        for address in session.addresses:
            if self._sessions.get(address) is session:  # several processes may have been offered the same clients
                del self._sessions[address]
        for delivery in session.take_unanswered():
            self.deliver(delivery)
