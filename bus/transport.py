"""What a transport is: it moves opaque frames to followers and brings back what they answer, and knows nothing else.

A follower is a process's clients, perhaps with the evaluator: given a frame it answers with frames, none included.
`MemoryTransport` has one follower, in this process. The bus decides when a frame is due and when its answer counts as
sent; a transport never delays, reorders, drops or looks inside.

A follower's process introduces itself to the `Registration`: wish → offer (who it may be) → JOIN → WELCOME or REFUSE.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Protocol, TypeVar, runtime_checkable

from seedbus.bus.envelope import EVALUATOR
from seedbus.bus.errors import Turned, UnknownAddress
from seedbus.bus.spans import Span as Span
from seedbus.bus.spans import merged as merged

Answered = Callable[[list[bytes]], None]
_Made = TypeVar("_Made")
WISH_SPANS = 64  # of clients, that a wish and an offer have at most: a process asks again for what it was offered
NO_CLIENTS = 2**32 - 1  # the count in the wish of a process that hosts the evaluator and nobody else
MOST_CLIENTS = 2**24  # that a run may have


@dataclass(frozen=True, slots=True)
class HostRequest:
    """Whom a process would host: these clients, or so many, or (0) its share; and whether the evaluator too."""

    spans: tuple[Span, ...] = ()
    count: int = 0
    evaluates: bool = True


@dataclass(frozen=True, slots=True)
class Offer:
    """Whom a process may host, at which address, if it is the first of those with such an offer that joins.

    scenario: what they need to know of the run, opaque here. nonce: what the proof of its JOIN is bound to, so that it
    serves for this offer only; none for a process that may evaluate, whose connection or key is proof enough.
    """

    host: int
    spans: tuple[Span, ...]
    evaluates: bool
    scenario: bytes
    nonce: bytes = b""


@dataclass(frozen=True, slots=True)
class Rights:
    """What a peer may ask for, by the connection or the key that it came with.

    spans: the clients that it may host; None: any. evaluates: it may host the evaluator, and its x₀ is the run's.
    is_own: the server's own process started it, and limits for others are not for it.
    """

    spans: tuple[Span, ...] | None = None
    evaluates: bool = False
    is_own: bool = False


STRANGER = Rights()
ANYBODY = Rights(evaluates=True)
OPERATOR = Rights(evaluates=True, is_own=True)


@dataclass(frozen=True, slots=True)
class Declined:
    """Why a process gets no offer, or does not join: one word, and a sentence."""

    reason: str
    detail: str


NOT_YET = "not-yet"


def misfit(wish: HostRequest, offer: Offer, most_clients: int) -> str | None:
    """Why an offer is not what was wished for, if it is not. Its spans are not expanded: they may hold millions.

    most_clients: that an offer may hold where the wish was for a share.
    """
    offered = count_of(offer.spans)
    if offer.evaluates and not wish.evaluates:
        return "it offers the evaluator, which nobody asked for"
    if wish.spans:
        is_fit, asked = merged(offer.spans) == merged(wish.spans), f"exactly the {count_of(wish.spans):,} asked for"
    else:
        most = {0: most_clients, NO_CLIENTS: 0}.get(wish.count, wish.count)
        is_fit, asked = offered <= most, f"at most {most:,}"
    return None if is_fit else f"it offers {offered:,} clients; accepted are {asked}"


def count_of(spans: Sequence[Span]) -> int:
    """How many clients these are."""
    return sum(last - first + 1 for first, last in spans)


class Follower(Protocol):
    """The actors of one process that follow the log."""

    def join(self, host: int, nonce: bytes) -> list[bytes]:
        """The frames by which it joins, at the address `host`, with a proof for an offer's `nonce`."""
        ...

    def welcome(self, frame: bytes) -> None:
        """The server's answer to its joining. Raises what ends the process if that is a refusal."""
        ...

    def handle(self, frame: bytes) -> list[bytes]:
        """Act upon a frame; returns the answers. Never fails, whatever the frame is."""
        ...


@runtime_checkable
class Gathering(Protocol):
    """A follower that does the same work with less effort where it has several frames at hand."""

    def handle_all(self, frames: Sequence[bytes]) -> Iterator[list[bytes]]:
        """What `handle` returns for each frame, in their order, as it becomes known."""
        ...


def handled(follower: Follower, frames: Sequence[bytes]) -> Iterator[list[bytes]]:
    """What a follower answers to each of these frames."""
    return follower.handle_all(frames) if isinstance(follower, Gathering) else map(follower.handle, frames)


Recruit = Callable[[Offer], Follower]


