"""Decides whether a process or a client that wants to join a run may."""

from __future__ import annotations

import hashlib
from collections.abc import Container, Mapping

from seedbus.agents.messages import Join
from seedbus.bus import EVALUATOR

MEMBER = b"member"
"""The nonce to which clients of a process that has joined bind their proofs."""


def bound(proofs: Mapping[str, bytes], nonce: bytes) -> dict[str, bytes]:
    """Bind proofs to one offer: return digests of the same lengths, keyed with the offer's nonce.

    An eavesdropper cannot reuse them for another offer. Clients of a process that has joined this way later show proofs
    bound to `MEMBER`, which are valid for no offer. Without a nonce the proofs are returned as they are.
    """
    if not nonce:
        return dict(proofs)
    return {name: hashlib.blake2b(proof, key=nonce, digest_size=len(proof)).digest() for name, proof in proofs.items()}


def proofs_for(proofs: Mapping[str, bytes], join: Join, nonce: bytes) -> Mapping[str, bytes]:
    """Return the proofs that a JOIN must show.

    Args:
        proofs: the run's own, not bound.
        join: the JOIN. A single client may show each proof not bound, or bound to `MEMBER`.
        nonce: of the offer that its process answers.
    """
    if join.sender < 0:
        return bound(proofs, nonce)
    if join.proofs == proofs:
        return proofs
    of_member = bound(proofs, MEMBER)
    return {name: of_member[name] if join.proofs.get(name) == of_member[name] else proofs[name] for name in proofs}


def false_proof(join: Join, proofs: Mapping[str, bytes]) -> tuple[str, str] | None:
    """Return the reason and a sentence if a JOIN shows a wrong proof; proofs: what it must show, as far as known."""
    for name, theirs in join.proofs.items():
        ours = proofs.get(name, theirs)
        if ours != theirs:
            return name, _PROOFS[name].format(theirs=theirs.hex(), ours=ours.hex())
    if "losses" in proofs and "losses" not in join.proofs:
        return "losses", "it shows no compiled or stacked losses, and the run's are such"
    if "losses" in join.proofs and "x0" in proofs and "losses" not in proofs:
        return "losses", "it shows compiled or stacked losses, and the run's are neither"
    if "plugins" in proofs and "plugins" not in join.proofs:
        return "plugins", "it shows no plug-ins, and the run's scenario needs some"
    if "plugins" in join.proofs and "plugins" not in proofs:
        return "plugins", "it shows plug-ins, and the run's scenario needs none"
    if "mask" in proofs and "mask" not in join.proofs:
        return "mask", "it trains all coordinates, and the run those of a mask"
    if "mask" in join.proofs and "x0" in proofs and "mask" not in proofs:
        return "mask", "it trains the coordinates of a mask, and the run all of them"
    return None


def why_not(
    join: Join, proofs: Mapping[str, bytes], clients: int, version: int, members: Container[int]
) -> tuple[str, str] | None:
    """Return the reason and a sentence if a JOIN must be refused.

    Args:
        join: the JOIN.
        proofs: what it must show, as far as known.
        clients: N.
        version: the run's newest.
        members: the clients that are members now.
    """
    if join.sender == EVALUATOR:
        return "claims-another", "the evaluator joins for clients"
    false = false_proof(join, proofs)
    if false is not None:
        return false
    last = clients - 1
    for span in join.spans:
        if join.sender >= 0 and (span.first, span.last) != (join.sender, join.sender):
            return "claims-another", f"client {join.sender} joins for clients {span.first} … {span.last}"
        clients_of_span = f"clients {span.first} … {span.last}"
        if not span.first <= span.last <= last:
            return "unknown-client", f"{clients_of_span} are not among this run's clients 0 … {last}"
        if span.version > version:
            return "foreign-version", f"{clients_of_span} hold version {span.version}, and this run is at {version}"
    if join.sender >= 0 and join.sender not in members:
        return "not-a-member", f"client {join.sender} has left the run, and comes back with its process only"
    return None


_PROOFS = {
    "selftest": "its directions or arithmetic differ (self-test {theirs}, the run's {ours}): another build",
    "losses": "its compiled or stacked losses have other bits (digest {theirs}, the run's {ours}): another processor, "
    "compiler or torch; with task.forward: eager nothing is compiled or stacked",
    "plugins": "its plug-ins have digest {theirs}, the run's {ours}: another source of the scenario's plug-ins",
    "mask": "its mask of trained coordinates has digest {theirs}, the run's {ours}: another processor, whose "
    "gradients have other bits; mask.rule: largest, smallest and random use none",
    "x0": "its x₀ has digest {theirs}, the run's {ours}: other data, or another task, seed or set of weights",
}
