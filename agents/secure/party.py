"""A client's part in secure aggregation: it shares its secrets, masks its report, and helps to unmask the sum.

Rules that protect a client and its neighbours from a server that lies
- Secrets are made by the operating system's generator, for one round, and are forgotten in the next.
- t follows from the scenario. A client shares with no fewer neighbours than make t with it, and with no more than the
  scenario has.
- It masks one report a round, with one set of neighbours.
- It takes one set of neighbours as those that have reported, at least t with itself (and a quorum, where all clients
  are neighbours), and confirms this to each of them.
- It gives shares once t clients, itself and neighbours, have confirmed the same. Of each neighbour it gives a share of
  the self mask (the neighbour has reported) or of the mask key (it has dropped out), and never of both.
A question that would break a rule is refused, in a sentence that says what was asked. docs/secure-aggregation.md has
what follows from these rules, and what does not.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from seedbus.agents.extensions import ClientPart, WorkResult
from seedbus.agents.policies.participation import Participation
from seedbus.agents.secure.masks import (
    CONFIRMATION_BYTES,
    PUBLIC_BYTES,
    SEALED_BYTES,
    BadKey,
    Secrets,
    Words,
    channel,
    confirmation,
    pair_mask,
    seal,
    self_mask,
    unseal,
)
from seedbus.agents.secure.numbers import words
from seedbus.agents.secure.settings import SecureAggregation, Terms
from seedbus.agents.secure.sharing import SHARE_BYTES, split
from seedbus.agents.secure.stages import (
    DETAIL,
    Stage,
    fields,
    pack_clients,
    pack_subset,
    pieces,
    stage_of,
    unpack_clients,
    unpack_subset,
)
from seedbus.algorithms.contract import Algorithm, BadPayload, Declined, Replica, sums
from seedbus.bus import Envelope, Kind
from seedbus.bus.text import listed

TELL_BYTES = 11
"""Bytes of a TELL beside what it tells: an envelope's header, msgpack's, and its length."""


class Refused(Exception):
    """A client refuses a question.

    Attributes:
        reason: one of `stages.REFUSALS`.
        rest: what it tells all the same.
    """

    def __init__(self, reason: str, detail: str, *rest: bytes) -> None:
        super().__init__(detail)
        self.reason = reason
        self.rest = rest


@dataclass(slots=True)
class _Session:
    """A client in one round.

    Attributes:
        round: the round.
        secrets: its own.
        public: neighbour → its public keys; empty before the client has shared.
        channels: neighbour → the secret that the two share.
        sealed: the shares that it gave, one after the other.
        own_share: of its self seed.
        needed: t; before the client has shared, the least that it can be.
        sharers: the neighbours that it masks with, ascending; None before its plan.
        masked: the report that it has masked, and what it tells beside it; None before. Of two with the same masks the
            server would learn the difference, and thus a report if a plan of its choice makes the other one zeros.
        beside: what it tells beside its report, masked; b"": nothing.
        reported: the neighbours that have reported, as the client has confirmed; None before.
    """

    round: int
    secrets: Secrets = field(default_factory=Secrets)
    public: dict[int, bytes] = field(default_factory=dict)
    channels: dict[int, bytes] = field(default_factory=dict)
    sealed: bytes = b""
    own_share: bytes = b""
    needed: int = 2
    sharers: list[int] | None = None
    masked: Any = None
    beside: bytes = b""
    reported: list[int] | None = None


def told_bytes(neighbours: int) -> int:
    """Return about how many bytes a client with so many neighbours tells in a round, at most."""
    shares = (SEALED_BYTES + CONFIRMATION_BYTES + SHARE_BYTES) * neighbours + SHARE_BYTES
    return PUBLIC_BYTES + shares + len(Stage) * TELL_BYTES


class Party(ClientPart):
    """The part of a process's clients.

    Args:
        settings: the scenario's.
        participation: the scenario's.
    """

    is_asked = True

    def __init__(self, settings: SecureAggregation, participation: Participation) -> None:
        self._terms = Terms.of(settings, participation)
        self._largest = self._terms.largest
        self._sessions: dict[int, _Session] = {}

    def forget(self, client: int) -> None:
        self._sessions.pop(client, None)

    def bare(self, plan: Envelope) -> Envelope:
        return plan._replace(body=plan.body[:-1])

    def planned(self, plan: Envelope, replica: Replica) -> None:
        self.admit(plan.client, plan.round, plan.body[-1] if plan.body else None)

    def sent(
        self, algorithm: Algorithm, client: int, plan: Any, outcome: WorkResult, beside: Sequence[int] = ()
    ) -> WorkResult:
        """Return a report with its masks; what cannot be masked is declined in the same words whatever it is."""
        if isinstance(outcome, Declined):
            return self.too_large()  # the other may quote a scalar
        report, memory = outcome
        try:
            numbers = sums(algorithm).numbers(report)
        except Declined:
            return self.too_large()
        try:
            return sums(algorithm).of_numbers(plan, self.mask(client, plan.round, numbers, beside)), memory
        except Declined as why:
            return why

    def full(self, report: Envelope) -> Envelope:
        told = self._sessions[report.client].beside
        return report._replace(body=[*report.body, told]) if told else report

    def answer(self, envelope: Envelope) -> Envelope | None:
        """Return the TELL for an ASK; None if a newer question has overtaken it.

        Raises:
            BadPayload: it cannot be read.
        """
        stage, client, round = stage_of(envelope), envelope.client, envelope.round
        session = self._sessions.get(client)
        if session is not None and round < session.round:
            return None
        try:
            return _tell(envelope, stage, self._answer(stage, envelope))
        except BadKey as error:
            raise BadPayload(str(error)) from None
        except Refused as why:
            return _tell(envelope, stage, why.reason, str(why)[:DETAIL], *why.rest)

    def _answer(self, stage: Stage, envelope: Envelope) -> bytes:
        client, round = envelope.client, envelope.round
        if stage is Stage.KEYS:
            fields(envelope)
            if client not in self._sessions or self._sessions[client].round < round:
                self._sessions[client] = _Session(round)
            return self._sessions[client].secrets.public(round)
        session = self._session(client, round)
        if stage is Stage.SHARES:
            return self._shares(session, client, *fields(envelope, bytes, bytes))
        if stage is Stage.CONFIRM:
            return self._confirm(session, client, *fields(envelope, bytes))
        return self._unmask(session, client, *fields(envelope, bytes, bytes, bytes))

    def _session(self, client: int, round: int) -> _Session:
        session = self._sessions.get(client)
        if session is None or session.round != round:
            raise Refused("no-masks", f"client {client} has made no keys for round {round}")
        return session

    def _shares(self, session: _Session, client: int, column: bytes, keys: bytes) -> bytes:
        neighbours, terms = unpack_clients(column), self._terms
        if not 0 < len(neighbours) < terms.most or client in neighbours:
            raise BadPayload(f"{len(neighbours)} neighbours; 1 to {terms.most - 1} others are accepted")
        public = dict(zip(neighbours, pieces(keys, PUBLIC_BYTES, len(neighbours)), strict=True))
        needed = terms.shares_needed(len(neighbours))
        if len(neighbours) + 1 < needed:
            raise Refused(
                "no-masks",
                f"client {client} is given {len(neighbours)} neighbours in round {session.round}; by its scenario "
                f"it shares with {needed - 1} at least",
            )
        if session.public and session.public != public:
            what = "other neighbours, or other keys of theirs, than before"
            raise Refused(
                "no-masks", f"client {client} is given {what} in round {session.round}; it shares once a round"
            )
        if not session.public:
            secrets, round = session.secrets, session.round
            channels = {neighbour: channel(secrets.channel, key) for neighbour, key in public.items()}
            holders = [*neighbours, client]
            of_mask, of_self = (split(secret, holders, needed) for secret in (secrets.mask_seed, secrets.self_seed))
            *of_mask, _ = of_mask
            *of_self, session.own_share = of_self
            session.sealed = b"".join(
                seal(channels[neighbour], round, client, neighbour, both[0] + both[1])
                for neighbour, *both in zip(neighbours, of_mask, of_self, strict=True)
            )
            session.public, session.channels, session.needed = public, channels, needed
        return session.sealed

    def admit(self, client: int, round: int, packed: Any) -> None:
        """Take note of the neighbours that have shared, which a PLAN names; the report is masked with these.

        Raises:
            BadPayload: they cannot be read.
            Declined: the client cannot mask a report with them.
        """
        if not isinstance(packed, bytes):
            raise BadPayload("a PLAN that does not name the neighbours that have shared their secrets")
        try:
            session = self._session(client, round)
        except Refused as why:
            raise Declined(why.reason, str(why)) from None
        sharers = unpack_subset(packed, list(session.public))
        if session.sharers is not None and session.sharers != sharers:
            raise Declined(
                "no-masks", f"client {client} is to mask with others in round {round}; it masks once a round"
            )
        if len(sharers) + 1 < session.needed:
            what = f"{len(sharers)} neighbours of client {client} have shared, and {session.needed - 1} have to"
            raise Declined("no-masks", f"{what}: its mask could not be recovered")
        session.sharers = sharers

    def mask(self, client: int, round: int, numbers: Any, beside: Sequence[int] = ()) -> Any:
        """Return a report with its masks, int32 in the same shape; `full` adds what is told beside it.

        Args:
            client: the client.
            round: the round, to which `admit` admitted it.
            numbers: the report, int32.
            beside: whole numbers that are told beside it.

        Raises:
            Declined: a number is so large that a sum might not fit into 32 bits, or the client has masked another
                report in this round.
        """
        if int(np.abs(numbers.astype(np.int64)).max()) > self._largest:
            raise self.too_large()
        session = self._sessions[client]
        whole = np.concatenate([numbers.ravel(), words(beside, self._terms.asked)]).astype(np.int32)
        if session.masked is not None and not np.array_equal(session.masked, whole):
            raise Declined(
                "no-masks", f"client {client} is to mask another report in round {round}; it masks one a round"
            )
        session.masked = whole
        secrets, length = session.secrets, whole.size
        masked: Words = whole.view(np.uint32) + self_mask(secrets.self_seed, round, client, length)
        for neighbour in session.sharers or ():
            try:
                pair = pair_mask(secrets.mask_seed, session.public[neighbour], round, client, neighbour, length)
            except BadKey as error:
                raise Declined("no-masks", f"client {neighbour}: {error}") from None
            masked = masked + pair if client < neighbour else masked - pair
        session.beside = masked[numbers.size :].astype("<u4").tobytes()
        return masked[: numbers.size].view(np.int32).reshape(numbers.shape)

    def too_large(self) -> Declined:
        """Return why a client declines whose numbers are too large for a sum.

        The sentence has none of these numbers, because the server, which reads it, is to learn no report.
        """
        limit = f"{self._largest} units are the most of which a cohort's sum fits into 32 bits"
        return Declined("overflow", f"a number is too large: {limit}; a smaller unit_bits has a larger unit")

    def _confirm(self, session: _Session, client: int, packed: bytes) -> bytes:
        """Take note of the neighbours that have reported, and confirm to each of them what the server has said."""
        round, sharers = session.round, session.sharers
        if sharers is None or session.masked is None:
            raise Refused("no-masks", f"client {client} has masked no report in round {round}")
        reported = unpack_subset(packed, list(session.public))
        if not set(reported) <= set(sharers):
            raise BadPayload("neighbours that have reported without having shared")
        if session.reported is not None and session.reported != reported:
            both = sorted(set(session.reported) ^ set(reported))
            names = listed(both, 8)
            raise Refused(
                "asks-for-both",
                f"the server asks client {client} for both kinds of shares of client {names} in round {round}: with "
                "them it could unmask a single report",
            )
        least = max(session.needed, self._terms.quorum if self._terms.is_complete else 0)
        if len(reported) + 1 < least:
            what = f"{len(reported)} neighbours of client {client} have reported, fewer than {least - 1}"
            raise Refused("no-masks", f"{what}: their sum is not to be unmasked")
        session.reported = reported
        view = self._view(session, client, sharers, reported)
        return b"".join(confirmation(session.channels[each], round, client, each, view) for each in reported)

    def _view(self, session: _Session, client: int, sharers: Sequence[int], reported: Sequence[int]) -> bytes:
        """What a client confirms to a neighbour, beside that this neighbour has reported.

        If all are neighbours of all, all have been told the same: who takes part, with which keys, who has shared and
        who has reported. On a sparse graph each client knows its own neighbours only, so there is nothing else.
        """
        if not self._terms.is_complete:
            return b""
        public = {**session.public, client: session.secrets.public(session.round)}
        everybody = sorted(public)
        subsets = (pack_subset({*some, client}, everybody) for some in (sharers, reported))
        told = [pack_clients(everybody), *(public[each] for each in everybody), *subsets]
        return hashlib.sha256(b"".join(told)).digest()

    def _unmask(self, session: _Session, client: int, packed: bytes, given: bytes, sealed: bytes) -> bytes:
        """Return a share of each neighbour that has shared, if t clients have confirmed what this one has."""
        round, sharers, reported = session.round, session.sharers, session.reported
        if sharers is None or reported is None:
            raise Refused("no-masks", f"client {client} has confirmed nothing in round {round}")
        confirming = unpack_subset(packed, list(session.public))
        if not set(confirming) <= set(reported):
            raise BadPayload("confirmations of neighbours that have not reported")
        view = self._view(session, client, sharers, reported)
        false = [
            each
            for each, piece in zip(confirming, pieces(given, CONFIRMATION_BYTES, len(confirming)), strict=True)
            if not hmac.compare_digest(piece, confirmation(session.channels[each], round, each, client, view))
        ]
        shares, unread = [], []
        for each, piece in zip(sharers, pieces(sealed, SEALED_BYTES, len(sharers)), strict=True):
            try:
                of_mask, of_self = unseal(session.channels[each], round, each, client, piece)
                shares.append(of_self if each in reported else of_mask)
            except BadKey:
                unread.append(each)
        told, count = b"".join([*shares, session.own_share]), len(confirming) - len(false)
        subsets = [pack_subset(some, sharers) for some in (unread, false)]
        if count + 1 < session.needed:
            what = f"{count} neighbours of client {client} confirm what it was told of round {round}"
            sentence = f"{what}, fewer than {session.needed - 1}: they were told otherwise, or lie"
            raise Refused("unconfirmed", sentence, b"", *subsets)
        if unread or false:
            names = listed(sorted({*unread, *false}), 8)
            what = f"no valid shares or confirmations for client {client} in round {round}"
            raise Refused("bad-shares", f"client {names} has sent {what}", told, *subsets)
        return told


def _tell(asked: Envelope, *body: Any) -> Envelope:
    stage, *rest = body
    return Envelope(Kind.TELL, asked.client, asked.round, asked.base, [int(stage), *rest])
