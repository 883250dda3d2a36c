"""The thread on which a process's followers compute, so that its link can send PINGs meanwhile."""

from __future__ import annotations

import os
import queue
import threading
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from contextvars import copy_context
from functools import partial

from seedbus.bus.clock import wall_seconds
from seedbus.bus.transport import Follower, handled
from seedbus.pieces import Frame

BATCH_S = 0.005  # answers are gathered for at most so long before they are handed back
BATCH_BYTES = 32 * 2**10  # and up to so many bytes

Done = Callable[[], None]
"""What is called with the result of a job, on the thread that collects."""


class WorkerThread:
    """Does jobs in order on a thread of its own, and hands the results to the thread that calls `collect`.

    The thread has the context variables of the one that makes it, such as the device that a run computes on.

    Attributes:
        descriptor: becomes readable when there is something to collect.
    """

    def __init__(self) -> None:
        self.descriptor, self._writing = os.pipe()
        os.set_blocking(self.descriptor, False)
        os.set_blocking(self._writing, False)
        self._jobs: queue.SimpleQueue[Callable[[], Done | None] | None] = queue.SimpleQueue()
        self._done: deque[Done] = deque()
        self._thread = threading.Thread(target=copy_context().run, args=(self._work,), name="followers", daemon=True)
        self._thread.start()

    def do(self, job: Callable[[], Done | None]) -> None:
        """Queue a job. `collect` calls the function that it returns, if any, or raises its exception."""
        self._jobs.put(job)

    def handle(self, follower: Follower, frames: Sequence[Frame], then: Callable[[list[list[Frame]]], None]) -> None:
        """Queue frames for a follower.

        Args:
            follower: answers the frames.
            frames: the frames, in order.
            then: called by `collect` with the answers of the next few frames, until all are answered.
        """

        def job() -> None:
            batch: list[list[Frame]] = []
            began_s = wall_seconds()
            size = 0
            for answers in handled(follower, frames):
                batch.append(answers)
                size += sum(map(len, answers))
                if wall_seconds() - began_s > BATCH_S or size > BATCH_BYTES:
                    self._hand_back(partial(then, batch))
                    batch = []
                    began_s = wall_seconds()
                    size = 0
            self._hand_back(partial(then, batch))

        self.do(job)

    def collect(self) -> None:
        """Call the functions that finished jobs have returned. Raises the exception of a job that has failed."""
        with suppress(BlockingIOError):
            os.read(self.descriptor, 4096)
        while self._done:
            self._done.popleft()()

    def close(self) -> None:
        """Take no more jobs, and wait half a second at most for the present one."""
        self._jobs.put(None)
        self._thread.join(0.5)
        if not self._thread.is_alive():
            os.close(self.descriptor)
            os.close(self._writing)

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            try:
                done = job()
            except BaseException as error:
                done = _raising(error)
            if done is not None:
                self._hand_back(done)

    def _hand_back(self, done: Done) -> None:
        self._done.append(done)
        with suppress(BlockingIOError):  # a full pipe is readable already
            os.write(self._writing, b".")


def _raising(error: BaseException) -> Done:
    def fail() -> None:
        raise error

    return fail
