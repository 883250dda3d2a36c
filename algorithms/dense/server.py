"""The server's part of a round in the dense family: its state, and how reports become one commit."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from seedbus.algorithms.aggregation.rules import Aggregation, Mean, Rule, checked
from seedbus.algorithms.aggregation.vectors import norms
from seedbus.algorithms.contract import BadPayload, LateReports, ReportRefused, Vector
from seedbus.algorithms.dense.channels.contract import Channel
from seedbus.algorithms.dense.methods.method import Method, Reported, Server
from seedbus.algorithms.dense.payloads import DenseCommit, DensePlan, DenseReport
from seedbus.algorithms.dense.vectors import Raw, kept, raw, weighted_sum
from seedbus.algorithms.numbers import ABSURD
from seedbus.discovery import PluginError, check_shape


class Aggregating(Protocol):
    """The part of an algorithm that the server needs to make one commit from many reports."""

    @property
    def methods(self) -> Sequence[Method]: ...
    @property
    def sent(self) -> Sequence[str]: ...
    @property
    def measured(self) -> Sequence[str]: ...
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
    """The state of the server between commits.

    Attributes:
        x: the model, float32 [d].
        shared: the vectors that replicas hold beside x, by name, float32 [d].
        own: the vectors that methods keep at the server, by name, float32 [d].
        rule: the state of the aggregation rule; None or plain data.
    """

    x: Vector
    shared: dict[str, Vector]
    own: dict[str, Vector]
    rule: Any

    def pack(self) -> list[Any]:
        """Return the state as plain data for the checkpoint; vectors as little-endian float32."""
        named = [{name: raw(each[name]) for name in sorted(each)} for each in (self.shared, self.own)]
        return [raw(self.x), *named, self.rule]

    @staticmethod
    def unpack(packed: list[Any]) -> State:
        """Return the state that `pack` packed."""
        x, shared, own, rule = packed
        shared, own = ({name: _vector(stored) for name, stored in each.items()} for each in (shared, own))
        return State(_vector(x), shared, own, rule)

    @staticmethod
    def check(packed: Any, shared: Iterable[str], rule: Rule, dimension: int) -> None:
        """Raise `BadPayload` for what `pack` cannot have made of a state.

        Args:
            packed: the state as plain data.
            shared: names of the vectors that replicas hold beside x.
            rule: the aggregation rule.
            dimension: number of coordinates, d.
        """
        if not (isinstance(packed, list) and len(packed) == 4):
            raise BadPayload("the state is not [x, shared vectors, own vectors, that of the rule]")
        check_vectors({"x": packed[0]}, dimension)
        for vectors in packed[1:3]:
            check_vectors(vectors, dimension)
        if packed[1].keys() != set(shared):
            raise BadPayload(f"the shared vectors of the state are not {', '.join(sorted(shared)) or 'none'}")
        rule.check_state(packed[3])


def aggregate(
    algorithm: Aggregating,
    state: list[Any],
    plan: DensePlan,
    reports: Mapping[int, DenseReport],
    *,
    share: float,
    late: Sequence[LateReports],
    members: int,
) -> tuple[DenseCommit, list[Any]]:
    """Make one commit from the reports, taken in the order of clients; return it and the state after it.

    Args:
        algorithm: its methods, aggregation rule, weighting and channel.
        state: the packed `State` before the commit.
        plan: the round's plan, as the server has it.
        reports: the round's reports, by client.
        share: total weight of the round's own reports.
        late: reports of earlier rounds, with their weights.
        members: number of clients that the cohort was drawn from; 0: as many as there are reports.
    """
    before = State.unpack(state)
    all_reports = [each[client] for each in (reports, *(old.reports for old in late)) for client in sorted(each)]
    weights = weights_of(algorithm, reports, share, late)
    update, rule = combine_updates(algorithm, before.rule, all_reports, weights, len(reports), share, before.x.size)
    sent = {name: mean(all_reports, 1 + number, before.x.size) for number, name in enumerate(algorithm.sent)}
    count = len(all_reports)
    if algorithm.channel is not None:
        for number, received in enumerate([update, *sent.values()]):
            sent_norms = [float(report.norms[number]) for report in all_reports]
            noise = algorithm.channel.noise(plan.seed, number, sent_norms, before.x.size)
            check_shape(noise, before.x.shape, f"`noise` of the channel {algorithm.channel.kind}")
            received += noise
    counts_once = share == 1 and not late and len(set(weights)) <= 1
    is_robust = not isinstance(algorithm.aggregation, Mean)
    moved = update if counts_once or is_robust else mean(all_reports, 0, before.x.size)
    weight = math.fsum(weights)
    plans = [*[plan] * len(reports), *(group.plan for group in late for _ in group.reports)]
    ratios = [omega * (each.learning_rate / plan.learning_rate) for omega, each in zip(weights, plans, strict=True)]
    rate = plan.learning_rate * (math.fsum(ratios) / weight)
    measured = {
        name: math.fsum(
            omega * float(report.measured[number]) for omega, report in zip(weights, all_reports, strict=True)
        )
        / weight
        for number, name in enumerate(algorithm.measured)
    }
    server = Server(
        before.x, update, weight, rate, moved, sent, measured, before.shared, before.own, plan, count, members or count
    )
    if any(method.uses_reports for method in algorithm.methods):
        server.reports = _reports(algorithm, plan, reports, late, weights)
    return _advanced(algorithm, server, rule)


def advance_by(
    algorithm: Aggregating, before: State, plan: DensePlan, update: Vector, count: int, members: int
) -> tuple[DenseCommit, list[Any]]:
    """Make one commit from the mean of a round's updates, where nothing else is reported.

    Args:
        algorithm: its methods.
        before: the state before the commit; it is changed.
        plan: the round's plan, as the server has it.
        update: the mean, float32 [d].
        count: number of reports.
        members: as in `aggregate`.
    """
    server = Server(
        before.x,
        update,
        1.0,
        plan.learning_rate,
        update,
        {},
        {},
        before.shared,
        before.own,
        plan,
        count,
        members or count,
    )
    return _advanced(algorithm, server, before.rule)


def _advanced(algorithm: Aggregating, server: Server, rule: Any) -> tuple[DenseCommit, list[Any]]:
    """Move the model; return the commit of it and the packed state after it, with that of the aggregation rule."""
    plan, ahead = server.plan, _advance(algorithm, server)
    fields = (kept(ahead), *(kept(server.shared[name]) for name in algorithm.shared))
    commit = DenseCommit(plan.version + 1, plan.round, fields, None if ahead is server.x else kept(server.x))
    return commit, State(server.x, server.shared, server.state, rule).pack()


def _reports(
    algorithm: Aggregating,
    plan: DensePlan,
    reports: Mapping[int, DenseReport],
    late: Sequence[LateReports],
    weights: Sequence[float],
) -> list[Reported]:
    """Return all reports one by one, in the order of their weights."""
    whose = [(client, plan, reports[client]) for client in sorted(reports)]
    whose += [(client, group.plan, group.reports[client]) for group in late for client in sorted(group.reports)]
    return [
        Reported(
            client,
            answered,
            weight,
            report.samples,
            report.vectors[0],
            dict(zip(algorithm.sent, report.vectors[1:], strict=True)),
            dict(zip(algorithm.measured, map(float, report.measured), strict=True)),
        )
        for (client, answered, report), weight in zip(whose, weights, strict=True)
    ]


def _advance(algorithm: Aggregating, server: Server) -> Vector:
    """Call the server hooks: move the model and update the methods' vectors. Return the model to send, [d]."""
    with np.errstate(over="ignore", invalid="ignore"):
        if not any([_has_moved(method, server) for method in algorithm.methods]):
            server.x += server.update * np.float32(server.plan.server_learning_rate)
        for method in algorithm.methods:
            method.learn(server)
        ahead = server.x
        for method in algorithm.methods:
            ahead = method.ahead(ahead, server)
            check_shape(ahead, server.x.shape, f"`ahead` of the method {method.name}")
    for name, vector in server.state.items():
        check_shape(vector, server.x.shape, f"for the server's vector {name}, a method")
    return ahead


