"""The transport interface, the processes behind a transport, and the transport in memory.

A transport moves opaque frames to followers and returns the frames of their answers. A follower is the set of clients
that one process hosts, perhaps with the evaluator; to each frame it answers with zero or more frames. `MemoryTransport`
has one follower, in this process. The bus decides when a frame is due and when its answer counts as sent. A transport
never delays, reorders, drops or reads frames.

A follower's process registers in these steps: request → offer (which clients it may host) → JOIN → WELCOME or REFUSE.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Annotated, Any, Protocol, TypeVar, runtime_checkable

from msgspec import Meta

from seedbus.bus.envelope import EVALUATOR
from seedbus.bus.errors import SentAway, UnknownAddress
from seedbus.bus.spans import Span as Span
from seedbus.bus.spans import clients_in
from seedbus.bus.spans import merged as merged
from seedbus.bus.text import counted
from seedbus.pieces import Frame

AnyFrame = Any
"""A `pieces.Frame`. Followers that are never given a long one may say `bytes`."""
Answered = Callable[[list[AnyFrame]], None]
_Accepted = TypeVar("_Accepted")
MAX_SPANS = 64  # maximum spans of clients in a request or an offer: a process may request again what it was offered
NO_CLIENTS = 2**32 - 1  # the count in the request of a process that hosts only the evaluator, or only looks
MOST_CLIENTS = 2**24  # maximum number of clients in a run
Client = Annotated[int, Meta(ge=0, lt=MOST_CLIENTS)]


@dataclass(frozen=True, slots=True)
class HostRequest:
    """What a process asks to host.

    Attributes:
        spans: these clients; if empty, `count` applies.
        count: number of clients; 0: a share of those that are free.
        evaluates: whether it also hosts the evaluator if that is free.
        known_as: by what the transport knows it again: its key, or else its network host and its first session.
    """

    spans: tuple[Span, ...] = ()
    count: int = 0
    evaluates: bool = True
    known_as: frozenset[str] = frozenset()

    @property
    def only_looks(self) -> bool:
        """Whether it asks to host nobody, and so wants to know the scenario alone."""
        return not self.spans and self.count == NO_CLIENTS and not self.evaluates


@dataclass(frozen=True, slots=True)
class Offer:
    """What a process may host, unless another process with the same offer joins first.

    Attributes:
        host: address of the process.
        spans: the clients.
        evaluates: whether it hosts the evaluator.
        scenario: what followers need to know of the run; opaque here.
        nonce: the proof in its JOIN is bound to it, and so valid for this offer only. Empty for a process that may host
            the evaluator, because its connection or key is proof enough.
    """

    host: int
    spans: tuple[Span, ...]
    evaluates: bool
    scenario: bytes
    nonce: bytes = b""


@dataclass(frozen=True, slots=True)
class Rights:
    """What a peer may request, as determined by its connection or its key.

    Attributes:
        spans: the clients that it may host; None: any.
        evaluates: whether it may host the evaluator and determine the run's x₀.
        is_own: whether the server's own process started it; limits on other peers do not apply to it.
    """

    spans: tuple[Span, ...] | None = None
    evaluates: bool = False
    is_own: bool = False


STRANGER = Rights()
ANYBODY = Rights(evaluates=True)
OPERATOR = Rights(evaluates=True, is_own=True)


@dataclass(frozen=True, slots=True)
class Declined:
    """A process gets no offer, or its JOIN is not accepted.

    Attributes:
        reason: one word.
        detail: a sentence for people.
    """

    reason: str
    detail: str


NOT_YET = "not-yet"
"""The reason of a `Declined` for a JOIN that must wait: it is to be admitted again once another host has joined."""


def misfit(request: HostRequest, offer: Offer, most_clients: int) -> str | None:
    """Return why an offer does not fit a request; None if it fits.

    Spans are not expanded, because they may contain millions of clients.

    Args:
        request: what the process asked for.
        offer: what the server offers.
        most_clients: maximum number of clients in the offer if the request was for a share.
    """
    offered = count_of(offer.spans)
    if offer.evaluates and not request.evaluates:
        return "it offers the evaluator, which nobody asked for"
    if request.spans:
        is_fit = merged(offer.spans) == merged(request.spans)
        accepted = f"exactly the {count_of(request.spans):,} asked for"
    else:
        most = {0: most_clients, NO_CLIENTS: 0}.get(request.count, request.count)
        is_fit = offered <= most
        accepted = f"at most {most:,}"
    return None if is_fit else f"it offers {counted(offered, 'client')}; accepted are {accepted}"


def count_of(spans: Sequence[Span]) -> int:
    """Return the number of clients in spans."""
    return sum(last - first + 1 for first, last in spans)


def hosted(spans: Sequence[Span], *, evaluates: bool) -> str:
    """Return who is hosted by a process, such as "client 1", "clients 0…4, 9 and the evaluator" or "the evaluator"."""
    numbers = ", ".join(f"{first}…{last}" if last > first else f"{first}" for first, last in spans)
    clients = [f"{'client' if count_of(spans) == 1 else 'clients'} {numbers}"] if numbers else []
    return " and ".join([*clients, *(["the evaluator"] if evaluates else [])])


class Follower(Protocol):
    """The clients, and perhaps the evaluator, of one process, which follow the server's log of commits."""

    def join(self, host: int, nonce: bytes) -> list[AnyFrame]:
        """Return the frames of its JOIN.

        Args:
            host: address of the process.
            nonce: the nonce of the offer, to which the proof in the JOIN is bound.
        """
        ...

    def welcome(self, frame: AnyFrame) -> None:
        """Accept the server's answer to the JOIN. If it is a refusal, raise the error that ends the process."""
        ...

    def handle(self, frame: AnyFrame) -> list[AnyFrame]:
        """Process a frame and return the frames of the answer. Never raises, whatever the frame is."""
        ...


