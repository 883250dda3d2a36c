"""The dense family: clients train their own copy of the model, and the server averages what became of it.

FedAvg (McMahan, Moore, Ramage, Hampson, Agüera y Arcas, AISTATS 2017, arXiv:1602.05629, Algorithm 1) in the form with a
server's learning rate (Reddi et al. 2021, arXiv:2003.00295, Algorithm 1):

    client   w ← θ;  K times: g = ∇F_i(w; ξ), clipped;  g ← g + wd·w;  v ← ρv + g;  w ← w − η_r·v;   Δ_i = w − θ
    server   θ ← θ + η_g Σ ω_i Δ_i,   ω_i ∝ |D_i| over those who reported

Every other member is a method (dense.methods) on top of that: `algorithm.name` says which, `also` adds
more. A method that is a file there is an algorithm by that alone.

Invariants: a commit is a whole replica, so a follower needs the newest and no other; Σ ω_i Δ_i is summed in float64 in
the order of clients and rounded once; what clients send is decoded from what travels, for the client too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from copy import copy
from functools import cached_property
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Self, Union

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, PrivateAttr, create_model, model_validator

from seedbus.algorithms.aggregation.rules import Aggregation, Mean
from seedbus.algorithms.contract import Overdue, Packed, Replica, Vector
from seedbus.algorithms.dense import payloads as dense_wire
from seedbus.algorithms.dense.channels.contract import Channel
from seedbus.algorithms.dense.compression.contract import Compression
from seedbus.algorithms.dense.local import trained
from seedbus.algorithms.dense.methods.method import Local, Method
from seedbus.algorithms.dense.payloads import DenseCommit, DensePlan, DenseReport
from seedbus.algorithms.dense.server import State, check, committed, raw
from seedbus.algorithms.discovery import choice, discover
from seedbus.algorithms.numbers import Positive
from seedbus.algorithms.objective import PASSES, Differentiable
from seedbus.algorithms.schedule import Scheduled, at

_METHODS = discover("seedbus.algorithms.dense.methods", "name")

if TYPE_CHECKING:
    AnyMethod = Method
    AnyCompression = Compression
    AnyChannel = Channel
else:
    AnyMethod = Annotated[Union[tuple(_METHODS.values())], Field(discriminator="name")]  # noqa: UP007
    AnyCompression = choice(discover("seedbus.algorithms.dense.compression", "kind"), "kind")
    AnyChannel = choice(discover("seedbus.algorithms.dense.channels", "kind"), "kind")


class FedAvg(BaseModel):
    """FedAvg (arXiv:1602.05629): local stochastic gradient descent, and the weighted mean of what came of it."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, ignored_types=(cached_property,))
    most_clients: ClassVar[int | None] = None
    method: ClassVar[type[Method] | None] = None
    _dimension: int = PrivateAttr(0)

    name: Literal["fedavg"] = "fedavg"
    local_steps: int | None = Field(default=None, ge=1, lt=2**16, description="K, mini-batches a round; default: 10")
    epochs: int | None = Field(default=None, ge=1, lt=2**16, description="passes over a client's samples, instead of K")
    learning_rate: Scheduled[Positive] = Field(default=0.1, description="η of local steps; may change by round")
    decay: float = Field(default=1.0, gt=0, le=1, description="η is multiplied by it every round")
    momentum: float = Field(default=0.0, ge=0, lt=1, description="ρ of local steps; begins at 0 in every round")
    weight_decay: float = Field(default=0.0, ge=0, lt=1e37, description="added to the gradient, times the weights")
    clip: float | None = Field(default=None, gt=0, lt=1e37, description="longest gradient, in its Euclidean norm")
    server_learning_rate: float = Field(default=1.0, gt=1e-37, lt=1e37, description="η_g")
    weighting: Literal["samples", "uniform"] = Field(
        default="samples", description="ω_i: by how many samples a client holds, or all alike"
    )
    aggregation: Aggregation = Field(
        default=Mean(), description="how updates become one; other rules than mean weigh all clients alike"
    )
    compression: AnyCompression | None = Field(default=None, description="what makes updates smaller on their way up")
    error_feedback: bool = Field(default=False, description="what compression loses is added to the next update")
    channel: AnyChannel | None = Field(default=None, description="what updates go through; all weigh alike on one")
    also: list[AnyMethod] = Field(default=[], description="further methods, each with its `name` and fields")

    @model_validator(mode="after")
    def _sound(self) -> Self:
        if self.local_steps is not None and self.epochs is not None:
            raise ValueError("give local_steps or epochs, not both")
        if self.error_feedback and self.compression is None:
            raise ValueError("error_feedback needs compression: without one nothing is lost")
        if self.channel is not None and (self.compression is not None or not isinstance(self.aggregation, Mean)):
            raise ValueError(
                f"channel: {self.channel.kind} adds up updates as they are, and the server hears the mean alone; leave "
                "compression and aggregation out"
            )
        names = [method.name for method in self.methods]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise ValueError(f"also: {twice[0]} is there twice")
        for hook, what in (("move", "moves the server's model"), ("estimate", "replaces the gradient")):
            found = [method.name for method in self.methods if getattr(type(method), hook) is not getattr(Method, hook)]
            if len(found) > 1:
                raise ValueError(f"also: each of {' and '.join(found)} {what}; one of them can")
        return self

    @cached_property
    def methods(self) -> list[Method]:
        """The method that the algorithm is named after, and the others."""
        own = [] if self.method is None else [self.method(**{n: getattr(self, n) for n in self.method.model_fields})]
        return [*own, *self.also]

    def sized(self, dimension: int) -> Self:
        """The same for models of `dimension` coordinates."""
        made = self.model_copy()
        made._dimension = dimension
        return made

    def caveats(self) -> list[str]:
        """What a person who chose these hyperparameters should be told; a sentence each."""
        found = [
            f"algorithm.{field} is {getattr(self, field)}; where {method.name} is the algorithm it is {usual}"
            for method in self.also
            for field, usual in method.defaults.items()
            if getattr(self, field) != usual
        ]
        if self.sent and not isinstance(self.aggregation, Mean):
            found.append(
                f"algorithm.aggregation: {self.aggregation.rule} is for updates; of {', '.join(self.sent)}, which "
                "clients report too, the plain mean is taken, and a liar can move that"
            )
        return found

    @property
    def fewest_reports(self) -> int:
        return self.aggregation.fewest

    @property
    def is_dense(self) -> bool:
        return True

    @property
    def takes_late(self) -> bool:
        return self.channel is None

    @property
    def needs_outputs(self) -> bool:
        """Whether it needs a network that classifies, and not only gradients."""
        return any(method.judges for method in self.methods)

    def report_bytes(self, dimension: int) -> int:
        return self._codec.most_bytes(dimension) * (1 + len(self.sent))

    # -- the log

    def replica(self, x0: Vector) -> Replica:
        return Replica(0, {"x": x0.copy(), **{name: np.full_like(x0, value) for name, value in self.shared.items()}})

    def pending(self, version: int, commits: Sequence[DenseCommit]) -> Sequence[DenseCommit]:
        newest = max(commits, key=lambda commit: commit.version, default=None)
        return [] if newest is None or newest.version <= version else [newest]

    def apply(self, replica: Replica, commits: Sequence[DenseCommit]) -> None:
        for commit in self.pending(replica.version, commits):
            for field, value in zip(replica.fields.values(), commit.fields, strict=True):
                np.copyto(field, value)
            replica.version = commit.version

    def evaluation_point(self, replica: Replica, newest: DenseCommit | None) -> Vector:
        if newest is None or newest.version != replica.version or newest.model is None:
            return replica.x
        return newest.model

    def diagnostics(self, replica: Replica) -> dict[str, float]:
        return {}

    # -- the client

    def plan(self, round: int, version: int, seed: int) -> DensePlan:
        rate = float(np.float32(at(self.learning_rate, round) * self.decay**round))
        steps, epochs = (0, self.epochs) if self.epochs is not None else (self.local_steps or 10, 0)
        return DensePlan(round, version, steps, epochs, rate, self.server_learning_rate, seed)

    @property
    def label(self) -> str:
        return "+".join([self.name, *(method.name for method in self.also)])

    @property
    def knows_evaluations(self) -> bool:
        return self.epochs is None

    def scalars(self, round: int) -> int:
        return 0

    def evaluations(self, round: int) -> int:
        """Of an epoch as of a step: how many batches a client's epoch has is known to the client alone."""
        own = [method.evaluations for method in self.methods if method.evaluations is not None]
        return (own[0] if own else PASSES) * (self.epochs or self.local_steps or 10)

    def local(
        self, replica: Replica, memory: Any, plan: DensePlan, objective: Differentiable
    ) -> tuple[DenseReport, dict[str, bytes] | None]:
        """K local steps from the replica; what the client remembers afterwards, by name, float32 as bytes."""
        mine = trained(self, replica, memory, plan, objective)
        report = self._report(mine)
        return report, {name: raw(vector) for name, vector in sorted(mine.memory.items())} or None

    def _report(self, mine: Local) -> DenseReport:
        update = mine.update
        if self.error_feedback:
            update = update + mine.remembered("error")
        report = self._said(
            [update, *(mine.sent[name] for name in self.sent)], mine.objective.samples, mine.objective.key
        )
        if self.error_feedback:
            with np.errstate(invalid="ignore"):  # what diverged is refused by the server
                mine.memory["error"] = update - report.vectors[0]
        return report

    def _said(self, vectors: Sequence[Vector], samples: int, key: int) -> DenseReport:
        return dense_wire.said(self._codec, vectors, samples, key, has_norms=self.channel is not None)

    # -- the server

    def first_state(self, x0: Callable[[], Vector]) -> list[Any]:
        x = x0()
        return State(x, {name: np.full_like(x, value) for name, value in self.shared.items()}, {}, None).pack()

    def reachable(self, plan: DensePlan, cohort: Sequence[int]) -> list[int]:
        return [client for client in cohort if self.channel is None or self.channel.reaches(plan.seed, client)]

    def check(self, plan: DensePlan, report: DenseReport) -> None:
        check(report, 1 + len(self.sent), self._dimension)

    def aggregate(
        self,
        state: Any,
        plan: DensePlan,
        reports: Mapping[int, DenseReport],
        *,
        share: float = 1.0,
        late: Sequence[Overdue] = (),
        members: int = 0,
    ) -> tuple[DenseCommit, Any]:
        return committed(self, state, plan, reports, share=share, late=late, members=members)

    def max_norm(self, plan: DensePlan, reports: Mapping[int, DenseReport]) -> Packed | None:
        return None if self.channel is None else dense_wire.pack_peak([report.norms for report in reports.values()])

    # -- values of reports, for whoever looks at them or falsifies them

    def values(self, report: DenseReport) -> Vector:
        return report.vectors

    def with_values(self, report: DenseReport, numbers: Vector) -> DenseReport:
        return self._said(list(numbers.astype(np.float32)), report.samples, 0)

    def count_scalars(self, body: Any) -> int:
        has_norms = self.channel is not None
        if not isinstance(body, list) or len(body) != 2 + has_norms:
            return 0
        return (self._codec.scalars(self._dimension) + has_norms) * (1 + len(self.sent))

    # -- the wire

    def pack_plan(self, plan: DensePlan) -> Packed:
        return dense_wire.pack_plan(plan)

    def unpack_plan(self, body: Any, round: int, version: int) -> DensePlan:
        return dense_wire.unpack_plan(body, round, version)

    def pack_report(self, plan: DensePlan, report: DenseReport) -> Packed:
        return dense_wire.pack_report(report, self._codec)

    def unpack_report(self, body: Any, plan: DensePlan) -> DenseReport:
        vectors = 1 + len(self.sent)
        return dense_wire.unpack_report(body, self._codec, vectors, self._dimension, has_norms=self.channel is not None)

    def pack_commits(self, commits: Sequence[DenseCommit]) -> Packed:
        return dense_wire.pack_commits(self.pending(0, commits), with_model=False)

    def pack_log(self, commits: Sequence[DenseCommit]) -> Packed:
        return dense_wire.pack_commits(commits, with_model=True)

    def unpack_commits(self, body: Any) -> list[DenseCommit]:
        return dense_wire.unpack_commits(body, 1 + len(self.shared), self._dimension)

    # -- what its methods make of it

    @cached_property
    def shared(self) -> dict[str, float]:
        """What replicas hold beside x, with their initial values."""
        return {name: value for method in self.methods for name, value in method.companions.items()}

    @cached_property
    def sent(self) -> list[str]:
        """What clients report beside their updates."""
        return [name for method in self.methods for name in method.sends]

    @cached_property
    def _codec(self) -> Compression:
        return self.compression or Compression()


def _algorithm(method: type[Method]) -> type[FedAvg]:
    """The algorithm that a method makes: its fields beside FedAvg's, some of which have other defaults."""
    others = {name: copy(FedAvg.model_fields[name]) for name in method.defaults}
    for name, field in others.items():
        field.default = method.defaults[name]
    fields: dict[str, Any] = {name: (field.annotation, field) for name, field in (others | method.model_fields).items()}
    made = create_model(method.__name__, __base__=FedAvg, __module__=__name__, __doc__=method.__doc__, **fields)
    made.method = method
    return made


ALGORITHMS: dict[str, type[FedAvg]] = {"fedavg": FedAvg} | {name: _algorithm(found) for name, found in _METHODS.items()}
"""The dense family by name: FedAvg, and an algorithm for every method."""