def _has_moved(method: Method, server: Server) -> bool:
    """Whether a method has moved the model. Raises `PluginError` for one that does not say."""
    moved = method.move(server)
    if not isinstance(moved, bool | np.bool_):
        raise PluginError(
            f"move of the method {method.name} returned {moved!r}; expected True if it has moved server.x, and False "
            "for x ← x + η_g·update"
        )
    return bool(moved)


def weights_of(
    algorithm: Aggregating, reports: Mapping[int, DenseReport], share: float, late: Sequence[LateReports]
) -> list[float]:
    """Return ω_i of each report: of the round's own in the order of clients, and then of the late ones, likewise.

    The round's own have a mean of their own, and a late one is added to it: its weight, by samples times its number of
    samples over the mean of all reports' numbers. Only in a buffer, where the share is below 1, all have one mean, and
    each of its own has that factor too.

    Args:
        algorithm: its weighting and channel; with a rule other than the mean all of the round's own weigh equally.
        reports: the round's reports, by client.
        share: total weight of the round's own reports, by samples if these hold as many as the mean report.
        late: reports of earlier rounds, with their weights.
    """
    by_samples = algorithm.weighting == "samples" and algorithm.channel is None
    is_weighted = by_samples and isinstance(algorithm.aggregation, Mean)
    own = [reports[client].samples if is_weighted else 1 for client in sorted(reports)]
    total: float = sum(own)
    if late:
        samples = [report.samples for each in (reports, *(group.reports for group in late)) for report in each.values()]
        mean_samples = sum(samples) / len(samples)  # n̄: in the weighted mean of a round, n_i/Σn is n_i/n̄ times 1/m
        if is_weighted and share < 1:
            total = len(own) * mean_samples
    weights = [share * weight / total for weight in own]
    for group in late:
        for _, report in sorted(group.reports.items()):
            weights.append(group.weight * (report.samples / mean_samples if by_samples else 1.0))
    return weights


