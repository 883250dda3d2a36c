"""Gossip as one of a scenario's features."""

from __future__ import annotations

from typing import Any

from seedbus.agents.feature import Feature, Words
from seedbus.agents.gossip.settings import METRICS
from seedbus.agents.sight import Matter, Sight, Viewer


class WithoutServer(Feature):
    """Nodes send their commits to each other."""

    has_server = False
    only_here = "topology: gossip runs all nodes in one process, in simulated time"
    metrics = METRICS
    chance = 0.2

    def run(self, *run: Any) -> Any:
        from seedbus.agents.gossip.run import GossipRun

        spec, *rest = run
        return GossipRun(spec, self.settings, *rest).run()

    @property
    def round_s(self) -> float:
        return float(self.settings.interval_s)

    def words(self, said: Words, settings: list[str]) -> Words:
        gossip, nodes = self.settings, self.scenario.participation.clients
        beside = sorted(map(len, gossip.neighbours(nodes, self.scenario.seed)))
        fewest, most = beside[0], beside[-1]
        neighbours = f"{fewest:,}" if fewest == most else f"{fewest:,} to {most:,}"
        every = f"{gossip.repair_every:,} rounds" if gossip.repair_every > 1 else "round"
        verified = ["the digests of all nodes are compared at the end"] if self.scenario.verify else []
        return said | {
            "clients": [f"{nodes:,} nodes without a server, each with {neighbours} neighbours", *settings],
            "rounds": [
                f"a round takes {gossip.interval_s:,.10g} s; each node that is idle when it begins starts a step",
                "a commit moves a model by a step's mean over P, divided by the number of nodes",
            ],
            "lag": [
                f"a node sends a neighbour what that lacks: every {every} to one neighbour, and after the last round"
            ],
            "evaluation": [f"{said['evaluation'][0]}; the model of node {gossip.evaluated}", *verified],
        }

    def sees(self, sight: Sight) -> Sight:
        alone = {
            Matter.REPORTS: "each is a commit",
            Matter.COMMITS: "each, of one node",
            Matter.GRADIENTS: "of each node",
            Matter.PRESENCE: "yes",
        }
        return {viewer: sight[viewer] | alone for viewer in (Viewer.CLIENT, Viewer.READER)}

    @staticmethod
    def drawn(choose: Any, clients: int) -> dict[str, Any]:
        return _graph(choose, clients) | {
            "interval_s": choose.scale(0.05, 10),
            "repair_every": choose.whole(1, 4),
            "repair_rounds": choose.one((0, 3, 100)),
            "evaluated": choose.whole(0, clients - 1),
        }


def _graph(choose: Any, nodes: int) -> dict[str, Any]:
    graph = choose.one(("ring", "complete", "regular", "edges"))
    if graph == "edges" and nodes > 1:  # a tree, and some edges more
        edges = [[choose.whole(0, node - 1), node] for node in range(1, nodes)]
        edges += [[choose.whole(0, nodes - 2), nodes - 1] for _ in range(choose.whole(0, 3))]
        return {"kind": "gossip", "graph": graph, "edges": edges}
    if graph == "regular" and nodes > 2:
        return {"kind": "gossip", "graph": graph, "degree": 2 * choose.whole(1, (nodes - 1) // 2)}
    return {"kind": "gossip", "graph": "complete" if graph == "complete" else "ring"}
