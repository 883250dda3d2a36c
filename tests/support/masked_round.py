"""One round of secure aggregation without a bus: the server's part and the clients', each its own."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from seedbus.agents.policies.participation import Participation
from seedbus.agents.secure.settings import SecureAggregation
from seedbus.agents.secure.stages import ORDER, Stage
from seedbus.bus import PASS, Envelope, Kind, Passage, Verdict
from seedbus.scenarios.faults.drop import Drop

pytest.importorskip("cryptography", reason="secure aggregation needs cryptography: pip install 'seedbus[secure]'")

from seedbus.agents.secure import party, sharing
from seedbus.agents.secure.party import Party
from seedbus.agents.secure.secure_round import SecureRound

ROUND = 4
SHAPE = (2, 3)


class DropUnmask(Drop):
    """Lose the answers with which clients help to unmask: they vanish after they have sent their masked reports."""

    def judge(self, passage: Passage) -> Verdict:
        is_last = passage.kind is Kind.TELL and passage.occurrence == ORDER.index(Stage.UNMASK)
        return super().judge(passage) if is_last else PASS


def lie_of_shares(patch: pytest.MonkeyPatch, client: int) -> None:
    """Have a client give false shares of its secrets."""
    honest = sharing.split

    def split(secret: bytes, holders: list[int], needed: int) -> list[bytes]:
        return honest(bytes(len(secret)) if holders[-1] == client else secret, holders, needed)

    patch.setattr(party, "split", split)


@dataclass
class MaskedRound:
    """A round in progress.

    Attributes:
        reports: client → its report without masks, int32.
        masked: client → what it sent.
        seen: all TELLs that the server received.
        asks: client → the ASK that it was sent last.
    """

    cohort: list[int]
    settings: SecureAggregation = field(default_factory=SecureAggregation)
    reports: dict[int, Any] = field(default_factory=dict)
    masked: dict[int, Any] = field(default_factory=dict)
    seen: list[Envelope] = field(default_factory=list)
    asks: dict[int, Envelope] = field(default_factory=dict)

    def __post_init__(self) -> None:
        crowd = Participation(clients=len(self.cohort), quorum=2)
        self.parties = {client: Party(self.settings, crowd) for client in self.cohort}
        self.server = SecureRound(self.settings, crowd, 5, ROUND, 2, self.cohort)
        random = np.random.default_rng(3)
        for client in self.cohort:
            self.reports[client] = random.integers(-(2**26), 2**26, SHAPE, np.int32)

    def exchange(self, asks: list[Envelope], silent: Collection[int] = ()) -> None:
        for ask in asks:
            self.asks[ask.client] = ask
            if ask.client not in silent:
                told = self.parties[ask.client].answer(ask)
                assert told is not None
                self.seen.append(told)
                self.server.answered(told)

    def share(self, *, without_keys: Collection[int] = (), without_shares: Collection[int] = ()) -> None:
        self.exchange(self.server.ask(Stage.KEYS), without_keys)
        self.exchange(self.server.ask(Stage.SHARES), without_shares)
        self.server.plans_due()

    def mask(self, client: int) -> Any:
        party = self.parties[client]
        party.admit(client, ROUND, self.server.masks_with(client))
        self.masked[client] = party.mask(client, ROUND, self.reports[client])
        return self.masked[client]

    def report(self, silent: Collection[int] = ()) -> frozenset[int]:
        """Every client that has shared masks its report, and those that are not silent send it."""
        for client in sorted(self.server.sharers):
            self.mask(client)
        return frozenset(self.server.sharers - set(silent))

    def unmask(
        self,
        reported: Collection[int],
        *,
        without_confirmation: Collection[int] = (),
        without_unmask: Collection[int] = (),
    ) -> None:
        self.exchange(self.server.ask(Stage.CONFIRM, frozenset(reported)), without_confirmation)
        self.exchange(self.server.ask(Stage.UNMASK), without_unmask)

    def total(self, reported: Collection[int]) -> Any:
        return self.server.total({client: self.masked[client] for client in reported})

    def expected(self, reported: Collection[int]) -> Any:
        return sum(self.reports[client].astype(np.int64) for client in reported)
