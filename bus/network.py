"""Durations in simulated time: links with latency and bandwidth, and the clients' computation.

Every duration is drawn by key (seed, purpose, client, round, …), so it is the same on every transport, and is rounded
to integer nanoseconds. Links of the evaluator and of hosts are ideal, because these are instruments of the simulation.

Faults may limit a client's bandwidth (`Throttle`, `ChangingLinks`) or slow its computation (`Slowdown`,
`UnequalDevices`). At any time the lowest of several limits applies. Factors multiply as exact fractions and pauses add,
so the order of the faults makes no difference.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from fractions import Fraction
from functools import lru_cache, partial
from statistics import NormalDist
from typing import Annotated, Any, Literal, NamedTuple, Protocol, runtime_checkable

from pydantic import BaseModel, BeforeValidator, Field, model_validator
from pydantic_core import PydanticCustomError

from seedbus.bus.envelope import SERVER
from seedbus.bus.errors import Unusable
from seedbus.bus.event_queue import LAST_NS
from seedbus.bus.fault_hooks import ActiveFault, FaultHooks
from seedbus.bus.in_flight import Key as MessageKey
from seedbus.bus.in_flight import random_key
from seedbus.bus.keyed_random import Key, KeyedRandom, uniform
from seedbus.bus.speeds import LEAST_MBPS, Speeds, passed_ns
from seedbus.capabilities import ActsOn, Fact, Needs, RulesOut, Stated, Statement
from seedbus.settings import Settings

_NORMAL = NormalDist()
_LONGEST_S = 10**6  # limit of a single draw, so that a heavy tail does not reach the end of the clock
_HIGHEST_EXPONENT = 700.0  # exp overflows above 709


class _Duration(Settings, ABC):
    def quantile(self, u: float) -> float:
        """Return the duration in seconds at probability u in (0, 1), at most 10⁶ s."""
        return min(self._quantile(u), _LONGEST_S)

    @abstractmethod
    def _quantile(self, u: float) -> float: ...

    def draw_s(self, seed: int, *key: Key) -> float:
        """Draw a duration in seconds by key."""
        return self.quantile(uniform(seed, *key))


class Constant(_Duration):
    """Always the same; a plain number is short for it."""

    keyed_as = "Constant distribution value"

    distribution: Literal["constant"] = "constant"
    value: float = Field(default=0.0, ge=0, le=_LONGEST_S, description="seconds")

    def _quantile(self, u: float) -> float:
        return self.value

    def draw_s(self, seed: int, *key: Key) -> float:
        return self.value


class Uniform(_Duration):
    """Evenly spread between two bounds."""

    keyed_as = "Uniform distribution low high"

    distribution: Literal["uniform"] = "uniform"
    low: float = Field(ge=0, le=_LONGEST_S, description="seconds")
    high: float = Field(ge=0, le=_LONGEST_S, description="seconds")

    @model_validator(mode="after")
    def _ordered(self) -> Uniform:
        if self.high < self.low:
            raise ValueError(f"high ({self.high}) is below low ({self.low})")
        return self

    def _quantile(self, u: float) -> float:
        return self.low + u * (self.high - self.low)


class Lognormal(_Duration):
    """Log-normal: most are near the median, a few are far above it."""

    keyed_as = "Lognormal distribution median sigma"

    distribution: Literal["lognormal"] = "lognormal"
    median: float = Field(gt=0, le=_LONGEST_S, description="seconds")
    sigma: float = Field(ge=0, le=10, description="standard deviation of the logarithm")

    def _quantile(self, u: float) -> float:
        return self.median * math.exp(self.sigma * _NORMAL.inv_cdf(u))


class Exponential(_Duration):
    """Exponential (memoryless), given by its mean."""

    keyed_as = "Exponential distribution mean"

    distribution: Literal["exponential"] = "exponential"
    mean: float = Field(gt=0, le=_LONGEST_S, description="seconds")

    def _quantile(self, u: float) -> float:
        return -self.mean * math.log1p(-u)


class Pareto(_Duration):
    """Pareto: heavy-tailed above its smallest value."""

    keyed_as = "Pareto distribution minimum shape"

    distribution: Literal["pareto"] = "pareto"
    minimum: float = Field(gt=0, le=_LONGEST_S, description="seconds")
    shape: float = Field(gt=0, le=100, description="tail index; at 1 and below the mean is infinite")

    def _quantile(self, u: float) -> float:
        return self.minimum * math.exp(min(-math.log1p(-u) / self.shape, _HIGHEST_EXPONENT))


def _expand_number(value: Any) -> Any:
    if type(value) in (int, float):
        return {"distribution": "constant", "value": value}
    if not isinstance(value, dict | BaseModel):
        raise PydanticCustomError("number_or_fields", "a number or a mapping of fields")
    return value


_Distribution = Annotated[Constant | Uniform | Lognormal | Exponential | Pareto, Field(discriminator="distribution")]
Duration = Annotated[_Distribution, BeforeValidator(_expand_number, json_schema_input_type=float | _Distribution)]
"""A distribution; a number is short for the constant one."""


_OF_SERVER = Stated(Needs(Fact.SERVER, "is the speed of a server's link"))


class Network(Settings):
    """The links between the server and its clients."""

    latency: Duration = Field(default=Constant(), description="one way, drawn for every message")
    up_mbps: float | None = Field(default=None, ge=1e-6, description="a client's uplink in Mbit/s; none: unlimited")
    down_mbps: float | None = Field(default=None, ge=1e-6, description="a client's downlink in Mbit/s; none: unlimited")
    shared_up_mbps: Annotated[float | None, _OF_SERVER] = Field(
        default=None, ge=1e-6, description="uplink to the server in Mbit/s, shared by all clients in order of sending"
    )
    shared_down_mbps: Annotated[float | None, _OF_SERVER] = Field(
        default=None, ge=1e-6, description="downlink from the server in Mbit/s, shared likewise"
    )


class Compute(Settings):
    """How long a client computes: evaluations of f and replay of missed commits, times the client's own slowness."""

    evaluation: Duration = Field(default=Constant(), description="seconds for one evaluation of f, drawn every round")
    replay: Duration = Field(default=Constant(), description="seconds to fold one missed commit, drawn every round")
    slowness: Duration = Field(default=Constant(value=1.0), description="a client's own factor, drawn once")

    def capabilities(self) -> Iterator[Statement]:
        if not (isinstance(self.replay, Constant) and self.replay.value):
            example = "{distribution: constant, value: 0.01}"
            yield RulesOut(Fact.CONSTANT_REPLAY, f"is no constant above 0, such as {example}", "replay")
        if self.replay != Constant():
            yield ActsOn(Fact.LOG, field="replay")

    @property
    def is_drawn(self) -> bool:
        """Whether anything is drawn for a client or a round; if not, all clients compute equally long."""
        return not all(isinstance(each, Constant) for each in (self.evaluation, self.replay, self.slowness))

    def time_ns(self, seed: int, client: int, round: int, evaluations: int, missed: int = 0) -> int:
        """Return the nanoseconds that a client computes in a round, without faults.

        Args:
            seed: the scenario's seed.
            client: the client.
            round: the round.
            evaluations: number of evaluations of f.
            missed: number of missed commits to fold.
        """
        work_s = self.evaluation.draw_s(seed, "evaluation", client, round) * evaluations
        if missed:
            work_s += self.replay.draw_s(seed, "replay", client, round) * missed
        return round_ns(min(work_s * self.slowness.draw_s(seed, "slowness", client), _LONGEST_S))


