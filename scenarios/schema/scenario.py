"""The scenario: one YAML file that describes a whole run.

Its parts are the classes that do the work: the class of an algorithm, a task or a fault is its own schema, and is found
by a search of its folder.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from html import escape
from typing import TYPE_CHECKING, Annotated, Any, Literal

import numpy as np
from pydantic import (
    AfterValidator,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    ValidationInfo,
    model_validator,
)

from seedbus.agents.catch_up.feature import CatchUpBudget
from seedbus.agents.catch_up.settings import Lag
from seedbus.agents.feature import Feature
from seedbus.agents.gossip.feature import WithoutServer
from seedbus.agents.gossip.settings import Gossip
from seedbus.agents.measuring.server import beside_means
from seedbus.agents.policies.participation import Participation
from seedbus.agents.privacy.feature import PrivateReports
from seedbus.agents.privacy.settings import Privacy
from seedbus.agents.refusals import Reason
from seedbus.agents.secure.feature import SecureSums
from seedbus.agents.secure.settings import SecureAggregation
from seedbus.agents.seeds import SHIFT
from seedbus.agents.server.stopping import Cadence, Stop
from seedbus.algorithms.contract import Algorithm
from seedbus.bus import Compute, KeyedRandom, Network
from seedbus.bus.keyed_random import with_random
from seedbus.bus.network import Constant
from seedbus.capabilities import ActsOn, Fact, Gives, Needs, RulesOut, Stated, Statement, check_numbers, objection
from seedbus.models.errors import DataError
from seedbus.models.mask import Mask
from seedbus.models.partition import PARTITIONS, Partition
from seedbus.models.partitions.iid import Iid
from seedbus.models.task import TASKS, NoTask, Task
from seedbus.models.tasks.torch_task import TorchTask as TorchTask  # for programs, which put their own objects in it
from seedbus.scenarios.errors import ScenarioError
from seedbus.scenarios.faults.base import FAULTS, ClientSelector, Fault
from seedbus.scenarios.faults.link_trace import refuse_two_traces
from seedbus.scenarios.schema.discovery import ALGORITHMS
from seedbus.scenarios.schema.expectations import REFUSED_PREFIX, VERIFIED_PREFIX, Bounds, known_names, of_expected
from seedbus.scenarios.schema.plugin_use import needed, refuse_missing
from seedbus.scenarios.schema.without_effect import NO_TIME, no_time_passes
from seedbus.scenarios.schema.yaml_text import dump
from seedbus.scenarios.sentences import NO_UTF_8, expanded, nearest, quoted, sentences
from seedbus.scenarios.transports.transports import TRANSPORTS
from seedbus.settings import Settings

AnyTask = Annotated[Task, TASKS]
AnyPartition = Annotated[Partition, PARTITIONS]
AnyAlgorithm = Annotated[Algorithm, ALGORITHMS]
AnyFault = Annotated[Fault, FAULTS]
if TYPE_CHECKING:
    AnyTransport = str
else:
    AnyTransport = Literal[tuple(TRANSPORTS)]


_NAME = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$"
_NAMED = "at most 64 of A-Z a-z 0-9 . _ -, the first a letter or digit"
MAX_DIMENSION = 2**40  # coordinates; more would take terabytes


def _named(name: str) -> str:
    if not re.fullmatch(_NAME, name):
        raise ValueError(f"expected {_NAMED}")
    return name


def _no_file(value: Any) -> Any:
    if isinstance(value, str):
        raise ValueError(
            f"a scenario names no file of a client, and {quoted(value)} is the name of one; expected true, and the "
            "file named in the environment variable SEEDBUS_SEED_SECRET, or to seedbus client by --seed-secret FILE"
        )
    return value


_REAL_TIME = Stated(RulesOut(Fact.SIMULATED, "runs in real time"), RulesOut(Fact.ALL_PRESENT, "lets some be away"))
GroupName = Annotated[str, AfterValidator(_named)]


def _of_evaluation(evaluation: Cadence) -> Iterator[Statement]:
    if evaluation.by == "clients":
        yield Gives(Fact.MEASURED_BY_CLIENTS)
        yield Needs(Fact.SERVER, "adds up what clients tell a server", ".by")
        yield Needs(Fact.HELD_BY_CLIENTS, "measures on what each client holds out", ".by")
        yield Needs(Fact.MEANS, "adds up sums over samples", ".by")
        yield Needs(Fact.CLEAN, "measures on the clients' own samples, without noise", ".by")
        yield Needs(Fact.IN_TIME, "asks between rounds, while nobody is at work", ".by")
    elif evaluation.split != "test":
        yield Needs(Fact.COMMON, "has the server measure on what clients hold out", ".split")
    if evaluation.split == "train":
        yield Needs(Fact.CLEAN, "measures on the clients' own samples, without noise", ".split")
    if evaluation.split != "test":
        yield ActsOn(Fact.SAMPLES, field=".split")


def _of_end(stop: Stop) -> Iterator[Statement]:
    for field in ("bytes", "simulated_s"):
        if getattr(stop, field) is not None:
            yield Needs(Fact.OPEN_COHORTS, "lets the number of commits tell of those whom rounds asked", f".{field}")
    if stop.epsilon is not None:
        yield Needs(Fact.NOISE, "is the limit of a private run", ".epsilon")


FEATURES: dict[str, type[Feature]] = {
    "lag": CatchUpBudget,
    "secure_aggregation": SecureSums,
    "privacy": PrivateReports,
    "topology": WithoutServer,
}
"""Field → what its section adds to a run and tells of it. To delete one, delete its room, its field and its line."""


class Scenario(Settings):
    """A whole run: task, algorithm, clients, network, faults and the end of training.

    In Python its fields are keyword arguments: plain values as in a file, or objects such as a `TorchTask`.
    """

    model_config = ConfigDict(title="Seedbus scenario")

    def __init__(self, **fields: Any) -> None:
        """Create a scenario from its fields. Raises `ScenarioError`."""
        document = expanded({"name": "scenario"} | fields, [Scenario])
        try:
            self.__pydantic_validator__.validate_python(document, self_instance=self)
            json.dumps(self.resolved(), ensure_ascii=False).encode()
        except ValidationError as error:
            raise ScenarioError("Scenario", sentences(error, Scenario, document)) from None
        except UnicodeEncodeError:
            raise ScenarioError("Scenario", [NO_UTF_8]) from None

    __init__.__pydantic_base_init__ = True  # type: ignore[attr-defined]  # validation elsewhere does not go through it

    name: str = Field(
        pattern=_NAME,
        description=f"{_NAMED}; it names the run's folder",
    )
    description: str = Field(default="", description="one line, shown by `seedbus list`")
    seed: int = Field(default=1, ge=0, lt=2**63, description="key of all random draws")
    task: AnyTask = Field(default_factory=NoTask, description="the model and its data")
    mask: Mask | None = Field(default=None, description="which coordinates are trained; none: all of them")
    partition: AnyPartition = Field(default=Iid(), description="how the samples are divided among the clients")
    algorithm: AnyAlgorithm = Field(description="the training algorithm")
    participation: Participation = Field(description="which clients take part in a round, and when it ends")
    topology: Gossip | None = Field(
        default=None, description="gossip: nodes send their commits to each other; none: to a server, and it to them"
    )
    lag: Lag | None = Field(
        default=None, description="when clients that lag get the model in place of commits; none: they always replay"
    )
    secure_aggregation: SecureAggregation | None = Field(
        default=None, description="mask reports, so that the server learns only their sum; none: it sees each report"
    )
    privacy: Privacy | None = Field(
        default=None, description="clip reports and add noise, for differential privacy of clients; none: neither"
    )
    seed_shift: Annotated[bool, BeforeValidator(_no_file), SHIFT] = Field(
        default=False,
        description="clients shift the seeds that the server sends by a secret that it has not (DeComFL, Appendix "
        "A.3), which the user of each process with clients names; false: the server knows all directions",
    )
    clock: Annotated[Literal["virtual", "wall"], _REAL_TIME] = Field(
        default="virtual", description="virtual: simulated time, which jumps to the next event; wall: real time"
    )
    transport: AnyTransport = Field(
        default="memory",
        description="memory: function calls in one process; the others: ZeroMQ; the results are the same on all",
    )
    network: Network = Field(default=Network(), description="latency and bandwidth of the links")
    compute: Compute = Field(default=Compute(), description="duration of local work")
    faults: list[AnyFault] = Field(default=[], description="faults of messages, links, clients and the server")
    client_groups: dict[GroupName, Annotated[list[Annotated[int, Field(ge=0)]], Field(min_length=1)]] = Field(
        default={},
        description="names of groups of clients, each with their numbers, which the results compare with the other "
        "clients; those that a fault selects are a group without a name here",
    )
    evaluation: Annotated[Cadence, Stated(of=_of_evaluation)] = Field(
        default=Cadence(), description="when the model is evaluated, and on which samples"
    )
    stop: Annotated[Stop, Stated(of=_of_end)] = Field(description="when the run ends")
    expect: Annotated[dict[str, Bounds], Stated(of=of_expected)] = Field(
        default={}, description="expected results, by name"
    )
    verify: bool = Field(default=False, description="compare the digests of the replicas")
    verify_every: Annotated[int, Stated(Needs(Fact.SERVER, "compares what clients show a server"))] = Field(
        default=1, ge=1, description="with verify: versions from one comparison to the next"
    )
    plugins: dict[str, str] = Field(
        default={},
        description="plug-ins that the scenario needs, by the digests of their sources; each process is given them by "
        "its own user, with --plugin",
    )

    @model_validator(mode="after")
    def _name_plugins(self) -> Scenario:
        """Name the plug-ins whose classes are used; those that are named must be there."""
        refuse_missing(self.plugins)
        self.__dict__["plugins"] = self.plugins | needed(self)
        return self

    @model_validator(mode="after")
    def _consistent(self, info: ValidationInfo) -> Scenario:
        """Check what several fields say together. A run that was made has passed, and is read without its data too."""
        try:
            if (found := objection(self)) is not None:
                raise found
        except DataError:
            if not (info.context or {}).get("is_kept"):
                raise
        self._check_clients()
        self._check_faults()
        check_numbers(self)
        return self

    def _check_clients(self) -> None:
        clients = self.participation.clients
        facts = self.algorithm.facts
        most = facts.most_clients
        rounds = self.stop.most_rounds
        if most is not None and clients > most:
            raise ValueError(
                f"participation.clients is {clients}; algorithm {self.algorithm.facts.label} takes at most {most}"
            )
        quorum = self.participation.quorum
        needed = facts.rule.fewest_reports
        if quorum < needed:
            raise ValueError(
                f"participation.quorum is {quorum}; algorithm.aggregation: {facts.rule.rule} needs "
                f"{needed} reports for that f, "
                f"so a quorum of at least {needed} (and a cohort as large)"
            )
        if clients > 2**16 and rounds >= 2**16:
            raise ValueError(
                f"participation.clients is {clients} and stop.rounds {self.stop.rounds or 'missing'}; with more than "
                f"{2**16} clients, rounds are less than {2**16} (an envelope's header is 16 bytes)"
            )
        if self.stop.rounds is None and no_time_passes(self):
            raise ValueError(f"stop.rounds is missing, and stop.simulated_s never comes: {NO_TIME}")
        for name, members in self.client_groups.items():
            if max(members) >= clients:
                raise ValueError(f"client_groups.{name} names {max(members)}; clients are 0 to {clients - 1}")
            if len(set(members)) == clients:
                raise ValueError(
                    f"client_groups.{name} names all {clients} clients; expected a part of them, which is compared "
                    "with the others"
                )

    def _check_faults(self) -> None:
        clients = self.participation.clients
        for number, (fault, random) in enumerate(self.faults_with_draws):
            unknown = [client for client in fault.named_clients if not 0 <= client < clients]
            if unknown:
                raise ValueError(f"faults.{number}.clients names {unknown[0]}; clients are 0 to {clients - 1}")
            counts = fault.client_counts
            of = len(list(fault.chosen(clients, random))) if counts and isinstance(fault, ClientSelector) else clients
            of = of or clients  # a fault of no clients is switched off, with whatever numbers
            for field, count in counts.items():
                if count > of:
                    who = "all clients" if of == clients else "the clients that it selects"
                    raise ValueError(f"faults.{number}.{field} is {count}; expected at most {of}, {who}")

    def check(self) -> dict[str, str]:
        """Return the digests of the files that the partition and faults read, by field (`faults.0.file`).

        Raises:
            ScenarioError, DataError: a file cannot be read, a line of it is invalid, or two say the speeds of one link.
        """
        clients = self.participation.clients
        digests = {f"faults.{number}.file": fault.file_digest(clients) for number, fault in enumerate(self.faults)}
        digests["partition.file"] = self.partition.file_digest(clients)
        refuse_two_traces(self.faults_with_draws, clients)
        return {field: digest for field, digest in digests.items() if digest}

    @model_validator(mode="after")
    def _fits_data(self, info: ValidationInfo) -> Scenario:
        """Check what only the task's data may tell. A run that was made has passed, and is read without it too."""
        try:
            self._check_network()
            self._check_measured()
        except DataError:
            if not (info.context or {}).get("is_kept"):
                raise
        return self

    def _check_network(self) -> None:
        """Check the task's dimension."""
        dimension = self.task.declared_dimension
        if dimension is not None and dimension > MAX_DIMENSION:
            raise ValueError(f"task.dimension is {dimension}; at most {MAX_DIMENSION} coordinates are accepted")

    def _check_measured(self) -> None:
        """Check that the run measures what `expect` and `stop.target` name."""
        if not self.has_task:
            return
        known = known_names([*self.metrics, *self.figures])
        reasons = [REFUSED_PREFIX + reason for reason in sorted(Reason)]
        target = self.stop.target
        if target is not None and target.metric not in self.metrics:
            what = f"{quoted(target.metric)} is not measured; {nearest(target.metric, self.metrics)}"
            raise ValueError(f"stop.target.metric: {what}")
        if target is not None and target.metric not in self.task.rising and "direction" not in target.model_fields_set:
            what = f"smaller values of {target.metric} may be the better ones; expected below, or above"
            raise ValueError(f"stop.target.direction: this field is required, since {what}")
        fields = [VERIFIED_PREFIX + name for name in self.algorithm.replica(np.zeros(1, np.float32)).fields]
        for name in self.expect:
            if name.startswith(VERIFIED_PREFIX) and name not in fields:
                what = f"a replica of algorithm {self.algorithm.facts.label} has no such field"
                raise ValueError(f"expect.{name}: {what}; {nearest(name, fields)}")
            if name in fields and not self.verify:
                raise ValueError(f"expect.{name}: no digests are compared; set verify: true")
            if name.startswith(REFUSED_PREFIX) and name not in reasons:
                raise ValueError(f"expect.{name}: no message is refused for it; {nearest(name, reasons)}")
            if name not in known and name not in reasons and name not in fields:
                raise ValueError(f"expect.{name}: nothing of that name is measured; {nearest(name, known)}")

    @property
    def dimension(self) -> int:
        """d, the number of trained coordinates: those of the mask if there is one. Raises `DataError`."""
        dimension = self.task.dimension
        return dimension if self.mask is None else self.mask.count(dimension)

    @property
    def has_task(self) -> bool:
        """Whether it has a task, and does not get one when it is run."""
        return not isinstance(self.task, NoTask)

    def with_task(self, task: Task | None) -> Scenario:
        """Return this scenario with a task in the place of its own; None: its own.

        Raises:
            ScenarioError: the scenario does not fit the task.
        """
        if task is None:
            return self
        given: Any = task
        if not isinstance(given, Task):
            problem = f"task: {type(task).__name__} is not accepted; expected a task, such as seedbus.TorchTask(…)"
            raise ScenarioError(self.name, [problem])
        fields = {name: getattr(self, name) for name in self.model_fields_set}
        try:
            return Scenario.model_validate(fields | {"task": task})
        except ValidationError as error:
            raise ScenarioError(self.name, sentences(error, Scenario, self.resolved())) from None

    @property
    def features(self) -> list[Feature]:
        """What its sections add to a run, in the order of `FEATURES`."""
        sections = {name: getattr(self, name) for name in FEATURES}
        return [FEATURES[name](section, self) for name, section in sections.items() if section is not None]

    @property
    def has_server(self) -> bool:
        return all(each.has_server for each in self.features)

    @property
    def figures(self) -> list[str]:
        """What lines of metrics have beside `metrics`, such as "epsilon"."""
        return [name for feature in self.features for name in feature.figures]

    @property
    def round_s(self) -> float | None:
        """How many simulated seconds each round takes; None: it depends on what happens in it."""
        return next((each.round_s for each in self.features if each.round_s is not None), None)

    @property
    def has_secret_cohorts(self) -> bool:
        """Whether nobody may learn whom rounds ask. Then each round makes a commit."""
        return any(each.hides_cohorts for each in self.features)

    @property
    def sends_replicas(self) -> bool:
        """Whether clients may be sent all coordinates, whatever the algorithm sends."""
        return any(each.sends_replicas for each in self.features)

    @property
    def shows_sums_alone(self) -> bool:
        """Whether the server learns sums over clients, and nothing of one of them."""
        return any(each.shows_sums_alone for each in self.features)

    @property
    def faults_with_draws(self) -> list[tuple[Fault, KeyedRandom]]:
        """Each fault, with its random draws."""
        return with_random(self.faults, self.seed, self.participation.clients)

    @property
    def replay_s(self) -> float:
        """Seconds to fold a missed commit, if constant; 0 if it varies."""
        return self.compute.replay.value if isinstance(self.compute.replay, Constant) else 0.0

    @property
    def metrics(self) -> list[str]:
        """The names of the metrics of an evaluation."""
        replica = self.algorithm.replica(np.zeros(1, np.float32))
        own = [*self.task.metrics, *self.algorithm.diagnostics(replica)]
        is_told = self.evaluation.by == "clients"
        told = beside_means(self.task.metrics, in_sums=self.shows_sums_alone) if is_told else ()
        return [*own, *told, *(name for feature in self.features for name in feature.metrics)]

    def resolved(self) -> dict[str, Any]:
        """Return all fields with their values, as plain data for YAML or JSON."""
        fields = self.model_dump(mode="json", by_alias=True, exclude=None if self.has_task else {"task"})
        unused = {name for name in ("mask", "plugins", "seed_shift", "client_groups", *FEATURES) if not fields[name]}
        unused -= {"lag"}  # it is told always, as in the scenarios of earlier runs
        return {name: value for name, value in fields.items() if name not in unused}

    def __str__(self) -> str:
        """Return the scenario as a file has it, with the values of all fields."""
        return dump(self.resolved())

    def _repr_html_(self) -> str:
        """Return what a notebook shows."""
        return f"<pre>{escape(str(self))}</pre>"


def json_schema() -> dict[str, Any]:
    """Return the JSON Schema of scenario files, for editors."""
    schema: dict[str, Any] = _with_names(Scenario.model_json_schema())
    schema["required"] = [name for name in schema["properties"] if name == "task" or name in schema["required"]]
    return schema


def _with_names(schema: Any) -> Any:
    """Return a JSON Schema that also accepts a bare name where it accepts one of several models."""
    if isinstance(schema, list):
        return [_with_names(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    accepted = {key: _with_names(each) for key, each in schema.items()}
    if "discriminator" not in schema:
        return accepted
    models = {key: accepted.pop(key) for key in ("discriminator", "oneOf")}
    return accepted | {"anyOf": [{"enum": list(models["discriminator"]["mapping"])}, models]}
