"""Gossip as one of a scenario's features."""

from __future__ import annotations

from typing import Any

from seedbus.agents.feature import Feature


class WithoutServer(Feature):
    """Nodes send their commits to each other."""

    has_server = False

    def run(self, *run: Any) -> Any:
        from seedbus.agents.gossip.run import GossipRun

        spec, *rest = run
        return GossipRun(spec, self.settings, *rest).run()
