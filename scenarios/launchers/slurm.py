"""Worker processes as the tasks of one Slurm job, submitted by way of submitit.

What the tasks need, their keys included, lies in the folder `slurm` of the run's, which all nodes must see: one file
for each task, that only its user may read, until the task has ended. A job that is preempted is queued again; its tasks
then begin anew with the same files, and the run goes on where it was. A task whose file is gone ends.

Slurm warns all processes of a job by SIGTERM, or SIGUSR2, before it ends them. Worker processes ignore both and go on
until the task ends: one that ended at the warning would look like one that failed.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, ClassVar, Literal

import msgpack
from pydantic import Field

from seedbus.agents.errors import Unfinishable
from seedbus.bus.clock import wall_seconds
from seedbus.bus.files import make_folder, read
from seedbus.scenarios.errors import ScenarioError
from seedbus.scenarios.launchers.launcher import Ended, Launcher, Order, Surroundings, Worker, last_line
from seedbus.scenarios.launchers.node import NodeProcess, Parcel

FOLDER = "slurm"  # in the run's
POLL_S = 0.2  # how often it is looked whether a task has ended
ASK_S = 10.0  # how often Slurm is asked about a job
OVER = {"BOOT_FAIL", "CANCELLED", "COMPLETED", "DEADLINE", "FAILED", "NODE_FAIL", "OUT_OF_MEMORY", "TIMEOUT"}
"""States of a job that goes on no more, and is not queued again either."""
_LOG_LEVEL = "SUBMITIT_LOG_LEVEL"
WARNINGS = (signal.SIGTERM, signal.SIGUSR2)


class Slurm(Launcher):
    """Tasks of a Slurm job; the run's own process is on a machine that the nodes reach."""

    grace_s: ClassVar[float] = 5.0

    launcher: Literal["slurm"] = "slurm"
    address: str = Field("", description="name or IP address by which nodes reach this machine; default: its own name")
    worker_cpus: int = Field(1, ge=1, description="CPUs of a worker")
    worker_gpus: int = Field(0, ge=0, description="GPUs of a worker")
    nodes: int = Field(1, ge=1, description="nodes of the job, among which the workers are divided")
    minutes: int = Field(60, ge=1, description="time limit of the job; it is queued again when it has passed")
    partition: str | None = Field(None, description="Slurm's partition")
    account: str | None = Field(None, description="Slurm's account")
    cluster: Literal["slurm", "local"] = Field("slurm", description="local: processes of this machine, to try it out")

    def check(self, workers: int) -> None:
        _submitit()
        if self.cluster == "slurm" and shutil.which("sbatch") is None:
            expected = "expected a machine from which jobs are submitted, or --launch cluster=local to try it out"
            raise ScenarioError("--launcher slurm", [f"there is no sbatch here; {expected}"])
        if workers % self.nodes:
            problem = f"they cannot be divided among {self.nodes} nodes; expected a multiple"
            raise ScenarioError(f"--workers {workers}", [problem])
        self.host()

    def host(self) -> str:
        name = self.address or ("127.0.0.1" if self.cluster == "local" else socket.gethostname())
        expected = "expected a name or IP address of this machine, by --address"
        try:
            found = socket.gethostbyname(name)
        except OSError as error:
            raise ScenarioError(f"--address {name}", [f"it is not known ({error.strerror}); {expected}"]) from None
        if not self.address and self.cluster == "slurm" and found.startswith("127."):
            raise ScenarioError(f"--address {name}", [f"it is {found}, which no other machine reaches; {expected}"])
        return found

    def start(self, orders: Sequence[Order], run: Surroundings) -> list[Worker]:
        submitit = _submitit()
        folder = run.log.parent.absolute() / FOLDER
        group = f"{orders[0].number}-{os.urandom(4).hex()}"
        files = [folder / f"{group}-{rank}" for rank in range(len(orders))]
        try:
            make_folder(folder)
            folder.chmod(0o700)
            for file, order in zip(files, orders, strict=True):
                content = msgpack.packb([Parcel.of(order, run).packed(), order.secrets])
                with open(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600), "wb") as out:
                    out.write(content)
            # submitit unpickles what lies here: never a folder that another process can have filled
            jobs = folder / f"jobs-{os.urandom(16).hex()}"
            jobs.mkdir(mode=0o700)
            executor = submitit.AutoExecutor(jobs, cluster=self.cluster)
            executor.update_parameters(**self._parameters(len(orders)))
            job = Job(executor.submit(Task(str(folder / group))), len(orders), is_local=self.cluster == "local")
        except (OSError, RuntimeError, submitit.core.utils.FailedJobError) as error:
            for file in files:
                file.unlink(missing_ok=True)
            reason = str(error).strip().partition("\n")[0]
            raise Unfinishable(f"the job of the workers cannot be submitted ({reason})") from None
        run.note("submitted", job=job.id, workers=len(orders))
        return [SlurmWorker(job, rank, file) for rank, file in enumerate(files)]

    def _parameters(self, workers: int) -> dict[str, Any]:
        nodes = self.nodes if workers % self.nodes == 0 else 1
        tasks = workers // nodes
        slurm: dict[str, Any] = {"slurm_partition": self.partition, "slurm_account": self.account}
        if self.worker_gpus and self.cluster == "slurm":
            slurm["slurm_gpus_per_task"] = (
                self.worker_gpus
            )  # of a node's GPUs each task would see all, and take the first
        elif self.worker_gpus:
            slurm["gpus_per_node"] = self.worker_gpus * tasks
        return {
            "name": "seedbus",
            "nodes": nodes,
            "tasks_per_node": tasks,
            "cpus_per_task": self.worker_cpus,
            "timeout_min": self.minutes,
            "slurm_srun_args": ["--kill-on-bad-exit=1"],  # a job of which a task was killed would wait for it
        } | {name: value for name, value in slurm.items() if value is not None}