@runtime_checkable
class BatchFollower(Protocol):
    """A follower that saves work if it is given several frames at once."""

    def handle_all(self, frames: Sequence[AnyFrame]) -> Iterator[list[AnyFrame]]:
        """Yield what `handle` returns for each frame, in order, as soon as it is known."""
        ...


@runtime_checkable
class LongFollower(Protocol):
    """A follower whose run has messages that are longer than a link otherwise accepts.

    Attributes:
        longest: bytes of the longest one.
    """

    longest: int


def handled(follower: Follower, frames: Sequence[Frame]) -> Iterator[list[Frame]]:
    """Yield a follower's answer to each frame, in order."""
    return follower.handle_all(frames) if isinstance(follower, BatchFollower) else map(follower.handle, frames)


Recruit = Callable[[Offer], Follower]
"""Creates the followers of an offer, in the process that hosts them."""


class Registration(Protocol):
    """Admits the processes that host followers; the server implements it.

    Attributes:
        missing: addresses of the followers that no process hosts now.
        rounds_closed: number of rounds that the run has closed.
        has_begun: whether rounds have begun, or might have.
        can_go_on: whether enough followers are hosted now.
        could_go_on: whether enough are hosted once the processes with an offer have joined.
    """

    def greet(self, request: HostRequest, rights: Rights) -> Offer | Declined:
        """Answer a process's request."""
        ...

    def admit(self, host: int, frame: AnyFrame) -> tuple[list[AnyFrame], bool] | Declined:
        """Process a JOIN.

        Returns:
            The frames of the answer, and whether the host is a member now. Or `Declined`: if its reason is `NOT_YET`,
            call again after another host has been admitted; otherwise another process joined first.
        """
        ...

    def gone(self, host: int, why: str, kept_s: float = 0.0) -> None:
        """Remove a process that has ended or does not answer; for `kept_s` its clients are offered to nobody else."""
        ...

    @property
    def missing(self) -> set[int]: ...

    @property
    def rounds_closed(self) -> int: ...

    @property
    def has_begun(self) -> bool: ...

    @property
    def can_go_on(self) -> bool: ...

    @property
    def could_go_on(self) -> bool: ...

    def refused(self, peer: str, reason: str, detail: str) -> None:
        """Note that something a peer sent was refused."""
        ...