@runtime_checkable
class Throttle(Protocol):
    """A fault that limits the bandwidth of clients' links."""

    def mbps(self, client: int, round: int, upward: bool, random: KeyedRandom) -> float | None:
        """Return the limit in Mbit/s for a client's messages of a round in one direction; None: no limit."""
        ...


@runtime_checkable
class ChangingLinks(Protocol):
    """A fault by which the speeds of clients' links change with simulated time."""

    def speeds(self, clients: int, random: KeyedRandom) -> Mapping[tuple[int, bool], Speeds]:
        """Return (client, whether upward) → the limits of that link, for all links that change; clients: N."""
        ...


class Slowed(NamedTuple):
    """A change of a computation's duration.

    Attributes:
        factor: the duration is multiplied by it.
        pause_ns: nanoseconds that are then added.
    """

    factor: float = 1.0
    pause_ns: int = 0

    def of(self, ns: int) -> Fraction:
        """Return the changed duration in nanoseconds."""
        return ns * Fraction(self.factor) + self.pause_ns


@runtime_checkable
class Slowdown(Protocol):
    """A fault that makes clients compute for longer, or less long."""

    def slows(self, client: int, round: int, random: KeyedRandom) -> Slowed: ...


@runtime_checkable
class UnequalDevices(Protocol):
    """A fault that gives clients factors on the time of their work, for the whole run."""

    def factors(self, clients: int, random: KeyedRandom) -> Mapping[int, float]:
        """Return client → its factor, for all clients that have one; clients: N."""
        ...


