"""Whether those who would join may."""

from __future__ import annotations

import hashlib
from collections.abc import Container, Mapping

from seedbus.agents.messages import Join
from seedbus.bus import EVALUATOR

MEMBER = b"member"


def bound(proofs: Mapping[str, bytes], nonce: bytes) -> dict[str, bytes]:
    """Proofs for one offer: digests of the same lengths, keyed with its nonce.

    A listener on the wire learns nothing from them that would serve for another offer. Clients of a process that joined
    so show proofs bound to `MEMBER` later on, which serve for no offer. Without a nonce: the proofs themselves.
    """
    if not nonce:
        return dict(proofs)
    return {name: hashlib.blake2b(proof, key=nonce, digest_size=len(proof)).digest() for name, proof in proofs.items()}


def proofs_for(proofs: Mapping[str, bytes], join: Join, nonce: bytes) -> Mapping[str, bytes]:
    """What a JOIN must show.

    nonce: of its process's offer; a single client's proofs are plain, or bound to `MEMBER`.
    """
    if join.sender < 0:
        return bound(proofs, nonce)
    if join.proofs == proofs:
        return proofs
    of_member = bound(proofs, MEMBER)
    return {name: of_member[name] if join.proofs.get(name) == of_member[name] else proofs[name] for name in proofs}


def false_proof(join: Join, proofs: Mapping[str, bytes]) -> tuple[str, str] | None:
    """Which proof of a JOIN is not what it must be, in one word and in a sentence. proofs: as for `why_not`."""
    for name, their in join.proofs.items():
        our = proofs.get(name, their)
        if our != their:
            return name, _PROOFS[name].format(theirs=their.hex(), ours=our.hex())
    if "losses" in proofs and "losses" not in join.proofs:
        return "losses", "it shows no compiled losses, and the run's are compiled"
    if "losses" in join.proofs and "x0" in proofs and "losses" not in proofs:
        return "losses", "it shows compiled losses, and the run's are not compiled"
    return None


def why_not(
    join: Join, proofs: Mapping[str, bytes], clients: int, version: int, members: Container[int]
) -> tuple[str, str] | None:
    """What speaks against a JOIN, in one word and in a sentence. proofs: what everybody must show, as far as known;
    clients, version: how many clients the run has, and where it is; members: those that take part just now."""
    if join.sender == EVALUATOR:
        return "claims-another", "the evaluator joins for clients"
    false = false_proof(join, proofs)
    if false is not None:
        return false
    last = clients - 1
    for span in join.spans:
        if join.sender >= 0 and (span.first, span.last) != (join.sender, join.sender):
            return "claims-another", f"client {join.sender} joins for clients {span.first} … {span.last}"
        who = f"clients {span.first} … {span.last}"
        if not span.first <= span.last <= last:
            return "unknown-client", f"{who} are not among this run's clients 0 … {last}"
        if span.version > version:
            return "foreign-version", f"{who} hold version {span.version}, and this run is at {version}"
    if join.sender >= 0 and join.sender not in members:
        return "not-a-member", f"client {join.sender} has left the run, and comes back with its process only"
    return None


_PROOFS = {
    "selftest": "its directions or arithmetic differ (self-test {theirs}, the run's {ours}): another build",
    "losses": "its compiled losses have other bits (digest {theirs}, the run's {ours}): another processor, compiler or "
    "torch; with task.forward: eager nothing is compiled",
    "x0": "its x₀ has digest {theirs}, the run's {ours}: another task, seed or set of weights",
}
