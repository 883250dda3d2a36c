"""The settings of a run without a server."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal

from pydantic import Field, model_validator

from seedbus.agents.gossip import graphs
from seedbus.capabilities import Fact, Gives, Needs, RulesOut, Statement
from seedbus.settings import Settings

METRICS = ("lacking", "consensus_distance")
"""What is measured beside the model: how many of all commits a node lacks, on average, and the root of the mean squared
distance of the nodes' models from their mean."""
DEGREE = 4
"""Of a regular graph, by default."""
MOST_EDGES = 10**5
"""More take minutes to draw or gigabytes, and each round of such a run would send billions of messages."""


class Gossip(Settings):
    """No server: each node makes steps of its own, and floods them over a graph to all others."""

    gives = ((Fact.NODES, ""),)

    kind: Literal["gossip"] = "gossip"
    graph: Literal["ring", "torus", "regular", "complete", "edges"] = Field(
        default="regular",
        description="which nodes are neighbours; regular: drawn at random, each with as many; edges: as listed",
    )
    degree: int | None = Field(default=None, ge=2, description="neighbours of a node in a regular graph; none: 4")
    seed: int | None = Field(
        default=None, ge=0, lt=2**63, description="key of a regular graph's draws; none: the scenario's seed"
    )
    edges: list[tuple[int, int]] | None = Field(default=None, description="of graph: edges, all pairs of neighbours")
    interval_s: float = Field(
        default=1.0,
        ge=1e-6,
        le=10**6,
        description="simulated seconds of a round; a node starts one step in it, if idle",
    )
    repair_every: int = Field(
        default=1,
        ge=1,
        description="rounds after which a node tells one neighbour, drawn at random, which commits it has; each then "
        "sends what the other lacks",
    )
    repair_rounds: int = Field(
        default=100, ge=0, description="rounds after the last step, at most, in which nodes send what others lack"
    )
    evaluated: int = Field(default=0, ge=0, description="the node whose model is evaluated")

    @model_validator(mode="after")
    def _one_graph(self) -> Gossip:
        for field, graph in (("degree", "regular"), ("seed", "regular"), ("edges", "edges")):
            if getattr(self, field) is not None and self.graph != graph:
                raise ValueError(f"{field} is for graph: {graph}, and graph is {self.graph}; leave {field} out")
        if self.graph == "edges" and not self.edges:
            raise ValueError("graph: edges needs edges, such as [[0, 1], [1, 2]]")
        return self

    def capabilities(self) -> Iterator[Statement]:
        yield Needs(Fact.EXACT, "adds up commits in any order")
        yield Needs(Fact.ROUND_SEEDS, "needs steps with one seed each")
        yield Needs(Fact.SIMULATED, "runs in simulated time")
        yield RulesOut(Fact.SERVER, "runs without one")
        yield RulesOut(Fact.ROUNDS, "shows all of them to no node")
        yield from map(Gives, (Fact.ENDS, Fact.WORK_ENDS, Fact.NODES))

    def check_beside(self, scenario: Any) -> None:
        nodes = scenario.participation.clients
        if self.evaluated >= nodes:
            raise ValueError(f"topology.evaluated is {self.evaluated}; nodes are 0 to {nodes - 1}")
        self.neighbours(nodes, scenario.seed)

    def neighbours(self, nodes: int, seed: int) -> list[list[int]]:
        """Return the neighbours of each node, ascending.

        Args:
            nodes: how many there are.
            seed: the scenario's.

        Raises:
            ValueError: there is no such graph of so many nodes.
        """
        if nodes < 2:
            raise ValueError(f"participation.clients is {nodes}; a run without a server has 2 nodes or more")
        degree = {"ring": 2, "torus": 4, "complete": nodes - 1, "regular": self.degree or DEGREE}.get(self.graph, 0)
        count = nodes * min(degree, nodes - 1) // 2
        if count > MOST_EDGES:
            raise ValueError(
                f"participation.clients is {nodes}, and topology.graph: {self.graph} of so many has {count:,} edges; "
                f"at most {MOST_EDGES:,} are accepted"
            )
        edges = self._edges(nodes, seed if self.seed is None else self.seed)
        alone = set(range(nodes)) - graphs.reached(edges, nodes)
        if alone:
            raise ValueError(f"topology.edges do not connect node {min(alone)} with node 0; all have to be connected")
        return graphs.neighbours(edges, nodes)

    def _edges(self, nodes: int, seed: int) -> set[graphs.Edge]:
        if self.graph == "regular":
            return graphs.regular(nodes, self.degree or DEGREE, seed)
        if self.graph != "edges":
            return {"ring": graphs.ring, "torus": graphs.torus, "complete": graphs.complete}[self.graph](nodes)
        for node, other in self.edges or ():
            if node == other or not (0 <= node < nodes and 0 <= other < nodes):
                raise ValueError(f"topology.edges has [{node}, {other}]; two nodes of 0 to {nodes - 1} are accepted")
        return {(min(edge), max(edge)) for edge in self.edges or ()}
