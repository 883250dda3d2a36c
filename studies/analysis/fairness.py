"""How well one model serves each client, and whether those are served worse that were seldom heard, or a group.

Li et al. 2020 (q-FFL, arXiv:1905.10497) call a model fairer if its accuracy varies less over clients, and report its
mean, its variance and the worst and the best 10% of clients. Here every client counts once, whatever its samples. It is
measured on two kinds of samples:

    own     the client's training samples
    test    samples that are held out: where clients are people, their own test samples; else the test samples of the
            run, weighed so that classes have the client's shares: Σ_c p_i(c)·m_c, where p_i(c) is the share of class c
            among the training samples of client i, and m_c the metric on test samples of c

Shares of classes tell clients apart by their classes alone, and not by what else may differ, such as a handwriting. A
metric that is no mean over samples, such as an area under a curve, is not made of those of classes.

Where an algorithm gives clients models of their own (`personal`), each client is measured at its own, made from the
newest shared model and from what it remembers after its last work. The folder keeps this of the run's end alone.

A client without such samples does not count, and neither does one for whose samples the metric is not defined, such as
an area under a curve where all are of one class.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from seedbus.models.errors import DataError, OutOfMemory
from seedbus.models.masked_problem import MaskedProblem
from seedbus.models.task import HasNamedClients, HasParts
from seedbus.scenarios.reporting.axes import metric_axis
from seedbus.scenarios.reporting.client_names import named, stored, with_names
from seedbus.scenarios.reporting.findings import Finding, Plot
from seedbus.scenarios.reporting.looks import Line
from seedbus.scenarios.reporting.round_table import Flags, RoundTable, Whole
from seedbus.studies.analysis.estimate import number, rank_correlation
from seedbus.studies.analysis.lanczos import Vector64
from seedbus.studies.analysis.subject import Model, NotHere, Subject

TITLE = "The model for each client (after q-FFL)"
NO_SAMPLES = "have no such samples and do not count"
UNDEFINED = "have samples for which the metric is not defined, and do not count"
_GROUPS = 4


class Spread(NamedTuple):
    """How a metric varies over clients.

    Attributes:
        mean: of all clients.
        deviation: their standard deviation.
        worst_tenth: the mean of a tenth of the clients, rounded up, for which it is worst.
        best_tenth: of those for which it is best.
        worst: of the client for which it is worst.
    """

    mean: float
    deviation: float
    worst_tenth: float
    best_tenth: float
    worst: float

    @staticmethod
    def of(values: Vector64, *, is_rising: bool) -> Spread:
        """Return it; values: of each client, [n], finite; is_rising: whether larger ones are better."""
        ordered = np.sort(values) if is_rising else np.sort(values)[::-1]
        tenth = -(-values.size // 10)
        best, worst = float(ordered[-tenth:].mean()), float(ordered[:tenth].mean())
        return Spread(float(values.mean()), float(values.std()), worst, best, float(ordered[0]))


@dataclass(frozen=True)
class _Measurement:
    """How the clients are served by one model, on samples of one kind.

    Attributes:
        model: the model.
        name: the model and the samples, in words.
        samples: the samples, in words.
        found: what was measured of each client, [N]; see `Measure`.
        is_measured: which clients have a value, bool [N].
        values: of these, [n].
        heard: how many of their reports were counted, [n].
        of_all: what `_served` found for all of them.
        of_groups: group → the same for its members, and under `others` for the other clients.
    """

    model: Model
    name: str
    samples: str
    found: list[float | str]
    is_measured: Flags
    values: Vector64
    heard: Whole
    of_all: dict[str, Any]
    of_groups: dict[str, dict[str, Any]]

    @staticmethod
    def of(model: Model, problem: HasParts, name: str, samples: str, measure: Measure, counted: Whole) -> _Measurement:
        """Measure it. Raises `NotHere` and `DataError`, as for a metric that needs samples of several classes."""
        run = model.run
        metric, is_rising = run.metric, run.metric in run.scenario.task.rising
        if measure is _by_classes and metric not in getattr(problem, "averaged", run.scenario.task.averaged):
            raise NotHere("it is no mean over samples, so those of classes do not make it")
        found = measure(model, problem, metric)
        is_measured, values = _measured(found)
        heard = counted[is_measured]
        served = partial(_served, values, heard, is_rising)
        of_groups = {}
        for group, is_member in run.groups.items():
            mask = is_member[is_measured]
            inner, outer = (
                served(each) | {"samples": _samples(model, problem, measure, is_measured, each)}
                for each in (mask, ~mask)
            )
            of_groups[group] = inner | {"others": outer}
        of_all = served(np.ones(values.size, bool))
        return _Measurement(model, name, samples, found, is_measured, values, heard, of_all, of_groups)

    @property
    def parts(self) -> list[tuple[str, dict[str, Any]]]:
        """All clients, and those of each group and the others, as far as there are any: in words, and `_served`."""
        parts = [("all", self.of_all)]
        for group, each in self.of_groups.items():
            parts += [(f"of {group}", each), (f"not of {group}", each["others"])]
        return [(who, each) for who, each in parts if each["clients"]]

    @property
    def facts(self) -> dict[str, Any]:
        """All of it in numbers, for JSON."""
        of_clients = [None if isinstance(each, str) else each for each in self.found]
        return {**self.of_all, "samples": self.samples, "values": of_clients, "groups": self.of_groups}

    def rows(self, scale: float) -> Iterator[list[str]]:
        """Yield the rows of the table."""
        for who, each in self.parts:
            whom = [f"{each['clients']:,} {who}"] if self.of_groups else []
            yield [f"{self.model.round:,}", self.samples, *whom, *_cells(each, scale)]

    def worst(self, names: Sequence[str], is_rising: bool) -> str:
        """Return which client is served worst, in words."""
        at = self.values.argmin() if is_rising else self.values.argmax()
        return f"Worst, {self.name}: client {named(int(np.flatnonzero(self.is_measured)[at]), names)}."

    def left_out(self, names: Sequence[str]) -> dict[str, str]:
        """Return why clients do not count on these samples → which ones, in words."""
        return {
            f"{reason}: {self.samples}": f"{self.found.count(reason)} of {len(self.found)} clients, "
            f"{named(self.found.index(reason), names)} for one"
            for reason in (NO_SAMPLES, UNDEFINED)
            if reason in self.found
        }


def fairness(run: Subject) -> Finding:
    """Measure it. Raises `NotHere`."""
    problem: Any = run.problem
    inside = problem.inside if isinstance(problem, MaskedProblem) else problem
    task = run.scenario.task
    if not isinstance(inside, HasParts):
        raise NotHere(f"task {task.name} has no samples of its clients that could be measured")
    metric = run.metric
    is_rising, (y_name, scale) = metric in task.rising, metric_axis(metric)
    names = inside.client_names() if isinstance(inside, HasNamedClients) else []
    facts, measured, missing = _all_measured(run, inside, names)
    if not measured:
        raise NotHere(missing[0])
    last = measured[-1]
    notes = _notes(run, measured, names, is_rising=is_rising) + [f"Not measured: {each}." for each in missing]
    drawn = [
        Line(each.name, range(1, each.values.size + 1), np.sort(each.values * scale)[:: 1 if is_rising else -1])
        for each in measured
    ]
    plots = [Plot.of_lines(f"{metric.capitalize()} of clients", "clients, the worst first", y_name, drawn)]
    by_count = by_reports(last.values * scale, last.heard)
    if len(by_count) > 1:
        words = ", ".join(f"{name}: {number(each)}" for name, each in by_count.items())
        notes.append(f"Mean {y_name} by reports counted, {last.name}: {words}.")
        plots.append(Plot(f"By reports, {last.name}", "reports counted", y_name, bars=dict(by_count)))
    heads = ["round", "samples", f"mean {y_name}", "deviation", "worst tenth", "best tenth", "worst", "with reports"]
    if run.groups:
        heads.insert(2, "clients")
        by_group: dict[str, float | None] = {who: each["mean"] * scale for who, each in last.parts}
        plots.append(Plot(f"By group, {last.name}", "clients", y_name, bars=by_group))
    members_of = {group: np.flatnonzero(is_member).tolist() for group, is_member in run.groups.items()}
    told = {"rounds": facts, "missing": missing, "groups": members_of}
    if names:
        told["client_names"] = stored(names)
    rows = [row for each in measured for row in each.rows(scale)]
    return Finding("fairness", TITLE, heads, rows, notes, plots, told)


def _notes(run: Subject, measured: Sequence[_Measurement], names: Sequence[str], *, is_rising: bool) -> list[str]:
    notes = [
        "Every client counts once. Deviation: standard deviation over clients. Worst and best tenth: means of a tenth "
        "of them, rounded up. With reports: Spearman's correlation with how many reports of a client were counted."
    ]
    if any(model.is_personal for model in run.models):
        notes.append("Each client has a model of its own here, and is measured at it.")
        notes += _newcomers(run)
    notes += [each.worst(names, is_rising) for each in measured] if names else []
    left_out = {why: which for each in measured for why, which in each.left_out(names).items()}
    return notes + [f"{which}, {why}." for why, which in left_out.items()]


def _all_measured(
    run: Subject, problem: HasParts, names: Sequence[str]
) -> tuple[list[dict[str, Any]], list[_Measurement], list[str]]:
    """Return the facts of each model, all measurements, and what is not measured, in words."""
    facts, measured, missing = [], [], []
    for model in run.models:
        counted = reports(run.results.history, model.round)
        fact: dict[str, Any] = {"round": model.round, "metric": run.metric, "reports": counted.tolist()}
        for kind, (samples, measure) in _kinds(problem).items():
            name = f"round {model.round:,}, {samples}"
            try:
                each = _Measurement.of(model, problem, name, samples, measure, counted)
            except OutOfMemory:
                raise
            except (NotHere, DataError) as why:
                missing.append(f"the {run.metric} of {name}: {with_names(str(why), names)}")
                continue
            measured.append(each)
            fact[kind] = each.facts
        facts.append(fact)
    return facts, measured, missing


def _kinds(problem: HasParts) -> dict[str, tuple[str, Measure]]:
    """Return the kinds of samples that a problem has of its clients: in words, and what measures a metric on them."""
    kinds: dict[str, tuple[str, Measure]] = {"own": ("own, training", _own)}
    if problem.owned("test") is not None:
        kinds["test"] = "own, test", _own_test
    elif problem.number_of_classes:
        kinds["test"] = "test, by its classes", _by_classes
    return kinds


def _newcomers(run: Subject) -> Iterator[str]:
    """Yield a sentence if clients that have worked remember nothing, as where their memories lie on other machines."""
    heard = np.flatnonzero(reports(run.results.history, len(run.stored))).tolist()
    without = sum(not run.memories.knows(client) for client in heard)
    if without:
        found = f"Clients with counted reports and without a memory in the run's folder: {without:,} of {len(heard):,}"
        yield f"{found}; one whose memory is kept elsewhere has another model than the one that is measured here."


def _served(values: Vector64, heard: Whole, is_rising: bool, chosen: Flags) -> dict[str, Any]:
    """Return how the chosen ones of n clients are served.

    Args:
        values: the metric of each, [n].
        heard: how many reports of each were counted, [n].
        is_rising: whether larger values are better.
        chosen: which of them, [n].
    """
    if not chosen.any():
        return {"clients": 0}
    values, heard = values[chosen], heard[chosen]
    related = rank_correlation(values, heard) if np.ptp(values) and np.ptp(heard) else None
    spread = Spread.of(values, is_rising=is_rising)
    return {"clients": values.size, **spread._asdict(), "correlation_with_reports": related}


def _cells(served: Mapping[str, Any], scale: float) -> list[str]:
    """Return what `_served` found as cells of the table."""
    related = served["correlation_with_reports"]
    shown = [number(served[name] * scale) for name in Spread._fields]
    return [*shown, "–" if related is None else number(related)]


def reports(history: RoundTable, rounds: int) -> Whole:
    """Return how many reports of each client are part of the commits of the first rounds, late ones included, [N]."""
    in_time, late = history.reported, history.late
    counted = [in_time.client[history.is_counted & (in_time.round < rounds)], late.client[late.round < rounds]]
    return np.bincount(np.concatenate(counted), minlength=history.clients)


def by_reports(values: Vector64, counted: Whole) -> dict[str, float]:
    """Return the mean over clients with similar numbers of reports: at most four groups, of about as many clients.

    Args:
        values: of each client, [n].
        counted: its reports; clients with as many are in one group.

    Returns:
        "FEWEST" or "FEWEST–MOST" → mean, the fewest first.
    """
    group = np.searchsorted(np.sort(counted), counted) * _GROUPS // counted.size
    found = {}
    for each in np.unique(group):
        low, high = int(counted[group == each].min()), int(counted[group == each].max())
        found[f"{low:,}" if low == high else f"{low:,}–{high:,}"] = float(values[group == each].mean())
    return found


Measure = Callable[[Model, HasParts, str], list[float | str]]
"""What measures a metric of a model for each client, finite; a text: why it does not count.

