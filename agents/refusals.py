"""What was refused, counted by reason and by whom."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

NOBODY = -(2**31)  # the client of a refusal that concerns no client
PEERS = 1000  # so many strangers are told apart
REASONS = frozenset(
    "absurd bad-join bad-payload bad-snapshot claims-another diverged duplicate foreign-version joins-again late "
    "losses malformed no-chunk no-snapshot not-a-member not-asked not-fetched not-finite not-offered overflow "
    "pulls-again selftest shape unknown-client wrong-kind wrong-norm wrong-round wrong-version x0".split()
)
"""What members' messages are refused for; strangers' are refused for others too."""
TOLD = 5  # so many refusals of one stranger for one reason are told, the rest counted


@dataclass(frozen=True, slots=True)
class Refusal:
    """A message that was not acted upon: who sent it, one word why, and a sentence."""

    client: int
    round: int
    reason: str
    detail: str


class Refusals:
    """How often what was refused. clients: by (client or host, reason); peers: by (address, reason), of strangers."""

    def __init__(self) -> None:
        self.clients: Counter[tuple[int, str]] = Counter()
        self.peers: Counter[tuple[str, str]] = Counter()

    def of_peer(self, peer: str, reason: str) -> bool:
        """Count one of a stranger's; true if it is worth telling."""
        is_known = (peer, reason) in self.peers or len(self.peers) < PEERS
        who = peer if is_known else "others"
        self.peers[who, reason] += 1
        return self.peers[who, reason] <= TOLD

    def by_reason(self) -> dict[str, dict[str, int]]:
        """reason → who → how often."""
        found: dict[str, dict[str, int]] = {}
        for who, reason, count in self.pack():
            found.setdefault(reason, {})[str(who)] = count
        return found

    def pack(self) -> list[list[Any]]:
        """[who, reason, count] of each, in order."""
        clients = [[client, reason, count] for (client, reason), count in sorted(self.clients.items())]
        return clients + [[peer, reason, count] for (peer, reason), count in sorted(self.peers.items())]

    def unpack(self, packed: list[list[Any]]) -> None:
        for who, reason, count in packed:
            if isinstance(who, int):
                self.clients[who, reason] = count
            else:
                self.peers[who, reason] = count
