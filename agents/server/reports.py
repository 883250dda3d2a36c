"""Answers of clients: counted in the round that they are for, or refused with a reason."""

from __future__ import annotations

from seedbus.agents import messages
from seedbus.agents.catch_up.server import CatchUp, LagsTooFar
from seedbus.agents.server.positions import Positions
from seedbus.agents.server.report_reader import ReportReader
from seedbus.agents.server.round import Round
from seedbus.agents.server.rounds import Rounds
from seedbus.agents.verification import Verifier
from seedbus.algorithms.contract import ReportRefused
from seedbus.bus import Envelope


class ReportHandler:
    """Takes answers for the coordinator, whose parts it works on.

    Each kind has a method, which raises `BadPayload` or `ReportRefused` if the message does not count.
    """

    def __init__(
        self,
        reader: ReportReader,
        positions: Positions,
        catch_up: CatchUp,
        rounds: Rounds,
        verifier: Verifier,
    ) -> None:
        self._reader = reader
        self._positions = positions
        self._catch_up = catch_up
        self._rounds = rounds
        self._verifier = verifier

    def _expecting(self, envelope: Envelope) -> Round:
        """The round that waits for this answer. Raises `ReportRefused` if none does.

        An answer that comes too late does not count, and still shows how far its client has come: what it has folded is
        not sent again. A client with a false version harms itself: it cannot follow its next plan, and joins again. So
        does one that has lost its state since it answered.
        """
        client = envelope.client
        if client not in self._positions.believed:
            raise ReportRefused("not-a-member", f"client {client} never joined")
        try:
            now = self._rounds.answered_round(envelope.round)
        except ReportRefused as why:
            if why.reason == "late" and envelope.base <= self._catch_up.history.version:
                self._advance(client, envelope.base)
            raise
        now.admit(envelope)
        return now

    def reported(self, envelope: Envelope, now_ns: int) -> None:
        """Take a REPORT."""
        now, client = self._expecting(envelope), envelope.client
        is_due = self._verifier.is_due(envelope.base)
        now.exchange.admit(envelope)
        report, claim = self._reader.read(now.exchange.bare(envelope), now.plan, has_digests=is_due)
        difference = self._verifier.claimed(client, envelope.base, claim) if is_due else None
        if difference is not None:
            raise ReportRefused("diverged", difference)
        self._rounds.add_report(now, client, report, now_ns)
        now.heard(envelope)
        self._advance(client, envelope.base)
        if now is self._rounds.current:
            self._catch_up.reported(client)

    def declined(self, envelope: Envelope, now_ns: int) -> None:
        """Take a DECLINE: it ends the wait for its client, and is always refused."""
        now, client = self._expecting(envelope), envelope.client
        reason, detail = messages.unpack_decline(envelope)
        now.declined.add(client)
        now.waiting.discard(client)
        self._advance(client, envelope.base)
        raise ReportRefused(reason, detail)

    def told(self, envelope: Envelope, now_ns: int) -> None:
        """Take an answer to another question of the round."""
        current, round = self._rounds.current, envelope.round
        if round != self._rounds.number or current is None:
            self._rounds.answered_round(round)
            raise ReportRefused("late", f"round {round} is closed")
        current.exchange.answered(envelope)

    def catches_up(self, envelope: Envelope, now_ns: int) -> None:
        """Take what it takes to catch up."""
        try:
            self._catch_up.received(envelope)
        except LagsTooFar:
            self._rounds.dismiss(envelope.client)  # it will answer no earlier round
            raise

    def _advance(self, client: int, version: int) -> None:
        """An answer shows which version its client has reached; it never moves the client back."""
        if version >= self._positions.believed[client]:
            self._positions.move(client, version)
