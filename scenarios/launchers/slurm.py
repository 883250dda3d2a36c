"""Worker processes as the tasks of one Slurm job, submitted by way of submitit.

What the tasks need, their keys included, lies in the folder `slurm` of the run's, which all nodes must see: one file
for each task, that only its user may read, until the task has ended. A job that is preempted is queued again; its tasks
then begin anew with the same files, and the run goes on where it was. A task whose file is gone ends. All jobs of a run
have one name, by which they are found and cancelled if the process that submitted them was killed, or never learned
their numbers.

Slurm warns all processes of a job by SIGTERM, or SIGUSR2, before it ends them. Worker processes ignore both and go on
until the task ends: one that ended at the warning would look like one that failed.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar, Literal

import msgpack
from pydantic import Field, PrivateAttr

from seedbus.agents.errors import NotStarted
from seedbus.bus.clock import wall_seconds
from seedbus.bus.files import check_folder, make_folder, read
from seedbus.scenarios.errors import ScenarioError
from seedbus.scenarios.extras import require
from seedbus.scenarios.launchers import slurm_queue
from seedbus.scenarios.launchers.launcher import (
    Ended,
    Launcher,
    Note,
    Order,
    Surroundings,
    Worker,
    cause,
    counted_resource,
    last_line,
    listed_nodes,
)
from seedbus.scenarios.launchers.node import NodeProcess, Parcel
from seedbus.scenarios.launchers.slurm_queue import Job, NodeKind, how_to_cancel, job_name

FOLDER = "slurm"  # in the run's
POLL_S = 0.2  # how often it is looked whether a task has ended
UNDO_S = 10.0  # how long the end of a run waits for Slurm to accept a job, so that it can be cancelled
MIN_MINUTES = 5  # Slurm warns a job up to 150 s before its time limit, and it is queued again then
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
    _submissions: dict[Future[Any], Surroundings] = PrivateAttr(default_factory=dict)

    def check(self, workers: int) -> None:
        _submitit()
        if self.cluster == "slurm" and shutil.which("sbatch") is None:
            expected = "expected a machine from which jobs are submitted, or --launch cluster=local to try it out"
            raise ScenarioError("--launcher slurm", [f"there is no sbatch here; {expected}"])
        if workers % self.nodes:
            problem = f"they cannot be divided among {self.nodes} nodes; expected a multiple"
            raise ScenarioError(f"--workers {workers}", [problem])
        if self.cluster == "slurm":
            if self.minutes < MIN_MINUTES:
                why = "Slurm warns a job up to 150 s before its time limit, and it is queued again then"
                raise ScenarioError(f"--launch minutes={self.minutes}", [f"{why}; expected {MIN_MINUTES} at least"])
            self._check_room(slurm_queue.nodes(), workers)
        self.host()

    def _check_room(self, nodes: Sequence[NodeKind], workers: int) -> None:
        """Refuse what no node of the partition has, whoever uses it now; nodes: none if Slurm does not tell."""
        known = sorted({node.partition for node in nodes})
        chosen = [node for node in nodes if node.is_default]
        if self.partition is not None and nodes:
            names = self.partition.split(",")
            if unknown := [name for name in names if name not in known]:
                expected = f"expected one of {', '.join(known)}"
                raise ScenarioError(f"--launch partition={unknown[0]}", [f"Slurm has no such partition; {expected}"])
            chosen = [node for node in nodes if node.partition in names]
        if not chosen:
            return
        longest = max(node.minutes for node in chosen)
        if self.minutes > longest:
            problem = f"jobs of this partition may take {longest:g} minutes; expected that at most"
            raise ScenarioError(f"--launch minutes={self.minutes}", [problem])
        tasks = workers // self.nodes
        cpus, gpus = tasks * self.worker_cpus, tasks * self.worker_gpus
        fitting = sum(node.count for node in chosen if node.cpus >= cpus and node.gpus >= gpus)
        if fitting < self.nodes:
            needs = f"{counted_resource(cpus, 'CPU')} and {counted_resource(gpus, 'GPU')} on each of {self.nodes} nodes"
            if self.nodes == 1:
                needs = needs.replace("each of 1 nodes", "one node (--launch nodes)")
            has = listed_nodes((node.cpus, node.gpus) for node in chosen for _ in range(node.count))
            accepted = "expected less for each, by --launch worker_cpus and worker_gpus, or other --launch nodes"
            raise ScenarioError(f"--workers {workers}", [f"they need {needs}, and there are {has}; {accepted}"])

    def host(self) -> str:
        name = self.address or ("127.0.0.1" if self.cluster == "local" else socket.gethostname())
        option, expected = f"--launch address={name}", "expected a name or IP address of this machine"
        try:
            found = socket.gethostbyname(name)
        except OSError as error:
            raise ScenarioError(option, [f"it is not known ({error.strerror}); {expected}"]) from None
        if not self.address and self.cluster == "slurm" and found.startswith("127."):
            raise ScenarioError(option, [f"it is {found}, which no other machine reaches; {expected}"])
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
            executor.update_parameters(name=job_name(run.run), **self._parameters(len(orders)))
            # on a thread: `sbatch` outlives a Ctrl-C, and `close` undoes what it has asked for
            submission = _in_background(lambda: executor.submit(Task(str(folder / group))))
            self._submissions[submission] = run
            job = Job(submission.result(), len(orders), run.note, is_local=self.cluster == "local")
        except (OSError, RuntimeError, submitit.core.utils.FailedJobError) as error:
            _remove(files)
            reason = str(error).strip().partition("\n")[0]
            raise NotStarted(f"the job of the workers cannot be submitted ({reason})") from None
        except BaseException:
            _remove(files)
            raise
        run.note("submitted", job=job.id, workers=len(orders))
        return [SlurmWorker(job, rank, file) for rank, file in enumerate(files)]

    def close(self) -> None:
        """Cancel what Slurm still has of the run, or tell the command that does."""
        submissions, self._submissions = self._submissions, {}
        until_s = wall_seconds() + UNDO_S
        runs, is_known = {}, True
        for submission, run in submissions.items():
            try:
                job = submission.result(max(0.0, until_s - wall_seconds()))
            except (TimeoutError, KeyboardInterrupt):  # a second Ctrl-C
                runs[run.run], is_known = run, False
            except Exception:  # it was refused
                continue
            else:
                if not all(job.task(rank).paths.result_pickle.exists() for rank in range(job.num_tasks)):
                    runs[run.run] = run
        for name, run in runs.items() if self.cluster == "slurm" else ():  # tasks of this machine need their files
            if not (slurm_queue.cancelled(f"--name={job_name(name)}") and is_known):
                run.note("left", what=f"Slurm may still have a job of this run: {how_to_cancel(name)}")

    @classmethod
    def end_left(cls, folder: Path, run: str, note: Note) -> None:
        """Cancel the jobs of a process that was killed, after the files that hold their tasks' keys are removed."""
        place = folder / FOLDER
        if not check_folder(place):
            return
        _remove([path for path in place.iterdir() if not path.is_dir()])
        if not any(place.glob("jobs-*/*submission*.sh")):  # tasks of this machine, which end without their files
            return
        left = slurm_queue.jobs_named(job_name(run))
        if left is None or not slurm_queue.cancelled(f"--name={job_name(run)}"):
            note("left", what=f"Slurm may still have a job of this run from before: {how_to_cancel(run)}")
        for job in left or ():
            note("cancelled", job=job)

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

    def __call__(self) -> tuple[int, str, str]:
        """Run a worker process to its end; return its exit code, the last line of its output, and its node."""
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
            return code, last, os.environ.get("SLURMD_NODENAME") or socket.gethostname()
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
                    return Ended(-signal.SIGKILL, f"job {self._job.id}: {self._job.told(state)}")
            code, last, node = self._task.result()
            return Ended(code, f"job {self._job.id}, its process at {node}: {cause(code, last)}")
        except NotStarted:
            raise
        except Exception as error:  # the task's own
            return Ended(-signal.SIGKILL, f"job {self._job.id}: {last_line(error)}")
        finally:
            self._file.unlink(missing_ok=True)

    def end(self) -> None:
        """Without effect: the task ends by itself when the run is over, and otherwise `kill` ends it."""

    def kill(self) -> None:
        self._is_over.set()
        self._job.cancel()


def _remove(files: Sequence[Path]) -> None:
    for file in files:
        file.unlink(missing_ok=True)


def _in_background(call: Callable[[], Any]) -> Future[Any]:
    """Call a function on a thread that does not keep this process from ending."""
    future: Future[Any] = Future()

    def work() -> None:
        try:
            future.set_result(call())
        except BaseException as error:
            future.set_exception(error)

    threading.Thread(target=work, name="submission", daemon=True).start()
    return future


def _submitit() -> Any:
    """Return submitit, imported without its settings of `logging`, which close all handlers of this process."""
    require("--launcher slurm", "submitit")
    level = os.environ.get(_LOG_LEVEL)
    os.environ[_LOG_LEVEL] = "NOCONFIG"
    try:
        import submitit
    finally:
        os.environ.pop(_LOG_LEVEL)
        if level is not None:
            os.environ[_LOG_LEVEL] = level
    return submitit
