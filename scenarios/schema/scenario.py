"""The scenario: one YAML file that says all of a run.

Its parts are the classes that do the work: an algorithm, a task or a fault is its own schema, and joins by existing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal, Union

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, model_validator

from seedbus.agents.policies.participation import Participation
from seedbus.agents.policies.snapshot_budget import Lag
from seedbus.agents.refusals import Reason
from seedbus.agents.server.stopping import Cadence, Stop
from seedbus.algorithms.contract import Algorithm
from seedbus.bus import Compute, Network
from seedbus.bus.network import Constant
from seedbus.models.partitions import Iid, Partition
from seedbus.models.task import Task, tasks
from seedbus.scenarios.faults.selector import Clients
from seedbus.scenarios.schema.discovery import algorithms, faults
from seedbus.scenarios.schema.expectations import REFUSED, Bounds, names
from seedbus.scenarios.sentences import nearest, quoted
from seedbus.scenarios.transports.transports import TRANSPORTS

if TYPE_CHECKING:
    AnyTask = Task
    AnyAlgorithm = Algorithm[Any, Any, Any]
    AnyFault = Clients
    AnyTransport = str
else:
    AnyTask = Annotated[Union[tuple(tasks().values())], Field(discriminator="name")]  # noqa: UP007
    AnyAlgorithm = Annotated[Union[tuple(algorithms().values())], Field(discriminator="name")]  # noqa: UP007
    AnyFault = Annotated[Union[tuple(faults().values())], Field(discriminator="fault")]  # noqa: UP007
    AnyTransport = Literal[tuple(TRANSPORTS)]


LARGEST = 2**40  # coordinates; more would be terabytes


class Scenario(BaseModel):
    """A whole run: who trains what, how, over which links, under which faults, until when."""

    model_config = ConfigDict(frozen=True, extra="forbid", title="Seedbus scenario")

    name: str = Field(
        pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$",
        description="at most 64 of A-Z a-z 0-9 . _ -, and no sign first; it names the run's folder",
    )
    description: str = Field(default="", description="one line for `seedbus list`")
    seed: int = Field(default=1, ge=0, lt=2**63, description="everything random is keyed by it")
    task: AnyTask = Field(description="what is trained, on which data")
    partition: Partition = Field(default=Iid(), description="who holds which samples")
    algorithm: AnyAlgorithm = Field(description="how it is trained")
    participation: Participation = Field(description="who takes part in a round, and when it is over")
    lag: Lag | None = Field(
        default=None, description="when clients that lag get a snapshot of the model; none: they replay, however long"
    )
    clock: Literal["virtual", "wall"] = Field(
        default="virtual", description="virtual: time jumps when everybody waits; wall: real time, real races"
    )
    transport: AnyTransport = Field(
        default="memory", description="memory: function calls in one process; the others are ZeroMQ's; same bits on all"
    )
    network: Network = Field(default=Network(), description="latency and bandwidth of the links")
    compute: Compute = Field(default=Compute(), description="how long local work takes")
    faults: list[AnyFault] = Field(default=[], description="what goes wrong: with messages, links, and clients")
    evaluation: Cadence = Field(default=Cadence(), description="when the model is measured, and on what")
    stop: Stop = Field(description="when the run is over")
    expect: dict[str, Bounds] = Field(default={}, description="what the run is to reach, by name")
    verify: bool = Field(default=False, description="compare the replicas' digests, bit for bit")
    verify_every: int = Field(default=1, ge=1, description="with verify: compare at every so many versions")

    @model_validator(mode="after")
    def _consistent(self) -> Scenario:
        clients, most, rounds = self.participation.clients, self.algorithm.most_clients, self.stop.rounds
        if most is not None and clients > most:
            raise ValueError(
                f"participation.clients is {clients}; algorithm {self.algorithm.name} takes at most {most}"
            )
        quorum, fewest = self.participation.quorum, self.algorithm.fewest_reports
        if quorum < fewest:
            raise ValueError(
                f"participation.quorum is {quorum}; algorithm.aggregation: {self.algorithm.aggregation.rule} needs "
                f"{fewest} reports for that f, "
                f"so a quorum of at least {fewest} (and a cohort as large)"
            )
        if clients > 2**16 and rounds >= 2**16:
            raise ValueError(
                f"participation.clients is {clients} and stop.rounds {rounds}; with more than {2**16} clients, "
                f"rounds are less than {2**16} (an envelope's header is 16 bytes)"
            )
        if self.task.dimension > LARGEST:
            raise ValueError(f"task.dimension is {self.task.dimension}; at most {LARGEST} coordinates are accepted")
        if self.partition.kind == "natural" and not self.task.has_owners:
            owned = ", ".join(name for name, task in tasks().items() if task.has_owners)
            raise ValueError(
                f"partition.kind is natural, but the samples of task {self.task.name} are nobody's; iid, dirichlet or "
                f"shards are accepted, and natural for {owned}"
            )
        if self.participation.late is not None and not self.algorithm.takes_late:
            added_up, steered = (
                "its channel adds up what is sent at once",
                "its directions depend on the replica's state",
            )
            raise ValueError(
                f"participation.late: algorithm {self.algorithm.name} cannot use late reports, because "
                f"{added_up if self.algorithm.is_dense else steered}; leave late (and buffer) out"
            )
        if self.lag is not None and self.lag.snapshot_after_s is not None and not self.replay_s:
            raise ValueError(
                "lag.snapshot_after_s needs to know how long it takes to fold a commit; say so in compute.replay, as "
                "in {distribution: constant, value: 0.01}"
            )
        if self.lag is not None and self.algorithm.is_dense:
            raise ValueError(
                f"lag: a client of algorithm {self.algorithm.name} is sent the newest model, however much it missed; "
                "leave lag out"
            )
        if self.algorithm.needs_outputs and not self.task.has_outputs:
            raise ValueError(
                f"algorithm {self.algorithm.name} looks at what a network says, and task {self.task.name} has none "
                "that classifies; choose an image task, or another method"
            )
        for number, fault in enumerate(self.faults):
            if fault.may_lose and self.participation.deadline_s is None:
                raise ValueError(
                    f"faults.{number} loses messages; set participation.deadline_s, or a round would wait for ever"
                )
            strangers = [client for client in fault.named if not 0 <= client < clients]
            if strangers:
                raise ValueError(f"faults.{number}.clients names {strangers[0]}; clients are 0 to {clients - 1}")
        return self

    def check(self) -> dict[str, str]:
        """The digests of the files that faults name, by their field. Raises `ScenarioError`."""
        found = {f"faults.{n}.file": fault.check(self.participation.clients) for n, fault in enumerate(self.faults)}
        return {name: digest for name, digest in found.items() if digest}

    @model_validator(mode="after")
    def _measurable(self) -> Scenario:
        """What is expected, and what ends the run, must be something that this run will know."""
        known, reasons = names(self.metrics), [REFUSED + reason for reason in sorted(Reason)]
        target = self.stop.target
        if target is not None and target.metric not in self.metrics:
            what = f"{quoted(target.metric)} is not measured; {nearest(target.metric, self.metrics)}"
            raise ValueError(f"stop.target.metric: {what}")
        for name in self.expect:
            if name.startswith(REFUSED) and name not in reasons:
                raise ValueError(f"expect.{name}: nothing is refused for that; {nearest(name, reasons)}")
            if name not in known and name not in reasons:
                raise ValueError(f"expect.{name}: nothing of that name is measured; {nearest(name, known)}")
        return self

    @property
    def replay_s(self) -> float:
        """What folding a missed commit takes, where that is always the same; 0: nothing, or it varies."""
        return self.compute.replay.value if isinstance(self.compute.replay, Constant) else 0.0

    @property
    def metrics(self) -> list[str]:
        """What an evaluation of this run measures."""
        coordinate = self.algorithm.replica(np.zeros(1, np.float32))
        return [*self.task.metrics, *self.algorithm.diagnostics(coordinate)]

    def resolved(self) -> dict[str, Any]:
        """Every field with its value, ready for YAML or JSON."""
        return self.model_dump(mode="json")


def json_schema() -> dict[str, Any]:
    """JSON Schema of a scenario file, for editors."""
    return Scenario.model_json_schema()
