"""Threads of which one runs at a time, and a schedule, drawn from a seed, that says which; time is virtual.

A thread gives up its turn where the real one would wait: for a lock, a queue, a descriptor, or the time. Whoever has
the turn chooses the next of those that could go on, so that a schedule is the list of these choices. The plain order
always takes the first; a trace holds the choices that deviate from it, and shrinking means to deviate less.
"""

from __future__ import annotations

import threading
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from math import inf
from random import Random
from typing import Any, Protocol

Deviations = dict[tuple[str, int], int]
"""(what is chosen, how often it was before) → the choice, where it is not the first one."""
MOST_STEPS = 30_000  # choices of a schedule, after which it counts as one that never ends
MOST_S = 3600.0  # virtual seconds, likewise


class NotLive(AssertionError):
    """Nothing can go on, or nothing comes to an end."""


class Over(BaseException):
    """Ends a thread of a schedule that is over."""


class Draws:
    """The choices of a schedule.

    Args:
        seed: draws them, and how often they deviate from the plain order.
        given: the deviations of an earlier schedule, to be followed instead.
    """

    def __init__(self, seed: int, given: Mapping[tuple[str, int], int] | None = None) -> None:
        self._random = Random(seed)
        self._rate = self._random.choice((0.02, 0.1, 0.3, 0.7))
        self._given = given
        self._counts = Counter[str]()
        self.deviations: Deviations = {}

    def below(self, count: int, what: str) -> int:
        """Return a choice among `count`; 0 is the plain one."""
        place = what, self._counts[what]
        self._counts[what] += 1
        if self._given is not None:
            choice = min(self._given.get(place, 0), count - 1)
        else:
            choice = self._random.randrange(count) if self._random.random() < self._rate else 0
        if choice:
            self.deviations[place] = choice
        return choice


class Source(Protocol):
    """What happens beside the threads, as on a network."""

    def due(self, now_s: float) -> list[tuple[str, Callable[[], None]]]:
        """Return what can happen now, each with a name."""
        ...

    def next_s(self) -> float:
        """Return when something can happen next; inf: not by itself."""
        ...


class Task:
    """A thread of a schedule. Its group is the process that it stands for."""

    def __init__(self, name: str, group: str) -> None:
        self.name = name
        self.group = group
        self.turn = threading.Semaphore(0)
        self.ready: Callable[[], bool] = lambda: True
        self.until_s = inf
        self.is_over = False
        self.failure: BaseException | None = None  # that has ended it
        self.raises: BaseException | None = None  # at its next turn

    def can_go_on(self, now_s: float) -> bool:
        return self.raises is not None or self.until_s <= now_s or self.ready()


