"""What an algorithm is: a replicated state machine whose transitions are the server's commits.

The server appends commits to a log; every follower (client, evaluator, auditor) holds a `Replica` and folds
`apply` over the commits that it missed. Nothing else ever changes a replica, so at version v all replicas hold
the same bits, whoever holds them and however they got there.

    round     an attempt; it keys the directions and the cohort
    version   the number of commits folded; a round without quorum makes no commit
    plan      what a participant is told           server → client
    report    what a participant answers           client → server
    commit    what every follower folds            server → all

An algorithm is one file in this folder: a frozen pydantic model whose fields are its hyperparameters (and what a
scenario may say), and whose `name` is its name there. This module imports no framework: a server needs no torch.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

# float32 in every run; float64 only in the reference that the theory tests use.
Vector = NDArray[np.floating[Any]]


class CommitGap(ValueError):
    """A follower was handed a commit that does not follow the version that it holds."""

    def __init__(self, held: int, offered: int) -> None:
        super().__init__(f"a replica at version {held} cannot fold commit {offered}: commit {held + 1} is missing")
        self.held, self.offered = held, offered


class ReportRefused(ValueError):
    """A report that must not enter the model; `reason` is one word that the refusals are counted by."""

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(detail)
        self.reason = reason


DECLINES = frozenset({"overflow"})


class Declined(Exception):
    """A client does not report: what it found cannot be sent. `reason` is one of `DECLINES`."""

    def __init__(self, reason: str, detail: str) -> None:
        assert reason in DECLINES, f"a server knows no such reason to decline: {reason}"
        super().__init__(detail)
        self.reason = reason


class BadPayload(ValueError):
    """A payload whose shape, types or sizes are not what its kind promises."""


@dataclass(slots=True)
class Replica:
    """One follower's copy of the model at one version: x and whatever the algorithm advances beside it.

    fields: name → vector of the same length d (always "x"; HiSo adds "hessian", momentum adds "momentum").
    """

    version: int
    fields: dict[str, Vector]

    @property
    def x(self) -> Vector:
        return self.fields["x"]

    @property
    def dimension(self) -> int:
        return int(self.x.size)

    def copy(self) -> Replica:
        return Replica(self.version, {name: field.copy() for name, field in self.fields.items()})

    def digests(self) -> dict[str, bytes]:
        """Eight bytes a field, of the field's little-endian bytes: tells not only that replicas differ but where."""
        return {name: _digest(field) for name, field in sorted(self.fields.items())}

    def digest(self) -> str:
        """One hexadecimal digest of the version and every field."""
        return whole_digest(self.version, self.digests())


def whole_digest(version: int, digests: Mapping[str, bytes]) -> str:
    """One hexadecimal digest out of a version and its fields' digests."""
    whole = hashlib.blake2b(str(version).encode(), digest_size=16)
    for name, part in sorted(digests.items()):
        whole.update(name.encode() + b"\0" + part)
    return whole.hexdigest()


def _digest(field: Vector) -> bytes:
    little = np.ascontiguousarray(field, dtype=field.dtype.newbyteorder("<"))
    return hashlib.blake2b(little.data, digest_size=8).digest()


class Objective(Protocol):
    """One client's loss in one round, as an algorithm sees it. `models` implements it."""

    point: Vector
    """Where the next loss is taken, shape [d]: the caller writes x + μz straight into it, so nothing is copied."""

    def loss(self, step: int) -> float:
        """f(point; ξ): the mean loss over local step `step`'s mini-batch, the same batch at every call of that step."""
        ...


class Packed(NamedTuple):
    """A payload ready for the wire, and what it carries in the papers' units."""

    body: list[Any]
    scalars: int = 0
    seeds: int = 0


class Overdue(NamedTuple):
    """Reports of one earlier round that came too late for it. weight: of each of them, s(τ)/|C_r|."""

    plan: Any
    reports: Mapping[int, Any]
    weight: float


