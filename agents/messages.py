"""The messages between agents: each kind packed into the body of an envelope, and unpacked.

Unpacking raises `BadPayload` (from `algorithms`) and nothing else, whatever a peer sent. Plans, reports and commits are
opaque here: the algorithm packs them.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Annotated, Any, NamedTuple, TypeVar

import msgpack
from msgspec import Meta

from seedbus.algorithms.contract import DECLINES, DIGEST_BYTES, Algorithm, BadPayload, Declined, Packed, ReportRefused
from seedbus.bus import EVALUATOR, Envelope, Kind, Tally
from seedbus.bus.envelope import NO_TALLY, NUMBER_LIMIT, PLAN, REPORT
from seedbus.bus.records import Count, record
from seedbus.bus.text import printable
from seedbus.pieces import Frame, stored

RecordT = TypeVar("RecordT")

Outgoing = tuple[Envelope, Tally]
"""A message to send, and what it carries in the papers' units."""

EVALUATE = 1
"""A flag of a COMMIT: the evaluator is to answer with metrics."""
DIGEST = 2
"""A flag of a COMMIT: the evaluator is to answer with digests."""
PROOF_BYTES = 64
"""How many bytes each proof of a JOIN has at most."""
DETAIL = 200
"""How many characters a client's reason for declining has at most."""


_Short = Annotated[int, Meta(ge=0, lt=NUMBER_LIMIT)]
_Proof = Annotated[bytes, Meta(max_length=PROOF_BYTES)]


class Span(NamedTuple):
    """The clients `first` to `last`, both included, all at one version."""

    first: _Short
    last: _Short
    version: _Short


class Join(NamedTuple):
    """Clients with their versions, and proofs that their process computes the same bits as the run.

    The body of a JOIN has the fields from `spans` on, in this order, without empty proofs at its end.

    Attributes:
        sender: a host that joins with all its clients, or one client that states the version that it actually holds.
        spans: the clients and their versions, ascending.
        selftest: the self-test of the process's directions and arithmetic.
        x0: the digest of its x₀.
        losses: the digest of compiled or stacked losses; b"" if they are neither.
        plugins: the digest of the plug-ins that the scenario needs; b"" if it needs none.
        mask: the digest of the mask of trained coordinates; b"" if all are trained.
    """

    sender: int
    spans: tuple[Span, ...]
    selftest: _Proof
    x0: _Proof
    losses: _Proof = b""
    plugins: _Proof = b""
    mask: _Proof = b""

    @property
    def proofs(self) -> dict[str, bytes]:
        """name → proof, without those of "losses", "plugins" and "mask" that are empty."""
        optional = {"losses": self.losses, "plugins": self.plugins, "mask": self.mask}
        return {"selftest": self.selftest, "x0": self.x0} | {name: proof for name, proof in optional.items() if proof}

    def pack(self) -> Envelope:
        """Return the message."""
        sender, *body = self
        while len(body) > 3 and not body[-1]:
            body.pop()
        return Envelope(Kind.JOIN, sender, 0, 0, body)

    @staticmethod
    def unpack(envelope: Envelope) -> Join:
        """Raises `BadPayload`."""
        join = read_body(Join, envelope, envelope.client)
        for first, last, _ in join.spans:
            if first > last:
                raise BadPayload(f"a JOIN's clients {first} … {last} end before they begin")
        return join


def spans(versions: Sequence[tuple[int, int]]) -> list[Span]:
    """Return the runs of adjacent clients at one version; versions: (client, version) by ascending client."""
    runs: list[Span] = []
    first = last = at = -1
    for client, version in [*versions, (-1, -1)]:
        if client != last + 1 or version != at:
            if at >= 0:
                runs.append(Span(first, last, at))
            first, at = client, version
        last = client
    return runs


