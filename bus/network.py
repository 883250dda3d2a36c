"""How long things take in simulated time: links with latency and bandwidth, and clients that compute.

Every duration is drawn by key (seed, what, who, round, …), so it is the same on every transport, and is rounded to
whole nanoseconds. Links of the evaluator and of hosts are ideal: they are instruments, not subjects.

What a scenario says may narrow a client's link (`Throttle`) or slow its work (`Slowdown`). Of several limits the lowest
holds; factors multiply, as exact fractions, and pauses add: their order makes no difference.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from fractions import Fraction
from statistics import NormalDist
from typing import Annotated, Any, Literal, NamedTuple, Protocol, runtime_checkable

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator
from pydantic_core import PydanticCustomError

from seedbus.bus.envelope import SERVER
from seedbus.bus.fault_hooks import FaultHooks
from seedbus.bus.in_flight import Key as MessageKey
from seedbus.bus.in_flight import drawn_by
from seedbus.bus.keyed_random import Key, KeyedRandom, uniform

_NORMAL = NormalDist()
_LONGEST_S = 10**6  # a single draw: a heavy tail must not outrun the clock
_HIGHEST_EXPONENT = 700.0  # exp overflows above 709


class _Duration(BaseModel, ABC):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    def quantile(self, u: float) -> float:
        """The duration in seconds at probability u in (0, 1), cut off at 10⁶ s."""
        return min(self._quantile(u), _LONGEST_S)

    @abstractmethod
    def _quantile(self, u: float) -> float: ...

    def draw_s(self, seed: int, *key: Key) -> float:
        """A duration in seconds, keyed."""
        return self.quantile(uniform(seed, *key))


class Constant(_Duration):
    """Always the same; a plain number in its place is short for it."""

    distribution: Literal["constant"] = "constant"
    value: float = Field(default=0.0, ge=0, le=_LONGEST_S, description="seconds")

    def _quantile(self, u: float) -> float:
        return self.value

    def draw_s(self, seed: int, *key: Key) -> float:
        return self.value  # whatever is drawn


class Uniform(_Duration):
    """Evenly spread between two bounds."""

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

    distribution: Literal["lognormal"] = "lognormal"
    median: float = Field(gt=0, le=_LONGEST_S, description="seconds")
    sigma: float = Field(ge=0, le=10, description="standard deviation of the logarithm")

    def _quantile(self, u: float) -> float:
        return self.median * math.exp(self.sigma * _NORMAL.inv_cdf(u))


class Exponential(_Duration):
    """Memoryless, by its mean."""

    distribution: Literal["exponential"] = "exponential"
    mean: float = Field(gt=0, le=_LONGEST_S, description="seconds")

    def _quantile(self, u: float) -> float:
        return -self.mean * math.log1p(-u)


class Pareto(_Duration):
    """Heavy-tailed, from its smallest value."""

    distribution: Literal["pareto"] = "pareto"
    minimum: float = Field(gt=0, le=_LONGEST_S, description="seconds")
    shape: float = Field(gt=0, le=100, description="tail index; at 1 and below the mean is infinite")

    def _quantile(self, u: float) -> float:
        return self.minimum * math.exp(min(-math.log1p(-u) / self.shape, _HIGHEST_EXPONENT))


def _spelled_out(given: Any) -> Any:
    if type(given) in (int, float):
        return {"distribution": "constant", "value": given}
    if not isinstance(given, dict | BaseModel):
        raise PydanticCustomError("number_or_fields", "a number or a mapping of fields")
    return given


_Distribution = Annotated[Constant | Uniform | Lognormal | Exponential | Pareto, Field(discriminator="distribution")]
Duration = Annotated[_Distribution, BeforeValidator(_spelled_out, json_schema_input_type=float | _Distribution)]
"""A distribution; a number is short for the constant one."""


class Network(BaseModel):
    """The links between the server and its clients."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    latency: Duration = Field(default=Constant(), description="one way, drawn for every message")
    up_mbps: float | None = Field(default=None, ge=1e-6, description="a client's uplink in Mbit/s; none: unlimited")
    down_mbps: float | None = Field(default=None, ge=1e-6, description="a client's downlink in Mbit/s; none: unlimited")
    shared_up_mbps: float | None = Field(
        default=None, ge=1e-6, description="what all clients share on the way to the server, in the order of sending"
    )
    shared_down_mbps: float | None = Field(default=None, ge=1e-6, description="and on the way from it")


