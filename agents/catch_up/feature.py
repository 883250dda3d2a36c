"""A budget for catching up as one of a scenario's features."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from seedbus.agents.catch_up.settings import Lag
from seedbus.agents.feature import Feature, Words


class CatchUpBudget(Feature):
    """A client that lags too far gets a snapshot of the model, not the commits that it missed."""

    sends_replicas = True
    chance = 0.4

    def budget(self) -> Lag:
        lag: Lag = self.settings
        return lag.resolved(self.scenario.replay_s)

    def words(self, said: Words, settings: list[str]) -> Words:
        return said | {"lag": [*said["lag"][:-1], self._words(self.settings)]}  # not that all replay all

    @staticmethod
    def _words(lag: Lag) -> str:
        numbers = {
            "commits": lag.snapshot_after_commits,
            "bytes": lag.bytes_of_commits,
            "s": lag.snapshot_after_s,
        }
        limits = [f"{number:,} {unit}".replace(".0 ", " ") for unit, number in numbers.items() if number is not None]
        whom = [f"that missed more than {' or '.join(limits)}"] * bool(limits)
        whom += ["for which it takes fewer bytes than the commits"] * lag.is_cheapest
        return (
            f"the field lag is the snapshot budget: a client {' or '.join(whom)} gets a snapshot of the model "
            f"from {'the evaluator' if lag.source == 'evaluator' else 'a peer'}, in chunks of {lag.chunk_bytes:,} "
            f"bytes, asking for {lag.window:,} at a time"
        )

    def idle(self) -> Iterator[tuple[str, str]]:
        most = self.scenario.stop.most_rounds - 1
        if self.settings.is_beyond(most):
            yield "lag", f"in {most + 1:,} rounds no client that is asked has missed more than {most:,} commits"

    @staticmethod
    def drawn(choose: Any, clients: int) -> dict[str, Any]:
        """Draw small chunks, so that snapshots of small models have many of them too."""
        drawn: dict[str, Any] = {
            "source": choose.one(("evaluator", "peer")),
            "chunk_bytes": choose.one((64, 256, 4096)),
            "window": choose.whole(1, 8),
        }
        if choose.chance(0.7):
            drawn["snapshot_after_commits"] = choose.whole(1, 20)
        if choose.chance(0.3) or "snapshot_after_commits" not in drawn:
            drawn["snapshot_after_bytes"] = choose.one(("snapshot", choose.whole(1, 2000)))
        return drawn
