"""A process that hosts clients: it gets the scenario from the server and loads its data once."""

from __future__ import annotations

import ctypes
import json
import re
import sys
from collections.abc import Callable
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

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
from seedbus.scenarios.consent.own_model import OwnModel
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
        joining = replace(joining, identity=_identity_in(line))
    if joining.request.only_looks:
        raise ScenarioError("--clients none", ["this process would host nobody; expected --evaluator beside it"])
    if limits is not None:
        joining = replace(joining, most_clients=limits.max_clients)
    set_threads(threads)
    keep_freed_memory()
    admission = GpuAdmission(device, joining.note)
    with ExitStack() as stack, closing(admission), on_device(device):
        hosting = _Hosting(joining, memory, limits, device, own, admission, stack)
        try:
            asked = replace(joining, why_away=hosting.why_away) if own else joining
            parent = sys.stdin.fileno() if parent_pipe else None
            follow(asked, hosting.recruit_for, parent_pipe=parent, code_of=farewell_code)
        except JoinRefused as refused:
            if refused.reason != "x0" or not hosting.own_data:
                raise
            # the scenario is the server's, so what can differ are the files that it names
            raise JoinRefused("x0", f"{hosting.own_data} here is probably not the run's: {refused.detail}") from None


def _identity_in(line: bytes) -> Identity | None:
    """Return the keys in the line that a parent process writes first. Raises `ScenarioError`."""
    try:
        secrets = json.loads(line)
        return Identity.unpacked(secrets) if secrets else None
    except (ValueError, TypeError, KeyError, AttributeError, zmq.ZMQError):
        expected = "standard input does not begin with a line of keys; expected `{}` at least: this option is for "
        raise ScenarioError("--parent-pipe", [expected + "processes that start workers of their own"]) from None


@dataclass(slots=True)
class _Hosting:
    """What a process hosts for its server, with which data. It binds a scenario once, however often it joins.

    Attributes:
        joining, memory, limits, device, own: as of `serve`.
        admission: when this process may load data and train for the first time.
        stack: what ends with the process.
        own_data: the user's own files that the task reads, and functions that it calls, as words; "": none.
        own_files: those of the clients' owners; None: they bring none.
        recruits: scenario → makes its followers; of the newest scenario.
    """

    joining: Joining
    memory: Path | None
    limits: Limits | None
    device: str
    own: str
    admission: GpuAdmission
    stack: ExitStack
    own_data: str = ""
    own_files: OwnFiles | None = None
    recruits: dict[bytes, Recruit] = field(default_factory=dict)

    def recruit_for(self, offer: Offer) -> Follower:
        """Return the followers that an offer names."""
        if offer.scenario in self.recruits:
            follower = self.recruits[offer.scenario](offer)
        else:
            self.recruits.clear()
            follower = self._first(offer)
        note = self.joining.note
        note("hosting", what=f"hosting {hosted(offer.spans, evaluates=offer.evaluates)}")
        if self.limits is not None and isinstance(follower, Followers):  # what the server started has no user
            return TellsCaughtUp(follower, note)
        return follower

    def why_away(self, wire_bytes: int) -> str:
        """Look after the owner's files, and return why the process is to be away now, as `Joining.why_away` does."""
        if self.own_files is not None:
            self.own_files.look()
        return "" if self.joining.why_away is None else self.joining.why_away(wire_bytes)

    def _first(self, offer: Offer) -> Follower:
        """Return the followers of the first offer of a scenario."""
        limits, note = self.limits, self.joining.note
        scenario = read_scenario(offer, self.joining.endpoint, limits)
        self.own_data = _own_data(scenario.task)
        if limits is not None and limits.max_memory is not None:
            limit_memory(limits.max_memory)
        self.stack.enter_context(memory_hints(scenario, self.device))
        with self.admission.turn(offer.scenario) as measure:
            clients = [client for first, last in offer.spans for client in range(first, last + 1)]
            here = with_own(scenario, self.own, clients, evaluates=offer.evaluates)
            if isinstance(here.partition, Own):
                self.own_files = OwnFiles([place for place in here.partition.data.places.values() if place], note)
                if limits is not None:  # a server that comes back finds the owner where she joined
                    self.limits = replace(limits, accepted=limits.accepted or Accepted.joined(scenario))
            problem = bind_for_clients(here, note)
            kept = None
            if limits is not None and self.memory is not None:
                kept = self.stack.enter_context(closing(OwnModel(self.memory, scenario, note)))
            ours = recruit(scenario, problem, _NotesOnly(note), self.memory, self._warn_of_loss, kept)
            self.recruits[offer.scenario] = measuring(ours, scenario, measure)
            return self.recruits[offer.scenario](offer)

    def _warn_of_loss(self) -> None:
        if self.limits is not None:  # otherwise the server, which chose this, says so itself
            others = "or the bits of the run change if another process replaces this one"
            self.joining.note("what clients remember is lost with this process", keep=f"it by --out FOLDER, {others}")


def _own_data(task: Any) -> str:
    """Return the user's own files that a task reads, and functions that it calls, as words; "" if there are none."""
    field = getattr(task, "own_data", "")
    files = [f"task.{field} {getattr(task, field)}"] if field and getattr(task, field) else []
    named = [f"{name} {value}" for name, value in task.named()] if isinstance(task, OwnMetrics) else []
    return " or ".join([*files, *named]) + (", which may draw at random," if named else "")


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
