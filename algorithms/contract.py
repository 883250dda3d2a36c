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
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, Self, TypeVar

import numpy as np

from seedbus.algorithms.objective import Objective
from seedbus.algorithms.objective import Vector as Vector


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
DIGEST_BYTES = 8  # of each field of a replica


class Declined(Exception):
    """A client does not report: what it found cannot be sent. `reason` is one of `DECLINES`."""

    def __init__(self, reason: str, detail: str) -> None:
        if reason not in DECLINES:
            raise ValueError(f"{reason!r} is no reason to decline; {', '.join(sorted(DECLINES))} is accepted")
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
        """`DIGEST_BYTES` a field, of the field's little-endian bytes: tells not only that replicas differ but where."""
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
    return hashlib.blake2b(little.data, digest_size=DIGEST_BYTES).digest()


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


class Payloads(Protocol[PlanT, ReportT, CommitT]):
    """How an algorithm's plans, reports and commits travel: what they are packed to, and read from.

    `unpack_*` raise `BadPayload` for whatever is not what the counterpart packs.
    """

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
    def pack_commits(self, commits: Sequence[CommitT]) -> Packed:
        """What a client that missed these commits is sent."""
        ...

    def pack_log(self, commits: Sequence[CommitT]) -> Packed:
        """All of these commits, for the journal and the evaluator; `unpack_commits` reads both."""
        ...

    def unpack_commits(self, body: Any) -> list[CommitT]: ...


class Algorithm(Payloads[PlanT, ReportT, CommitT], Protocol[PlanT, ReportT, CommitT]):
    """The contract. State is the server's own, memory a client's own; both start as None and are opaque to agents.

    State travels in the checkpoint, durable together with the commit that it goes with: it is plain msgpack data, None,
    numbers, bytes and lists of these.
    """

    @property
    def name(self) -> str: ...

    @property
    def label(self) -> str:
        """The name, and those of the methods that are added to it."""
        ...

    @property
    def most_clients(self) -> int | None:
        """How many clients a run may have at most; None: any number."""
        ...

    @property
    def aggregation(self) -> Any:
        """The rule by which many reports become one, with its name as `rule`."""
        ...

    @property
    def fewest_reports(self) -> int:
        """The lowest quorum of a scenario: what the rule of aggregation needs to keep its promise."""
        ...

    def caveats(self) -> list[str]:
        """What a person should know of these settings, a sentence each."""
        ...

    def sized(self, dimension: int) -> Self:
        """The same for models of `dimension` coordinates: what a run uses."""
        ...

    @property
    def needs_outputs(self) -> bool:
        """Whether `local` looks at what a network says, and not only at losses and gradients."""
        ...

    def replica(self, x0: Vector) -> Replica:
        """Version 0: a copy of x₀ and the algorithm's own fields at their initial values."""
        ...

    def plan(self, round: int, version: int, seed: int) -> PlanT:
        """Server: what the cohort of `round` is told. seed: 64 bits that key this round's directions."""
        ...

    def reachable(self, plan: PlanT, cohort: Sequence[int]) -> list[int]:
        """Server: those of a cohort that are asked; the others' channel is too bad. There may be nobody."""
        ...

    def evaluations(self, round: int) -> int:
        """How many times a participant of `round` evaluates f, so that compute time can be modelled."""
        ...

    @property
    def knows_evaluations(self) -> bool:
        """Whether `evaluations` is a count: how many steps an epoch has, the clients alone know."""
        ...

    def scalars(self, round: int) -> int:
        """How many gradient scalars a report of `round` holds: K·P; 0 where it holds vectors."""
        ...

    def local(self, replica: Replica, memory: Any, plan: PlanT, objective: Objective) -> tuple[ReportT, Any]:
        """Client: the local steps of one round. The replica is left untouched. Raises `Declined`."""
        ...

    def check(self, plan: PlanT, report: ReportT) -> None:
        """Server: raise `ReportRefused` if this report must not be aggregated."""
        ...

    def first_state(self, x0: Callable[[], Vector]) -> Any:
        """Server: the state before the first commit. x0: makes x₀, for those that need it."""
        ...

    def aggregate(
        self,
        state: Any,
        plan: PlanT,
        reports: Mapping[int, ReportT],
        *,
        share: float = 1.0,
        late: Sequence[Overdue] = (),
        members: int = 0,
    ) -> tuple[CommitT, Any]:
        """Server: one commit from the reports, taken in client order and never in arrival order.

        late: reports of earlier rounds that count too, and share: what the round's own, of which there may be none,
        weigh beside them. members: of how many clients the cohort was drawn.
        """
        ...

    def max_norm(self, plan: PlanT, reports: Mapping[int, ReportT]) -> Packed | None:
        """Server: what the cohort is told of the reports that make a commit, all together; None: nothing."""
        ...

    @property
    def takes_late(self) -> bool:
        """Whether reports of earlier rounds may enter a commit: not where directions depend on the replica's state."""
        ...

    def values(self, report: ReportT) -> Vector:
        """The values of a report, of any shape."""
        ...

    def with_values(self, report: ReportT, numbers: Vector) -> ReportT:
        """The report with other values in the place of its own, of the same shape."""
        ...

    def apply(self, replica: Replica, commits: Sequence[CommitT]) -> None:
        """Every follower: fold commits, oldest first. Versions already held are skipped; a gap raises `CommitGap`."""
        ...

    @property
    def is_dense(self) -> bool:
        """Whether a commit is all that a replica is: then only the newest matters, and none follows on another."""
        ...

    def pending(self, version: int, commits: Sequence[CommitT]) -> Sequence[CommitT]:
        """Those commits that a replica at `version` has to fold. Raises `CommitGap` if they do not lead on from it."""
        ...

    def evaluation_point(self, replica: Replica, newest: CommitT | None) -> Vector:
        """Where the model is to be measured, [d]. newest: the commit that the replica folded last."""
        ...

    def diagnostics(self, replica: Replica) -> dict[str, float]:
        """Figures about the algorithm's own fields that belong beside an evaluation."""
        ...


def inner(first: Vector, second: Vector) -> float:
    """⟨first, second⟩ of two vectors [d], products and sums in float64.

    NumPy adds in one order everywhere; np.dot would leave that to BLAS, which has another for each kind of processor.
    """
    return float(np.multiply(first, second, dtype=np.float64).sum())


def norm(numbers: Vector) -> float:
    """The Euclidean norm of a vector [d], the same to the bit on every processor."""
    return math.sqrt(inner(numbers, numbers))


def unseen(version: int, commits: Sequence[CommitT]) -> Sequence[CommitT]:
    """Of commits that follow each other those after `version`; raises `CommitGap` if they do not follow on."""
    fresh, reached = [], version
    for commit in commits:
        if commit.version > reached + 1:
            raise CommitGap(reached, commit.version)
        if commit.version == reached + 1:
            fresh.append(commit)
            reached += 1
    return fresh