class Task:
    """What each task of the job does; submitit stores it in a file, so it holds no secret.

    Args:
        files: path of the tasks' files, without the task's number.
    """

    def __init__(self, files: str) -> None:
        self._files = files

    def __call__(self) -> tuple[int, str]:
        """Run a worker process to its end; return its exit code, and the last line of its output."""
        file = Path(f"{self._files}-{_submitit().JobEnvironment().global_rank}")
        parcel, secrets = msgpack.unpackb(read(file))
        with _ignored(WARNINGS):
            process = NodeProcess(Parcel.unpacked(parcel), secrets)
        try:
            last, code = "", None
            while code is None:
                lines, code = process.read()
                for last in lines:
                    sys.stderr.write(f"{last}\n")
                if _is_gone(file):
                    process.end()
            return code, last
        finally:  # also if the job is preempted
            process.end()

    def checkpoint(self) -> Any:
        """Return what submitit queues again when the job is preempted: the same."""
        return _submitit().helpers.DelayedSubmission(self)


@contextmanager
def _ignored(signals: Sequence[signal.Signals]) -> Iterator[None]:
    """Ignore signals, and let processes that are started meanwhile ignore them for good."""
    before = [signal.signal(each, signal.SIG_IGN) for each in signals]
    try:
        yield
    finally:
        for each, handler in zip(signals, before, strict=True):
            signal.signal(each, handler)


def _is_gone(file: Path) -> bool:
    try:
        file.lstat()
    except FileNotFoundError:
        return True
    except OSError:  # the file system has a moment's trouble
        return False
    return False


class Job:
    """A submitted job.

    Slurm itself is asked how it is; submitit would ask Slurm's accounting, which not every cluster has.

    Args:
        job: submitit's.
        tasks: how many it has.
        is_local: whether its tasks are processes of this machine.

    Attributes:
        id: the job's.
        tasks: submitit's, by rank.
    """

    def __init__(self, job: Any, tasks: int, *, is_local: bool) -> None:
        self.id = str(job.job_id)
        self.tasks = [job.task(rank) for rank in range(tasks)]
        self._job = job
        self._is_local = is_local
        self._asking = threading.Lock()
        self._asked_s = wall_seconds()
        self._states = ("", "")  # the answer before the last one, and the last one

    def end(self) -> str:
        """Return the state in which the job has ended; "" while it goes on, or is queued."""
        if self._is_local:
            return str(self._job.state) if self._job.done() else ""
        with self._asking:
            if wall_seconds() - self._asked_s >= ASK_S:
                self._states = (self._states[1], self._state())
                self._asked_s = wall_seconds()
            before, now = self._states
        return now if before and now else ""  # twice: a file that tasks have written may come later than their end

    def cancel(self) -> None:
        """End the job, if tasks of it are left."""
        if all(task.paths.result_pickle.exists() for task in self.tasks):
            return
        with suppress(Exception):
            if self._is_local:
                self._job.cancel()
            else:
                _answer("scancel", self.id)

    def _state(self) -> str:
        try:
            told = _answer("squeue", "--noheader", "--states=all", "--format=%T", "--jobs", self.id)
        except (OSError, subprocess.TimeoutExpired):
            return ""
        if told.returncode:  # Slurm forgets jobs some minutes after their end; any other reason may pass
            return "FORGOTTEN" if "Invalid job id" in told.stderr else ""
        state = told.stdout.strip()
        return state if state in OVER else ""


def _answer(*command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)


class SlurmWorker:
    """A worker process in a task of a job, see `Worker`.

    Args:
        job: the job.
        rank: number of the task.
        file: what the task reads; the task ends when it is gone.
    """

    def __init__(self, job: Job, rank: int, file: Path) -> None:
        self._job = job
        self._task = job.tasks[rank]
        self._file = file
        self._is_over = threading.Event()

    def wait(self) -> Ended:
        try:
            while not self._task.paths.result_pickle.exists():
                if self._is_over.wait(POLL_S):
                    return Ended(-signal.SIGTERM, f"job {self._job.id} was cancelled")
                if (state := self._job.end()) and not self._task.paths.result_pickle.exists():
                    return Ended(-signal.SIGKILL, f"job {self._job.id}: {state.lower()}")
            code, last = self._task.result()
            return Ended(code, f"job {self._job.id}: {last}")
        except Exception as error:  # the task's own
            return Ended(-signal.SIGKILL, f"job {self._job.id}: {last_line(error)}")
        finally:
            self._file.unlink(missing_ok=True)

    def end(self) -> None:
        """Without effect: the task ends by itself when the run is over, and otherwise `kill` ends it."""

    def kill(self) -> None:
        self._is_over.set()
        self._job.cancel()


def _submitit() -> Any:
    """Return submitit, imported without its settings of `logging`, which close all handlers of this process."""
    level = os.environ.get(_LOG_LEVEL)
    os.environ[_LOG_LEVEL] = "NOCONFIG"
    try:
        import submitit
    except ImportError:
        needed = 'submitit is not installed here; expected it after `pip install "seedbus[cluster]"`'
        raise ScenarioError("--launcher slurm", [needed]) from None
    finally:
        os.environ.pop(_LOG_LEVEL)
        if level is not None:
            os.environ[_LOG_LEVEL] = level
    return submitit
