"""The contract of an algorithm: a replicated state machine whose transitions are the server's commits.

The server appends commits to a log. Every follower (client, evaluator, auditor) holds a `Replica` and folds the
commits that it missed into it with `apply`. Nothing else ever changes a replica. So at version v all replicas hold the
same bits, whichever process holds them, and in however many calls they were folded.

    round     an attempt; it keys the directions and the cohort
    version   the number of commits folded; a round without quorum makes no commit
    plan      instructions for a participant       server → client
    report    a participant's result               client → server
    commit    the update that every replica folds  server → all

An algorithm is one file (in `scalar_only` or `dense/methods`): a frozen pydantic model. Its fields are its
hyperparameters, which a scenario sets, and its `name` is its name in scenarios. This module imports no framework, so a
server needs no torch.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, Self, cast

import numpy as np
from numpy.typing import NDArray

from seedbus.algorithms.capabilities import Facts
from seedbus.algorithms.objective import Objective
from seedbus.vector import Vector as Vector


class CommitGap(ValueError):
    """A commit does not follow the version of the replica that should fold it.

    Attributes:
        version: the version of the replica.
        offered: the version of the commit; of a sum of commits, that of its first.
    """

    def __init__(self, version: int, offered: int) -> None:
        if offered > version:
            why = f"commit {offered}: commit {version + 1} is missing"
        else:
            why = f"a sum of commits from {offered} on: it holds some of them already"
        super().__init__(f"a replica at version {version} cannot fold {why}")
        self.version = version
        self.offered = offered


class ReportRefused(ValueError):
    """A report must not enter the model.

    Attributes:
        reason: one word, under which the refusal is counted. If it is one of `agents.refusals.Reason` that is marked as
            a bad answer, as "absurd" is, the round does not wait for another answer of that client.
    """

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(detail)
        self.reason = reason


Shapes = Sequence[tuple[int, ...]]
"""The shapes of a network's trained parameters, in the order of their coordinates."""

DECLINES = frozenset({"overflow", "no-masks"})
"""The reasons for which a client may decline to report."""

DIGEST_BYTES = 8
"""Bytes of the digest of one field of a replica."""


class Declined(Exception):
    """A client does not report, because its result cannot be sent.

    Attributes:
        reason: one of `DECLINES`.
    """

    def __init__(self, reason: str, detail: str) -> None:
        if reason not in DECLINES:
            raise ValueError(f"{reason!r} is no reason to decline; accepted: {', '.join(sorted(DECLINES))}")
        super().__init__(detail)
        self.reason = reason


class BadPayload(ValueError):
    """A payload has a shape, a type or a size that its kind of message does not allow."""


