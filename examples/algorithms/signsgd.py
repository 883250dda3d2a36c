from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
from pydantic import Field

from seedbus.plugin import (
    BadPayload,
    BaseAlgorithm,
    Declined,
    Mean,
    Packed,
    Replica,
    ReportRefused,
    Sizes,
    Vector,
    Work,
    commits_after,
)


class Plan(NamedTuple):
    round: int
    version: int


class Commit(NamedTuple):
    version: int
    round: int
    signs: bytes  # the majority's, a bit a coordinate


class SignSGD(BaseAlgorithm):
    """signSGD with majority vote (arXiv:1810.05291): a bit a coordinate up, and the majority's down."""

    name: Literal["signsgd"] = "signsgd"
    learning_rate: float = Field(default=0.003, gt=0, lt=1, description="η, the step of every coordinate")
    aggregation: ClassVar[Mean] = Mean()  # all votes are equal

    def plan(self, round: int, version: int, seed: int, state: Any = None) -> Plan:
        return Plan(round, version)

    # -- the client

    def work(self, round: int) -> Work:
        return Work(evaluations=3)  # a gradient counts as three

    def local(self, replica: Replica, memory: Any, plan: Plan, objective: Any) -> tuple[Vector, None]:
        objective.point[:] = replica.x
        gradient = np.asarray(objective.gradient(0))
        if not np.isfinite(gradient).all():
            raise Declined("overflow", "its gradient is not finite")
        return np.where(gradient > 0, -1, 1).astype(np.float32), None

    def trained(self, replica: Replica, memory: Any, plan: Plan, objective: Any) -> Vector:
        signs, _ = self.local(replica, memory, plan, objective)
        return replica.x + np.float32(self.learning_rate) * signs

    # -- the server

    def check(self, plan: Plan, report: Vector) -> None:
        if report.shape != (self._dimension,):
            raise ReportRefused("shape", f"it has shape {report.shape}; expected ({self._dimension},)")

    def values(self, report: Vector) -> Vector:
        return report

    def with_values(self, report: Vector, values: Vector) -> Vector:
        return np.where(values > 0, 1, -1).astype(np.float32)

    def aggregate(self, state: Any, plan: Plan, reports: Mapping[int, Vector], **_: Any) -> tuple[Commit, None]:
        votes = sum(reports[client] for client in sorted(reports))
        return Commit(plan.version + 1, plan.round, packed(votes)), None

    # -- every follower

    def apply(self, replica: Replica, commits: Sequence[Commit]) -> None:
        for commit in commits_after(replica.version, commits):
            x = replica.fields["x"]
            x += np.float32(self.learning_rate) * unpacked(commit.signs, x.size)
            replica.version = commit.version

    # -- the wire

    def sizes(self, dimension: int, clients: int) -> Sizes:
        report = -(-dimension // 8) + 8  # with msgpack's framing
        return Sizes(report, report + 16)  # a commit has two numbers, too

    def pack_plan(self, plan: Plan) -> Packed:
        return Packed([])

    def unpack_plan(self, body: Any, round: int, version: int) -> Plan:
        if body != []:
            raise BadPayload("a plan is not empty")
        return Plan(round, version)

    def pack_report(self, plan: Plan, report: Vector) -> Packed:
        return Packed([packed(report)])

    def unpack_report(self, body: Any, plan: Plan) -> Vector:
        if not (isinstance(body, list) and len(body) == 1):
            raise BadPayload("a report is not one vector")
        return unpacked(body[0], self._dimension)

    def pack_commits(self, commits: Sequence[Commit], *, whole: bool = False) -> Packed:
        return Packed([list(commit) for commit in commits])

    def unpack_commits(self, body: Any) -> list[Commit]:
        if not (isinstance(body, list) and all(isinstance(each, list) and len(each) == 3 for each in body)):
            raise BadPayload("commits are not lists of three")
        for version, round, signs in body:
            if not (type(version) is type(round) is int and version > 0 and round >= 0):
                raise BadPayload("a commit has no version or no round")
            unpacked(signs, self._dimension)
        return [Commit(*each) for each in body]


def packed(votes: Vector) -> bytes:
    return np.packbits(votes >= 0).tobytes()  # a tied vote counts as a step up


def unpacked(signs: Any, dimension: int) -> Vector:
    if not (isinstance(signs, bytes) and len(signs) == -(-dimension // 8)):
        raise BadPayload(f"signs are not {-(-dimension // 8)} bytes")
    return 2 * np.unpackbits(np.frombuffer(signs, np.uint8), count=dimension).astype(np.float32) - 1
