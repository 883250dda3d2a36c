"""The server's part of a round in the dense family: its state, and how many updates become one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from seedbus.algorithms.aggregation.rules import Aggregation, Mean
from seedbus.algorithms.aggregation.vectors import lengths
from seedbus.algorithms.contract import Overdue, ReportRefused, Vector
from seedbus.algorithms.dense.channels.contract import Channel
from seedbus.algorithms.dense.methods.method import Method, Server
from seedbus.algorithms.dense.payloads import DenseCommit, DensePlan, DenseReport
from seedbus.algorithms.numbers import ABSURD


class Combining(Protocol):
    """What a server needs of an algorithm to make one commit of many reports."""

    @property
    def methods(self) -> Sequence[Method]: ...
    @property
    def sent(self) -> Sequence[str]: ...
    @property
    def shared(self) -> Mapping[str, float]: ...
    @property
    def channel(self) -> Channel | None: ...
    @property
    def aggregation(self) -> Aggregation: ...
    @property
    def weighting(self) -> str: ...


@dataclass(slots=True)
class State:
    """What a server of the dense family keeps: the model x, what replicas hold beside it, what methods keep, and what
    the rule of aggregation remembers. Vectors are float32 [d]."""

    x: Vector
    shared: dict[str, Vector]
    own: dict[str, Vector]
    rule: Any

    def pack(self) -> list[Any]:
        named = [{name: raw(each[name]) for name in sorted(each)} for each in (self.shared, self.own)]
        return [raw(self.x), *named, self.rule]

    @staticmethod
    def unpack(packed: list[Any]) -> State:
        x, shared, own, rule = packed
        shared, own = ({name: _vector(stored) for name, stored in each.items()} for each in (shared, own))
        return State(_vector(x), shared, own, rule)


def committed(
    algorithm: Combining,
    state: list[Any],
    plan: DensePlan,
    reports: Mapping[int, DenseReport],
    *,
    share: float,
    late: Sequence[Overdue],
    members: int,
) -> tuple[DenseCommit, list[Any]]:
    """One commit from the reports, taken in the order of clients, and the state after it; as the contract has it."""
    before = State.unpack(state)
    update, rule = combined(algorithm, before.rule, reports, share, late, before.x.size)
    everyone = [each[client] for each in (reports, *(old.reports for old in late)) for client in sorted(each)]
    sent = {name: mean(everyone, 1 + number, before.x.size) for number, name in enumerate(algorithm.sent)}
    if algorithm.channel is not None:
        for number, heard in enumerate([update, *sent.values()]):
            norms = [float(report.norms[number]) for report in everyone]
            heard += algorithm.channel.noise(plan.seed, number, norms, before.x.size)
    server = Server(before.x, update, sent, before.shared, before.own, plan, len(everyone), members or len(everyone))
    ahead = _moved(algorithm, server)
    fields = (ahead.copy(), *(server.shared[name].copy() for name in algorithm.shared))
    commit = DenseCommit(plan.version + 1, plan.round, fields, None if ahead is server.x else server.x.copy())
    return commit, State(server.x, server.shared, server.state, rule).pack()


def _moved(algorithm: Combining, server: Server) -> Vector:
    """Move the model, let methods learn from that; returns what clients are sent in the place of the model."""
    with np.errstate(over="ignore", invalid="ignore"):
        if not any([method.move(server) for method in algorithm.methods]):
            server.x += server.update * np.float32(server.plan.server_learning_rate)
        for method in algorithm.methods:
            method.learn(server)
        ahead = server.x
        for method in algorithm.methods:
            ahead = method.ahead(ahead, server)
    return ahead


def combined(
    algorithm: Combining,
    rule: Any,
    reports: Mapping[int, DenseReport],
    share: float,
    late: Sequence[Overdue],
    dimension: int,
) -> tuple[Vector, Any]:
    """Σ ω_i Δ_i, float32 [d], summed in float64 in the order of clients; and what the rule remembers.

    late: updates of earlier rounds with weights of their own, beside the round's, which weigh `share` together.
    """
    total = np.zeros(dimension)
    clients = sorted(reports)
    if clients and not isinstance(algorithm.aggregation, Mean):
        one, rule = algorithm.aggregation.blend([reports[client].vectors[0] for client in clients], rule)
        total += share * one
    elif clients:
        by_samples = algorithm.weighting == "samples" and algorithm.channel is None
        weights = [reports[client].samples if by_samples else 1 for client in clients]
        for client, weight in zip(clients, weights, strict=True):
            total += share * weight / sum(weights) * reports[client].vectors[0].astype(np.float64)
    for overdue in late:
        for client in sorted(overdue.reports):
            total += overdue.weight * overdue.reports[client].vectors[0].astype(np.float64)
    return total.astype(np.float32), rule


def check(report: DenseReport, vectors: int, dimension: int) -> None:
    """Raise `ReportRefused` if it must not be aggregated."""
    if report.vectors.shape != (vectors, dimension):
        raise ReportRefused("shape", f"its vectors have shape {report.vectors.shape}, not {vectors} × {dimension}")
    if not np.isfinite(report.vectors).all():
        raise ReportRefused("not-finite", "it holds a number that is not finite")
    largest = float(np.abs(report.vectors).max())
    if largest > ABSURD:
        raise ReportRefused("absurd", f"it holds a magnitude of {largest:.3g}; at most {ABSURD:.0g} is accepted")
    if report.norms.size and not np.allclose(report.norms, lengths(list(report.vectors)), rtol=1e-5, atol=1e-30):
        raise ReportRefused("wrong-norm", "it says another norm than its vector has, and so would set the noise")


def mean(reports: Sequence[DenseReport], number: int, dimension: int) -> Vector:
    """The plain mean of the reports' vectors of that number, summed in their order; float32 [d], zeros without any."""
    total = np.zeros(dimension)
    for report in reports:
        total += report.vectors[number]
    return (total / max(1, len(reports))).astype(np.float32)


def raw(vector: Vector) -> bytes:
    """Little-endian float32."""
    return np.ascontiguousarray(vector, "<f4").tobytes()


def _vector(stored: bytes) -> Vector:
    return np.frombuffer(stored, "<f4").astype(np.float32)