class Schedule:
    """Gives turns. The thread that makes it is its first one.

    Attributes:
        now_s: the time that the threads see.
        steps: choices so far.
        killed: groups whose threads get no turn any more.
        stalled: groups whose threads get none until a time.
    """

    def __init__(self, draws: Draws) -> None:
        self.draws = draws
        self.now_s = 1000.0
        self.steps = 0
        self.killed: set[str] = set()
        self.stalled: dict[str, float] = {}
        self.sources: list[Source] = []
        self.main = Task("server", "server")
        self._current = self.main
        self._tasks = [self.main]
        self._threads: list[tuple[Task, threading.Thread]] = []
        self._failure: BaseException | None = None
        self._is_over = False

    # -- what a thread calls

    def read_clock(self) -> float:
        """Return the time, which passes only while nobody can go on."""
        return self.now_s

    def wait(self, ready: Callable[[], bool], until_s: float = inf) -> bool:
        """Give up the turn until `ready` or the time says so; returns what `ready` says then."""
        if self._is_over:
            raise Over
        task = self._current
        task.ready, task.until_s = ready, until_s
        chosen = self._choose()
        if chosen is not task:
            self._hand_over(chosen)
            task.turn.acquire()
        if self._is_over:
            raise Over
        if task is self.main and self._failure is not None:
            raise self._failure
        if task.raises is not None:
            error, task.raises = task.raises, None
            raise error
        return ready()

    def pause(self) -> None:
        """Let others go first, if the schedule says so."""
        if self.draws.below(4, "pause"):
            self.wait(lambda: True)

    def spawn(self, target: Callable[[], object], name: str, group: str = "") -> Task:
        """Start a thread; it gets its first turn later. group: by default the one of the caller."""
        task = Task(name, group or self._current.group)

        def run() -> None:
            task.turn.acquire()
            try:
                if not self._is_over:
                    target()
            except Over:
                pass
            except BaseException as error:
                task.failure = error
            task.is_over = True
            if not self._is_over:
                self._hand_over(self._choose())

        thread = threading.Thread(target=run, name=name, daemon=True)
        self._tasks.append(task)
        self._threads.append((task, thread))
        thread.start()
        return task

    # -- what a fault calls

    @property
    def group(self) -> str:
        """The group of the thread that has the turn."""
        return self._current.group

    @property
    def groups(self) -> list[str]:
        """The groups that have threads which go on."""
        return sorted({each.group for each in self._tasks if not each.is_over} - self.killed)

    def ended_with(self, prefix: str) -> list[Task]:
        """Return the threads that an error has ended, of groups whose names begin so."""
        return [task for task, _ in self._threads if task.group.startswith(prefix) and task.failure is not None]

    def interrupt(self, error: BaseException) -> None:
        """Raise an error in the first thread, where it waits next."""
        self.main.raises = error

    def kill(self, group: str) -> None:
        """Give a group's threads no turn any more, as if its process had been killed."""
        self.killed.add(group)

    def close(self) -> None:
        """End all threads that are left; called by the first one."""
        self._is_over = True
        for task, thread in self._threads:
            while thread.is_alive():  # what it cleans up may want further turns, each of which ends at once
                task.turn.release()
                thread.join(0.05)

    # -- turns

    def _hand_over(self, chosen: Task) -> None:
        self._current = chosen
        chosen.turn.release()

    def _choose(self) -> Task:
        try:
            return self._next()
        except BaseException as error:  # whoever has the turn, the first thread is to tell
            self._failure = self._failure or error
            return self.main

    def _next(self) -> Task:
        while self._failure is None:
            self.steps += 1
            if self.steps > MOST_STEPS:
                raise NotLive(f"{MOST_STEPS:,} steps, and it goes on; {self._waiting()}")
            self._tasks = [task for task in self._tasks if not task.is_over]
            able = [task for task in self._tasks if self._may_go_on(task)]
            happens = [each for source in self.sources for each in source.due(self.now_s)]
            if not able and not happens:
                self._pass_time()
                continue
            choice = self.draws.below(len(able) + len(happens), "turn")
            if choice < len(happens):
                happens[choice][1]()
            else:
                return able[choice - len(happens)]
        return self.main

    def _may_go_on(self, task: Task) -> bool:
        if task.group in self.killed or self.stalled.get(task.group, 0.0) > self.now_s:
            return False
        return task.can_go_on(self.now_s)

    def _pass_time(self) -> None:
        present = [task for task in self._tasks if task.group not in self.killed]
        times = [task.until_s for task in present] + [source.next_s() for source in self.sources]
        times += self.stalled.values()
        next_s = min((each for each in times if each > self.now_s), default=inf)
        if next_s == inf:
            raise NotLive(f"nothing can go on; {self._waiting()}")
        if next_s > MOST_S + 1000.0:
            raise NotLive(f"{MOST_S:,.0f} virtual seconds, and it goes on; {self._waiting()}")
        self.now_s = next_s

    def _waiting(self) -> str:
        return "waiting: " + ", ".join(task.name for task in self._tasks)


# -- what stands for the parts of the standard library that wait


class Thread:
    """Stands for `threading.Thread`."""

    def __init__(
        self, schedule: Schedule, target: Callable[..., object], args: Iterable[Any] = (), name: str = "", **_: Any
    ) -> None:
        self._schedule = schedule
        self._work = lambda: target(*args)
        self._name = name
        self._task: Task | None = None

    def start(self) -> None:
        self._task = self._schedule.spawn(self._work, self._name)

    def is_alive(self) -> bool:
        return self._task is not None and not self._task.is_over

    def join(self, timeout: float | None = None) -> None:
        until_s = inf if timeout is None else self._schedule.now_s + timeout
        self._schedule.wait(lambda: not self.is_alive(), until_s)


class Event:
    """Stands for `threading.Event`."""

    def __init__(self, schedule: Schedule) -> None:
        self._schedule = schedule
        self._is_set = False

    def set(self) -> None:
        self._is_set = True

    def clear(self) -> None:
        self._is_set = False

    def is_set(self) -> bool:
        return self._is_set

    def wait(self, timeout: float | None = None) -> bool:
        return self._schedule.wait(self.is_set, inf if timeout is None else self._schedule.now_s + timeout)


class Queue:
    """Stands for `queue.SimpleQueue`."""

    def __init__(self, schedule: Schedule) -> None:
        self._schedule = schedule
        self._items = deque[Any]()

    def put(self, item: Any) -> None:
        self._items.append(item)

    def get(self) -> Any:
        self._schedule.wait(lambda: bool(self._items))
        return self._items.popleft()


class Executor:
    """Stands for a `ThreadPoolExecutor` of one thread."""

    def __init__(self, schedule: Schedule, _: int = 1, thread_name_prefix: str = "executor") -> None:
        self._schedule = schedule
        self._jobs = Queue(schedule)
        self._thread = Thread(schedule, self._serve, name=thread_name_prefix)
        self._thread.start()

    def submit(self, work: Callable[..., Any], *arguments: Any) -> Future[Any]:
        future = Future[Any]()
        self._jobs.put((future, work, arguments))
        return future

    def shutdown(self, wait: bool = True) -> None:
        self._jobs.put(None)
        if wait:
            self._thread.join()

    def _serve(self) -> None:
        while (job := self._jobs.get()) is not None:
            future, work, arguments = job
            try:
                future.set_result(work(*arguments))
            except Over:
                raise
            except BaseException as error:
                future.set_exception(error)
