"""Whether those who would join may."""

from __future__ import annotations

from collections.abc import Container, Mapping

from seedbus.agents.messages import Join
from seedbus.bus import EVALUATOR


def why_not(
    join: Join, proofs: Mapping[str, bytes], clients: int, version: int, members: Container[int]
) -> tuple[str, str] | None:
    """What speaks against a JOIN, in one word and in a sentence. proofs: what everybody must show, as far as known;
    clients, version: how many clients the run has, and where it is; members: those that take part just now."""
    if join.sender == EVALUATOR:
        return "claims-another", "the evaluator joins for clients"
    for name, their in join.proofs.items():
        our = proofs.get(name, their)
        if our != their:
            return name, _PROOFS[name].format(theirs=their.hex(), ours=our.hex())
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
