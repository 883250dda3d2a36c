"""The thread on which a process's followers work, so that its links go on speaking while they do."""

from __future__ import annotations

import os
import queue
import threading
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress

from seedbus.bus.clock import wall_seconds
from seedbus.bus.transport import Follower, handled

TOGETHER_S = 0.005  # answers are gathered for so long at most, while there is more to do
TOGETHER_BYTES = 32 * 2**10

Done = Callable[[], None]


class WorkerThread:
    """Does jobs in their order on a thread; what becomes of them is handed back to the thread that collects.

    `descriptor` becomes readable when there is something to collect.
    """

    def __init__(self) -> None:
        self.descriptor, self._writing = os.pipe()
        os.set_blocking(self.descriptor, False)
        os.set_blocking(self._writing, False)
        self._jobs: queue.SimpleQueue[Callable[[], Done | None] | None] = queue.SimpleQueue()
        self._done: deque[Done] = deque()
        self._thread = threading.Thread(target=self._work, name="followers", daemon=True)
        self._thread.start()

    def do(self, job: Callable[[], Done | None]) -> None:
        """Do a job; what it returns is called when its outcome is collected. What it raises is raised there."""
        self._jobs.put(job)

    def handle(self, follower: Follower, frames: Sequence[bytes], then: Callable[[list[list[bytes]]], None]) -> None:
        """Let a follower answer frames; `then` gets answers as they come, some at a time."""

        def job() -> None:
            gathered: list[list[bytes]] = []
            since, size = wall_seconds(), 0
            for answers in handled(follower, frames):
                gathered.append(answers)
                size += sum(map(len, answers))
                if wall_seconds() - since > TOGETHER_S or size > TOGETHER_BYTES:
                    self._hand_back(_with(then, gathered))
                    gathered, since, size = [], wall_seconds(), 0
            self._hand_back(_with(then, gathered))

        self.do(job)

    def collect(self) -> None:
        """Call what is to be called of finished jobs. Raises what a job raised."""
        with suppress(BlockingIOError):
            os.read(self.descriptor, 4096)
        while self._done:
            self._done.popleft()()

    def close(self) -> None:
        """No more jobs; the one under way is not waited for long."""
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
        with suppress(BlockingIOError):  # full: there is notice enough
            os.write(self._writing, b".")


def _with(then: Callable[[list[list[bytes]]], None], answers: list[list[bytes]]) -> Done:
    return lambda: then(answers)


def _raising(error: BaseException) -> Done:
    def fail() -> None:
        raise error

    return fail
