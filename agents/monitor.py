"""Readings of a running server for its operators. Nothing in the run depends on them."""

from __future__ import annotations

from asyncio import AbstractEventLoop
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Reading:
    """What a server's instruments show at one moment.

    Attributes:
        rounds: number of closed rounds.
        last_round: number of rounds after which the run ends at the latest; None: only time ends it.
        version: the newest version of the model.
        clock_s: the run's clock, in seconds.
        clients: number of clients of the run.
        hosted: how many of them have a process.
        joined: how many of them may be asked.
        processes: number of processes that have joined.
        can_go_on: whether enough clients, and the evaluator, have a process.
        awaited: how many clients the open round waits for; None if no round is open.
        evaluations: number of evaluations that the evaluator owes.
        replicas: version → number of joined clients that the server believes to be at it.
        queues: name → length, of messages in the server's mailbox, messages in flight, and answers that are owed.
        traffic: (kind, direction) → (messages, bytes), of the messages that were settled before the last round closed.
        refusals: reason → number of refused messages.
        slowest: the client that took longest to answer among those that the last closed round counts, and its seconds
            by the run's clock; None if it counts none.
    """

    rounds: int
    last_round: int | None
    version: int
    clock_s: float
    clients: int
    hosted: int
    joined: int
    processes: int
    can_go_on: bool
    awaited: int | None
    evaluations: int
    replicas: Mapping[int, int]
    queues: Mapping[str, int]
    traffic: Mapping[tuple[str, str], tuple[int, int]]
    refusals: Mapping[str, int]
    slowest: tuple[int, float] | None


class Monitor(Protocol):
    """Takes readings of a server, on the server's event loop."""

    def attach(self, loop: AbstractEventLoop, read: Callable[[], Reading]) -> None:
        """Begin: from now on `read` may be called, by callbacks of the loop only."""
        ...

    def detach(self) -> None:
        """End: `read` is not called any more."""
        ...