Raises `NotHere` where it is not finite, and `DataError`.
"""


def _own(model: Model, problem: HasParts, metric: str) -> list[float | str]:
    """Measure it on training samples of each client; see `Measure`."""
    return _of_parts(model, problem, "train", problem.parts, metric)


def _own_test(model: Model, problem: HasParts, metric: str) -> list[float | str]:
    """Measure it on test samples of each client; see `Measure`."""
    return _of_parts(model, problem, "test", problem.owned("test") or [], metric)


def _of_parts(
    model: Model, problem: HasParts, split: str, parts: Sequence[NDArray[np.int64]], metric: str
) -> list[float | str]:
    most = model.run.effort.client_samples
    work = model.run.meter.begin(f"round {model.round:,}: clients", len(parts))
    try:
        values: list[float | str] = []
        for client, part in enumerate(parts):
            found = problem.evaluate_part(model.served(client), split, evenly(part, most)) if part.size else {}
            # of a model that has diverged the loss is not finite either, and that client is not left out
            is_undefined = math.isnan(found.get(metric, 0)) and math.isfinite(found["loss"])
            values.append(UNDEFINED if is_undefined else _finite(found[metric], client) if found else NO_SAMPLES)
            work.advance()
    finally:
        work.end()
    return values


def _by_classes(model: Model, problem: HasParts, metric: str) -> list[float | str]:
    """Measure it on test samples of each client's classes; see `Measure`."""
    tested, trained = problem.evaluated("test"), problem.classes("train")
    classes = problem.classes("test")[tested]

    def of_classes(client: int, of: NDArray[np.int64]) -> dict[int, float]:
        x, among = model.served(client), np.intersect1d(of, classes)
        return {int(c): problem.evaluate_part(x, "test", tested[classes == c])[metric] for c in among}

    of_all = None if model.is_personal else of_classes(0, classes)
    values: list[float | str] = []
    for client, part in enumerate(problem.parts):
        own = trained[part]
        found = weighed_by_class(own, of_classes(client, own) if of_all is None else of_all)
        values.append(NO_SAMPLES if found is None else _finite(found, client))
    return values


