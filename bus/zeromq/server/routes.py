"""Which session gets what is delivered to an address, and what waits while none does."""

from __future__ import annotations

from seedbus.bus.envelope import EVALUATOR
from seedbus.bus.zeromq.server.session import Delivery, Session


class Routes:
    """Sessions by the addresses that they host.

    redelivers: whether what nobody takes, or has answered, waits for the next; else it is answered with nothing, but
    for the evaluator: an instrument that misses nothing.
    """

    def __init__(self, redelivers: bool) -> None:
        self._redelivers = redelivers
        self._sessions: dict[int, Session] = {}
        self._parked: dict[int, list[Delivery]] = {}

    def reaches(self, address: int) -> bool:
        """Whether what is delivered there comes to somebody, now or later."""
        return address in self._sessions or self._redelivers or address == EVALUATOR

    def deliver(self, delivery: Delivery) -> None:
        session = self._sessions.get(delivery.address)
        if session is not None:
            session.hold_back(delivery)
        elif self.reaches(delivery.address):
            self._parked.setdefault(delivery.address, []).append(delivery)
        else:
            delivery.answered([])

    def open(self, session: Session) -> None:
        """A host has joined: what waits for its addresses, and all that comes for them, is its own."""
        self._sessions.update(dict.fromkeys(session.addresses, session))
        for address in session.addresses:
            for delivery in self._parked.pop(address, []):
                session.hold_back(delivery)
        session.send_batch()

    def shut(self, session: Session) -> None:
        """A host is gone: what it leaves unanswered is delivered anew."""
        for address in session.addresses:
            if self._sessions.get(address) is session:  # others may have had an offer of the same
                del self._sessions[address]
        for delivery in session.leave():
            self.deliver(delivery)
