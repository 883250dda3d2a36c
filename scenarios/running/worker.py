"""A process that hosts clients: it gets the scenario from the server and loads its data once."""

from __future__ import annotations

import ctypes
import json
import re
import sys
from collections.abc import Callable
from contextlib import ExitStack, closing, suppress
from dataclasses import replace
from pathlib import Path

import zmq

from seedbus.agents.catch_up.caught_up import TellsCaughtUp
from seedbus.agents.client.worker import Followers
from seedbus.agents.errors import JoinRefused
from seedbus.agents.observer import NullObserver
from seedbus.algorithms.directions import set_threads
from seedbus.bus import HostRequest, Offer, Recruit
from seedbus.bus.spans import Span, spans_in
from seedbus.bus.transport import MAX_SPANS, MOST_CLIENTS, NO_CLIENTS, Follower, hosted
from seedbus.bus.zeromq import Joining, follow
from seedbus.bus.zeromq.keys import Identity
from seedbus.models.device import HOST, on_device
from seedbus.models.own_code.metric_settings import OwnMetrics
from seedbus.models.partitions.own import Own
from seedbus.scenarios.consent.terms import Accepted
from seedbus.scenarios.errors import ScenarioError
from seedbus.scenarios.running.gpu_admission import GpuAdmission, measuring
from seedbus.scenarios.running.limits import Limits, farewell_code, limit_memory, read_scenario
from seedbus.scenarios.running.memory_hints import memory_hints
from seedbus.scenarios.running.own_data import with_own
from seedbus.scenarios.running.own_files import OwnFiles
from seedbus.scenarios.running.prepare import bind_for_clients, recruit
from seedbus.scenarios.schema.scenario import Scenario

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3  # glibc's malloc.h
KEPT, LARGEST = 2**28, 2**25
"""Bytes: of freed memory at the end of the heap that a process keeps, and of the largest block that the heap has, which
is as much as glibc accepts."""


def keep_freed_memory() -> None:
    """Have glibc keep the memory that each step of a training frees and the next one takes again.

    Else it goes back to the system after each step, and comes back a page at a time. A program that has freed one large
    block is spared that, for glibc then raises its thresholds by itself; a worker seldom frees any.
    """
    with suppress(OSError, AttributeError):  # another C library
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(M_TRIM_THRESHOLD, KEPT)
        mallopt(M_MMAP_THRESHOLD, LARGEST)


class _NotesOnly(NullObserver):
    """An observer that passes on only the events of the process itself."""

    def __init__(self, note: Callable[..., None]) -> None:
        self.noted = note  # type: ignore[method-assign]


