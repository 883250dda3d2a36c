"""The server's part in secure aggregation: it asks, passes sealed shares on, and computes the sum of masked reports.

    Σ x_u  =  Σ y_u  −  Σ PRG(b_u)  −  Σ_d Σ_u ± PRG(k_ud)      modulo 2³²

u: the clients that have reported; d: those that shared and have not reported; k_ud: of neighbours only. The server
recovers b_u of clients that have reported and the mask key of clients that shared and then dropped out, from t shares
each. Clients give these once t of them have confirmed to each other who has reported; the server passes that on.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from math import log2
from typing import Any

import numpy as np
from numpy.typing import NDArray

from seedbus.agents.extensions import Exchange
from seedbus.agents.policies.participation import Participation
from seedbus.agents.secure.masks import (
    CONFIRMATION_BYTES,
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
from seedbus.agents.secure.numbers import sums_of, word_count
from seedbus.agents.secure.settings import SecureAggregation, Terms
from seedbus.agents.secure.sharing import SHARE_BYTES, agree, is_share, recover
from seedbus.agents.secure.stages import (
    AFTER_REPORTS,
    BEFORE_PLANS,
    DETAIL,
    ORDER,
    REFUSALS,
    Stage,
    fields,
    pack_clients,
    pack_subset,
    pieces,
    stage_of,
    unpack_subset,
)
from seedbus.algorithms.contract import BadPayload, ReportRefused
from seedbus.bus import Envelope, Kind
from seedbus.bus.text import listed

_CERTAIN = 64
"""A masked report is taken for a bare one with a probability of 2 to the power of minus this."""


class SecureRound(Exchange):
    """The masks of one round.

    Attributes:
        stage: what was asked last.
    """

    before_plans = BEFORE_PLANS
    after_reports = AFTER_REPORTS
    sums_reports = True

    def __init__(
        self,
        settings: SecureAggregation,
        participation: Participation,
        seed: int,
        round: int,
        version: int,
        cohort: Collection[int],
    ) -> None:
        """Begin with no keys.

        Args:
            settings, participation, seed: the scenario's.
            round: the round.
            version: at which it starts.
            cohort: the clients that it asks.
        """
        super().__init__()
        self.stage = Stage.KEYS
        self._terms = Terms.of(settings, participation)
        self._round = round
        self._version = version
        self._cohort = list(cohort)
        self._graph = settings.graph(self._cohort, seed, round)
        self._public: dict[int, bytes] = {}
        self._neighbours: dict[int, list[int]] = {}  # those with keys, of each client that was asked to share
        self._sealed: dict[int, dict[int, bytes]] = {}  # sender → recipient → shares
        self._too_late: set[int] = set()  # the clients that had not shared when plans were sent
        self._reported: frozenset[int] = frozenset()
        self._confirmed: dict[int, dict[int, bytes]] = {}  # sender → recipient → confirmation
        self._complaints: set[tuple[int, int]] = set()  # client, and whose confirmation or shares are not valid for it
        self._unrecovered: int | None = None  # whose secret could not be recovered from its shares
        self._beside: dict[int, Words] = {}  # what clients have told beside their reports, masked
        self._shares: dict[int, dict[int, bytes]] = {}  # client → holder → share of the secret that is due

    def ask(self, stage: int, reported: frozenset[int] = frozenset()) -> list[Envelope]:
        """Return the questions of a stage.

        Args:
            stage: the stage, in their order.
            reported: the clients whose reports are to be added up, from `Stage.CONFIRM` on; empty: none are.
        """
        stage = Stage(stage)
        if stage is Stage.KEYS:
            return self._ask(stage, {client: [] for client in self._cohort})
        if stage is Stage.SHARES:
            return self._ask(stage, self._neighbours_keys())
        if stage is Stage.CONFIRM:
            self._reported = reported
            return self._ask(stage, self._those_that_reported())
        return self._ask(stage, self._confirmations())

    def _neighbours_keys(self) -> dict[int, list[bytes]]:
        """Tell each client that has keys of its neighbours' keys, unless it would refuse because these are too few."""
        with_keys = {client: [each for each in self._graph[client] if each in self._public] for client in self._public}
        self._neighbours = {
            client: neighbours
            for client, neighbours in sorted(with_keys.items())
            if neighbours and len(neighbours) + 1 >= self._terms.shares_needed(len(neighbours))
        }
        return {
            client: [pack_clients(neighbours), b"".join(self._public[each] for each in neighbours)]
            for client, neighbours in self._neighbours.items()
        }

    def plans_due(self) -> Collection[int]:
        """Take no more shares: plans name the clients that have shared, and reports are masked with these.

        A client with so few of them that its mask could not be recovered takes no part, and then others may have too
        few in their turn.
        """
        self._too_late, self.waiting = self.waiting, set()
        while few := [each for each in self._sealed if len(self._sharing(each)) + 1 < self._needed(each)]:
            for client in few:
                del self._sealed[client]
        return [client for client in self._cohort if client not in self._sealed]

    @property
    def sharers(self) -> set[int]:
        """The clients that have shared their secrets: these get plans."""
        return set(self._sealed)

    def plan(self, envelope: Envelope) -> Envelope | None:
        """Return a plan that ends with those of its client's neighbours that have shared; None if it has not shared."""
        if envelope.client not in self._sealed:
            return None
        return envelope._replace(body=[*envelope.body, self.masks_with(envelope.client)])

    def masks_with(self, client: int) -> bytes:
        """Return what ends a client's PLAN: which of its neighbours have shared."""
        return pack_subset(self.sharers, self._neighbours[client])

    def admit(self, envelope: Envelope) -> None:
        if envelope.client not in self._sealed:
            raise ReportRefused(
                "not-asked", f"client {envelope.client} has shared no secrets in round {envelope.round}"
            )
        if self.stage is not Stage.SHARES:
            raise ReportRefused("late", f"the reports of round {envelope.round} are being unmasked")
        if self.beside:
            told = envelope.body[-1] if envelope.body else None
            if not isinstance(told, bytes) or len(told) != 4 * word_count(self.beside, self._terms.asked):
                raise BadPayload(f"a report of client {envelope.client} without the numbers that are told beside it")
            self._beside[envelope.client] = np.frombuffer(told, "<u4").astype(np.uint32)

    def bare(self, report: Envelope) -> Envelope:
        return report._replace(body=report.body[:-1]) if self.beside else report

    def read(self, client: int, numbers: NDArray[Any]) -> None:
        """Refuse a report without masks: masked numbers are uniform, and almost never all as small as bare ones are."""
        is_certain = numbers.size * log2(self._terms.asked) >= _CERTAIN
        if is_certain and int(np.abs(numbers.astype(np.int64)).max()) <= self._terms.largest:
            what = f"none of its {numbers.size:,} numbers is larger than a report without masks has"
            raise ReportRefused("unmasked", f"client {client} has not masked its report of round {self._round}: {what}")

    def _those_that_reported(self) -> dict[int, list[bytes]]:
        """Tell clients that have reported which of their neighbours have; nobody, if too few have for a sum."""
        if not self._can_recover(self._reported):
            return {}
        return {client: [pack_subset(self._reported, self._neighbours[client])] for client in sorted(self._reported)}

    def _confirmations(self) -> dict[int, list[bytes]]:
        """Give the clients that have reported their neighbours' confirmations and shares; nobody, if these are few."""
        bodies: dict[int, list[bytes]] = {}
        for client in sorted(self._reported):
            confirming = [each for each in self._sharing(client) if client in self._confirmed.get(each, ())]
            if client in self._confirmed and len(confirming) + 1 >= self._needed(client):
                confirmations = (self._confirmed[each][client] for each in confirming)
                sealed = (self._sealed[each][client] for each in self._sharing(client))
                packed = pack_subset(confirming, self._neighbours[client])
                bodies[client] = [packed, b"".join(confirmations), b"".join(sealed)]
        return bodies if self._can_recover(frozenset(bodies)) else {}

    def _can_recover(self, holders: frozenset[int]) -> bool:
        """Whether so many of the holders are there that each secret that is due can be recovered."""
        due = self._reported | self._lost
        return all(len(holders & {client, *self._sharing(client)}) >= self._needed(client) for client in due)

    def answered(self, envelope: Envelope) -> None:
        """Take a client's part.

        Raises:
            BadPayload: it cannot be read.
            ReportRefused: it is not awaited, or the client refuses.
        """
        stage, client = stage_of(envelope), envelope.client
        if ORDER.index(stage) < ORDER.index(self.stage) or (stage is Stage.SHARES and client in self._too_late):
            raise ReportRefused("late", f"stage {stage.name} of secure aggregation is over in round {self._round}")
        if stage is not self.stage or client not in self.waiting:
            raise ReportRefused("not-asked", f"client {client} is not asked for {stage.name} in round {self._round}")
        if len(envelope.body) > 2:
            self._refused(envelope, stage)
        else:
            self._take(stage, client, *fields(envelope, bytes))
        self.waiting.discard(client)

    def _refused(self, envelope: Envelope, stage: Stage) -> None:
        """Take a refusal. One that says which neighbours are at fault is none of the client itself."""
        client = envelope.client
        is_complaint = stage is Stage.UNMASK and len(envelope.body) > 3
        types = [str, str, bytes, bytes, bytes] if is_complaint else [str, str]
        reason, detail, *rest = fields(envelope, *types)
        if reason not in REFUSALS or len(detail) > DETAIL:
            raise BadPayload(f"a client refuses its part because of {reason[:DETAIL]!r}")
        if not is_complaint:
            self.waiting.discard(client)
            raise ReportRefused(reason, detail)
        shares, *subsets = rest
        unread, false = (unpack_subset(subset, self._sharing(client)) for subset in subsets)
        if not unread and not false:
            raise BadPayload("a complaint of no neighbour")
        if shares:
            self._take_shares(client, [each for each in self._sharing(client) if each not in unread], shares)
        self._complaints |= {(client, each) for each in (*unread, *false)}

    def _take(self, stage: Stage, client: int, part: bytes) -> None:
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
        elif stage is Stage.CONFIRM:
            to = [each for each in self._sharing(client) if each in self._reported]
            self._confirmed[client] = dict(zip(to, pieces(part, CONFIRMATION_BYTES, len(to)), strict=True))
        else:
            self._take_shares(client, self._sharing(client), part)

    def _take_shares(self, client: int, neighbours: Sequence[int], part: bytes) -> None:
        senders = [*neighbours, client]
        shares = pieces(part, SHARE_BYTES, len(senders))
        if not all(map(is_share, shares)):
            raise BadPayload("a share that is no number below the prime")
        for sender, share in zip(senders, shares, strict=True):
            self._shares.setdefault(sender, {})[client] = share

    def total(self, reports: Mapping[int, NDArray[Any]]) -> NDArray[np.int64] | None:
        """Return the sum of the reports that clients confirmed, in the shape of one; None: shares lack or are wrong.

        `sums` has that of the numbers which were told beside them.

        Args:
            reports: client → its masked report, int32.
        """
        due = self._reported | self._lost
        if not due or any(len(self._shares.get(client, ())) < self._needed(client) for client in due):
            return None
        (shape,) = {report.shape for report in reports.values()}
        size, nothing = int(np.prod(shape)), np.zeros(0, np.uint32)
        total: Words = np.zeros(size + word_count(self.beside, self._terms.asked), np.uint32)
        for client in sorted(self._reported):
            told = self._beside[client] if self.beside else nothing
            total += np.concatenate([reports[client].ravel().view(np.uint32), told])
            own = self._secret(client)
            if own is None:
                self._unrecovered = client
                return None
            total -= self_mask(own, self._round, client, total.size)
        for client in sorted(self._lost):
            seed = self._secret(client)
            if seed is None:
                self._unrecovered = client
                return None
            for other in self._sharing(client):
                if other in self._reported:
                    try:
                        pair = pair_mask(seed, self._public[other], self._round, client, other, total.size)
                    except BadKey:
                        return None
                    total += pair if client < other else -pair  # the other has subtracted it, or added it
        both = total.view(np.int32).astype(np.int64)
        self.sums = sums_of(both[size:].tolist(), self._terms.asked)
        return both[:size].reshape(shape)

    def blamed(self) -> Iterator[tuple[int, str, str]]:
        """Who broke the protocol in a way that only others noticed: client, reason and sentence.

        Either end of a complaint may lie. The one with more complaints against it or by it is named, of equals the one
        that is complained of.
        """
        count = Counter(client for complaint in self._complaints for client in complaint)
        others = defaultdict[int, list[int]](list)
        for by, of in sorted(self._complaints):
            named, other = (by, of) if count[by] > count[of] else (of, by)
            others[named].append(other)
        for client, ends in sorted(others.items()):
            what = f"shares or confirmations between client {client} and clients {listed(ends, 8)} are not valid"
            yield client, "bad-shares", f"{what} in round {self._round}, and client {client} is in all of these"
        owner = self._unrecovered
        if owner is not None and owner not in others:
            what = f"client {owner}'s secret of round {self._round} cannot be recovered from its shares"
            yield owner, "bad-shares", f"{what}: it or holders of them have made some false"

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

    def _needed(self, client: int) -> int:
        return self._terms.shares_needed(len(self._neighbours[client]))

    def _secret(self, client: int) -> bytes | None:
        """The secret of a client that is due: b if it has reported, else the seed of its mask key; None: unknown.

        A share that does not fit the others is left out, if there are enough to tell which one that is: t + 2 of a self
        mask, and t + 1 of a mask key, which has a public key. Its holder or the client has made it false.
        """
        shares, needed = self._shares[client], self._needed(client)
        for left_out in (None, *sorted(shares)):
            rest = {holder: share for holder, share in shares.items() if holder != left_out}
            if len(rest) < needed or not agree(rest, needed):
                continue
            secret = recover({holder: rest[holder] for holder in sorted(rest)[:needed]})
            if client in self._reported:
                is_right = left_out is None or len(rest) > needed
            else:
                is_right = secret is not None and mask_public(secret, self._round) == self._public[client][KEY_BYTES:]
            if is_right:
                if left_out is not None:
                    self._complaints.add((client, left_out))
                return secret
        return None