def welcome(
    algorithm: Algorithm,
    recipient: int,
    version: int,
    versions: Sequence[int] = (),
    log: Sequence[Any] = (),
    notes: bytes = b"",
    base: PackedReplica | None = None,
) -> Envelope:
    """Return a WELCOME, the answer to a host's last JOIN.

    Args:
        algorithm: the run's.
        recipient: the host.
        version: the run's newest.
        versions: for each follower of the host, the version to start from.
        log: the commits up to the newest of these versions, and of those that notes are about; none for a process that
            is at these versions.
        notes: what the clients have downloaded, as `catch_up.client.pack_notes` returned it.
        base: what the journal has in the place of its first commits; None: the log begins with the first.
    """
    column = struct.pack(f"<{len(versions)}I", *versions)
    body = [column, algorithm.pack_commits(log, whole=True).body, notes]
    body += [] if base is None else [[base.version, base.digest, stored(base.fields)]]
    return Envelope(Kind.WELCOME, recipient, 0, version, body)


class PackedReplica(NamedTuple):
    """A whole replica, from which commits lead on that follow its version.

    Attributes:
        version: of the replica.
        digest: of the replica, 16 bytes.
        fields: its fields, by name, as one run of little-endian bytes.
    """

    version: int
    digest: bytes
    fields: Frame


class Welcome(NamedTuple):
    """What a process begins with.

    Attributes:
        versions: of each of its followers.
        log: the commits after `base`, or 1, 2, …, at least to the newest of the versions. Of a dense algorithm it may
            hold a single commit, or none; and none for a process whose followers are at these versions.
        notes: see `welcome`.
        base: the replica from which the log leads on; None: x₀.
    """

    versions: list[int]
    log: list[Any]
    notes: bytes
    base: PackedReplica | None


def unpack_welcome(algorithm: Algorithm, envelope: Envelope, held: list[int]) -> Welcome:
    """Return what a WELCOME says to a process whose followers are at the versions `held`. Raises `BadPayload`."""
    *body, packed = envelope.body if len(envelope.body) > 3 else [*envelope.body, None]
    column, commits, notes = read_body(tuple[bytes, list[Any], bytes], envelope._replace(body=body))
    base = None if packed is None else _packed_replica(packed)
    first = 0 if base is None else base.version
    if len(column) != 4 * len(held):
        raise BadPayload(f"a WELCOME has the versions of {len(column) // 4} followers, not of {len(held)}")
    versions, log = list(struct.unpack(f"<{len(held)}I", column)), algorithm.unpack_commits(commits)
    if versions == held and not log and base is None:
        return Welcome(versions, log, notes, None)
    is_wrong = max(versions, default=0) > first + len(log) or (log and log[0].version != first + 1)
    if not algorithm.facts.is_dense and (is_wrong or any(0 < version < first for version in versions)):
        raise BadPayload(f"a WELCOME's {len(log)} commits do not reach the versions that it states")
    return Welcome(versions, log, notes, base)


def _packed_replica(packed: Any) -> PackedReplica:
    try:
        version, digest, fields = record(tuple[Count, bytes, Any], packed)
        return PackedReplica(version, digest, b"".join(fields if isinstance(fields, list) else [fields]))
    except (TypeError, ValueError) as error:
        raise BadPayload(f"a WELCOME's replica has another form ({error})") from None


def refuse(recipient: int, reason: str, detail: str) -> Envelope:
    """Return a REFUSE with one word and a sentence."""
    return Envelope(Kind.REFUSE, recipient, 0, 0, [reason, detail])


def unpack_refuse(envelope: Envelope) -> tuple[str, str]:
    """Return reason and sentence, without characters that a terminal must not show. Raises `BadPayload`."""
    reason, detail = read_body(tuple[str, str], envelope)
    return printable(reason, 64), printable(detail, 1024)


def pack_plan(algorithm: Algorithm, client: int, plan: Any, missed: Sequence[Any]) -> tuple[Envelope, Tally]:
    """Return a PLAN with the commits that the client missed. The plan's round and version are in the header."""
    packed, commits = algorithm.pack_plan(plan), algorithm.pack_commits(missed)
    tally = _carried(algorithm, commits, missed, plan.version)
    tally = tally._replace(scalars=packed.scalars + tally.scalars, seeds=packed.seeds + tally.seeds)
    return Envelope(PLAN, client, plan.round, plan.version, [packed.body, commits.body]), tally


def _carried(algorithm: Algorithm, commits: Packed, missed: Sequence[Any], version: int) -> Tally:
    """Return what the commits that lead a client to a version carry."""
    facts = algorithm.facts
    can_be_sum = facts.most_catch_up_bytes is not None
    return Tally(
        scalars=commits.scalars,
        seeds=commits.seeds,
        catchup_bytes=len(msgpack.packb(commits.body)) if missed and not facts.is_dense else 0,
        since=0 if facts.is_dense else version - len(missed),
        is_sum=can_be_sum and len(algorithm.unpack_commits(commits.body)) < len(missed),
    )