class Transport(Protocol):
    """Moves frames between the server and its followers.

    Attributes:
        is_wire: whether frames travel as bytes on a wire; if not, `framing_bytes` is not called.
    """

    is_wire: bool

    def start(self, registration: Registration) -> None:
        """Accept followers from now on, on the running event loop."""
        ...

    def reaches(self, address: int) -> bool:
        """Return whether a frame to `address` is delivered to a follower, now or later."""
        ...

    def deliver(self, address: int, frame: AnyFrame, answered: Answered, tail: AnyFrame = b"") -> None:
        """Move a frame to a follower. Frames to one address are handled in the order of these calls.

        Args:
            address: the follower.
            frame: the frame, without `tail`.
            answered: called once with the frames of the answer, now or later.
            tail: the end of a long frame, which many frames may share.

        Raises:
            UnknownAddress: no follower can be at `address`.
        """
        ...

    def flush(self) -> None:
        """Send frames that were held back for a batch, because their answers are waited for."""
        ...

    def post(self, host: int, frame: AnyFrame) -> None:
        """Move a frame that has no answer to a host."""
        ...

    def framing_bytes(self, size: int) -> int:
        """Return the bytes on the wire that an envelope of `size` bytes costs beyond its own."""
        ...

    def link_bytes(self) -> list[tuple[int, int, int]]:
        """Return (host, bytes up, bytes down) since the last call that belong to no envelope."""
        ...

    async def close(self) -> None:
        """Send what is still queued and release all resources; may be called twice."""
        ...


class MemoryTransport:
    """A transport to one follower in this process: no framing, no latency, no copies.

    Args:
        recruit: creates the follower; None: there is none.
        offload: handle frames on a thread, for wall time, which does not stand still meanwhile.
        gathers: handle frames in batches, when an answer is waited for.
    """

    is_wire = False

    def __init__(self, recruit: Recruit | None = None, *, offload: bool = False, gathers: bool = False) -> None:
        self._recruit = recruit
        self._gathers = gathers
        self._follower: Follower | None = None
        self._addresses: set[int] = set()
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="followers") if offload else None
        self._waiting: list[tuple[Frame, Answered]] = []

    def start(self, registration: Registration) -> None:
        if self._recruit is None:
            return
        offer = _accepted(registration.greet(HostRequest(), OPERATOR))
        self._follower = self._recruit(offer)
        for frame in self._follower.join(offer.host, offer.nonce):
            for answer in _accepted(registration.admit(offer.host, frame))[0]:
                self._follower.welcome(answer)
        self._addresses = set(addresses(offer.spans, offer.evaluates))

    def reaches(self, address: int) -> bool:
        return True

    def deliver(self, address: int, frame: AnyFrame, answered: Answered, tail: AnyFrame = b"") -> None:
        if address not in self._addresses or self._follower is None:
            raise UnknownAddress(address)
        if self._gathers:
            self._waiting.append((frame + tail, answered))
        elif self._pool is None:
            answered(self._follower.handle(frame + tail))
        else:
            work = asyncio.get_running_loop().run_in_executor(self._pool, self._follower.handle, frame + tail)
            work.add_done_callback(lambda done: None if done.cancelled() else answered(done.result()))

    def flush(self) -> None:
        if self._waiting:
            asyncio.get_running_loop().call_soon(self._handle_waiting)

    def post(self, host: int, frame: AnyFrame) -> None:
        pass

    def framing_bytes(self, size: int) -> int:
        return 0

    def link_bytes(self) -> list[tuple[int, int, int]]:
        return []

    async def close(self) -> None:
        self._addresses.clear()
        self._waiting.clear()
        if self._pool is not None:
            self._pool.shutdown(wait=False, cancel_futures=True)

    def _handle_waiting(self) -> None:
        waiting, self._waiting = self._waiting, []
        if waiting and self._follower is not None:
            answers = handled(self._follower, [frame for frame, _ in waiting])
            for (_, answered), frames in zip(waiting, answers, strict=True):
                answered(frames)


def _accepted(answer: _Accepted | Declined) -> _Accepted:
    """The registration's answer to the run's only process. Raises `SentAway` if it declines."""
    if isinstance(answer, Declined):
        raise SentAway("memory", answer.reason, answer.detail)
    return answer


def addresses(spans: Sequence[Span], evaluates: bool) -> list[int]:
    """Return the addresses of a host's followers, the evaluator's first."""
    clients = clients_in(spans)
    return [EVALUATOR, *clients] if evaluates else clients
