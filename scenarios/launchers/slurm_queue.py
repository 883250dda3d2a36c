"""What Slurm says of its nodes and of a run's jobs. Its own commands are asked, not its accounting, which not every
cluster has."""

from __future__ import annotations

import math
import os
import re
import subprocess
import threading
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from seedbus.agents.errors import NotStarted
from seedbus.bus.clock import wall_seconds
from seedbus.scenarios.launchers.launcher import Note

ASK_S = 10.0  # how often Slurm is asked about a job, and how long a job waits before it is told
ANSWER_S = 30.0  # how long Slurm may take to answer
FORGOTTEN = "FORGOTTEN"  # the state of a job that Slurm does not know any more
OVER = {"BOOT_FAIL", "CANCELLED", "COMPLETED", "DEADLINE", "FAILED", "NODE_FAIL", "OUT_OF_MEMORY", "TIMEOUT", FORGOTTEN}
"""States of a job that goes on no more, and is not queued again either."""
RUNNING = {"RUNNING", "COMPLETING", "CONFIGURING", "PREEMPTED"}
"""States of a job that does not wait; Slurm may have other words for waiting than PENDING."""
NEVER = re.compile(
    r"BadConstraints|InvalidAccount|InvalidQOS|PartitionConfig|PartitionTimeLimit|\w+PerJobLimit|\w+NotSatisfied"
)
"""Reasons for which a job waits until somebody changes it, or Slurm's settings."""
MOST_LOG = 65_536  # bytes of a job's log that are searched for what Slurm says


@dataclass(frozen=True, slots=True)
class NodeKind:
    """Nodes of a partition that have the same, whoever uses them now.

    Attributes:
        partition: its name.
        is_default: whether jobs that name no partition get this one.
        count: number of nodes.
        minutes: the partition's time limit; infinite: none.
    """

    partition: str
    is_default: bool
    count: int
    cpus: int
    gpus: int
    minutes: float


def job_name(run: str) -> str:
    """Return the name of a run's jobs. run: identifies the run, 16 hexadecimal digits."""
    return f"seedbus-{run}"


def how_to_cancel(run: str) -> str:
    return f"`scancel --name={job_name(run)}` cancels it"


def nodes() -> list[NodeKind]:
    """Return the nodes of all partitions; none if Slurm does not tell."""
    told = _answer("sinfo", "--noheader", "--all", "--exact", "--format=%P|%D|%c|%G|%l")
    if told is None or told.returncode:
        return []
    found = []
    for line in told.stdout.splitlines():
        try:
            name, count, cpus, gres, limit = line.strip().split("|")
            gpus = sum(map(int, re.findall(r"\bgpu(?::[^,:()]+)?:(\d+)", gres)))
            kind = (int(count), int(cpus.rstrip("+")), gpus, _minutes(limit))
        except ValueError:
            return []  # another version's format: what it has is not known
        found.append(NodeKind(name.rstrip("*"), name.endswith("*"), *kind))
    return found


def _minutes(limit: str) -> float:
    """Return a time limit, as D-HH:MM:SS or a part of it, in minutes. Raises `ValueError`."""
    if limit in ("infinite", "n/a"):
        return math.inf
    days, _, time = limit.rpartition("-")
    hours, minutes, seconds = ([0, 0, *map(int, time.split(":"))])[-3:]
    return int(days or 0) * 1440 + hours * 60 + minutes + seconds / 60


def jobs_named(name: str) -> list[str] | None:
    """Return this user's jobs of a name that are not over; None: Slurm does not tell."""
    told = _answer("squeue", "--noheader", "--format=%i", f"--name={name}", f"--user={os.getuid()}")
    return None if told is None or told.returncode else told.stdout.split()


def cancelled(which: str) -> bool:
    """Cancel jobs of this user, and return whether Slurm has done so. which: a job, or `--name=` and a name."""
    told = _answer("scancel", f"--user={os.getuid()}", which)
    return told is not None and not told.returncode


def _answer(*command: str) -> subprocess.CompletedProcess[str] | None:
    """Return what a command of Slurm says; None: there is no such command, or no answer."""
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=ANSWER_S, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None


class Job:
    """A submitted job.

    Args:
        job: submitit's.
        tasks: how many it has.
        note: is told why the job waits.
        is_local: whether its tasks are processes of this machine.

    Attributes:
        id: the job's.
        tasks: submitit's, by rank.
    """

    def __init__(self, job: Any, tasks: int, note: Note, *, is_local: bool) -> None:
        self.id = str(job.job_id)
        self.tasks = [job.task(rank) for rank in range(tasks)]
        self._job = job
        self._note = note
        self._is_local = is_local
        self._asking = threading.Lock()
        self._asked_s = wall_seconds()
        self._answers = [("", ""), ("", "")]  # the answer before the last one, and the last one: state and reason
        self._told: set[str] = set()  # reasons of this wait

    def end(self) -> str:
        """Return the state in which the job has ended; "" while it goes on, or is queued.

        Raises:
            NotStarted: it can never start.
        """
        if self._is_local:
            return str(self._job.state) if self._job.done() else ""
        with self._asking:
            if wall_seconds() - self._asked_s >= ASK_S:
                self._answers = [self._answers[1], self._ask()]
                self._asked_s = wall_seconds()
            before, now = self._answers
        # twice: a file that tasks have written may come later than their end, and reasons may pass
        if before == now and NEVER.fullmatch(now[1]):
            raise NotStarted(f"Slurm will never start job {self.id} of the workers (its reason: {now[1]})")
        return now[0] if before[0] in OVER and now[0] in OVER else ""

    def told(self, state: str) -> str:
        """Return how the job has ended, in Slurm's words. state: the one in which it has."""
        if state == "CANCELLED":  # its tasks were killed then
            return state.lower()
        try:
            with open(self.tasks[0].paths.stderr, "rb") as log:
                log.seek(max(0, log.seek(0, 2) - MOST_LOG))
                lines = log.read().decode(errors="replace").splitlines()
        except OSError:
            lines = []
        own = [line.partition("error: ")[2].strip("* ") for line in lines if _OWN.match(line)]
        return ", ".join([state.lower(), *own[-1:]])

    def cancel(self) -> None:
        """End the job, if tasks of it are left."""
        if all(task.paths.result_pickle.exists() for task in self.tasks):
            return
        if self._is_local:
            with suppress(Exception):
                self._job.cancel()
        else:
            cancelled(self.id)

    def _ask(self) -> tuple[str, str]:
        """Return the job's state and the reason why it waits; "": none is known."""
        told = _answer("squeue", "--noheader", "--states=all", "--format=%T|%r|%S", f"--jobs={self.id}")
        if told is None:
            return "", ""
        if told.returncode:  # Slurm forgets jobs some minutes after their end; any other reason may pass
            return (FORGOTTEN, "") if "Invalid job id" in told.stderr else ("", "")
        state, _, rest = told.stdout.strip().partition("|")
        reason, _, start = rest.rpartition("|")
        if not state or state in OVER or state in RUNNING:
            self._told.clear()
            return state, ""
        if reason not in self._told:
            self._told.add(reason)
            begins = f", until {start}" if start not in ("", "N/A") else ""
            self._note("queued", job=self.id, reason=reason, begins=begins)
        return state, reason


_OWN = re.compile(r"(srun|slurmstepd[^:]*): error: ")
"""How a line of a job's log begins in which Slurm says why tasks of it ended."""
