"""Verification of replicas, so that divergence is never silent.

A report that was computed at a version that is due carries the digests of its client's replica, eight bytes a field.
They are compared with the evaluator's at the same version, whichever of the two arrives first.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from seedbus.bus.records import Count, Text

KEPT = 64
"""For how many versions the evaluator's digests are kept at least; most reports are about the newest."""


VerifierState = list[tuple[Count, list[tuple[Text, bytes]]]]
"""What a checkpoint stores: (version, (field, digest) of each field) of each version, ascending."""


@dataclass(slots=True)
class Verifier:
    """Compares digests.

    Attributes:
        every: versions that this divides are due; 0: none.
        kept: for how many versions the evaluator's digests are kept.
        truth: version → field → the evaluator's digest.
        claims: version → (client, its digests), of those that came before the evaluator's.
    """

    every: int = 0
    kept: int = KEPT
    truth: dict[int, dict[str, bytes]] = field(default_factory=dict)
    claims: dict[int, list[tuple[int, bytes]]] = field(default_factory=dict)

    def is_due(self, version: int) -> bool:
        """Whether reports at a version carry digests."""
        return self.every > 0 and version % self.every == 0

    def claimed(self, client: int, version: int, claim: bytes) -> str | None:
        """Take a client's digests. Returns how they differ from the evaluator's, if those are known and differ."""
        if version in self.truth:
            return self._difference(client, version, claim)
        self.claims.setdefault(version, []).append((client, claim))
        return None

    def settled(self, version: int, digests: dict[str, bytes]) -> list[tuple[int, str]]:
        """Take the evaluator's digests. Returns the clients whose earlier digests differ, and how."""
        if not self.is_due(version):
            return []
        self.truth[version] = digests
        for old in sorted(self.truth)[: -self.kept]:
            del self.truth[old]
        earlier = [(client, self._difference(client, version, claim)) for client, claim in self.claims.pop(version, [])]
        return [(client, difference) for client, difference in earlier if difference is not None]

    def pack(self) -> VerifierState:
        """Return what a checkpoint stores."""
        return [(version, list(digests.items())) for version, digests in sorted(self.truth.items())]

    def unpack(self, state: VerifierState) -> None:
        """Go on from what `pack` returned."""
        self.truth = {version: dict(digests) for version, digests in state}

    def _difference(self, client: int, version: int, claim: bytes) -> str | None:
        truth = self.truth[version]
        if claim == b"".join(truth.values()):
            return None
        parts = [claim[start : start + 8] for start in range(0, len(claim), 8)]
        wrong = [name for name, ours, theirs in zip(truth, truth.values(), parts, strict=False) if ours != theirs]
        where = "its " + " and ".join(wrong) if wrong else "the number of its fields"
        return f"client {client} holds other bits than the evaluator at version {version}: {where} differs"