class Pace:
    """How long clients compute, with all faults that slow them.

    Attributes:
        is_equal: whether all compute equally long.
    """

    def __init__(self, compute: Compute, seed: int, rules: FaultHooks) -> None:
        self._compute = compute
        self._seed = seed
        self._slowdowns = rules.of_kind(Slowdown)
        self._devices = [(each, _slowed_devices(each, rules.clients)) for each in rules.of_kind(UnequalDevices)]
        self._is_drawn = compute.is_drawn
        self._equal_ns = lru_cache(maxsize=64)(partial(compute.time_ns, seed, 0, 0))
        self.is_equal = not (self._slowdowns or self._devices or self._is_drawn)

    def time_ns(self, client: int, round: int, evaluations: int, missed: int = 0) -> int:
        """Return the nanoseconds that a client computes in a round; count the delay that each fault alone causes.

        Args:
            client: the client.
            round: the round.
            evaluations: number of evaluations of f.
            missed: number of missed commits to fold.
        """
        if self._is_drawn:
            base_ns = self._compute.time_ns(self._seed, client, round, evaluations, missed)
        else:
            base_ns = self._equal_ns(evaluations, missed)
        factor = Fraction(1)
        pause_ns = 0
        for each, slowed in self._slowed(client, round):
            if by_ns := _nearest(slowed.of(base_ns) - base_ns):
                each.count_delay("slowed", by_ns)
            factor *= Fraction(slowed.factor)
            pause_ns += slowed.pause_ns
        return min(_nearest(base_ns * factor) + pause_ns, _LONGEST_S * 10**9)

    def _slowed(self, client: int, round: int) -> Iterator[tuple[ActiveFault, Slowed]]:
        """Yield how each fault changes the duration of a client's work in a round."""
        for each in self._slowdowns:
            yield each, _checked(each.fault.slows(client, round, each.random), each.fault)
        for each, devices in self._devices:
            yield each, devices.get(client, Slowed())


class Links:
    """The links between server and clients, each a queue per direction: a message is sent when those before it are.

    A shared link is the server's own. In both directions a message passes the shared link first, in the order of
    sending, and then its client's link.

    Attributes:
        network: bandwidths and latency.
        seed: the scenario's seed.
        busy: (client or server address, whether upward) → nanosecond at which that direction is free again; part of
            checkpoints.
    """

    def __init__(self, network: Network, seed: int, rules: FaultHooks | None = None, *, last_ns: int = LAST_NS) -> None:
        """Begin with free links; last_ns: the clock's last instant."""
        self.network = network
        self.seed = seed
        self._last_ns = last_ns
        self.busy: dict[tuple[int, bool], int] = {}
        self._throttles = rules.of_kind(Throttle) if rules else []
        mbps = (network.up_mbps, network.down_mbps, network.shared_up_mbps, network.shared_down_mbps)
        self._changing = _changing_links(rules) if rules else {}
        self._is_unlimited = not (self._throttles or self._changing) and all(each is None for each in mbps)
        latency = network.latency
        self._latency_ns = round_ns(latency.value) if isinstance(latency, Constant) else None

    def arrival_ns(self, key: MessageKey, size: int, departs_ns: int, peer: int = SERVER) -> int:
        """Return when a message arrives, in nanoseconds, and occupy its links while it is transmitted.

        Args:
            key: identity of the message.
            size: its bytes.
            departs_ns: when it is sent.
            peer: the node that it is sent to, if it is sent between nodes: over the uplink of one and the downlink of
                the other.
        """
        kind, client, round, _, _ = key
        if client < 0:
            return departs_ns
        if not self._is_unlimited:
            if peer >= 0:
                departs_ns = self._transmitted_ns(client, round, True, size, departs_ns)
                departs_ns = self._transmitted_ns(peer, round, False, size, departs_ns)
            else:
                departs_ns = self._transmitted_ns(client, round, kind.is_upward, size, departs_ns)
        if self._latency_ns is not None:
            return departs_ns + self._latency_ns
        return departs_ns + round_ns(self.network.latency.draw_s(self.seed, "latency", *random_key(key)))

    def _transmitted_ns(self, client: int, round: int, upward: bool, size: int, departs_ns: int) -> int:
        """When the last link has transmitted all of a message; its latency follows."""
        network = self.network
        shared, own = (
            (network.shared_up_mbps, network.up_mbps) if upward else (network.shared_down_mbps, network.down_mbps)
        )
        if shared is not None:
            begins_ns = max(departs_ns, self.busy.get((SERVER, upward), 0))
            self.busy[SERVER, upward] = departs_ns = min(passed_ns(size, begins_ns, shared), self._last_ns + 1)
        begins_ns = max(departs_ns, self.busy.get((client, upward), 0))
        by, changing = self._changing.get((client, upward), (None, None))
        mbps = self._limited(math.inf if own is None else own, client, round, upward, size)
        if mbps < math.inf or changing is not None:
            ends_ns = passed_ns(size, begins_ns, mbps, changing)
            departs_ns = min(ends_ns, self._last_ns + 1)  # a checkpoint has no room for more
            self.busy[client, upward] = departs_ns
        if by is not None:
            alone_ns, without_ns = (passed_ns(size, begins_ns, own or math.inf, each) for each in (changing, None))
            if alone_ns > without_ns:
                by.count_delay("throttled", alone_ns - without_ns)
        return departs_ns

    def forget(self, now_ns: int) -> None:
        """Drop the entries of `busy` for links that are free by now."""
        self.busy = {link: free_ns for link, free_ns in self.busy.items() if free_ns > now_ns}

    def _limited(self, own: float, client: int, round: int, upward: bool, size: int) -> float:
        """A client's bandwidth (Mbit/s): its own, or a throttle's if lower. Counts the delay of each throttle alone."""
        lowest = own
        for each in self._throttles:
            found = each.fault.mbps(client, round, upward, each.random)
            mbps = None if found is None else _finite(found, LEAST_MBPS)
            if mbps is None and found is not None:
                what = f"limited a link to {found!r:.80}"
                raise Unusable.of_fault(each.fault, what, "None, or Mbit/s, at least 1e-06")
            if mbps is not None and mbps < own:
                each.count_delay("throttled", passed_ns(size, 0, mbps) - passed_ns(size, 0, own))
                lowest = min(lowest, mbps)
        return lowest


