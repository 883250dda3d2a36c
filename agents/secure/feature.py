"""Secure aggregation as one of a scenario's features."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

from seedbus.agents.extensions import ClientPart, OpenExchange
from seedbus.agents.feature import Feature, Words
from seedbus.agents.measuring.sums import width
from seedbus.agents.secure.numbers import word_count
from seedbus.agents.secure.settings import Terms
from seedbus.agents.sight import Matter, Sight, Viewer


class SecureSums(Feature):
    """Clients mask their reports. What does that needs a package that is not always installed."""

    draws_secrets = True
    shows_sums_alone = True
    chance = 0.25
    promises = "secure sums"
    without = "none: the server sees each report of its own"

    def exchange(self) -> OpenExchange:
        from seedbus.agents.secure.secure_round import SecureRound

        return partial(SecureRound, self.settings, self.scenario.participation, self.scenario.seed)

    def client_parts(self) -> Sequence[ClientPart]:
        from seedbus.agents.secure.party import Party

        return [Party(self.settings, self.scenario.participation)]

    def words(self, said: Words, settings: list[str]) -> Words:
        terms = self._terms
        # who help a server that lies (Bonawitz et al.), and leave two reports that they do not know in a sum
        most = max(0, min(2 * terms.shares_needed(terms.most - 1) - terms.most - 1, terms.quorum - 2))
        masked = (
            "reports are masked: a server that passes on the clients' keys, with at most "
            f"{most:,} of {terms.most:,} clients that share masks on its side, learns sums of reports, and none of them"
        )
        return said | {"privacy": [*said["privacy"], masked, *settings]}

    def sees(self, sight: Sight) -> Sight:
        hidden = {Matter.REPORTS: "only their sum", Matter.GRADIENTS: "of a sum"}
        return sight | {
            Viewer.SERVER: sight[Viewer.SERVER] | hidden,
            Viewer.CLIENT: sight[Viewer.CLIENT] | {Matter.PRESENCE: "of those it shares masks with"},
            Viewer.READER: sight[Viewer.READER] | {Matter.REPORTS: "masked, if under way at the end"},
        }

    @property
    def _terms(self) -> Terms:
        return Terms.of(self.settings, self.scenario.participation)

    def promise(self) -> str:
        who = self.scenario.participation
        terms = self._terms
        needed = terms.shares_needed(terms.most - 1)
        return (
            f"reports are masked, and the server learns the sum of {who.quorum:,} reports or more; a sum is unmasked "
            f"by {needed:,} of {terms.most:,} clients that share masks (threshold {self.settings.threshold:.3g}), so a "
            f"server with {min(needed, terms.quorum - 1):,} of these on its side could learn a report"
        )

    @property
    def up_bytes(self) -> int:
        from seedbus.agents.secure.party import told_bytes

        measured = width(self.scenario.task.metrics) if self.scenario.evaluation.by == "clients" else 0
        return told_bytes(self._terms.most - 1) + 4 * word_count(measured, self._terms.asked)

    def idle(self) -> Iterator[tuple[str, str]]:
        neighbours, others = self.settings.neighbours, self.scenario.participation.most_asked - 1
        if neighbours != "all" and neighbours >= others:
            yield "secure_aggregation.neighbours", f"a client has {others} others in its cohort; it is as all"

    @staticmethod
    def drawn(choose: Any, clients: int) -> dict[str, Any]:
        return {"threshold": choose.one((0.5, 2 / 3, 0.8)), "neighbours": choose.one(("all", "all", 2, 4))}