def unpack_plan(algorithm: Algorithm, envelope: Envelope) -> tuple[Any, list[Any]]:
    """Return a plan and the commits before it. Raises `BadPayload`."""
    packed, commits = read_body(tuple[list[Any], list[Any]], envelope)
    return algorithm.unpack_plan(packed, envelope.round, envelope.base), algorithm.unpack_commits(commits)


def pack_report(algorithm: Algorithm, client: int, plan: Any, report: Any, digests: dict[str, bytes]) -> Envelope:
    """Return a REPORT; digests: of the client's replica, by field, or {} if none are due."""
    body, proof = algorithm.pack_report(plan, report).body, b"".join(digests.values())
    return Envelope(REPORT, client, plan.round, plan.version, [*body, proof] if proof else body)


def unpack_report(algorithm: Algorithm, envelope: Envelope, plan: Any, *, has_digests: bool) -> tuple[Any, bytes]:
    """Return a report that may be aggregated, and the digests of its replica, concatenated; b"" if none are due.

    Raises:
        BadPayload, ReportRefused: it may not be.
    """
    body, proof = envelope.body, b""
    if has_digests:
        if not body or not isinstance(body[-1], bytes):
            raise BadPayload("a report lacks the digests that are due")
        *body, proof = body
    return read_report(algorithm, body, plan), proof


def read_report(algorithm: Algorithm, body: Any, plan: Any) -> Any:
    """Return a packed report that may be aggregated. Raises `BadPayload`, `ReportRefused`."""
    (report,) = algorithm.read_reports([body], plan)
    if isinstance(report, BadPayload | ReportRefused):
        raise report
    return report


def decline(client: int, plan: Any, why: Declined) -> Envelope:
    """Return a DECLINE: in the place of a report, why there is none."""
    return Envelope(Kind.DECLINE, client, plan.round, plan.version, [why.reason, str(why)[:DETAIL]])


def unpack_decline(envelope: Envelope) -> tuple[str, str]:
    """Return reason and sentence. Raises `BadPayload`."""
    reason, detail = read_body(tuple[str, str], envelope)
    if reason not in DECLINES or len(detail) > DETAIL:
        raise BadPayload(f"a DECLINE says {reason[:DETAIL]!r}; it may say {', '.join(sorted(DECLINES))}")
    return reason, detail


def pack_peak(client: int, plan: Any, peak: Packed) -> tuple[Envelope, Tally]:
    """Return a PEAK: the largest norm of a cohort's reports, for one of its clients. It has no answer."""
    return Envelope(Kind.PEAK, client, plan.round, plan.version, peak.body), Tally(scalars=peak.scalars)


def pack_commit(algorithm: Algorithm, round: int, version: int, commits: Sequence[Any], wants: int) -> Envelope:
    """Return a COMMIT for the evaluator; version: the one after these commits; wants: flags `EVALUATE`, `DIGEST`."""
    return Envelope(Kind.COMMIT, EVALUATOR, round, version, [algorithm.pack_commits(commits, whole=True).body, wants])


def unpack_commit(algorithm: Algorithm, envelope: Envelope) -> tuple[list[Any], int]:
    """Return the commits and the flags. Raises `BadPayload`."""
    body, wants = read_body(tuple[list[Any], int], envelope)
    return algorithm.unpack_commits(body), wants