@dataclass(slots=True)
class Replica:
    """One follower's copy of the model at one version: x and the algorithm's other fields.

    Attributes:
        version: number of commits folded.
        fields: name → vector [d]; always "x"; HiSo adds "hessian", momentum adds "momentum". Fields are float32, but
            x is int64 with `arithmetic: integer`, sums, and int16 with `arithmetic: bfloat16`, bits; the algorithm's
            `point` makes coordinates from it.
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

    def placed(self, place: Callable[[Vector], Vector]) -> Replica:
        """Return it with its fields where `place` moves them."""
        return Replica(self.version, {name: place(field) for name, field in self.fields.items()})

    def digests(self) -> dict[str, bytes]:
        """Return one digest per field, `DIGEST_BYTES` long, of the field's little-endian bytes.

        Comparing them shows in which fields two replicas differ.
        """
        return {name: _digest(field) for name, field in sorted(self.fields.items())}

    def digest(self) -> str:
        """Return one hexadecimal digest of the version and every field."""
        return whole_digest(self.version, self.digests())


def whole_digest(version: int, digests: Mapping[str, bytes]) -> str:
    """Return one hexadecimal digest of a version and the digests of its fields."""
    whole = hashlib.blake2b(str(version).encode(), digest_size=16)
    for name, part in sorted(digests.items()):
        whole.update(name.encode() + b"\0" + part)
    return whole.hexdigest()


def _digest(field: Vector) -> bytes:
    little = np.ascontiguousarray(field, dtype=field.dtype.newbyteorder("<"))
    return hashlib.blake2b(little.data, digest_size=DIGEST_BYTES).digest()


class Packed(NamedTuple):
    """A payload ready for the wire, and its size in the papers' units.

    Attributes:
        body: what the codec encodes.
        scalars: number of scalars in it.
        seeds: number of seeds in it: 1 in a plan, and as many in commits as folding takes the time of one, so one for
            each or more; of commits that hold whole replicas 0. Without them, replaying takes no simulated time.
    """

    body: list[Any]
    scalars: int = 0
    seeds: int = 0


class Sizes(NamedTuple):
    """How many bytes the vectors of an algorithm take; 0 where it has none.

    Attributes:
        report: at most, in a packed report.
        message: at most, in one message, a report or a commit.
        state: about, in the server's state.
        string: at most, in one byte string of a message; 0 also where a long vector is several.
    """

    report: int = 0
    message: int = 0
    state: int = 0
    string: int = 0


class Work(NamedTuple):
    """What a participant of a round does.

    Attributes:
        evaluations: how often it evaluates f, where a gradient counts as three; the simulated compute time depends on
            it.
        scalars: how many scalars its report holds: K·P gradient scalars, or those of vectors.
    """

    evaluations: int
    scalars: int = 0


class LateReports(NamedTuple):
    """Late reports of one earlier round.

    Attributes:
        plan: the plan of the earlier round.
        reports: client → report.
        weight: weight of each report, s(τ)/|C_r|.
    """

    plan: Any
    reports: Mapping[int, Any]
    weight: float


class Total(NamedTuple):
    """The sum of a round's reports in the place of these, of an algorithm whose facts say `adds_up`, by `mean`.

    Such an algorithm has two methods more, `numbers` and `of_numbers`, as `Sums` has them.

    Attributes:
        numbers: the sum of their numbers, int64, in the shape of one report's.
        divisor: how many there are, or what the sum is divided by in the place of that.
    """

    numbers: NDArray[np.int64]
    divisor: int


Plan = Any
Report = Any
Reports = Any  # client → report, or with some facts a `Total`, or None: see `Server.aggregate`
Commit = Any  # with the attributes `version` and `round`, which the log uses, and `base` if it may be a sum of commits


class Payloads(Protocol):
    """What travels: the wire format of plans, reports and commits.

    Each `unpack_*` raises `BadPayload` for a body that its `pack_*` cannot have made.
    """

    def sizes(self, dimension: int, clients: int) -> Sizes:
        """Return how many bytes vectors take in messages and at the server, in a run of so many clients."""
        ...

    def pack_plan(self, plan: Plan) -> Packed: ...
    def unpack_plan(self, body: Any, round: int, version: int) -> Plan: ...
    def pack_report(self, plan: Plan, report: Report) -> Packed: ...
    def read_reports(self, bodies: Sequence[Any], plan: Plan) -> list[Report | BadPayload | ReportRefused]:
        """Return for each packed report what may be aggregated, or why nothing of it may, whatever the bodies are."""
        ...

    def pack_commits(self, commits: Sequence[Commit], *, whole: bool = False) -> Packed:
        """Pack the commits that a client missed; with `whole` every one of them, for the journal and the evaluator."""
        ...

    def unpack_commits(self, body: Any) -> list[Commit]: ...
    def values(self, report: Report) -> Vector:
        """Return the values of a report, an array of any shape."""
        ...

    def with_values(self, report: Report, values: Vector) -> Report:
        """Return the report with other values in place of its own, of the same shape."""
        ...


class Follower(Protocol):
    """What every follower does: it holds a replica, and folds commits into it. A client works on it besides.

    A client's memory starts as None, and agents treat it as opaque. It is plain msgpack data: None, numbers, texts,
    bytes, and lists and mappings of these.
    """

    def replica(self, x0: Vector) -> Replica:
        """Return version 0: a copy of x₀, and the algorithm's own fields at their initial values."""
        ...

    def apply(self, replica: Replica, commits: Sequence[Commit]) -> None:
        """Fold commits into the replica, oldest first; skip those that it already contains.

        Raises:
            CommitGap: a version is missing.
        """
        ...

    def point(self, replica: Replica, newest: Commit | None = None) -> Vector:
        """Return the coordinates of a replica's model, float32 [d]; not to be written to.

        Args:
            replica: the replica, or a span of all its fields.
            newest: the commit that the replica folded last, to evaluate the model that this commit may hold beside what
                clients start from; None: what clients start from.
        """
        ...

    def diagnostics(self, replica: Replica) -> dict[str, float]:
        """Return statistics of the algorithm's own fields, by name, to be recorded with an evaluation."""
        ...

    def work(self, round: int) -> Work:
        """Return what a participant of `round` does."""
        ...

    def local_together(
        self, replica: Replica, memories: Sequence[Any], plan: Plan, objectives: Sequence[Objective]
    ) -> list[tuple[Report, Any] | Declined]:
        """Run the local steps of one round; return each client's report and its new memory, or why it declines.

        The replica is not changed, and what a client reports depends on no other client.

        Args:
            replica: the replica of all these clients.
            memories: each client's memory.
            plan: the plan of all these clients.
            objectives: each client's objective; they belong to one problem, so they share one point.
        """
        ...

    def check_memory(self, memory: Any) -> None:
        """Raise `BadPayload` for a memory, not None, that `local_together` cannot have returned."""
        ...


