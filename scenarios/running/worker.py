"""A process of clients: it learns the scenario from the server, loads the data once, follows till the run is over."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import zmq

from seedbus.agents.observer import NullObserver
from seedbus.algorithms.directions import set_threads
from seedbus.bus import HostRequest, Offer
from seedbus.bus.spans import Span, merged
from seedbus.bus.transport import MOST_CLIENTS, NO_CLIENTS, WISH_SPANS, Follower, count_of
from seedbus.bus.zeromq import follow
from seedbus.bus.zeromq.keys import Identity
from seedbus.bus.zeromq.sockets import check_files
from seedbus.scenarios.errors import ScenarioError
from seedbus.scenarios.running.limits import Limits, farewell_code, hold_to, read_scenario
from seedbus.scenarios.running.memory_hints import memory_hints
from seedbus.scenarios.running.prepare import bind_for_clients, recruit

FILES_EACH = 3  # descriptors of a socket that has one connection


class _Told(NullObserver):
    """An observer that passes on only what befalls the process itself."""

    def __init__(self, note: Callable[..., None]) -> None:
        self.noted = note  # type: ignore[method-assign]


def serve(
    endpoint: str,
    spans: Sequence[Span],
    count: int,
    *,
    evaluates: bool,
    patience_s: float,
    socket_per_client: bool,
    memory: Path | None,
    parent_pipe: bool,
    limits: Limits | None,
    note: Callable[..., None],
    identity: Identity | None = None,
) -> None:
    """Host clients of the server at `endpoint` until its run is over.

    memory: the folder of what they remember; parent_pipe: whether standard input tells the keys to show, in its first
    line,
    and ends this process by its end; identity: the keys to show otherwise. limits: what this process does for a server
    that its user does not control; None: the server is its own parent.
    Raises `ServerGone`, `BadServer`, `Turned`, `JoinRefused`, `BadEndpoint`, `TooFewFiles`, `DataError`,
    `ScenarioError`, `NotAllowed`.
    """
    if parent_pipe:
        line = sys.stdin.buffer.readline() if sys.stdin is not None else b""
        if not line:
            return  # whoever started this process is gone already
        try:
            secrets = json.loads(line)
            identity = Identity.unpacked(secrets) if secrets else None
        except (ValueError, TypeError, KeyError, AttributeError, zmq.ZMQError):
            expected = "standard input does not begin with a line of keys; expected `{}` at least: this option is for "
            raise ScenarioError("--parent-pipe", [expected + "processes that start workers of their own"]) from None
    set_threads(1)  # other workers have the other cores
    bound: dict[bytes, Any] = {}

    def make(offer: Offer) -> Follower:
        # one process binds a scenario once, however many links it has
        if offer.scenario not in bound:
            bound.clear()
            scenario = read_scenario(offer, endpoint, limits)
            if limits is not None and limits.max_memory is not None:
                hold_to(limits.max_memory)
            stack.enter_context(memory_hints(scenario))
            bound[offer.scenario] = recruit(scenario, bind_for_clients(scenario, note), _Told(note), memory)
        follower: Follower = bound[offer.scenario](offer)
        note("hosting", clients=count_of(offer.spans), evaluates=offer.evaluates)
        return follower

    wishes = [HostRequest(tuple(spans), count, evaluates)]
    if socket_per_client:
        wishes = _one_each(spans, count, evaluates)
        check_files(len(wishes), FILES_EACH)
    with ExitStack() as stack:
        follow(
            endpoint,
            wishes,
            make,
            patience_s=patience_s,
            note=note,
            parent_pipe=sys.stdin.fileno() if parent_pipe else None,
            most_clients=MOST_CLIENTS if limits is None else limits.max_clients,
            code_of=farewell_code,
            identity=identity,
        )


def spans_of(text: str) -> tuple[tuple[Span, ...], int]:
    """What --clients says: a number of clients, or which: 25, or 0-24, or 0-9,40-49. Raises `ScenarioError`."""
    if not text:
        return (), 0
    if text == "none":
        return (), NO_CLIENTS
    if re.fullmatch(r"[0-9]{1,8}", text) and 0 < int(text) <= MOST_CLIENTS:
        return (), int(text)
    spans = []
    for part in text.split(","):
        found = re.fullmatch(r"([0-9]{1,8})(?:-([0-9]{1,8}))?", part)
        if not found or text == "0" or not int(found[1]) <= int(found[2] or found[1]) < MOST_CLIENTS:
            expected = "expected how many, like 25, which, like 0-24 or 0-9,40-49, or none"
            raise ScenarioError(f"--clients {text}", [expected])
        spans.append((int(found[1]), int(found[2] or found[1])))
    chosen = merged(spans)
    if len(chosen) > WISH_SPANS:
        raise ScenarioError("--clients", [f"these are {len(chosen)} spans; expected {WISH_SPANS} at most"])
    return chosen, 0


def _one_each(spans: Sequence[Span], count: int, evaluates: bool) -> list[HostRequest]:
    chosen = [client for first, last in spans for client in range(first, last + 1)]
    if not chosen and not count:
        raise ScenarioError("--socket-per-client", ["say which or how many clients, with --clients"])
    wishes = [HostRequest(((client, client),), 0, False) for client in chosen] or [HostRequest((), 1, False)] * count
    return [HostRequest(wishes[0].spans, wishes[0].count, evaluates), *wishes[1:]]