def _samples(model: Model, problem: HasParts, measure: Measure, is_measured: Flags, chosen: Flags) -> int:
    """Return on how many samples a metric is measured for the chosen ones, [n], of the measured clients, [N]."""
    clients = np.flatnonzero(is_measured)[chosen].tolist()
    if measure is _by_classes:
        trained = [problem.classes("train")[problem.parts[client]] for client in clients]
        tested = problem.classes("test")[problem.evaluated("test")]
        return int(np.isin(tested, np.concatenate([[], *trained])).sum())
    parts = problem.parts if measure is _own else problem.owned("test") or []
    return sum(min(parts[client].size, model.run.effort.client_samples) for client in clients)


def _finite(value: float, client: int) -> float:
    if not math.isfinite(value):
        raise NotHere(f"it is {value} for client {client}")
    return value


def _measured(found: Sequence[float | str]) -> tuple[NDArray[np.bool_], Vector64]:
    """Return which clients have a value, [N], and the values, [n]. Raises `NotHere` if there are none."""
    values = [each for each in found if not isinstance(each, str)]
    if not values:
        raise NotHere("it is not defined for any client" if UNDEFINED in found else "no client has such samples")
    return np.array([not isinstance(each, str) for each in found]), np.array(values, np.float64)


def evenly(indices: NDArray[np.int64], most: int) -> NDArray[np.int64]:
    """Return at most so many indices, [n], spread evenly over the given ones."""
    return indices[np.linspace(0, indices.size - 1, min(most, indices.size)).astype(np.int64)]


def weighed_by_class(own: NDArray[np.int64], of_class: dict[int, float]) -> float | None:
    """Return the mean of a metric in a client's shares of classes.

    Args:
        own: the classes of the client's samples, [n].
        of_class: class → the metric on test samples of it; other classes do not count.

    Returns:
        The mean; None if no class of the client has test samples.
    """
    classes, counts = np.unique(own, return_counts=True)
    tested = {each: count for each, count in zip(classes.tolist(), counts.tolist(), strict=True) if each in of_class}
    total = sum(tested.values())
    # by shares, and not by samples: equal shares give equal bits, and the ranks of a correlation their ties
    return sum(count / total * of_class[each] for each, count in tested.items()) if tested else None