class Server(Protocol):
    """What the server does: it plans rounds, and makes one commit of each round's reports.

    Its state starts as `first_state`, and agents treat it as opaque. The checkpoint holds the state, and becomes
    durable together with the commit that produced it. So it is plain msgpack data: None, numbers, bytes, and lists of
    these.
    """

    def plan(self, round: int, version: int, seed: int, state: Any = None) -> Plan:
        """Return the plan for the cohort of a round.

        Args:
            round: the round's number.
            version: the version that the cohort starts from.
            seed: 64 bits that key the directions of this round.
            state: the server's, of which it may tell the cohort; None: it is not known, and plans tell nothing of it.
        """
        ...

    def first_state(self, x0: Callable[[], Vector]) -> Any:
        """Return the state before the first commit.

        Args:
            x0: makes x₀ [d]; called only by algorithms whose state holds it.
        """
        ...

    def check_state(self, state: Any) -> None:
        """Raise `BadPayload` for a state that neither `first_state` nor `aggregate` can have returned.

        A run goes on from what it kept in files, which anybody can write.
        """
        ...

    def aggregate(
        self,
        state: Any,
        plan: Plan,
        reports: Reports,
        *,
        share: float = 1.0,
        late: Sequence[LateReports] = (),
        members: int = 0,
    ) -> tuple[Commit, Any]:
        """Return one commit made from the reports, and the new state.

        Reports are taken in the order of clients, never in the order of arrival.

        Args:
            state: the state after the previous commit.
            plan: the plan of this round.
            reports: client → report of this round; may be empty if there are late reports. If the facts say `adds_up`,
                also their sum, of which the rule `mean` makes the same commit, to the bit. If they say `is_order_free`,
                also None: the round goes on, and each of the late reports counts alone, as a function of the report,
                its own plan and its weight. So any order and any grouping of these into commits lead to the same model.
            share: weight of this round's own reports, all together, when late reports are aggregated too.
            late: reports of earlier rounds to aggregate too.
            members: number of clients from which the cohort was drawn.

        Raises:
            OverflowError: the model would leave the range of its numbers.
        """
        ...


class Algorithm(Follower, Server, Payloads, Protocol):
    """The contract of an algorithm: what every follower does, what the server does, and what travels between them.

    Agents treat plans, reports and commits as opaque.
    """

    @property
    def facts(self) -> Facts:
        """What holds of the algorithm with its settings."""
        ...

    def sized(self, dimension: int, shapes: Shapes = ()) -> Self:
        """Return this algorithm for models of `dimension` coordinates. A run uses only the result.

        Args:
            dimension: d.
            shapes: those of the network's trained parameters. Only followers have them, and only of an algorithm whose
                facts say `needs_layers`: the server plans and aggregates without.
        """
        ...


class Sums(Protocol):
    """What travels, besides, of an algorithm whose facts say `adds_up`: reports of whole numbers.

    Secure aggregation (agents/secure) masks them, so that their server learns the sum and nothing else, and
    differential privacy (agents/privacy) clips them and adds noise to their sum.
    """

    def numbers(self, report: Report) -> NDArray[np.int32]:
        """Return the numbers of a report, of any shape. Raises `Declined` if it has none, since it is not finite."""
        ...

    def of_numbers(self, plan: Plan, numbers: NDArray[np.int32] | int) -> Report:
        """Return the report with these numbers, or with one number everywhere, and with nothing else of its client."""
        ...


def local(algorithm: Algorithm, replica: Replica, memory: Any, plan: Plan, objective: Objective) -> tuple[Report, Any]:
    """Return the report of a client that works alone, and its new memory. Raises `Declined`."""
    (outcome,) = algorithm.local_together(replica, [memory], plan, [objective])
    if isinstance(outcome, Declined):
        raise outcome
    return outcome


def sums(algorithm: Algorithm) -> Sums:
    """Return an algorithm as one whose facts say that its reports add up; a scenario asks for sums only of such."""
    return cast("Sums", algorithm)


def pending(facts: Facts, version: int, commits: Sequence[Commit]) -> Sequence[Commit]:
    """Return those of an algorithm's commits that a replica at `version` has to fold. Raises `CommitGap`."""
    if facts.is_dense:
        return newest_after(version, commits)
    return commits_after(version, commits, are_sums=facts.most_catch_up_bytes is not None)


def newest_after(version: int, commits: Sequence[Commit]) -> Sequence[Commit]:
    """Return the newest of commits that hold the whole replica, if it is newer than `version`."""
    newest = max(commits, key=lambda commit: commit.version, default=None)
    return [] if newest is None or newest.version <= version else [newest]


def commits_after(version: int, commits: Sequence[Commit], *, are_sums: bool = False) -> Sequence[Commit]:
    """Return the commits after `version`, of commits in ascending order.

    Args:
        version: the version of a replica.
        commits: those that it may fold.
        are_sums: whether one may be the sum of several, those after the version `base`; it is folded whole.

    Raises:
        CommitGap: a version is missing.
    """
    newer = []
    for commit in commits:
        if commit.version <= version:
            continue
        base = commit.base if are_sums else commit.version - 1
        if base != version:
            raise CommitGap(version, base + 1)
        newer.append(commit)
        version = commit.version
    return newer
