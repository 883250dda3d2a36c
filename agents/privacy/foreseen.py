"""What a private run will have spent of its clients' privacy (docs/privacy.md), before it is run.

With public cohorts ε follows from who reports, and that does not depend on losses or on the noise. It is known of the
rounds of a rehearsal. For later ones, or without a rehearsal, the selection draws from all clients, and all whom it
draws report. That is what happens where nothing else decides who reports (`Spending.is_known`); elsewhere it is an
estimate. With secret cohorts ε is that of the number of rounds, each of which makes a commit, whoever reports.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from typing import Any

from seedbus.agents.policies.participation import Participation
from seedbus.agents.policies.selection.known import Known
from seedbus.agents.privacy.accountant import Accountant
from seedbus.agents.privacy.settings import Privacy

MOST_DRAWN = 2 * 10**6
"""Clients that are drawn at most; what is spent in later rounds is in proportion. A round counts as 100 clients, and so
many that a policy without a fixed size looks at count as one."""


class Spending:
    """The rounds of a private run, and what the client that spends most has spent in them.

    Args:
        scenario: the run's; how it ends does not matter.
        privacy: the scenario's.
    """

    def __init__(self, scenario: Any, privacy: Privacy) -> None:
        self._privacy = privacy
        self._who: Participation = scenario.participation
        self._seed = scenario.seed
        self._known = Known()  # nothing of clients: a policy may remember something from round to round
        self._by_client: dict[int, float] = {}
        self._most = [0.0]  # by the number of rounds that are over, in commits of `quorum` reports

    def closed(self, reported: Iterable[int]) -> None:
        """Add a round; reported: the clients whose reports are in its commit, none if it makes none."""
        clients = list(reported)
        for client in clients:
            share = self._privacy.share(self._who.quorum, len(clients))
            self._by_client[client] = self._by_client.get(client, 0.0) + share
        self._most.append(max([self._most[-1], *(self._by_client[client] for client in clients)]))

    def is_known(self, scenario: Any, rounds: int) -> bool:
        """Whether it is known without a rehearsal what so many rounds spend.

        With public cohorts it is if the selection alone decides who reports: it draws from all clients, and all whom it
        draws report.
        """
        if self._privacy.cohorts == "secret":
            return True
        is_late = self._who.may_be_late
        is_alone = scenario.clock == "virtual" and not scenario.faults and not is_late and not scenario.sends_replicas
        return is_alone and (self._who.asked == self._who.clients or rounds <= self._most_rounds)

    @property
    def _most_rounds(self) -> int:
        looked_at = 0 if self._who.selection.is_fixed_size else self._who.clients // 100
        return max(len(self._most) - 1, MOST_DRAWN // (self._who.asked + looked_at + 100), 1)

    def commits(self, rounds: int) -> float:
        """Return what so many rounds cost the client that spends most, in commits of `quorum` reports."""
        if self._privacy.cohorts == "secret":
            return float(rounds)
        drawn = min(rounds, self._most_rounds)
        for round in range(len(self._most) - 1, drawn):
            cohort = self._who.draw(range(self._who.clients), self._known, self._seed, round)
            self.closed(cohort if len(cohort) >= self._who.quorum else ())
        return self._most[rounds] if rounds <= drawn else self._most[drawn] * rounds / drawn

    def epsilon(self, commits: float, noise_multiplier: float | None = None) -> float:
        """Return ε after so many commits; noise_multiplier: another than the scenario's."""
        changes = {} if noise_multiplier is None else {"noise_multiplier": noise_multiplier}
        return Accountant(self._privacy.model_copy(update=changes), self._who).of_commits(commits)

    def rounds(self, stop: Any) -> int:
        """Return after how many rounds a run ends, as far as that depends on ε."""
        budget, most = stop.epsilon, int(stop.most_rounds)
        if budget is None:
            return most
        return bisect_left(range(most), True, key=lambda done: self.epsilon(self.commits(done) + 1) > budget)