class Committed(Protocol):
    """What the log needs to know of any commit."""

    @property
    def version(self) -> int: ...
    @property
    def round(self) -> int: ...


PlanT = TypeVar("PlanT")
ReportT = TypeVar("ReportT")
CommitT = TypeVar("CommitT", bound=Committed)


class Algorithm(Protocol[PlanT, ReportT, CommitT]):
    """The contract. State is the server's own, memory a client's own; both start as None and are opaque to agents.

    State travels in the checkpoint, durable together with the commit that it goes with: it is plain msgpack data, None,
    numbers, bytes and lists of these.
    """

    @property
    def name(self) -> str: ...

    def replica(self, x0: Vector) -> Replica:
        """Version 0: a copy of x₀ and the algorithm's own fields at their initial values."""
        ...

    def plan(self, round: int, version: int, seed: int) -> PlanT:
        """Server: what the cohort of `round` is told. seed: 64 bits that key this round's directions."""
        ...

    def evaluations(self, round: int) -> int:
        """How many times a participant of `round` evaluates f, so that compute time can be modelled."""
        ...

    def local(self, replica: Replica, memory: Any, plan: PlanT, objective: Objective) -> tuple[ReportT, Any]:
        """Client: the local steps of one round. The replica is left untouched. Raises `Declined`."""
        ...

    def check(self, plan: PlanT, report: ReportT) -> None:
        """Server: raise `ReportRefused` if this report must not be aggregated."""
        ...

    def aggregate(self, state: Any, plan: PlanT, reports: Mapping[int, ReportT]) -> tuple[CommitT, Any]:
        """Server: one commit from the reports, taken in client order and never in arrival order."""
        ...

    @property
    def takes_late(self) -> bool:
        """Whether reports of earlier rounds may enter a commit: not where directions depend on the replica's state."""
        ...

    def with_late(self, plan: PlanT, commit: CommitT | None, share: float, late: Sequence[Overdue]) -> CommitT:
        """Server: the round's commit with late reports beside it; share: what the round's own reports weigh.

        commit: None if the round has no reports of its own.
        """
        ...

    def norm(self, report: ReportT) -> float:
        """The Euclidean norm of a report's values."""
        ...

    def apply(self, replica: Replica, commits: Sequence[CommitT]) -> None:
        """Every follower: fold commits, oldest first. Versions already held are skipped; a gap raises `CommitGap`."""
        ...

    def compact(self, commits: Sequence[CommitT]) -> Sequence[CommitT]:
        """What a follower that lags must receive of the commits that it missed."""
        ...

    def diagnostics(self, replica: Replica) -> dict[str, float]:
        """Figures about the algorithm's own fields that belong beside an evaluation."""
        ...

    def report_bytes(self, dimension: int) -> int:
        """Bytes that the vectors of a packed report take at most; 0 if it carries scalars only."""
        ...

    def count_scalars(self, body: Any) -> int:
        """How many scalars a report's packed body carries, whoever packed it; 0 for what is none."""
        ...

    def pack_plan(self, plan: PlanT) -> Packed: ...
    def unpack_plan(self, body: Any, round: int, version: int) -> PlanT: ...
    def pack_report(self, plan: PlanT, report: ReportT) -> Packed: ...
    def unpack_report(self, body: Any, plan: PlanT) -> ReportT: ...
    def pack_commits(self, commits: Sequence[CommitT]) -> Packed: ...
    def unpack_commits(self, body: Any) -> list[CommitT]: ...


def unseen(replica: Replica, commits: Sequence[CommitT]) -> Sequence[CommitT]:
    """Those commits that the replica has not folded yet; raises `CommitGap` if they do not follow on."""
    fresh, reached = [], replica.version
    for commit in commits:
        if commit.version > reached + 1:
            raise CommitGap(reached, commit.version)
        if commit.version == reached + 1:
            fresh.append(commit)
            reached += 1
    return fresh