def _changing_links(hooks: FaultHooks) -> dict[tuple[int, bool], tuple[ActiveFault, Speeds]]:
    """Return (client, whether upward) → the fault by which that link changes, and its speeds. Raises `Unusable`."""
    found: dict[tuple[int, bool], tuple[ActiveFault, Speeds]] = {}
    for each in hooks.of_kind(ChangingLinks):
        links: Any = each.fault.speeds(hooks.clients, each.random)
        if not (isinstance(links, Mapping) and all(isinstance(speeds, Speeds) for speeds in links.values())):
            expected = "a mapping from clients and directions to `Speeds`"
            raise Unusable.of_fault(each.fault, f"gave links the speeds {links!r:.80}", expected)
        for link, speeds in links.items():
            if link in found:
                what = f"changes the {'uplink' if link[1] else 'downlink'} of client {link[0]}, as another does"
                raise Unusable.of_fault(each.fault, what, "one such fault for each link")
            found[link] = each, speeds
    return found


def _checked(slowed: Any, fault: object) -> Slowed:
    """Return what `slows` has returned. Raises `Unusable` unless work can be slowed by it."""
    if isinstance(slowed, Slowed):
        factor, pause_ns = _finite(slowed.factor, 0), slowed.pause_ns
        if factor is not None and hasattr(pause_ns, "__index__") and pause_ns >= 0:
            return Slowed(factor, int(pause_ns))  # a NumPy integer cannot be journalled
    expected = "a Slowed with a finite factor and a whole number pause_ns, none below 0"
    raise Unusable.of_fault(fault, f"slowed work by {slowed!r:.80}", expected)


def _slowed_devices(each: ActiveFault, clients: int) -> dict[int, Slowed]:
    """Return what `factors` has returned, as `slows` would. Raises `Unusable` unless work can be slowed by it."""
    found: Any = each.fault.factors(clients, each.random)
    if isinstance(found, Mapping):
        known = {client: Slowed(factor) for client in found if (factor := _finite(found[client], 0)) is not None}
        if len(known) == len(found):
            return known
    expected = "a mapping from clients to finite factors, none below 0"
    raise Unusable.of_fault(each.fault, f"gave clients the factors {found!r:.80}", expected)


def _finite(found: Any, least: float) -> float | None:
    """Return a number as a float; None if it is no finite number from `least`."""
    try:
        return float(found) if math.isfinite(found) and found >= least else None
    except (TypeError, OverflowError):
        return None


def _nearest(ns: Fraction) -> int:
    return round(ns)  # where a round's number is called that, too


def round_ns(seconds: float) -> int:
    """Return seconds as integer nanoseconds."""
    return round(seconds * 1e9)
