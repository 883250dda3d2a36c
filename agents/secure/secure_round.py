"""The server's part in secure aggregation: it asks, passes sealed shares on, and computes the sum of masked reports.

    Σ x_u  =  Σ y_u  −  Σ PRG(b_u)  −  Σ_d Σ_u ± PRG(k_ud)      modulo 2³²

u: the clients that have reported; d: those that shared and have not reported; k_ud: of neighbours only. The server is
trusted to follow the protocol, not to be incurious. It recovers b_u of clients that have reported and the mask key of
clients that shared and then dropped out, from t shares each.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from seedbus.agents.secure.masks import (
    KEY_BYTES,
    PUBLIC_BYTES,
    SEALED_BYTES,
    BadKey,
    Words,
    check_public,
    mask_public,
    pair_mask,
    self_mask,
)
from seedbus.agents.secure.settings import SecureAggregation
from seedbus.agents.secure.sharing import SHARE_BYTES, is_share, recover
from seedbus.agents.secure.stages import (
    DETAIL,
    REFUSALS,
    Stage,
    fields,
    pack_clients,
    pack_subset,
    pieces,
    stage_of,
)
from seedbus.algorithms.contract import BadPayload, ReportRefused
from seedbus.bus import Envelope, Kind


class SecureRound:
    """The masks of one round.

    Attributes:
        stage: what was asked last.
        waiting: the clients whose part is awaited.
        unrecovered: the client whose secret could not be recovered from its shares; None: there is none.
    """

    def __init__(self, settings: SecureAggregation, round: int, version: int, cohort: Sequence[int], seed: int) -> None:
        """Begin with no keys.

        Args:
            settings: the scenario's.
            round: the round.
            version: at which it starts.
            cohort: the clients that it asks.
            seed: the scenario's.
        """
        self.stage = Stage.KEYS
        self.waiting: set[int] = set()
        self.unrecovered: int | None = None
        self._settings = settings
        self._round = round
        self._version = version
        self._cohort = list(cohort)
        self._graph = settings.graph(self._cohort, seed, round)
        self._public: dict[int, bytes] = {}
        self._neighbours: dict[int, list[int]] = {}  # those with keys, of each client that was asked to share
        self._sealed: dict[int, dict[int, bytes]] = {}  # sender → recipient → shares
        self._too_late: set[int] = set()  # the clients that had not shared when plans were sent
        self._reported: frozenset[int] = frozenset()
        self._shares: dict[int, dict[int, bytes]] = {}  # client → holder → share of the secret that is due

    def ask_keys(self) -> list[Envelope]:
        """Return the first questions."""
        return self._ask(Stage.KEYS, {client: [] for client in self._cohort})

    def ask_shares(self) -> list[Envelope]:
        """Tell each client that has keys of its neighbours' keys, and ask it for shares of its secrets."""
        with_keys = {client: [each for each in self._graph[client] if each in self._public] for client in self._public}
        self._neighbours = {client: neighbours for client, neighbours in sorted(with_keys.items()) if neighbours}
        bodies = {
            client: [pack_clients(neighbours), b"".join(self._public[each] for each in neighbours)]
            for client, neighbours in self._neighbours.items()
        }
        return self._ask(Stage.SHARES, bodies)

    def close_sharing(self) -> None:
        """Take no more shares: plans name the clients that have shared, and reports are masked with these."""
        self._too_late, self.waiting = self.waiting, set()

    @property
    def sharers(self) -> set[int]:
        """The clients that have shared their secrets: these get plans."""
        return set(self._sealed)

    def masks_with(self, client: int) -> bytes:
        """Return what ends a client's PLAN: which of its neighbours have shared."""
        return pack_subset(self.sharers, self._neighbours[client])

    def ask_unmask(self, reported: frozenset[int]) -> list[Envelope]:
        """Ask the clients that have reported for the shares that unmask the sum of their reports.

        Nobody is asked if too many have dropped out: a client would refuse.
        """
        self._reported = reported
        bodies: dict[int, list[bytes]] = {}
        if any(self._holders(client) < self._needed(client) for client in reported | self._lost):
            return self._ask(Stage.UNMASK, bodies)
        for client in sorted(reported):
            sealed = (self._sealed[sender][client] for sender in self._sharing(client))
            bodies[client] = [pack_subset(reported, self._neighbours[client]), b"".join(sealed)]
        return self._ask(Stage.UNMASK, bodies)

    def told(self, envelope: Envelope) -> None:
        """Take a client's part.

        Raises:
            BadPayload: it cannot be read.
            ReportRefused: it is not awaited, or the client refuses.
        """
        stage, client = stage_of(envelope), envelope.client
        if stage < self.stage or (stage is Stage.SHARES and client in self._too_late):
            raise ReportRefused("late", f"stage {stage.name} of secure aggregation is over in round {self._round}")
        if stage > self.stage or client not in self.waiting:
            raise ReportRefused("not-asked", f"client {client} is not asked for {stage.name} in round {self._round}")
        if len(envelope.body) == 3:
            self.waiting.discard(client)
            reason, detail = fields(envelope, str, str)
            if reason not in REFUSALS or len(detail) > DETAIL:
                raise BadPayload(f"a client refuses its part because of {reason[:DETAIL]!r}")
            raise ReportRefused(reason, detail)
        (part,) = fields(envelope, bytes)
        if stage is Stage.KEYS:
            (public,) = pieces(part, PUBLIC_BYTES, 1)
            try:
                check_public(public)
            except BadKey as error:
                raise BadPayload(str(error)) from None
            self._public[client] = public
        elif stage is Stage.SHARES:
            neighbours = self._neighbours[client]
            self._sealed[client] = dict(zip(neighbours, pieces(part, SEALED_BYTES, len(neighbours)), strict=True))
        else:
            senders = [*self._sharing(client), client]
            shares = pieces(part, SHARE_BYTES, len(senders))
            if not all(map(is_share, shares)):
                raise BadPayload("a share that is no number below the prime")
            for sender, share in zip(senders, shares, strict=True):
                self._shares.setdefault(sender, {})[client] = share
        self.waiting.discard(client)

    @property
    def is_answered(self) -> bool:
        """Whether all that were asked have answered, or are not awaited any more."""
        return not self.waiting

    def total(self, reports: Mapping[int, NDArray[Any]]) -> NDArray[np.int64] | None:
        """Return the sum of the reports that `ask_unmask` named, in the shape of one; None: shares lack or are wrong.

        Args:
            reports: client → its masked report, int32.
        """
        due = self._reported | self._lost
        if not due or any(len(self._shares.get(client, ())) < self._needed(client) for client in due):
            return None
        (shape,) = {report.shape for report in reports.values()}
        total: Words = np.zeros(int(np.prod(shape)), np.uint32)
        for client in sorted(self._reported):
            total += reports[client].ravel().view(np.uint32)
            own = self._secret(client)
            if own is None:
                self.unrecovered = client
                return None
            total -= self_mask(own, self._round, client, total.size)
        for client in sorted(self._lost):
            seed = self._secret(client)
            if seed is None or mask_public(seed, self._round) != self._public[client][KEY_BYTES:]:
                self.unrecovered = client
                return None
            for other in self._sharing(client):
                if other in self._reported:
                    try:
                        pair = pair_mask(seed, self._public[other], self._round, client, other, total.size)
                    except BadKey:
                        return None
                    total += pair if client < other else -pair  # the other has subtracted it, or added it
        return total.view(np.int32).astype(np.int64).reshape(shape)

    def _ask(self, stage: Stage, bodies: Mapping[int, list[bytes]]) -> list[Envelope]:
        self.stage, self.waiting = stage, set(bodies)
        return [
            Envelope(Kind.ASK, client, self._round, self._version, [int(stage), *body])
            for client, body in bodies.items()
        ]

    def _sharing(self, client: int) -> list[int]:
        """The neighbours of a client that have shared, ascending."""
        return [each for each in self._neighbours[client] if each in self._sealed]

    @property
    def _lost(self) -> set[int]:
        """The clients that have dropped out after sharing, and that a client that has reported masked with."""
        dropped = self.sharers - self._reported
        return {client for client in dropped if any(each in self._reported for each in self._sharing(client))}

    def _holders(self, client: int) -> int:
        """How many clients that have reported hold a share of a client's secret that is due."""
        return sum(each in self._reported for each in [client, *self._sharing(client)])

    def _needed(self, client: int) -> int:
        return self._settings.shares_needed(len(self._neighbours[client]))

    def _secret(self, client: int) -> bytes | None:
        """The secret of a client that is due: b if it has reported, else the seed of its mask key."""
        shares = self._shares[client]
        return recover({holder: shares[holder] for holder in sorted(shares)[: self._needed(client)]})
