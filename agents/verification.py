"""Comparing replicas: divergence is never silent.

Every report made at a version that is due carries the digests of the replica that it was made from, eight bytes a
field. The evaluator's own, at the same version, are the truth that they are compared with, whichever comes first.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

KEPT = 64  # versions whose digests are remembered at least: most reports are about the newest


@dataclass(slots=True)
class Verifier:
    """Compares digests at every `every`-th version; 0: never. kept: so many of them are remembered."""

    every: int = 0
    kept: int = KEPT
    truth: dict[int, dict[str, bytes]] = field(default_factory=dict)
    claims: dict[int, list[tuple[int, bytes]]] = field(default_factory=dict)

    def is_due(self, version: int) -> bool:
        return self.every > 0 and version % self.every == 0

    def claimed(self, client: int, version: int, claim: bytes) -> str | None:
        """A client's digests came in; returns how they differ from the evaluator's, once those are known."""
        if version in self.truth:
            return self._difference(client, version, claim)
        self.claims.setdefault(version, []).append((client, claim))
        return None

    def settled(self, version: int, digests: dict[str, bytes]) -> list[tuple[int, str]]:
        """The evaluator's digests came in; returns the clients whose earlier claims differ, and how."""
        if not self.is_due(version):
            return []
        self.truth[version] = digests
        for old in sorted(self.truth)[: -self.kept]:
            del self.truth[old]
        earlier = [(client, self._difference(client, version, claim)) for client, claim in self.claims.pop(version, [])]
        return [(client, difference) for client, difference in earlier if difference is not None]

    def pack(self) -> list[Any]:
        return [[version, [list(pair) for pair in digests.items()]] for version, digests in sorted(self.truth.items())]

    def unpack(self, packed: list[Any]) -> None:
        self.truth = {version: {name: digest for name, digest in digests} for version, digests in packed}

    def _difference(self, client: int, version: int, claim: bytes) -> str | None:
        truth = self.truth[version]
        if claim == b"".join(truth.values()):
            return None
        parts = [claim[start : start + 8] for start in range(0, len(claim), 8)]
        wrong = [name for name, ours, theirs in zip(truth, truth.values(), parts, strict=False) if ours != theirs]
        where = "its " + " and ".join(wrong) if wrong else "the number of its fields"
        return f"client {client} holds other bits than the evaluator at version {version}: {where} differs"
