"""Differential privacy as one of a scenario's features."""

from __future__ import annotations

from collections.abc import Sequence

from seedbus.agents.extensions import ClientPart
from seedbus.agents.feature import Feature
from seedbus.agents.privacy.mechanism import Mechanism


class PrivateReports(Feature):
    """Reports are clipped, and their sums have noise."""

    @property
    def _is_virtual(self) -> bool:
        return bool(self.scenario.clock == "virtual")

    def noise(self) -> Mechanism:
        who, seed = self.scenario.participation, self.scenario.seed
        return Mechanism(self.settings, who, seed, is_virtual=self._is_virtual)

    def client_parts(self) -> Sequence[ClientPart]:
        return [self.noise()]