class Registration(Protocol):
    """Where the processes of followers introduce themselves; the agents implement it."""

    def greet(self, wish: HostRequest, rights: Rights) -> Offer | Declined: ...

    def admit(self, host: int, frame: bytes) -> tuple[list[bytes], bool] | Declined:
        """A JOIN; returns the answers, and whether the host is a member now.

        Declined: with `NOT_YET`, it is to be admitted again, when somebody else has been; else another was faster.
        """
        ...

    def gone(self, host: int, why: str) -> None:
        """A process is there no more."""
        ...

    @property
    def missing(self) -> set[int]:
        """The followers that no process hosts just now."""
        ...

    @property
    def rounds_closed(self) -> int:
        """How far the run is."""
        ...

    @property
    def was_complete(self) -> bool:
        """Whether all followers have been hosted at one time."""
        ...

    @property
    def can_go_on(self) -> bool:
        """Whether those who are hosted just now are enough."""
        ...

    @property
    def could_go_on(self) -> bool:
        """Whether they will be, once the processes that have an offer have joined."""
        ...

    def refused(self, peer: str, reason: str, detail: str) -> None:
        """A peer sent what was not acted upon."""
        ...


class Transport(Protocol):
    """A way to move frames."""

    is_wire: bool
    """Whether frames take bytes on a wire; if not, nobody asks for their framing."""

    def start(self, registration: Registration) -> None:
        """Let followers come; on the loop that the run is on."""
        ...

    def reaches(self, address: int) -> bool:
        """Whether what is delivered to `address` comes to somebody, now or later."""
        ...

    def deliver(self, address: int, frame: bytes, answered: Answered, tail: bytes = b"") -> None:
        """Move a frame to `address`; `answered` is called once with what it answers, now or later.

        tail: the frame's end, if it is long and many frames share it. What is delivered to one address is handled in
        this order. Raises `UnknownAddress` if nobody can be there.
        """
        ...

    def flush(self) -> None:
        """Send on what was held back to be sent together: somebody waits for the answers."""
        ...

    def post(self, host: int, frame: bytes) -> None:
        """Move a frame that nobody answers to a host."""
        ...

    def framing_bytes(self, size: int) -> int:
        """What moving an envelope of `size` bytes costs on the wire beyond the envelope itself."""
        ...

    def link_bytes(self) -> list[tuple[int, int, int]]:
        """(host, bytes up, bytes down) since the last call that belong to no envelope."""
        ...

    async def close(self) -> None:
        """Send what is still to be sent, and let go of everything; safe to call twice."""
        ...


class MemoryTransport:
    """One follower in this process: no framing, no time, no copies.

    offload: handle frames on a thread, for a clock that would not wait while they are handled; gathers: handle frames
    together, once somebody waits for an answer.
    """

    is_wire = False

    def __init__(self, recruit: Recruit | None = None, *, offload: bool = False, gathers: bool = False) -> None:
        self._recruit, self._gathers = recruit, gathers
        self._follower: Follower | None = None
        self._addresses: set[int] = set()
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="followers") if offload else None
        self._waiting: list[tuple[bytes, Answered]] = []

    def start(self, registration: Registration) -> None:
        if self._recruit is None:
            return
        offer = _made(registration.greet(HostRequest(), OPERATOR))
        self._follower = self._recruit(offer)
        for frame in self._follower.join(offer.host, offer.nonce):
            for answer in _made(registration.admit(offer.host, frame))[0]:
                self._follower.welcome(answer)
        self._addresses = set(addresses(offer.spans, offer.evaluates))

    def reaches(self, address: int) -> bool:
        return True

    def deliver(self, address: int, frame: bytes, answered: Answered, tail: bytes = b"") -> None:
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
            asyncio.get_running_loop().call_soon(self._work)

    def post(self, host: int, frame: bytes) -> None:
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

    def _work(self) -> None:
        waiting, self._waiting = self._waiting, []
        if waiting and self._follower is not None:
            answers = handled(self._follower, [frame for frame, _ in waiting])
            for (_, answered), frames in zip(waiting, answers, strict=True):
                answered(frames)


def _made(answer: _Made | Declined) -> _Made:
    """What the only follower of a run is answered, with whom nobody competes."""
    if isinstance(answer, Declined):
        raise Turned("memory", answer.reason, answer.detail)
    return answer


def addresses(spans: Sequence[Span], evaluates: bool) -> list[int]:
    """All the addresses of a host's followers."""
    clients = [client for first, last in spans for client in range(first, last + 1)]
    return [EVALUATOR, *clients] if evaluates else clients
