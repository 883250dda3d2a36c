"""What the agents say to each other: one class a kind, to and from the bodies of envelopes.

Unpacking raises `BadPayload` (from `algorithms`) and nothing else, whatever a peer sent. Plans, reports and commits
are opaque here: the algorithm packs them.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgpack

from seedbus.algorithms.contract import DECLINES, DIGEST_BYTES, Algorithm, BadPayload, Declined, Packed
from seedbus.bus import EVALUATOR, Envelope, Kind, Tally
from seedbus.bus.envelope import NO_TALLY, PLAN, REPORT
from seedbus.bus.text import printable

AnyAlgorithm = Algorithm[Any, Any, Any]

Outgoing = tuple[Envelope, Tally]
"""A message to be sent, and what it carries in the papers' units."""

EVALUATE = 1  # what a COMMIT asks of the evaluator
DIGEST = 2
PROOF_BYTES = 64
DETAIL = 200  # characters of why a client declines


@dataclass(frozen=True, slots=True)
class Span:
    """Clients first … last, all at one version."""

    first: int
    last: int
    version: int


@dataclass(frozen=True, slots=True)
class Join:
    """Clients with their versions, and proof that their process's arithmetic and its x₀ are the run's.

    sender: a host that comes with all its clients, or one client that has lost what the server believes it holds.
    losses: of a process whose losses are compiled; the others have none, and send nothing in its place.
    """

    sender: int
    spans: tuple[Span, ...]
    selftest: bytes
    x0: bytes
    losses: bytes = b""

    @property
    def proofs(self) -> dict[str, bytes]:
        return {"selftest": self.selftest, "x0": self.x0} | ({"losses": self.losses} if self.losses else {})

    def pack(self) -> Envelope:
        spans = [[span.first, span.last, span.version] for span in self.spans]
        return Envelope(Kind.JOIN, self.sender, 0, 0, [spans, *self.proofs.values()])

    @staticmethod
    def unpack(envelope: Envelope) -> Join:
        types = (list, bytes, bytes, bytes) if len(envelope.body) == 4 else (list, bytes, bytes)
        spans, *proofs = _fields(envelope, *types)
        if max(map(len, proofs)) > PROOF_BYTES:
            sizes = " and ".join(str(len(proof)) for proof in proofs)
            raise BadPayload(f"a JOIN's proofs have {sizes} bytes; at most {PROOF_BYTES} each")
        for span in spans:
            if not (isinstance(span, list) and len(span) == 3 and all(type(n) is int and 0 <= n < 2**32 for n in span)):
                raise BadPayload("a JOIN's clients are not spans of first, last and version")
            if span[0] > span[1]:
                raise BadPayload(f"a JOIN's clients {span[0]} … {span[1]} end before they begin")
        return Join(envelope.client, tuple(Span(*span) for span in spans), *proofs)


def spans(versions: Sequence[tuple[int, int]]) -> list[Span]:
    """Runs of neighbouring clients at one version, from (client, version) in ascending order."""
    found: list[Span] = []
    for client, version in versions:
        if found and found[-1].last + 1 == client and found[-1].version == version:
            found[-1] = Span(found[-1].first, client, version)
        else:
            found.append(Span(client, client, version))
    return found


def welcome(
    algorithm: AnyAlgorithm,
    recipient: int,
    version: int,
    versions: Sequence[int] = (),
    log: Sequence[Any] = (),
    notes: bytes = b"",
) -> Envelope:
    """An answer to JOIN: at which version each of a host's followers is to stand, and the log to get there.

    notes: what they have of snapshots (`downloads`); the log reaches the versions of these too.
    """
    column = struct.pack(f"<{len(versions)}I", *versions)
    return Envelope(Kind.WELCOME, recipient, 0, version, [column, algorithm.pack_log(log).body, notes])


def unpack_welcome(algorithm: AnyAlgorithm, envelope: Envelope, count: int) -> tuple[list[int], list[Any], bytes]:
    """The versions of `count` followers, the log up to the newest of these, and their notes.

    The log: commits 1, 2, …; of a dense algorithm the newest, if it is as old as that.
    """
    column, body, notes = _fields(envelope, bytes, list, bytes)
    if len(column) != 4 * count:
        raise BadPayload(f"a WELCOME tells the versions of {len(column) // 4} followers, not {count}")
    versions, log = list(struct.unpack(f"<{count}I", column)), algorithm.unpack_commits(body)
    if not algorithm.is_dense and (max(versions, default=0) > len(log) or (log and log[0].version != 1)):
        raise BadPayload(f"a WELCOME's {len(log)} commits do not reach the versions that it tells")
    return versions, log, notes


def refuse(recipient: int, reason: str, detail: str) -> Envelope:
    return Envelope(Kind.REFUSE, recipient, 0, 0, [reason, detail])


def unpack_refuse(envelope: Envelope) -> tuple[str, str]:
    """Reason and sentence. Both are shown to people: what no terminal should see is left out."""
    reason, detail = _fields(envelope, str, str)
    return printable(reason, 64), printable(detail, 1024)


def pack_plan(algorithm: AnyAlgorithm, client: int, plan: Any, missed: Sequence[Any]) -> tuple[Envelope, Tally]:
    """A plan with the commits that the client missed. The plan's round and version travel in the header."""
    told, caught_up = algorithm.pack_plan(plan), algorithm.pack_commits(missed)
    tally = Tally(
        scalars=told.scalars + caught_up.scalars,
        seeds=told.seeds + caught_up.seeds,
        catchup_bytes=len(msgpack.packb(caught_up.body)) if missed and not algorithm.is_dense else 0,
    )
    return Envelope(PLAN, client, plan.round, plan.version, [told.body, caught_up.body]), tally


