"""Network partitions: clients without a connection to the server, or to the other nodes, for some time."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from seedbus.bus import PASS, KeyedRandom, Passage, Verdict
from seedbus.scenarios.faults.base import TRAFFIC_KEY, TrafficSelector


class Partition(TrafficSelector):
    """Cut the selected clients off from the server, or without a server the selected nodes from the others, for a time.

    The connection is cut in both directions or one; that of selected nodes to each other is not. With times in seconds,
    messages in flight at the start are lost too: the connection must be open both on sending and on arrival. With
    rounds, the messages of these rounds are lost whenever they are sent, and no others.
    """

    keyed_as = f"Partition {TRAFFIC_KEY}"

    fault: Literal["partition"] = "partition"
    probability: float = Field(
        default=1.0, ge=0, le=1, description="chance that a selected client is cut off, drawn once"
    )

    def check_beside(self, scenario: Any) -> None:
        nodes = scenario.participation.clients
        random = next(random for fault, random in scenario.faults_with_draws if fault is self)
        if not scenario.has_server and self.probability == 1 and len(list(self.chosen(nodes, random))) == nodes:
            raise ValueError(
                f"faults.{scenario.faults.index(self)}: with topology: gossip a partition of all nodes cuts none off; "
                "name some of them in clients, or a fraction"
            )

    @property
    def may_lose(self) -> bool:
        return self.probability > 0

    def judge(self, passage: Passage) -> Verdict:
        is_cut = self.is_open_to(passage) and sum(self._cuts(end, passage.random) for end in passage.clients) == 1
        return Verdict(drop=True) if is_cut else PASS

    def client_groups(self, clients: int, random: KeyedRandom) -> dict[str, list[int]]:
        return {self.fault: [each for each in self.chosen(clients, random) if self._cuts(each, random)]}

    def _cuts(self, client: int, random: KeyedRandom) -> bool:
        return self.selects_client(client, random) and random.draw("strike", client) < self.probability