def combine_updates(
    algorithm: Aggregating,
    rule: Any,
    reports: Sequence[DenseReport],
    weights: Sequence[float],
    own: int,
    share: float,
    dimension: int,
) -> tuple[Vector, Any]:
    """Return Σ ω_i Δ_i, float32 [d], summed in float64 in the order of the reports, and the rule's next state.

    Args:
        algorithm: its aggregation rule.
        rule: the state of the aggregation rule.
        reports: all of them, late ones last.
        weights: ω_i of each report.
        own: how many of them, the first ones, are the round's own; a rule other than the mean combines these.
        share: total weight of the round's own reports.
        dimension: number of coordinates, d.
    """
    start, summed = None, 0
    if own and not isinstance(algorithm.aggregation, Mean):
        found = algorithm.aggregation.blend([report.vectors[0] for report in reports[:own]], rule)
        blended, rule = checked(algorithm.aggregation, "blend", found, dimension)
        start, summed = share * blended, own
    updates = [report.vectors[0] for report in reports[summed:]]
    return weighted_sum(updates, list(weights[summed:]), 1, start, dimension), rule


def check(report: DenseReport, vectors: int, dimension: int) -> None:
    """Check that a report may be aggregated.

    Args:
        report: the decoded report.
        vectors: number of vectors that it must have, V.
        dimension: number of coordinates of each, d.

    Raises:
        ReportRefused: a wrong shape, a number that is not finite or absurdly large, or a norm that is not its vector's.
    """
    if report.vectors.shape != (vectors, dimension):
        raise ReportRefused("shape", f"its vectors have shape {report.vectors.shape}, not {vectors} × {dimension}")
    for numbers in (report.vectors, report.measured):
        largest = float(max(numbers.max(initial=0.0), -numbers.min(initial=0.0))) if numbers.size else 0.0
        if not math.isfinite(largest):
            raise ReportRefused("not-finite", "it holds a number that is not finite")
        if largest > ABSURD:
            raise ReportRefused("absurd", f"it holds a magnitude of {largest:.3g}; at most {ABSURD:.0g} is accepted")
    if report.norms.size and not np.allclose(report.norms, norms(list(report.vectors)), rtol=1e-5, atol=1e-30):
        raise ReportRefused("wrong-norm", "its norm is not that of its vector, and would change the channel's noise")


def mean(reports: Sequence[DenseReport], number: int, dimension: int) -> Vector:
    """Return the mean of one vector over reports, float32 [d], summed in float64 in their order; zeros if none.

    Args:
        reports: in the order of summation.
        number: index of the vector in each report.
        dimension: number of coordinates, d.
    """
    vectors = [report.vectors[number] for report in reports]
    return weighted_sum(vectors, [1.0] * len(vectors), max(1, len(vectors)), None, dimension)


def to_bytes(vector: Vector) -> bytes:
    """Return a vector as little-endian float32."""
    return np.ascontiguousarray(vector, "<f4").tobytes()


def check_vectors(packed: Any, dimension: int) -> None:
    """Raise `BadPayload` for anything but vectors by name, each little-endian float32 of this dimension."""
    if not (isinstance(packed, dict) and all(isinstance(name, str) for name in packed)):
        raise BadPayload("it has no vectors by name")
    for stored in packed.values():
        parts = stored if isinstance(stored, list) else [stored]
        if not all(isinstance(part, bytes | memoryview) and len(part) % 4 == 0 for part in parts) or (
            sum(map(len, parts)) != 4 * dimension
        ):
            raise BadPayload(f"it has a vector that has not {dimension} coordinates")


def _vector(stored: Raw) -> Vector:
    parts = stored if isinstance(stored, list) else [stored]
    return np.concatenate([np.frombuffer(part, "<f4") for part in parts]).astype(np.float32, copy=False)
