"""The dense family: clients train their own copy of the model, and the server averages their updates.

FedAvg (McMahan, Moore, Ramage, Hampson, Agüera y Arcas, AISTATS 2017, arXiv:1602.05629, Algorithm 1) in the form with a
server's learning rate (Reddi et al. 2021, arXiv:2003.00295, Algorithm 1):

    client   w ← θ;  K times: g = ∇F_i(w; ξ), clipped;  g ← g + wd·w;  v ← ρv + g;  w ← w − η_r·v;   Δ_i = w − θ
    server   θ ← θ + η_g Σ ω_i Δ_i,   ω_i ∝ |D_i| over the clients that reported

Every other member of the family is FedAvg with a method (dense.methods): `algorithm.name` selects it, and `also` adds
further ones. Each file of that folder defines an algorithm; there is no other list.

Invariants: a commit contains a whole replica, so a follower needs the newest commit only; Σ ω_i Δ_i is summed in
float64 in the order of clients and rounded once; client and server both use the decoded update, as it travels.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import replace
from functools import cache, cached_property
from typing import Annotated, Any, ClassVar, Literal, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import ConfigDict, Field, TypeAdapter, ValidationError, create_model, model_validator

from seedbus.algorithms.aggregation.rules import Aggregation, Mean
from seedbus.algorithms.base import BaseAlgorithm
from seedbus.algorithms.capabilities import Facts
from seedbus.algorithms.contract import (
    BadPayload,
    Declined,
    LateReports,
    Packed,
    Replica,
    ReportRefused,
    Reports,
    Sizes,
    Total,
    Vector,
    Work,
    newest_after,
)
from seedbus.algorithms.dense import payloads as dense_wire
from seedbus.algorithms.dense.channels.contract import CHANNELS, Channel
from seedbus.algorithms.dense.compression.contract import CODECS, Compression
from seedbus.algorithms.dense.compression.fixed_point import FixedPoint, whole_numbers
from seedbus.algorithms.dense.local import begun, train
from seedbus.algorithms.dense.methods.method import METHODS, Local, Method
from seedbus.algorithms.dense.payloads import DenseCommit, DensePlan, DenseReport
from seedbus.algorithms.dense.server import State, advance_by, aggregate, check, check_vectors, to_bytes
from seedbus.algorithms.numbers import SMALLEST, Positive
from seedbus.algorithms.objective import PASSES, Differentiable
from seedbus.algorithms.schedule import Scheduled, at
from seedbus.discovery import PluginError, check_shape

AnyMethod = Annotated[Method, METHODS]
AnyCompression = Annotated[Compression, CODECS]
AnyChannel = Annotated[Channel, CHANNELS]
_BEYOND = ("companions", "sends", "measures", "finish", "remember", "personal", "move", "learn", "ahead")


class FedAvg(BaseAlgorithm):
    """FedAvg (arXiv:1602.05629): local stochastic gradient descent, and a weighted mean of the updates."""

    model_config = ConfigDict(ignored_types=(cached_property,))
    examples: ClassVar[tuple[dict[str, Any], ...]] = ({"compression": "fixed-point", "weighting": "uniform"},)
    """Settings with which it has further capabilities."""
    method: ClassVar[type[Method] | None] = None

    name: Literal["fedavg"] = "fedavg"
    local_steps: int | None = Field(default=None, ge=1, lt=2**16, description="K, mini-batches a round; default: 10")
    epochs: int | None = Field(default=None, ge=1, lt=2**16, description="passes over a client's samples, instead of K")
    learning_rate: Scheduled[Positive] = Field(default=0.1, description="η of local steps; may change by round")
    decay: float = Field(default=1.0, gt=0, le=1, description="η is multiplied by it every round")
    momentum: float = Field(default=0.0, ge=0, lt=1, description="ρ of local steps; starts at 0 in every round")
    weight_decay: float = Field(default=0.0, ge=0, lt=1e37, description="times the weights, added to the gradient")
    clip: float | None = Field(default=None, gt=0, lt=1e37, description="largest Euclidean norm of a gradient")
    server_learning_rate: float = Field(default=1.0, gt=1e-37, lt=1e37, description="η_g")
    weighting: Literal["samples", "uniform"] = Field(
        default="samples", description="ω_i: in proportion to a client's samples, or equal"
    )
    aggregation: Aggregation = Field(
        default=Mean(), description="how updates are combined; rules other than mean weigh all clients equally"
    )
    compression: AnyCompression | None = Field(default=None, description="codec of what clients report")
    error_feedback: bool = Field(default=False, description="add what compression lost to the next update")
    channel: AnyChannel | None = Field(default=None, description="channel of the uplink; on one, all weigh equally")
    also: list[AnyMethod] = Field(default=[], description="further methods, each with its `name` and fields")

    @model_validator(mode="after")
    def _check_fields(self) -> Self:
        if self.local_steps is not None and self.epochs is not None:
            raise ValueError("give local_steps or epochs, not both")
        if self.error_feedback and self.compression is None:
            raise ValueError("error_feedback needs compression: without it nothing is lost")
        if self.channel is not None and (self.compression is not None or not isinstance(self.aggregation, Mean)):
            raise ValueError(
                f"channel: {self.channel.kind} sums uncompressed updates, and the server receives only their mean; "
                "leave compression and aggregation out"
            )
        names = [method.name for method in self.methods]
        repeated = sorted({name for name in names if names.count(name) > 1})
        if repeated:
            raise ValueError(f"also: {repeated[0]} is given twice")
        for hook, effect in (
            ("move", "moves the server's model"),
            ("estimate", "replaces the gradient"),
            ("personal", "gives clients models of their own"),
        ):
            users = self._users(hook)
            if len(users) > 1:
                raise ValueError(f"also: each of {' and '.join(users)} {effect}; only one method may")
        for method in self.methods:
            self._check_needs(method)
        for what in ("companions", "sends", "measures"):
            owners, kind = dict[str, str](), "number" if what == "measures" else "vector"
            for method in self.methods:
                for vector in getattr(method, what):
                    other = owners.setdefault(vector, method.name)
                    if other != method.name:
                        raise ValueError(
                            f"also: `{what}` of {other} and of {method.name} name the same {kind} {vector}; expected "
                            "names that begin with the method's own"
                        )
        return self

    def _users(self, hook: str) -> list[str]:
        """Return the names of the methods that override a hook."""
        return [method.name for method in self.methods if getattr(type(method), hook) is not getattr(Method, hook)]

    @property
    def beyond_means(self) -> list[Method]:
        """The methods that need a server which does more than average models, or clients which remember."""
        return [method for method in self.methods if any(method.name in self._users(hook) for hook in _BEYOND)]

    def _check_needs(self, method: Method) -> None:
        for field, value in method.needs.items():
            if getattr(self, field) != value:
                raise ValueError(f"{field} is {getattr(self, field)}; {method.name} accepts {value} only")
        for other in self._users("estimate") if method.uses_outputs else ():
            if other != method.name:
                raise ValueError(
                    f"also: {method.name} changes the loss that backpropagation takes the gradient of, and {other} "
                    "takes none; leave one of them out"
                )
        if method.uses_reports and (self.channel is not None or not isinstance(self.aggregation, Mean)):
            what = f"channel: {self.channel.kind}" if self.channel else f"aggregation: {self.aggregation.rule}"
            raise ValueError(f"{what} has no effect on the single reports that {method.name} takes; leave it out")

    @cached_property
    def methods(self) -> list[Method]:
        """The method that the algorithm is named after, if any, and those under `also`."""
        own = [] if self.method is None else [self.method(**{n: getattr(self, n) for n in self.method.model_fields})]
        return [*own, *self.also]

    @property
    def _caveats(self) -> list[str]:
        sentences = [
            f"algorithm.{field} is {getattr(self, field)}; where {method.name} is the algorithm it is {usual}"
            for method in self.also
            for field in method.defaults
            if getattr(self, field) != (usual := _algorithm(type(method)).model_fields[field].default)
        ]
        beside = [*self.sent, *self.measured]
        if beside and not isinstance(self.aggregation, Mean):
            sentences.append(
                f"algorithm.aggregation: {self.aggregation.rule} applies to updates only; {', '.join(beside)}, "
                "which clients report too, is averaged by the plain mean, which a single malicious client can shift"
            )
        if self.error_feedback and self._codec.is_unbiased:
            sentences.append(
                "algorithm.error_feedback: algorithm.compression has no bias that it could remove, and with few levels "
                "for many coordinates the error grows from round to round; leave it out, or choose top-k"
            )
        return sentences

    @property
    def facts(self) -> Facts:
        return replace(
            super().facts,
            label="+".join([self.name, *(method.name for method in self.also)]),
            channel=self.channel,
            caveats=self._caveats,
            is_dense=True,
            takes_late=self.channel is None,
            weighs_samples=self.weighting == "samples" and self.channel is None,
            adds_up=self.adds_up and type(self).aggregate is FedAvg.aggregate,
            law=next((each.directions for each in self.methods if each.directions is not None), None),
            tracks_sums=bool(self._users("remember")),
            needs_outputs=self.needs_outputs,
            knows_evaluations=self.epochs is None and all(each.extra_passes is not None for each in self.methods),
            keeps_reports=any(each.kept_vectors(2) > each.kept_vectors(1) for each in self.methods),
            reports="by how much training on your samples moved the model",
            reveals="your samples",
            tells_samples=self._tells_samples,
        )

    @property
    def _tells_samples(self) -> str:
        """How reports tell how many samples a client has; see `Facts`."""
        if self.weighting == "samples" and self.channel is None:
            return "reports weigh by it"
        counting = [each.name for each in self.methods if each.counts_steps] if self.epochs is not None else []
        return f"{' and '.join(counting)} counts the steps of its epochs" if counting else ""

    @property
    def needs_outputs(self) -> bool:
        """Whether training needs a classifier's outputs, and not only gradients."""
        return any(method.uses_outputs for method in self.methods)

    def sizes(self, dimension: int, clients: int) -> Sizes:
        report = self._codec.most_bytes(dimension) * (1 + len(self.sent))
        moves_ahead = any(type(method).ahead is not Method.ahead for method in self.methods)
        kept = sum(method.kept_vectors(clients) for method in self.methods)
        commit = 4 * dimension * (1 + len(self.shared) + moves_ahead)
        state = 4 * dimension * (1 + len(self.shared) + kept)
        return Sizes(report, max(report, commit), state, self._codec.longest_string(dimension))

    # -- the log

    def replica(self, x0: Vector) -> Replica:
        return Replica(0, {"x": x0.copy(), **{name: np.full_like(x0, value) for name, value in self.shared.items()}})

    def apply(self, replica: Replica, commits: Sequence[DenseCommit]) -> None:
        for commit in newest_after(replica.version, commits):
            for name, value in zip(("x", *self.shared), commit.fields, strict=True):
                np.copyto(replica.fields[name], value)
            replica.version = commit.version

    def point(self, replica: Replica, newest: DenseCommit | None = None) -> Vector:
        if newest is None or newest.version != replica.version or newest.model is None:
            return replica.x
        return newest.model

    # -- the client

    def plan(self, round: int, version: int, seed: int, state: Any = None) -> DensePlan:
        rate = float(np.float32(max(SMALLEST, at(self.learning_rate, round) * self.decay**round)))  # some divide by it
        steps, epochs = (0, self.epochs) if self.epochs is not None else (self.local_steps or 10, 0)
        return DensePlan(round, version, steps, epochs, rate, self.server_learning_rate, seed)

    def work(self, round: int) -> Work:
        """Return how often f is evaluated in a round, and how many numbers are sent.

        An epoch counts as one step: only the client knows its length. Passes that depend on the network are left out.
        """
        own = [method.evaluations for method in self.methods if method.evaluations is not None]
        of_step = (own[0] if own else PASSES) + sum(method.extra_passes or 0 for method in self.methods)
        a_vector = self._codec.scalars(self._dimension) + (self.channel is not None)
        scalars = a_vector * (1 + len(self.sent)) + len(self.measured)
        return Work(of_step * (self.epochs or self.local_steps or 10), scalars)

    def local(
        self, replica: Replica, memory: Any, plan: DensePlan, objective: Differentiable
    ) -> tuple[DenseReport, dict[str, bytes] | None]:
        """Run the local steps of a round; return the report and the client's new memory.

        The memory maps names to little-endian float32 bytes; it is None where there is nothing to remember. Work whose
        report the server refuses as too large or not finite leaves it as it was: what the server tracks does not have
        that work, and a number that is not finite would be in all later reports of the client.
        """
        local = train(self, replica, memory, plan, objective)
        report = self._report(local)
        for name, vector in local.memory.items():
            check_shape(vector, local.x.shape, f"for the client's vector {name}, a method")
        if not local.memory:
            return report, None
        try:
            check(report, 1 + len(self.sent), local.x.size)
        except ReportRefused:
            return report, memory or {}  # not None: this work has its place in what is remembered, too
        return report, {name: to_bytes(vector) for name, vector in sorted(local.memory.items())}

    def trained(self, replica: Replica, memory: Any, plan: DensePlan, objective: Differentiable) -> Vector:
        return train(self, replica, memory, plan, objective).x

    def personal(self, replica: Replica, memory: Any, plan: DensePlan, objective: Differentiable) -> Vector | None:
        for method in self.methods:
            own = method.personal(begun(self, replica, memory, plan, objective))
            if own is not None:
                return own
        return None

    def _report(self, local: Local) -> DenseReport:
        update = local.update
        for name, vector in [("update", update), *((name, local.sent.get(name)) for name in self.sent)]:
            check_shape(vector, local.x.shape, f"for a client's {name}, `finish` of the algorithm {self.name}")
        if self.error_feedback:
            update = update + local.remembered("error")
        measured = [self._number(name, local.measured.get(name)) for name in self.measured]
        vectors = [update, *(local.sent[name] for name in self.sent)]
        report = self._encode(vectors, measured, local.objective.samples, local.objective.key)
        if self.error_feedback:
            with np.errstate(invalid="ignore"):  # the server refuses an update that diverged
                local.memory["error"] = update - report.vectors[0]
        local.update, local.sent = report.vectors[0], dict(zip(self.sent, report.vectors[1:], strict=True))
        with np.errstate(over="ignore", invalid="ignore"):
            for method in self.methods:
                method.remember(local)
        return report

    def _number(self, name: str, found: Any) -> float:
        if not isinstance(found, int | float | np.integer | np.floating):
            raise PluginError(
                f"for a client's {name}, `finish` of the algorithm {self.name} gave {type(found).__name__}; expected a "
                "number"
            )
        return float(found)

    def _encode(
        self, vectors: Sequence[Vector], measured: Sequence[float] | Vector, samples: int, key: int
    ) -> DenseReport:
        has_norms = self.channel is not None
        return dense_wire.encode_report(self._codec, vectors, measured, samples, key, has_norms=has_norms)

    # -- the server

    def first_state(self, x0: Callable[[], Vector]) -> list[Any]:
        x = x0()
        return State(x, {name: np.full_like(x, value) for name, value in self.shared.items()}, {}, None).pack()

    def check_state(self, state: Any) -> None:
        State.check(state, self.shared, self.aggregation, self._dimension)

    def check_memory(self, memory: Any) -> None:
        check_vectors(memory, self._dimension)

    def check(self, plan: DensePlan, report: DenseReport) -> None:
        check(report, 1 + len(self.sent), self._dimension)

    def aggregate(
        self,
        state: Any,
        plan: DensePlan,
        reports: Reports,
        *,
        share: float = 1.0,
        late: Sequence[LateReports] = (),
        members: int = 0,
    ) -> tuple[DenseCommit, Any]:
        if isinstance(reports, Mapping):
            if not (self.adds_up and isinstance(self.aggregation, Mean) and share == 1 and not late):
                return aggregate(self, state, plan, reports, share=share, late=late, members=members)
            numbers = np.array([self.numbers(report) for report in reports.values()])
            reports = Total(numbers.sum(axis=0, dtype=np.int64), len(reports))
        if reports is None or not isinstance(self.compression, FixedPoint):
            raise RuntimeError("these updates neither add up nor count alone; see `facts`")
        update = self.compression.decoded(reports.numbers / reports.divisor)
        return advance_by(self, State.unpack(state), plan, update, reports.divisor, members)

    # -- reports whose sum is enough

    @property
    def adds_up(self) -> bool:
        """Whether a report holds whole numbers, whose sum is all that the mean needs."""
        is_one_vector = not (self.sent or self.measured or any(method.uses_reports for method in self.methods))
        return isinstance(self.compression, FixedPoint) and self.weighting == "uniform" and is_one_vector

    def numbers(self, report: DenseReport) -> NDArray[np.int32]:
        """Return the units of a report's update, int32 [d]."""
        (body,) = report.bodies
        numbers = whole_numbers(body)
        if numbers is None:
            raise Declined("overflow", "the update has a number that is not finite, or too large")
        return numbers

    def of_numbers(self, plan: DensePlan, numbers: NDArray[np.int32] | int) -> DenseReport:
        """Return the report of so many units, int32 [d], without its client's number of samples."""
        bodies = [[np.full(self._dimension, numbers, "<i4").tobytes()]]
        return dense_wire.report_of(self._codec, 1, bodies, self._dimension)

    # -- values of reports, for observers and Byzantine faults

    def values(self, report: DenseReport) -> Vector:
        return report.vectors

    def with_values(self, report: DenseReport, values: Vector) -> DenseReport:
        return self._encode(list(values.astype(np.float32)), report.measured, report.samples, 0)

    # -- the wire

    def pack_plan(self, plan: DensePlan) -> Packed:
        return dense_wire.pack_plan(plan)

    def unpack_plan(self, body: Any, round: int, version: int) -> DensePlan:
        plan = dense_wire.unpack_plan(body, round, version)
        if dense_wire.pack_plan(plan) != dense_wire.pack_plan(self.plan(round, version, 0)):
            raise BadPayload(
                f"a plan of {plan.steps} local steps, {plan.epochs} epochs and a rate of {plan.learning_rate:g}, "
                f"which are not the scenario's for round {round}"
            )
        return plan

    def pack_report(self, plan: DensePlan, report: DenseReport) -> Packed:
        return dense_wire.pack_report(report, self._codec)

    def unpack_report(self, body: Any, plan: DensePlan) -> DenseReport:
        counts = 1 + len(self.sent), len(self.measured)
        return dense_wire.unpack_report(body, self._codec, *counts, self._dimension, has_norms=self.channel is not None)

    def pack_commits(self, commits: Sequence[DenseCommit], *, whole: bool = False) -> Packed:
        return dense_wire.pack_commits(commits if whole else newest_after(0, commits), with_model=whole)

    def unpack_commits(self, body: Any) -> list[DenseCommit]:
        return dense_wire.unpack_commits(body, 1 + len(self.shared), self._dimension)

    # -- vectors that its methods add

    @cached_property
    def shared(self) -> dict[str, float]:
        """Names of the vectors that a replica holds beside x, with their initial values."""
        return {name: value for method in self.methods for name, value in method.companions.items()}

    @cached_property
    def sent(self) -> list[str]:
        """Names of the vectors that clients report beside their updates."""
        return [name for method in self.methods for name in method.sends]

    @cached_property
    def measured(self) -> list[str]:
        """Names of the numbers that clients report beside their updates."""
        return [name for method in self.methods for name in method.measures]

    @cached_property
    def _codec(self) -> Compression:
        return self.compression or Compression()


