"""Processes that do the jobs of studies, and of `seedbus stress`.

A job that fails, or whose process dies, is told and does not stop the others.
"""

from __future__ import annotations

import json
import math
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import IO, Any

from seedbus.bus.clock import wall_seconds
from seedbus.bus.files import temporary_folder
from seedbus.bus.text import printable
from seedbus.discovery import PLUGINS

WORKER = "seedbus.studies.study.worker"
STOP_S = 2.0
"""Seconds that a process may take to end; a run's own worker processes may take more."""


@dataclass(frozen=True, eq=False)
class Job:
    """What a worker is to do.

    Attributes:
        do: a name of `worker.JOBS`.
        subject: what the job is about; it stays in this process.
        facts: what the worker is sent.
    """

    do: str
    subject: Any
    facts: dict[str, Any]


@dataclass(frozen=True)
class Answer:
    """What a worker said about a job.

    Attributes:
        facts: `rounds` while it runs; in the end `is_done` with results, or what `failed`.
    """

    job: Job
    facts: dict[str, Any] = field(default_factory=dict)

    @property
    def is_last(self) -> bool:
        return "rounds" not in self.facts

    @property
    def failure(self) -> str | None:
        failed: str | None = self.facts.get("failed")
        return failed


class Pool:
    """Processes that do jobs; all of them end with the block, or when this process ends.

    A process is started when there is a job for it, and kept for later jobs.

    Attributes:
        folder: for temporary files of this process and of the others; it is removed when all have ended.
    """

    def __init__(self, count: int, stop_s: float = STOP_S) -> None:
        """Prepare the processes, without starting them.

        Args:
            count: number of processes.
            stop_s: how long they may take to stop a run that is in progress; they are killed then.
        """
        self._count = count
        self._stop_s = stop_s
        self._children: list[subprocess.Popen[str] | None] = [None] * count
        self._threads: list[threading.Thread] = []
        self._lock = threading.Lock()  # no process is started once all are being ended
        self._is_closing = False
        self._temporary = ExitStack()
        self._folder: Path | None = None

    def __enter__(self) -> Pool:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._lock:
            self._is_closing = True
        children = [child for child in self._children if child is not None]
        try:
            for child in children:
                _close(child.stdin)  # so that it stops its run, with the run's own worker processes
            until_s = wall_seconds() + self._stop_s
            for child in children:
                with suppress(subprocess.TimeoutExpired):
                    child.wait(max(0.0, until_s - wall_seconds()))
        finally:  # also if a second Ctrl-C ends the wait
            for child in children:
                child.kill()  # runs are durable round by round
                child.wait()
            self._temporary.close()
        for thread in self._threads:
            thread.join()
        for child in children:
            _close(child.stdout)

    @property
    def folder(self) -> Path:
        if self._folder is None:
            self._folder = self._temporary.enter_context(temporary_folder())
        return self._folder

    def do(self, jobs: Iterable[Job], until_s: float = math.inf) -> Iterator[Answer]:
        """Do all jobs, and yield the answers as they come. Jobs begin in the order in which they are given.

        Args:
            jobs: each is asked for when a process can begin it; there may be no end of them.
            until_s: time of `wall_seconds` at which no answer is awaited any more.
        """
        waiting, lock = iter(jobs), threading.Lock()
        answers: queue.SimpleQueue[Answer | Exception | None] = queue.SimpleQueue()

        def next_job() -> Job | None:
            with lock:
                return next(waiting, None)

        def work(number: int) -> None:
            try:
                while not self._is_closing and (job := next_job()) is not None:
                    self._do(number, job, answers)
            except Exception as error:  # this generator must not wait for a thread that has ended
                answers.put(error)
            answers.put(None)

        threads = self._count
        self._threads = [
            threading.Thread(target=work, args=(number,), name="study", daemon=True) for number in range(threads)
        ]
        for thread in self._threads:
            thread.start()
        while threads:
            try:
                answer = answers.get(timeout=None if until_s == math.inf else max(0.0, until_s - wall_seconds()))
            except queue.Empty:
                return
            if answer is None:
                threads -= 1
            elif isinstance(answer, Exception):
                raise answer
            else:
                yield answer

    def _do(self, number: int, job: Job, answers: queue.SimpleQueue[Answer | Exception | None]) -> None:
        """Give a job to a process, and pass on its answers until the last one."""
        try:
            child = self._alive(number) or self._spawn(number)
            if child.stdin is None or child.stdout is None:
                raise OSError("its pipes are closed")
            child.stdin.write(json.dumps({"do": job.do} | job.facts) + "\n")
            child.stdin.flush()
            for line in child.stdout:
                answer = Answer(job, _facts(line))
                answers.put(answer)
                if answer.is_last:
                    return
            _close(child.stdin)
            failed = _ended(child.wait())
        except (OSError, ValueError) as error:  # closed by __exit__, it cannot be started, or it is not understood
            failed = f"its process cannot be used ({error})"
            self._kill(number)
        if not self._is_closing:
            answers.put(Answer(job, {"failed": failed}))

    def _alive(self, number: int) -> subprocess.Popen[str] | None:
        """Return a process that lives; None if there is none, or it has ended, perhaps while it had no job."""
        child = self._children[number]
        if child is None or child.poll() is None:
            return child
        self._children[number] = None
        _close(child.stdin)
        _close(child.stdout)
        return None

    def _kill(self, number: int) -> None:
        """End a process that may still be at a job, whose further answers would be taken for those to the next one."""
        child = self._children[number]
        if child is not None and not self._is_closing:
            child.kill()  # runs are durable round by round
            child.wait()

    def _spawn(self, number: int) -> subprocess.Popen[str]:
        plugins = [plugin.path for plugin in PLUGINS.values() if plugin.path]
        with self._lock:
            if self._is_closing:
                raise OSError("all processes are being ended")
            command = [sys.executable, "-m", WORKER, str(self.folder), str(self._stop_s), *plugins]
            # a process group of its own: Ctrl-C reaches this process only
            child = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
                start_new_session=True,
            )
            self._children[number] = child
        return child


def _close(stream: IO[str] | None) -> None:
    if stream is not None:
        with suppress(OSError):  # what was not sent cannot be sent any more
            stream.close()


def _facts(line: str) -> dict[str, Any]:
    """Return the facts of an answer. Raises `ValueError` for any other line, as of a library that prints."""
    try:
        facts = json.loads(line)
    except (ValueError, RecursionError):
        facts = None
    if not (isinstance(facts, dict) and facts.keys() & {"rounds", "is_done", "failed"}):
        raise ValueError(f"it wrote {printable(repr(line.rstrip()))}, which is no answer")
    return facts


def _ended(code: int) -> str:
    if code >= 0:
        return f"its process ended with exit code {code}"
    name = signal.Signals(-code).name if -code in list(signal.Signals) else str(-code)
    return f"its process was killed by {name}" + (", perhaps for want of memory" if name == "SIGKILL" else "")