class Compute(BaseModel):
    """How long a client's local work takes: evaluations of f, and folding what it missed, times its own slowness."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    evaluation: Duration = Field(default=Constant(), description="seconds for one evaluation of f, drawn every round")
    replay: Duration = Field(default=Constant(), description="seconds to fold one missed commit, drawn every round")
    slowness: Duration = Field(default=Constant(value=1.0), description="a client's own factor, drawn once")

    def time_ns(self, seed: int, client: int, round: int, evaluations: int, missed: int = 0) -> int:
        """Nanoseconds that `client` needs in `round` for so many evaluations, and to fold so many missed commits."""
        work_s = self.evaluation.draw_s(seed, "evaluation", client, round) * evaluations
        if missed:
            work_s += self.replay.draw_s(seed, "replay", client, round) * missed
        return round_ns(min(work_s * self.slowness.draw_s(seed, "slowness", client), _LONGEST_S))


@runtime_checkable
class Throttle(Protocol):
    """Limits the links of clients."""

    def mbps(self, client: int, round: int, upward: bool, random: KeyedRandom) -> float | None:
        """At most so many Mbit/s for a message of the round; None: no limit."""
        ...


class Slowed(NamedTuple):
    """Work takes so many times as long, and so much longer."""

    factor: float = 1.0
    pause_ns: int = 0

    def of(self, ns: int) -> Fraction:
        return ns * Fraction(self.factor) + self.pause_ns


@runtime_checkable
class Slowdown(Protocol):
    """Makes the work of clients take longer, or less."""

    def slows(self, client: int, round: int, random: KeyedRandom) -> Slowed: ...


class Pace:
    """How long clients work, after all that the scenario says of it."""

    def __init__(self, compute: Compute, seed: int, rules: FaultHooks) -> None:
        self._compute, self._seed = compute, seed
        self._drags = [each for each in rules.said if isinstance(each.thing, Slowdown)]

    def time_ns(self, client: int, round: int, evaluations: int, missed: int = 0) -> int:
        """Nanoseconds that `client` needs in `round` for so many evaluations, and to fold so many missed commits."""
        alone_ns = self._compute.time_ns(self._seed, client, round, evaluations, missed)
        if not self._drags:
            return alone_ns
        factor, pause_ns = Fraction(1), 0
        for each in self._drags:
            slowed = each.thing.slows(client, round, each.random)
            if by_ns := _whole(slowed.of(alone_ns) - alone_ns):
                each.delays("slowed", by_ns)
            factor, pause_ns = factor * Fraction(slowed.factor), pause_ns + slowed.pause_ns
        return min(_whole(alone_ns * factor) + pause_ns, _LONGEST_S * 10**9)


class Links:
    """The queues of every client's link: a message starts when those before it have left.

    A link that all share is the server's own: a message passes it first, in the order of sending, whichever way it
    goes, and then its client's link. `busy` maps (client, or server, upward) to the nanosecond at which that direction
    is free again. It is part of a checkpoint.
    """

    def __init__(self, network: Network, seed: int, rules: FaultHooks | None = None) -> None:
        self.network, self.seed = network, seed
        self.busy: dict[tuple[int, bool], int] = {}
        self._throttles = [each for each in rules.said if isinstance(each.thing, Throttle)] if rules else []
        mbps = (network.up_mbps, network.down_mbps, network.shared_up_mbps, network.shared_down_mbps)
        self._are_wide = not self._throttles and all(each is None for each in mbps)
        latency = network.latency
        self._latency_ns = round_ns(latency.value) if isinstance(latency, Constant) else None

    def arrival_ns(self, key: MessageKey, size: int, departs_ns: int) -> int:
        """When a message of `size` bytes that departs at `departs_ns` arrives; its links are taken until then."""
        kind, client, round, _, _ = key
        if client < 0:
            return departs_ns
        if not self._are_wide:
            departs_ns = self._left_ns(client, round, kind.is_upward, size, departs_ns)
        if self._latency_ns is not None:
            return departs_ns + self._latency_ns
        return departs_ns + round_ns(self.network.latency.draw_s(self.seed, "latency", *drawn_by(key)))

    def _left_ns(self, client: int, round: int, upward: bool, size: int, departs_ns: int) -> int:
        """When a message has left its queues."""
        network = self.network
        shared, own = (
            (network.shared_up_mbps, network.up_mbps) if upward else (network.shared_down_mbps, network.down_mbps)
        )
        for end, mbps in ((SERVER, shared), (client, self._narrowed(own, client, round, upward, size))):
            if mbps is not None:
                departs_ns = max(departs_ns, self.busy.get((end, upward), 0)) + _transfer_ns(size, mbps)
                self.busy[end, upward] = departs_ns
        return departs_ns

    def forget(self, now_ns: int) -> None:
        """Drop the queues that are empty by now."""
        self.busy = {link: free_ns for link, free_ns in self.busy.items() if free_ns > now_ns}

    def _narrowed(self, own: float | None, client: int, round: int, upward: bool, size: int) -> float | None:
        """A client's bandwidth: its own, or the lowest limit if that is lower. Counts what each limit alone costs."""
        lowest = own
        for each in self._throttles:
            mbps = each.thing.mbps(client, round, upward, each.random)
            if mbps is not None and (own is None or mbps < own):
                each.delays("throttled", _transfer_ns(size, mbps) - (0 if own is None else _transfer_ns(size, own)))
                lowest = mbps if lowest is None else min(lowest, mbps)
        return lowest


def _whole(ns: Fraction) -> int:
    return round(ns)


def _transfer_ns(size: int, mbps: float) -> int:
    return math.ceil(size * 8000 / mbps)


def round_ns(seconds: float) -> int:
    """Whole nanoseconds."""
    return round(seconds * 1e9)