@cache
def _algorithm(method: type[Method]) -> type[FedAvg]:
    """Return the algorithm of a method: FedAvg with the method's fields, and its defaults for fields of FedAvg."""
    unknown = method.defaults.keys() - FedAvg.model_fields.keys()
    if unknown:
        accepted = ", ".join(FedAvg.model_fields)
        raise PluginError(
            f"`defaults` of {method.__name__} names {min(unknown)}; expected fields of FedAvg: {accepted}"
        )
    others = {name: copy(FedAvg.model_fields[name]) for name in method.defaults}
    for name, field in others.items():
        field.default = _checked(method, name)
    fields: dict[str, Any] = {name: (field.annotation, field) for name, field in (others | method.model_fields).items()}
    algorithm = create_model(method.__name__, __base__=FedAvg, __module__=__name__, __doc__=method.__doc__, **fields)
    algorithm.method = method
    return algorithm


def _checked(method: type[Method], name: str) -> Any:
    """Return a method's default for a field of FedAvg; it may be given in any form in which a scenario gives it."""
    field, given = FedAvg.model_fields[name], method.defaults[name]
    form: Any = Annotated[field.annotation, field]
    try:
        return TypeAdapter(form).validate_python(given)
    except ValidationError as error:
        raise PluginError(
            f"`defaults` of {method.__name__}: {given!r} is not accepted for {name} ({error.errors()[0]['msg']})"
        ) from None


def dense_algorithms() -> dict[str, type[FedAvg]]:
    """Return the dense family by name: FedAvg, and one algorithm for each method."""
    methods: dict[str, Any] = dict(METHODS.all())
    return {"fedavg": FedAvg} | {name: _algorithm(method) for name, method in methods.items()}
