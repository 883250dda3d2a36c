"""Payloads of the dense family: whole vectors, as raw little-endian float32; `unpack_*` raise `BadPayload`.

    plan      [local steps, epochs, η]
    report    [samples, [vector, …], norms, numbers]    vectors in the codec's form; norms, one a vector, for a channel
                                                        only; numbers, for methods that report some
    commits   [[version, round, [x, companion, …], θ]]

A commit contains a whole replica, so only the newest is sent. θ is the model itself; it is empty where x is the model,
and only the journal and the evaluator are given it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from seedbus.algorithms.aggregation.vectors import norms
from seedbus.algorithms.contract import BadPayload, Packed, Vector
from seedbus.algorithms.dense.compression.contract import Compression
from seedbus.algorithms.dense.draws import derived
from seedbus.algorithms.dense.vectors import raw, read, rows
from seedbus.discovery import PluginError


@dataclass(frozen=True, slots=True)
class DensePlan:
    """What a participant is told about its round, and two values that only the server has.

    Attributes:
        round: the round's number.
        version: the version of the model that clients start from.
        steps: local steps; 0 where epochs are given.
        epochs: passes over a client's samples; 0 where local steps are given.
        learning_rate: η, a float32 value.
        server_learning_rate: η_g; not sent, so 0 at a client.
        seed: 64 bits for the server's draws in this round; not sent, so 0 at a client.
    """

    round: int
    version: int
    steps: int
    epochs: int
    learning_rate: float
    server_learning_rate: float = 0.0
    seed: int = 0


@dataclass(frozen=True, slots=True)
class DenseReport:
    """A client's report: V decoded vectors, its update first.

    Attributes:
        samples: number of training samples that the client holds.
        vectors: the decoded vectors, float32 [V, d].
        bodies: the V vectors as they travel, in the form of the codec.
        norms: the norm of each vector, float32 [V], where a channel needs it; otherwise [0].
        measured: the numbers that methods report beside the vectors, float32 [M].
    """

    samples: int
    vectors: Vector
    bodies: list[list[Any]]
    norms: Vector
    measured: Vector = field(default_factory=lambda: np.zeros(0, np.float32))


@dataclass(frozen=True, slots=True)
class DenseCommit:
    """One commit: the replica at its version.

    Attributes:
        version: the version of the replica.
        round: the round that made the commit.
        fields: the replica's fields in their order, float32 [d] each.
        model: θ, float32 [d], where that is not the x among the fields.
    """

    version: int
    round: int
    fields: tuple[Vector, ...]
    model: Vector | None = None


def pack_plan(plan: DensePlan) -> Packed:
    return Packed([plan.steps, plan.epochs, np.array([plan.learning_rate], "<f4").tobytes()])


def unpack_plan(body: Any, round: int, version: int) -> DensePlan:
    if not isinstance(body, list) or [type(part) for part in body] != [int, int, bytes]:
        raise BadPayload("a plan is not steps, epochs and a rate")
    steps, epochs, rate = body
    if not 0 < steps + epochs < 2**16 or min(steps, epochs):
        raise BadPayload(f"a plan of {steps} local steps and {epochs} epochs")
    if len(rate) != 4 or not np.isfinite(np.frombuffer(rate, "<f4")).all():
        raise BadPayload("a plan's rate is not one finite number")
    return DensePlan(round, version, steps, epochs, float(np.frombuffer(rate, "<f4")[0]))


def encode_report(
    codec: Compression,
    vectors: Sequence[Vector],
    measured: Sequence[float] | Vector,
    samples: int,
    key: int,
    *,
    has_norms: bool,
) -> DenseReport:
    """Return the report of some vectors, float32 [d] each, with the values that the server will decode.

    Args:
        codec: encodes and decodes the vectors.
        vectors: the update first.
        measured: the numbers that methods report beside the vectors.
        samples: number of training samples that the client holds.
        key: 64 bits for the codec's draws.
        has_norms: whether the report contains the norm of each vector.
    """
    bodies = [codec.encode(vector, derived(key, "codec", number)) for number, vector in enumerate(vectors)]
    for body in bodies:
        if not isinstance(body, list):
            raise PluginError(
                f"`encode` of the codec {type(codec).__name__} returned {type(body).__name__}; expected a list"
            )
    decoded = [codec.decode(body, vector.size) for vector, body in zip(vectors, bodies, strict=True)]
    with np.errstate(over="ignore", invalid="ignore"):
        decoded_norms = np.array(norms(decoded) if has_norms else [], np.float32)
        numbers = np.array(measured, np.float32)
    return DenseReport(samples, rows(decoded), bodies, decoded_norms, numbers)


def report_of(codec: Compression, samples: int, bodies: list[list[Any]], dimension: int) -> DenseReport:
    """Return the report of encoded vectors, without norms and numbers; raises `BadPayload`."""
    decoded = rows([codec.decode(each, dimension) for each in bodies])
    return DenseReport(samples, decoded, bodies, np.zeros(0, np.float32))


def pack_report(report: DenseReport, codec: Compression) -> Packed:
    count, dimension = report.vectors.shape
    numbers = [each for each in (report.norms, report.measured) if each.size]
    body = [report.samples, report.bodies, *map(raw, numbers)]
    return Packed(body, scalars=count * codec.scalars(dimension) + sum(each.size for each in numbers))


def unpack_report(
    body: Any, codec: Compression, vectors: int, measured: int, dimension: int, *, has_norms: bool
) -> DenseReport:
    """Return the report that `pack_report` packed.

    Args:
        body: what it returned.
        codec: decodes the vectors.
        vectors: number of vectors, V.
        measured: number of numbers beside them, M.
        dimension: number of coordinates of a vector, d.
        has_norms: whether the report contains the norm of each vector.
    """
    types = [int, list, *[bytes] * has_norms, *[bytes] * (measured > 0)]
    if not isinstance(body, list) or [type(part) for part in body] != types:
        raise BadPayload(
            "a report is not a number of samples, a list of vectors, norms where a channel needs them, and numbers "
            "where a method reports them"
        )
    samples, bodies = body[:2]
    if not 0 < samples < 2**32 or len(bodies) != vectors:
        raise BadPayload(f"a report of {samples} samples and {len(bodies)} vectors")
    sent_norms = read(body[2], vectors) if has_norms else np.zeros(0, np.float32)
    numbers = read(body[-1], measured) if measured else np.zeros(0, np.float32)
    return DenseReport(samples, rows([codec.decode(each, dimension) for each in bodies]), bodies, sent_norms, numbers)


def pack_commits(commits: Sequence[DenseCommit], *, with_model: bool) -> Packed:
    body = [
        [
            commit.version,
            commit.round,
            [raw(field) for field in commit.fields],
            raw(commit.model) if with_model and commit.model is not None else b"",
        ]
        for commit in commits
    ]
    return Packed(body, scalars=sum(field.size for commit in commits for field in commit.fields))


def unpack_commits(body: Any, fields: int, dimension: int) -> list[DenseCommit]:
    if not isinstance(body, list):
        raise BadPayload("commits are not a list")
    return [_unpack_commit(each, fields, dimension) for each in body]


def _unpack_commit(body: Any, fields: int, dimension: int) -> DenseCommit:
    types = [int, int, list]
    if not isinstance(body, list) or len(body) != 4 or [type(part) for part in body[:3]] != types:
        raise BadPayload("a commit is not a version, a round, fields and a model")
    version, round, vectors, model = body
    if not 0 < version < 2**32 or not 0 <= round < 2**32 or len(vectors) != fields:
        raise BadPayload(f"a commit of version {version} with {len(vectors)} fields; there are {fields}")
    fields_read = tuple(read(vector, dimension) for vector in vectors)  # each a byte string, or several if it is long
    return DenseCommit(version, round, fields_read, None if model == b"" else read(model, dimension))