def serve(
    joining: Joining,
    *,
    memory: Path | None,
    parent_pipe: bool,
    limits: Limits | None,
    device: str = HOST,
    own: str = "",
    threads: int = 1,
) -> None:
    """Host clients of a server until its run is over.

    Args:
        joining: which server, and which clients to ask for.
        memory: the folder for the state that clients keep between rounds; None: this process keeps it.
        parent_pipe: whether standard input is a pipe from the parent process: its first line holds the keys to
            show, those of `joining` notwithstanding, and its end ends this process.
        limits: what this process does for a server that its user does not control; None: the server is its parent.
        device: where this process computes.
        own: the file or folder of its client's owner, or a pattern of several; "": the scenario's data is common.
        threads: how many threads replay commits; other workers of this machine use the other cores.

    Raises:
        ServerGone, BadServer, SentAway, JoinRefused, BadEndpoint: the connection failed or was refused.
        DataError, ScenarioError, NotAllowed: the scenario cannot run here, or asks for more than is allowed.
    """
    if parent_pipe:
        line = sys.stdin.buffer.readline() if sys.stdin is not None else b""
        if not line:
            return  # the parent process has ended already
        try:
            secrets = json.loads(line)
            joining = replace(joining, identity=Identity.unpacked(secrets) if secrets else None)
        except (ValueError, TypeError, KeyError, AttributeError, zmq.ZMQError):
            expected = "standard input does not begin with a line of keys; expected `{}` at least: this option is for "
            raise ScenarioError("--parent-pipe", [expected + "processes that start workers of their own"]) from None
    if joining.request.only_looks:
        raise ScenarioError("--clients none", ["this process would host nobody; expected --evaluator beside it"])
    if limits is not None:
        joining = replace(joining, most_clients=limits.max_clients)
    set_threads(threads)
    keep_freed_memory()
    note, why_away = joining.note, joining.why_away
    recruits: dict[bytes, Recruit] = {}
    own_data = ""  # the user's own files that the task reads, and functions that it calls
    own_files = OwnFiles((), note)

    def recruit_for(offer: Offer) -> Follower:
        # a process binds a scenario once, however often it joins
        if offer.scenario in recruits:
            follower = recruits[offer.scenario](offer)
        else:
            recruits.clear()
            follower = first_follower(offer)
        note("hosting", what=f"hosting {hosted(offer.spans, evaluates=offer.evaluates)}")
        if limits is not None and isinstance(follower, Followers):  # a process that the server started has no user
            return TellsCaughtUp(follower, note)
        return follower

    def first_follower(offer: Offer) -> Follower:
        nonlocal own_data, own_files, limits
        scenario = read_scenario(offer, joining.endpoint, limits)
        task, field = scenario.task, getattr(scenario.task, "own_data", "")
        named = [f"{name} {value}" for name, value in task.named()] if isinstance(task, OwnMetrics) else []
        own_data = " or ".join(
            [*([f"task.{field} {getattr(task, field)}"] if field and getattr(task, field) else []), *named]
        )
        own_data += ", which may draw at random," if named else ""
        if limits is not None and limits.max_memory is not None:
            limit_memory(limits.max_memory)
        stack.enter_context(memory_hints(scenario, device))
        with admission.turn(offer.scenario) as measure:
            clients = [client for first, last in offer.spans for client in range(first, last + 1)]
            here = with_own(scenario, own, clients, evaluates=offer.evaluates)
            if isinstance(here.partition, Own):
                own_files = OwnFiles([place for place in here.partition.data.places.values() if place], note)
                if limits is not None:  # a server that comes back finds the owner where she joined
                    limits = replace(limits, accepted=limits.accepted or Accepted.joined(scenario))
            problem = bind_for_clients(here, note)
            owned = memory if limits is not None else None
            ours = recruit(scenario, problem, _NotesOnly(note), memory, warn_of_loss, owned)
            recruits[offer.scenario] = measuring(ours, scenario, measure)
            return recruits[offer.scenario](offer)

    def why(wire_bytes: int) -> str:
        own_files.look()
        return "" if why_away is None else why_away(wire_bytes)

    def warn_of_loss() -> None:
        if limits is not None:  # otherwise the server, which chose this, says so itself
            others = "or the bits of the run change if another process replaces this one"
            note("what clients remember is lost with this process", keep=f"it by --out FOLDER, {others}")

    admission = GpuAdmission(device, note)
    with ExitStack() as stack, closing(admission), on_device(device):
        try:
            asked = replace(joining, why_away=why if own else why_away)
            parent = sys.stdin.fileno() if parent_pipe else None
            follow(asked, recruit_for, parent_pipe=parent, code_of=farewell_code)
        except JoinRefused as refused:
            if refused.reason != "x0" or not own_data:
                raise
            # the scenario is the server's, so what can differ are the files that it names
            raise JoinRefused("x0", f"{own_data} here is probably not the run's: {refused.detail}") from None


class _Looked(Exception):
    """The scenario of an offer is known.

    Attributes:
        scenario: the scenario.
    """

    def __init__(self, scenario: Scenario) -> None:
        super().__init__()
        self.scenario = scenario


def offered(joining: Joining, limits: Limits) -> Scenario:
    """Return the scenario that a server offers, and join nothing; see `serve`."""

    def look(offer: Offer) -> Follower:
        raise _Looked(read_scenario(offer, joining.endpoint, limits))

    def code_of(error: BaseException) -> str:
        return "stopped" if isinstance(error, _Looked) else farewell_code(error)

    try:
        follow(replace(joining, request=HostRequest(count=NO_CLIENTS, evaluates=False)), look, code_of=code_of)
    except _Looked as looked:
        return looked.scenario
    raise ScenarioError(joining.endpoint, ["its run is over"])


def spans_of(text: str) -> tuple[tuple[Span, ...], int]:
    """Return the spans and the count that a value of --clients asks for; one of them is empty or 0.

    Args:
        text: how many clients (25), which (0-24, or 0-9,40-49), `none`, or nothing: then the server decides.

    Raises:
        ScenarioError: it is none of these, or has too many spans.
    """
    if not text:
        return (), 0
    if text == "none":
        return (), NO_CLIENTS
    if re.fullmatch(r"[0-9]{1,8}", text) and 0 < int(text) <= MOST_CLIENTS:
        return (), int(text)
    chosen = None if text == "0" else spans_in(text, MOST_CLIENTS)
    if chosen is None:
        expected = "expected how many, like 25, which, like 0-24, 0-9,40-49 or 0-0 (client 0 alone), or none"
        raise ScenarioError(f"--clients {text}", [expected])
    if len(chosen) > MAX_SPANS:
        raise ScenarioError("--clients", [f"these are {len(chosen)} spans; expected {MAX_SPANS} at most"])
    return chosen, 0
