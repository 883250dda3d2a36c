"""How the dense family looks on the wire: whole vectors, raw little-endian float32, every length checked on the way in.

    plan      [local steps, epochs, η]
    report    [samples, [vector, …], norms]    each as its compression makes it; norms, one a vector, for a channel only
    peak      [norms]                          the largest of each number of vector, for a channel only
    commits   [[version, round, [x, companion, …], θ]]

A commit is all that a replica is, so only the newest travels. θ, where it is not x, is for the journal and the
evaluator alone; elsewhere it is empty.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from seedbus.algorithms.aggregation.vectors import lengths
from seedbus.algorithms.contract import BadPayload, Packed, Vector
from seedbus.algorithms.dense.compression.contract import Compression
from seedbus.algorithms.dense.draws import derived


@dataclass(frozen=True, slots=True)
class DensePlan:
    """What a participant is told, but for the last two, which are the server's own; there the client's are 0.

    Rates are float32 values; of local steps and epochs one is 0. seed: 64 bits for what the server draws in this round.
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
    """samples: how many the client holds; vectors: float32 [V, d], its update first; bodies: these as they travel.

    norms: of each vector, float32 [V], where a channel needs them, else none.
    """

    samples: int
    vectors: Vector
    bodies: list[list[Any]]
    norms: Vector


@dataclass(frozen=True, slots=True)
class DenseCommit:
    """fields: a replica's, float32 [d] each, in their order; model: θ, where that is not the x that is sent."""

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


def said(codec: Compression, vectors: Sequence[Vector], samples: int, key: int, *, has_norms: bool) -> DenseReport:
    """A report as the server will read it. key: 64 bits, for what its codec draws."""
    bodies = [codec.encode(vector, derived(key, "codec", number)) for number, vector in enumerate(vectors)]
    decoded = [codec.decode(body, vector.size) for vector, body in zip(vectors, bodies, strict=True)]
    with np.errstate(over="ignore", invalid="ignore"):
        norms = np.array(lengths(decoded) if has_norms else [], np.float32)
    return DenseReport(samples, np.stack(decoded), bodies, norms)


def pack_report(report: DenseReport, codec: Compression) -> Packed:
    count, dimension = report.vectors.shape
    norms = [_raw(report.norms)] if report.norms.size else []
    body = [report.samples, report.bodies, *norms]
    return Packed(body, scalars=count * codec.scalars(dimension) + report.norms.size)


def unpack_report(body: Any, codec: Compression, vectors: int, dimension: int, *, has_norms: bool) -> DenseReport:
    types = [int, list, *[bytes] * has_norms]
    if not isinstance(body, list) or [type(part) for part in body] != types:
        raise BadPayload("a report is not a number of samples, vectors, and their norms if they are due")
    samples, bodies = body[:2]
    if not 0 < samples < 2**32 or len(bodies) != vectors:
        raise BadPayload(f"a report of {samples} samples and {len(bodies)} vectors")
    norms = _read(body[2], vectors) if has_norms else np.zeros(0, np.float32)
    return DenseReport(samples, np.stack([codec.decode(each, dimension) for each in bodies]), bodies, norms)


def pack_peak(norms: Sequence[Vector]) -> Packed:
    """norms: [V] of each report, of which there is one at least."""
    largest = np.max(norms, axis=0)
    return Packed([_raw(largest)], scalars=largest.size)


def pack_commits(commits: Sequence[DenseCommit], *, with_model: bool) -> Packed:
    body = [
        [
            commit.version,
            commit.round,
            [_raw(field) for field in commit.fields],
            _raw(commit.model) if with_model and commit.model is not None else b"",
        ]
        for commit in commits
    ]
    return Packed(body, scalars=sum(field.size for commit in commits for field in commit.fields))


def unpack_commits(body: Any, fields: int, dimension: int) -> list[DenseCommit]:
    if not isinstance(body, list):
        raise BadPayload("commits are not a list")
    return [_unpack_commit(each, fields, dimension) for each in body]


def _unpack_commit(body: Any, fields: int, dimension: int) -> DenseCommit:
    if not isinstance(body, list) or [type(part) for part in body] != [int, int, list, bytes]:
        raise BadPayload("a commit is not a version, a round, fields and a model")
    version, round, vectors, model = body
    if not 0 < version < 2**32 or not 0 <= round < 2**32 or len(vectors) != fields:
        raise BadPayload(f"a commit of version {version} with {len(vectors)} fields; there are {fields}")
    read = tuple(_read(vector, dimension) for vector in vectors)
    return DenseCommit(version, round, read, _read(model, dimension) if model else None)


def _raw(vector: Vector) -> bytes:
    return np.ascontiguousarray(vector, "<f4").tobytes()


def _read(raw: Any, dimension: int) -> Vector:
    if not isinstance(raw, bytes) or len(raw) != 4 * dimension:
        raise BadPayload(f"a field that is not {4 * dimension} bytes")
    return np.frombuffer(raw, "<f4").astype(np.float32)
