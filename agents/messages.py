"""What the agents say to each other: one class a kind, to and from the bodies of envelopes.

Unpacking raises `BadPayload` (from `algorithms`) and nothing else, whatever a peer sent. Plans, reports and commits
are opaque here: the algorithm packs them.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import msgpack

from seedbus.algorithms.contract import Algorithm, BadPayload
from seedbus.bus import EVALUATOR, Envelope, Kind, Tally

AnyAlgorithm = Algorithm[Any, Any, Any]

EVALUATE = 1  # what a COMMIT asks of the evaluator
DIGEST = 2


@dataclass(frozen=True, slots=True)
class Span:
    """Clients first … last, all at one version."""

    first: int
    last: int
    version: int


@dataclass(frozen=True, slots=True)
class Join:
    """A host's clients with their versions, and proof that its arithmetic and its x₀ are the run's."""

    host: int
    spans: tuple[Span, ...]
    selftest: bytes
    x0: bytes

    def pack(self) -> Envelope:
        spans = [[span.first, span.last, span.version] for span in self.spans]
        return Envelope(Kind.JOIN, self.host, 0, 0, [spans, self.selftest, self.x0])

    @staticmethod
    def unpack(envelope: Envelope) -> Join:
        spans, selftest, x0 = _fields(envelope, list, bytes, bytes)
        for span in spans:
            if not (isinstance(span, list) and len(span) == 3 and all(type(n) is int and 0 <= n < 2**32 for n in span)):
                raise BadPayload("a JOIN's clients are not spans of first, last and version")
        return Join(envelope.client, tuple(Span(*span) for span in spans), selftest, x0)


def spans(versions: Sequence[tuple[int, int]]) -> list[Span]:
    """Runs of neighbouring clients at one version, from (client, version) in ascending order."""
    found: list[Span] = []
    for client, version in versions:
        if found and found[-1].last + 1 == client and found[-1].version == version:
            found[-1] = Span(found[-1].first, client, version)
        else:
            found.append(Span(client, client, version))
    return found


def welcome(host: int, version: int) -> Envelope:
    return Envelope(Kind.WELCOME, host, 0, version)


def refuse(host: int, reason: str, detail: str) -> Envelope:
    return Envelope(Kind.REFUSE, host, 0, 0, [reason, detail])


def unpack_refuse(envelope: Envelope) -> tuple[str, str]:
    reason, detail = _fields(envelope, str, str)
    return reason, detail


def pack_plan(algorithm: AnyAlgorithm, client: int, plan: Any, missed: Sequence[Any]) -> tuple[Envelope, Tally]:
    """A plan with the commits that the client missed. The plan's round and version travel in the header."""
    told, caught_up = algorithm.pack_plan(plan), algorithm.pack_commits(algorithm.compact(missed))
    tally = Tally(
        scalars=told.scalars + caught_up.scalars,
        seeds=told.seeds + caught_up.seeds,
        catchup_bytes=len(msgpack.packb(caught_up.body)) if missed else 0,
    )
    return Envelope(Kind.PLAN, client, plan.round, plan.version, [told.body, caught_up.body]), tally


def unpack_plan(algorithm: AnyAlgorithm, envelope: Envelope) -> tuple[Any, list[Any]]:
    told, caught_up = _fields(envelope, list, list)
    return algorithm.unpack_plan(told, envelope.round, envelope.base), algorithm.unpack_commits(caught_up)


def pack_report(
    algorithm: AnyAlgorithm, client: int, plan: Any, report: Any, digests: dict[str, bytes]
) -> tuple[Envelope, Tally]:
    """A report, with the digests of the replica that it was made from if they are due."""
    packed, proof = algorithm.pack_report(plan, report), b"".join(digests.values())
    body = [*packed.body, proof] if proof else packed.body
    tally = Tally(scalars=packed.scalars, seeds=packed.seeds, digest_bytes=len(msgpack.packb(proof)) if proof else 0)
    return Envelope(Kind.REPORT, client, plan.round, plan.version, body), tally


def unpack_report(algorithm: AnyAlgorithm, envelope: Envelope, plan: Any, *, has_digests: bool) -> tuple[Any, bytes]:
    body, proof = envelope.body, b""
    if has_digests:
        if not body or not isinstance(body[-1], bytes):
            raise BadPayload("a report lacks the digests that are due")
        *body, proof = body
    return algorithm.unpack_report(body, plan), proof


def pack_commit(algorithm: AnyAlgorithm, round: int, version: int, commits: Sequence[Any], wants: int) -> Envelope:
    """Commits for the evaluator; version: what it stands at once it has folded them."""
    return Envelope(Kind.COMMIT, EVALUATOR, round, version, [algorithm.pack_commits(commits).body, wants])


def unpack_commit(algorithm: AnyAlgorithm, envelope: Envelope) -> tuple[list[Any], int]:
    body, wants = _fields(envelope, list, int)
    return algorithm.unpack_commits(body), wants


@dataclass(frozen=True, slots=True)
class Evaluation:
    """What the evaluator found at a version: metrics, digests, or both."""

    round: int
    version: int
    metrics: dict[str, float] = field(default_factory=dict)
    digests: dict[str, bytes] = field(default_factory=dict)

    def pack(self) -> tuple[Envelope, Tally]:
        values = struct.pack(f"<{len(self.metrics)}d", *self.metrics.values())
        proof = [[name, digest] for name, digest in self.digests.items()]
        body = [list(self.metrics), values, proof]
        tally = Tally(digest_bytes=sum(map(len, self.digests.values())))
        return Envelope(Kind.EVALUATION, EVALUATOR, self.round, self.version, body), tally

    @staticmethod
    def unpack(envelope: Envelope) -> Evaluation:
        names, values, proof = _fields(envelope, list, bytes, list)
        if len(values) != 8 * len(names) or not all(type(name) is str for name in names):
            raise BadPayload(f"{len(names)} metrics with {len(values)} bytes of values")
        if not all(isinstance(pair, list) and [type(part) for part in pair] == [str, bytes] for pair in proof):
            raise BadPayload("an EVALUATION's digests are not pairs of name and bytes")
        metrics = dict(zip(names, struct.unpack(f"<{len(names)}d", values), strict=True))
        return Evaluation(envelope.round, envelope.base, metrics, dict(proof))


def bye(recipient: int) -> Envelope:
    return Envelope(Kind.BYE, recipient, 0, 0)


def _fields(envelope: Envelope, *types: type) -> list[Any]:
    found = [type(element) for element in envelope.body]
    if found != list(types):
        expected, got = (", ".join(kind.__name__ for kind in kinds) for kinds in (types, found))
        raise BadPayload(f"a {envelope.kind.name} holds ({expected}), not ({got})")
    return envelope.body
