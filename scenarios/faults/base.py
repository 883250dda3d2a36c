"""The base classes of faults: which clients, rounds and messages a fault strikes.

Fault            any fault
ClientSelector   selects clients
RoundSelector    also rounds, with a probability
TrafficSelector  also the direction and the simulated time of a message
MessageSelector  also the kind of a message
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, ClassVar, Literal

from pydantic import Field, model_validator

from seedbus.agents.availability import AvailabilityFault
from seedbus.agents.client.forging import Forge
from seedbus.agents.client.relabelling import Relabel
from seedbus.agents.client.tampering import Tamper
from seedbus.agents.server.collusion import Collude
from seedbus.agents.server.outages import Outage
from seedbus.bus import KeyedRandom, Passage
from seedbus.bus.envelope import BETWEEN
from seedbus.bus.network import round_ns
from seedbus.capabilities import ActsOn, Fact, Needs, RulesOut, Statement
from seedbus.discovery import Variants
from seedbus.settings import Settings

CLIENT_KEY = "clients fraction"
ROUND_KEY = f"{CLIENT_KEY} probability at_round for_rounds every_rounds"
TRAFFIC_KEY = f"{ROUND_KEY} direction at_s for_s every_s"
MESSAGE_KEY = f"{TRAFFIC_KEY} kind"
"""The fields of selectors in `keyed_as`, in which they come first."""
_OF_HOOKS: dict[type[Any], tuple[Statement, ...]] = {
    Relabel: (Needs(Fact.SAMPLES, "changes classes of samples"),),
    Tamper: (Needs(Fact.SERVER, "falsifies answers to a server"),),
    Forge: (Needs(Fact.SERVER, "falsifies answers to a server"),),
    Collude: (
        Needs(Fact.SERVER, "falsifies reports to a server"),
        Needs(Fact.COMPARABLE, "compares reports"),
        Needs(Fact.ROUNDS, "compares the reports of a round"),
        Needs(Fact.SINGLE_REPORTS, "replaces single reports"),
    ),
    Outage: (
        Needs(Fact.SERVER, "crashes a server"),
        Needs(Fact.WORK_ENDS, "loses reports of earlier rounds, whose clients would count as at work for ever"),
    ),
    AvailabilityFault: (RulesOut(Fact.ALL_PRESENT, "keeps some away"),),
}
"""Hook → what faults that have it need, and rule out."""
_OF_KINDS = {
    **dict.fromkeys(("snapshot", "pull"), Fact.SNAPSHOTS),
    **dict.fromkeys(("ask", "tell"), Fact.HIDDEN),
    **dict.fromkeys(("measure", "measured"), Fact.MEASURED_BY_CLIENTS),
    **dict.fromkeys((kind.name.lower() for kind in BETWEEN), Fact.NODES),
}
"""Kind of message → without which fact none is sent; without a server only the last are."""
_LATEST_S = 10**7  # past the end of simulated time


class Fault(Settings):
    """One entry of `faults:` in a scenario.

    Attributes:
        paired_hooks: hook → the one that it needs beside it. The run counts by one of them what the other does.
    """

    paired_hooks: ClassVar[dict[str, str]] = {
        "tamper": "lies",
        "collude": "lies",
        "new_classes": "mislabels",
        "mislabels": "new_classes",
        "forge": "forges",
    }

    def __repr_args__(self) -> Iterator[tuple[str | None, Any]]:
        """Yield the fields that differ from their defaults.

        The repr keys the draws of a fault without `keyed_as`. Defaults are left out, so that a field added later
        changes no draw.
        """
        for name, value in super().__repr_args__():
            if name is None or value != type(self).model_fields[name].default:
                yield name, value

    def capabilities(self) -> Iterator[Statement]:
        for hook, statements in _OF_HOOKS.items():
            if isinstance(self, hook):
                yield from statements
        if self.may_lose:
            yield Needs(Fact.ENDS, "loses messages, so a round would wait for ever")
        for field, between in (("returns", "with-state"), ("direction", "both")):
            if getattr(self, field, between) != between:
                yield Needs(Fact.SERVER, "is for clients of a server", field)

    @property
    def may_lose(self) -> bool:
        """True if a message may never arrive."""
        return False

    @property
    def follows_losses(self) -> bool:
        """True if which reports the server refuses depends on losses, which a rehearsal has not."""
        return False

    @property
    def only_multiplies(self) -> bool:
        """True if all that it does is multiply the time of local work."""
        return False

    @property
    def named_clients(self) -> list[int]:
        """The clients that the scenario lists by number."""
        return []

    @property
    def client_counts(self) -> dict[str, int]:
        """Field → the number of clients that it gives."""
        return {}

    @property
    def idle_fields(self) -> set[str]:
        """The fields whose values mean nothing beside those of the others."""
        return set()

    def client_groups(self, clients: int, random: KeyedRandom) -> Mapping[str, Iterable[int]]:
        """Return the groups of clients that it sets apart for the whole run: a short name → their numbers.

        A group of all clients, or of none, is compared with no others and does not count.

        Args:
            clients: number of clients of the run.
            random: the fault's own draws.

        Raises:
            ScenarioError: the file that the fault reads cannot be read or has an invalid line.
        """
        return {}

    def client_devices(self, clients: int, random: KeyedRandom) -> Mapping[int, str]:
        """Return client → the name of its device, for the clients that have one of a file that the fault reads.

        Arguments and errors: `client_groups`.
        """
        return {}

    def file_digest(self, clients: int) -> str:
        """Return the digest of the file that the fault reads, or "" if it reads none.

        Args:
            clients: number of clients of the run.

        Raises:
            ScenarioError: the file cannot be read or has an invalid line.
        """
        return ""


FAULTS = Variants("fault", "fault", "seedbus.scenarios.faults", Fault)


class ClientSelector(Fault):
    """Selects clients. Default: all."""

    clients: list[int] | None = Field(default=None, description="only these clients")
    fraction: float | None = Field(
        default=None, ge=0, le=1, description="only this fraction of all clients, drawn once; instead of clients"
    )

    @model_validator(mode="after")
    def _check_one_selection(self) -> ClientSelector:
        if self.clients is not None and self.fraction is not None:
            raise ValueError("give clients or fraction, not both")
        return self

    @property
    def named_clients(self) -> list[int]:
        return self.clients or []

    def selects_client(self, client: int, random: KeyedRandom) -> bool:
        """True if the client is selected."""
        if self.fraction is not None:
            return client in random.share(self.fraction)
        return self.clients is None or client in self.clients

    def client_groups(self, clients: int, random: KeyedRandom) -> Mapping[str, Iterable[int]]:
        return {str(type(self).model_fields["fault"].default): self.chosen(clients, random)}

    def chosen(self, clients: int, random: KeyedRandom) -> Iterable[int]:
        """Return the selected clients, ascending.

        Args:
            clients: number of clients of the run.
            random: the fault's own draws.
        """
        if self.fraction is not None:
            return sorted(random.share(self.fraction))
        return range(clients) if self.clients is None else sorted(set(self.clients))


class RoundSelector(ClientSelector):
    """Selects clients in rounds, with a probability. Default: all clients, in every round."""

    probability: float = Field(
        default=1.0, ge=0, le=1, description="chance that a selected client or message is affected"
    )
    at_round: int = Field(default=0, ge=0, description="first round")
    for_rounds: int | None = Field(default=None, ge=1, description="number of rounds; none: to the end")
    every_rounds: int | None = Field(
        default=None, ge=1, description="rounds from one start to the next; none: only once"
    )

    @model_validator(mode="after")
    def _check_rounds(self) -> RoundSelector:
        if self.every_rounds is not None and (self.for_rounds is None or self.for_rounds > self.every_rounds):
            raise ValueError(f"every_rounds ({self.every_rounds}) needs for_rounds, which is at most as many")
        return self

    def is_due(self, round: int) -> bool:
        """True if the round is selected."""
        return _is_within(round, self.at_round, self.for_rounds, self.every_rounds)

    def strikes_client(self, client: int, round: int, random: KeyedRandom) -> bool:
        """True if the fault affects the client during the whole round."""
        if not (self.is_due(round) and self.selects_client(client, random)):
            return False
        return self.probability == 1 or random.draw("strike", client, round) < self.probability


class TrafficSelector(RoundSelector):
    """Selects messages of clients, also by direction and simulated time. Default: all messages."""

    direction: Literal["up", "down", "both"] = Field(default="both", description="up: to the server; down: from it")
    at_s: float = Field(default=0.0, ge=0, le=_LATEST_S, description="first simulated second")
    for_s: float | None = Field(
        default=None, ge=1e-9, le=_LATEST_S, description="duration in simulated seconds; none: to the end"
    )
    every_s: float | None = Field(
        default=None, ge=1e-9, le=_LATEST_S, description="simulated seconds from one start to the next; none: only once"
    )

    @model_validator(mode="after")
    def _check_times(self) -> TrafficSelector:
        if self.every_s is not None and (self.for_s is None or self.for_s > self.every_s):
            raise ValueError(f"every_s ({self.every_s:g}) needs for_s, which is at most as long")
        return self

    def is_open(self, now_ns: int) -> bool:
        """True if this moment of simulated time is selected."""
        for_ns = None if self.for_s is None else round_ns(self.for_s)
        every_ns = None if self.every_s is None else round_ns(self.every_s)
        return _is_within(now_ns, round_ns(self.at_s), for_ns, every_ns)

    def is_open_to(self, passage: Passage) -> bool:
        """True if messages of this direction and round are selected at this moment, of whichever client."""
        if self.direction != "both" and passage.kind.is_upward != (self.direction == "up"):
            return False
        return self.is_open(passage.now_ns) and self.is_due(passage.round)

    def selects(self, passage: Passage) -> bool:
        """True if the message is selected at this moment; `probability` is not considered."""
        return self.is_open_to(passage) and any(self.selects_client(end, passage.random) for end in passage.clients)


_Selected = Literal["plan", "report", "join", "snapshot", "pull", "ask", "tell", "flood", "have", "measure", "measured"]


class MessageSelector(TrafficSelector):
    """Selects messages, also by kind, at the time of sending. Default: all messages."""

    kind: _Selected | None = Field(
        default=None,
        description="only messages of this kind; join: a client tells the server which version it has; snapshot: the "
        "offer of a snapshot to a lagging client, or a chunk of it; pull: the client's request for chunks; ask and "
        "tell: a question of secure aggregation to a client, and its answer; flood and have: commits between nodes of "
        "a run without a server, and which commits a node has; measure and measured: a client is to evaluate, and "
        "tells",
    )

    def capabilities(self) -> Iterator[Statement]:
        yield from super().capabilities()
        if self.kind in _OF_KINDS:
            yield ActsOn(_OF_KINDS[self.kind], f"no message of the kind {self.kind} is sent", "kind")
        if self.kind is not None and _OF_KINDS.get(self.kind) is not Fact.NODES:
            yield Needs(Fact.SERVER, "is for messages of a server and its clients", "kind")

    def strikes(self, passage: Passage) -> bool:
        """True if the fault affects the message; False on arrival."""
        if passage.arriving or (self.kind is not None and passage.kind.name.lower() != self.kind):
            return False
        return self.selects(passage) and passage.draw("strike") < self.probability


def _is_within(now: int, start: int, length: int | None, period: int | None) -> bool:
    """True if `now` lies in a window of `length` that begins at `start` and again after every `period`.

    Without a length the window never ends; without a period it occurs once.
    """
    elapsed = now - start
    if period is not None and elapsed >= 0:
        elapsed %= period
    return elapsed >= 0 and (length is None or elapsed < length)
