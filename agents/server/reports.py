"""What clients answer: taken into the round that asked for it, or refused with a reason."""

from __future__ import annotations

from seedbus.agents import messages
from seedbus.agents.messages import AnyAlgorithm
from seedbus.agents.server.catch_up import CatchUp
from seedbus.agents.server.client_positions import ClientPositions
from seedbus.agents.server.round import Round
from seedbus.agents.server.rounds import Rounds
from seedbus.agents.server.snapshot_offers import NoSnapshot
from seedbus.agents.verification import Verifier
from seedbus.algorithms.contract import ReportRefused
from seedbus.bus import Envelope, Kind
from seedbus.bus.envelope import REPORT


class ReportHandler:
    """Takes answers, on behalf of the coordinator whose parts these are."""

    def __init__(
        self, algorithm: AnyAlgorithm, places: ClientPositions, catch_up: CatchUp, rounds: Rounds, verifier: Verifier
    ) -> None:
        self._algorithm, self._places, self._catch_up = algorithm, places, catch_up
        self._rounds, self._verifier = rounds, verifier

    def take(self, envelope: Envelope, now_ns: int) -> None:
        """A report, why there is none, or what serves a snapshot. Raises `BadPayload`, `ReportRefused`."""
        kind = envelope.kind
        if kind is REPORT:
            self._accept(envelope, now_ns)
        elif kind is Kind.DECLINE:
            self._let_off(envelope)
        elif kind is Kind.PULL:
            self._pulled(envelope)
        else:
            self._catch_up.snapshots.received(envelope)

    def _expected(self, envelope: Envelope) -> Round:
        """The round that this answers, if it is one that waits for it."""
        client = envelope.client
        if client not in self._places.versions:
            raise ReportRefused("not-a-member", f"client {client} never joined")
        now = self._rounds.answered_round(envelope.round)
        now.admit(envelope)
        return now

    def _let_off(self, envelope: Envelope) -> None:
        now, client = self._expected(envelope), envelope.client
        reason, detail = messages.unpack_decline(envelope)
        now.declined.add(client)
        now.waiting.discard(client)
        self._reached(client, envelope.base)
        raise ReportRefused(reason, detail)

    def _pulled(self, envelope: Envelope) -> None:
        try:
            self._catch_up.pulled(envelope, self._rounds.current)
        except NoSnapshot:
            self._rounds.dismiss(envelope.client)  # it lags too far to answer an earlier round
            raise

    def _reached(self, client: int, version: int) -> None:
        """What a client has answered brings it on, and never back."""
        if version >= self._places.versions[client]:
            self._places.move(client, version)

    def _accept(self, envelope: Envelope, now_ns: int) -> None:
        now, client = self._expected(envelope), envelope.client
        is_due = self._verifier.is_due(envelope.base)
        report, claim = messages.unpack_report(self._algorithm, envelope, now.plan, has_digests=is_due)
        self._algorithm.check(now.plan, report)
        difference = self._verifier.claimed(client, envelope.base, claim) if is_due else None
        if difference is not None:
            raise ReportRefused("diverged", difference)
        self._rounds.add_report(now, client, report, now_ns)
        self._reached(client, envelope.base)
        if now is self._rounds.current:
            self._catch_up.snapshots.reported(client)
