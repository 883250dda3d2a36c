"""A client's part in secure aggregation: it shares its secrets, masks its report, and helps to unmask the sum.

Rules that protect a client and its neighbours from a curious server
- Secrets are made by the operating system's generator, for one round, and are forgotten in the next.
- A client masks one report a round, with one set of neighbours.
- Of each neighbour it gives a share of the self mask (the neighbour has reported) or of the mask key (it has dropped
  out), and never of both: it answers once a round, and repeats only that answer.
- It helps to unmask only if t clients have reported, itself and neighbours.
A question that would break a rule is refused, in a sentence that says what was asked.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from seedbus.agents.secure.masks import (
    PUBLIC_BYTES,
    SEALED_BYTES,
    BadKey,
    Secrets,
    Words,
    pair_mask,
    seal,
    self_mask,
    unseal,
)
from seedbus.agents.secure.settings import MOST_NEIGHBOURS, SecureAggregation
from seedbus.agents.secure.sharing import split
from seedbus.agents.secure.stages import (
    DETAIL,
    Stage,
    fields,
    pieces,
    stage_of,
    unpack_clients,
    unpack_subset,
)
from seedbus.algorithms.contract import BadPayload, Declined
from seedbus.bus import Envelope, Kind
from seedbus.bus.text import listed

LARGEST = 2**31 - 1
"""What a sum may be in magnitude, to be told from its value modulo 2³²."""


class Refused(Exception):
    """A client refuses a question.

    Attributes:
        reason: one of `stages.REFUSALS`.
    """

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(detail)
        self.reason = reason


@dataclass(slots=True)
class _Session:
    """A client in one round.

    Attributes:
        round: the round.
        secrets: its own.
        public: neighbour → its public keys; empty before the client has shared.
        sealed: the shares that it gave, one after the other.
        own_share: of its self seed.
        needed: t; before the client has shared, the least that it can be.
        sharers: the neighbours that it masks with, ascending; None before its plan.
        masked: the report that it has masked; None before. Of two with the same masks the server would learn the
            difference, and thus a report if a plan of its choice makes the other one zeros.
        reported: the neighbours that have reported, as the server said first; None before it asked.
    """

    round: int
    secrets: Secrets = field(default_factory=Secrets)
    public: dict[int, bytes] = field(default_factory=dict)
    sealed: bytes = b""
    own_share: bytes = b""
    needed: int = 2
    sharers: list[int] | None = None
    masked: Any = None
    reported: list[int] | None = None


class Party:
    """The part of a process's clients.

    Args:
        settings: the scenario's.
        asked: how many clients a round asks at most.
    """

    def __init__(self, settings: SecureAggregation, asked: int) -> None:
        self._settings = settings
        self._largest = LARGEST // asked
        self._sessions: dict[int, _Session] = {}

    def forget(self, client: int) -> None:
        """A client has lost its state."""
        self._sessions.pop(client, None)

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
            return _tell(envelope, stage, why.reason, str(why)[:DETAIL])

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
        return self._unmask(session, client, *fields(envelope, bytes, bytes))

    def _session(self, client: int, round: int) -> _Session:
        session = self._sessions.get(client)
        if session is None or session.round != round:
            raise Refused("no-masks", f"client {client} has made no keys for round {round}")
        return session

    def _shares(self, session: _Session, client: int, column: bytes, keys: bytes) -> bytes:
        neighbours = unpack_clients(column)
        if not 0 < len(neighbours) <= MOST_NEIGHBOURS or client in neighbours:
            raise BadPayload(f"{len(neighbours)} neighbours; 1 to {MOST_NEIGHBOURS} others are accepted")
        public = dict(zip(neighbours, pieces(keys, PUBLIC_BYTES, len(neighbours)), strict=True))
        if session.public and session.public != public:
            what = "other neighbours, or other keys of theirs, than before"
            raise Refused(
                "no-masks", f"client {client} is given {what} in round {session.round}; it shares once a round"
            )
        if not session.public:
            secrets, round = session.secrets, session.round
            needed = self._settings.shares_needed(len(neighbours))
            holders = [*neighbours, client]
            of_mask, of_self = (split(secret, holders, needed) for secret in (secrets.mask_seed, secrets.self_seed))
            *of_mask, _ = of_mask
            *of_self, session.own_share = of_self
            session.sealed = b"".join(
                seal(secrets.channel, public[neighbour], round, client, neighbour, both[0] + both[1])
                for neighbour, *both in zip(neighbours, of_mask, of_self, strict=True)
            )
            session.public, session.needed = public, needed
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

    def mask(self, client: int, round: int, numbers: Any) -> Any:
        """Return a report with its masks, int32 in the same shape.

        Args:
            client: the client.
            round: the round, to which `admit` admitted it.
            numbers: the report, int32.

        Raises:
            Declined: a number is so large that a sum might not fit into 32 bits, or the client has masked another
                report in this round.
        """
        if int(np.abs(numbers.astype(np.int64)).max()) > self._largest:
            raise self.too_large()
        session = self._sessions[client]
        if session.masked is not None and not np.array_equal(session.masked, numbers):
            raise Declined(
                "no-masks", f"client {client} is to mask another report in round {round}; it masks one a round"
            )
        session.masked = numbers
        secrets, length = session.secrets, numbers.size
        masked: Words = numbers.ravel().view(np.uint32) + self_mask(secrets.self_seed, round, client, length)
        for neighbour in session.sharers or ():
            try:
                pair = pair_mask(secrets.mask_seed, session.public[neighbour], round, client, neighbour, length)
            except BadKey as error:
                raise Declined("no-masks", f"client {neighbour}: {error}") from None
            masked = masked + pair if client < neighbour else masked - pair
        return masked.view(np.int32).reshape(numbers.shape)

    def too_large(self) -> Declined:
        """Return why a client declines whose numbers are too large for a sum.

        The sentence has none of these numbers, because the server, which reads it, is to learn no report.
        """
        limit = f"{self._largest} units are the most of which a cohort's sum fits into 32 bits"
        return Declined("overflow", f"a number is too large: {limit}; a smaller unit_bits has a larger unit")

    def _unmask(self, session: _Session, client: int, packed: bytes, sealed: bytes) -> bytes:
        round, sharers = session.round, session.sharers
        if sharers is None:
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
        if len(reported) + 1 < session.needed:
            what = f"{len(reported)} neighbours of client {client} have reported, fewer than {session.needed - 1}"
            raise Refused("no-masks", f"{what}: their sum is not to be unmasked")
        given = pieces(sealed, SEALED_BYTES, len(sharers))
        shares = []
        for neighbour, piece in zip(sharers, given, strict=True):
            public = session.public[neighbour]
            try:
                of_mask, of_self = unseal(session.secrets.channel, public, round, neighbour, client, piece)
            except BadKey as error:
                raise Refused("bad-shares", str(error)) from None
            shares.append(of_self if neighbour in reported else of_mask)
        session.reported = reported
        return b"".join([*shares, session.own_share])


def _tell(asked: Envelope, *body: Any) -> Envelope:
    stage, *rest = body
    return Envelope(Kind.TELL, asked.client, asked.round, asked.base, [int(stage), *rest])