def unpack_plan(algorithm: AnyAlgorithm, envelope: Envelope) -> tuple[Any, list[Any]]:
    told, caught_up = _fields(envelope, list, list)
    return algorithm.unpack_plan(told, envelope.round, envelope.base), algorithm.unpack_commits(caught_up)


def pack_report(algorithm: AnyAlgorithm, client: int, plan: Any, report: Any, digests: dict[str, bytes]) -> Envelope:
    """A report, with the digests of the replica that it was made from if they are due."""
    body, proof = algorithm.pack_report(plan, report).body, b"".join(digests.values())
    return Envelope(REPORT, client, plan.round, plan.version, [*body, proof] if proof else body)


def unpack_report(algorithm: AnyAlgorithm, envelope: Envelope, plan: Any, *, has_digests: bool) -> tuple[Any, bytes]:
    body, proof = envelope.body, b""
    if has_digests:
        if not body or not isinstance(body[-1], bytes):
            raise BadPayload("a report lacks the digests that are due")
        *body, proof = body
    return algorithm.unpack_report(body, plan), proof


def decline(client: int, plan: Any, why: Declined) -> Envelope:
    """In the place of a report: why there is none."""
    return Envelope(Kind.DECLINE, client, plan.round, plan.version, [why.reason, str(why)[:DETAIL]])


def unpack_decline(envelope: Envelope) -> tuple[str, str]:
    reason, detail = _fields(envelope, str, str)
    if reason not in DECLINES or len(detail) > DETAIL:
        raise BadPayload(f"a DECLINE says {reason[:DETAIL]!r}; it may say {', '.join(sorted(DECLINES))}")
    return reason, detail


def pack_peak(client: int, plan: Any, peak: Packed) -> tuple[Envelope, Tally]:
    """The largest of what a cohort's reports said, for one of the cohort; there is no answer."""
    return Envelope(Kind.PEAK, client, plan.round, plan.version, peak.body), Tally(scalars=peak.scalars)


def pack_commit(algorithm: AnyAlgorithm, round: int, version: int, commits: Sequence[Any], wants: int) -> Envelope:
    """Commits for the evaluator; version: what it stands at once it has folded them."""
    return Envelope(Kind.COMMIT, EVALUATOR, round, version, [algorithm.pack_log(commits).body, wants])


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

    def pack(self) -> Envelope:
        values = struct.pack(f"<{len(self.metrics)}d", *self.metrics.values())
        proof = [[name, digest] for name, digest in self.digests.items()]
        return Envelope(Kind.EVALUATION, EVALUATOR, self.round, self.version, [list(self.metrics), values, proof])

    @staticmethod
    def unpack(envelope: Envelope) -> Evaluation:
        names, values, proof = _fields(envelope, list, bytes, list)
        if len(values) != 8 * len(names) or not all(type(name) is str for name in names):
            raise BadPayload(f"{len(names)} metrics with {len(values)} bytes of values")
        if not all(isinstance(pair, list) and [type(part) for part in pair] == [str, bytes] for pair in proof):
            raise BadPayload("an EVALUATION's digests are not pairs of name and bytes")
        metrics = dict(zip(names, struct.unpack(f"<{len(names)}d", values), strict=True))
        digests = dict(proof)
        if len(metrics) < len(names) or len(digests) < len(proof):
            raise BadPayload("an EVALUATION gives a name twice")
        return Evaluation(envelope.round, envelope.base, metrics, digests)

    def check(self, metrics: Collection[str], fields: Collection[str]) -> None:
        """Raises `BadPayload` unless it holds the digests of exactly these fields, and these metrics or none."""
        if self.metrics and self.metrics.keys() != set(metrics):
            raise BadPayload(f"an EVALUATION's metrics are {_listed(self.metrics)}, not {_listed(metrics)}")
        if list(self.digests) != list(fields):  # in this order: reports have them one after the other, without names
            raise BadPayload(f"an EVALUATION's digests are of {_listed(self.digests)}, not of {_listed(fields)}")
        if any(len(digest) != DIGEST_BYTES for digest in self.digests.values()):
            raise BadPayload(f"an EVALUATION's digests are not of {DIGEST_BYTES} bytes each")


def tally(algorithm: AnyAlgorithm, is_verified: Callable[[int], bool], envelope: Envelope) -> Tally:
    """What a follower's message carries beside its length. is_verified: whether reports at a version have digests."""
    kind, _, _, base, body = envelope
    if kind is not REPORT:
        if kind is not Kind.EVALUATION:
            return NO_TALLY
        try:
            return Tally(digest_bytes=sum(map(len, Evaluation.unpack(envelope).digests.values())))
        except BadPayload:
            return NO_TALLY
    digest_bytes = 0
    if is_verified(base) and body and isinstance(body[-1], bytes):
        *body, proof = body
        digest_bytes = len(msgpack.packb(proof))
    return Tally(scalars=algorithm.count_scalars(body), digest_bytes=digest_bytes)


def bye(recipient: int) -> Envelope:
    return Envelope(Kind.BYE, recipient, 0, 0)


def _listed(names: Iterable[str]) -> str:
    return printable(", ".join(names), DETAIL) or "none"


def _fields(envelope: Envelope, *types: type) -> list[Any]:
    found = [type(element) for element in envelope.body]
    if found != list(types):
        expected, got = (", ".join(kind.__name__ for kind in kinds) for kinds in (types, found))
        raise BadPayload(f"a {envelope.kind.name} holds ({expected}), not ({got})")
    return envelope.body