@dataclass(frozen=True, slots=True)
class Evaluation:
    """What the evaluator computed at a version: metrics, digests, or both.

    Attributes:
        round: the round after which it was asked.
        version: the version of its replica.
        metrics: name → value.
        digests: field of the replica → digest.
    """

    round: int
    version: int
    metrics: dict[str, float] = field(default_factory=dict)
    digests: dict[str, bytes] = field(default_factory=dict)

    def pack(self) -> Envelope:
        """Return the message."""
        values = struct.pack(f"<{len(self.metrics)}d", *self.metrics.values())
        body = [list(self.metrics), values, list(self.digests.items())]
        return Envelope(Kind.EVALUATION, EVALUATOR, self.round, self.version, body)

    @staticmethod
    def unpack(envelope: Envelope) -> Evaluation:
        """Raises `BadPayload`."""
        names, values, proof = read_body(tuple[list[str], bytes, list[tuple[str, bytes]]], envelope)
        if len(values) != 8 * len(names):
            raise BadPayload(f"{len(names)} metrics with {len(values)} bytes of values")
        metrics = dict(zip(names, struct.unpack(f"<{len(names)}d", values), strict=True))
        digests = dict(proof)
        if len(metrics) < len(names) or len(digests) < len(proof):
            raise BadPayload("an EVALUATION gives a name twice")
        return Evaluation(envelope.round, envelope.base, metrics, digests)

    def check(self, metrics: Collection[str], fields: Collection[str]) -> None:
        """Raise `BadPayload` unless it has the digests of exactly these fields, and these metrics or none."""
        if self.metrics and self.metrics.keys() != set(metrics):
            raise BadPayload(f"an EVALUATION's metrics are {_listed(self.metrics)}, not {_listed(metrics)}")
        if list(self.digests) != list(fields):  # in this order, for reports have them without names
            raise BadPayload(f"an EVALUATION's digests are of {_listed(self.digests)}, not of {_listed(fields)}")
        if any(len(digest) != DIGEST_BYTES for digest in self.digests.values()):
            raise BadPayload(f"an EVALUATION's digests are not of {DIGEST_BYTES} bytes each")


def pack_measure(algorithm: Algorithm, client: int, round: int, version: int, missed: Sequence[Any]) -> Outgoing:
    """Return a MEASURE: the client is to measure `version`, to which the commits that it missed lead it."""
    commits = algorithm.pack_commits(missed)
    message = Envelope(Kind.MEASURE, client, round, version, [commits.body])
    return message, _carried(algorithm, commits, missed, version)


def unpack_measure(algorithm: Algorithm, envelope: Envelope) -> list[Any]:
    """Return the commits. Raises `BadPayload`."""
    (commits,) = read_body(tuple[list[Any]], envelope)
    return algorithm.unpack_commits(commits)


@dataclass(frozen=True, slots=True)
class Measured:
    """What a client tells of a model.

    Attributes:
        client: the client.
        round: the round after which it was asked.
        version: the version of its replica.
        samples: how many held-out samples it has measured on.
        sums: of each metric, the sum over these samples.
    """

    client: int
    round: int
    version: int
    samples: int
    sums: Sequence[float]

    def pack(self) -> Envelope:
        """Return the message."""
        body = [self.samples, struct.pack(f"<{len(self.sums)}d", *self.sums)]
        return Envelope(Kind.MEASURED, self.client, self.round, self.version, body)

    @staticmethod
    def unpack(envelope: Envelope) -> Measured:
        """Raises `BadPayload`."""
        samples, values = read_body(tuple[_Short, bytes], envelope)
        if len(values) % 8:
            raise BadPayload(f"a MEASURED has {len(values)} bytes of sums, no multiple of 8")
        sums = struct.unpack(f"<{len(values) // 8}d", values)
        return Measured(envelope.client, envelope.round, envelope.base, samples, sums)


def tally(algorithm: Algorithm, is_verified: Callable[[int], bool], envelope: Envelope) -> Tally:
    """Return what a follower's message carries; is_verified: whether reports at a version have digests."""
    kind, _, round, base, body = envelope
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
    return _tally_of(algorithm.work(round).scalars, digest_bytes)


@lru_cache(256)
def _tally_of(scalars: int, digest_bytes: int) -> Tally:
    return Tally(scalars=scalars, digest_bytes=digest_bytes)


def bye(recipient: int) -> Envelope:
    """Return a BYE: the run is over."""
    return Envelope(Kind.BYE, recipient, 0, 0)


def _listed(names: Iterable[str]) -> str:
    return printable(", ".join(names), DETAIL) or "none"


def read_body(form: type[RecordT], envelope: Envelope, *head: int) -> RecordT:
    """Return these numbers of a header and a body as a record of this form. Raises `BadPayload`."""
    try:
        return record(form, [*head, *envelope.body])
    except ValueError as error:
        raise BadPayload(f"a {envelope.kind.name} of another form: {error}") from None
