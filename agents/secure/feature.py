"""Secure aggregation as one of a scenario's features."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from seedbus.agents.extensions import ClientPart, OpenExchange
from seedbus.agents.feature import Feature


class SecureSums(Feature):
    """Clients mask their reports. What does that needs a package that is not always installed."""

    def exchange(self) -> OpenExchange:
        from seedbus.agents.secure.secure_round import SecureRound

        return partial(SecureRound, self.settings, self.scenario.participation, self.scenario.seed)

    def client_parts(self) -> Sequence[ClientPart]:
        from seedbus.agents.secure.party import Party

        return [Party(self.settings, self.scenario.participation)]
