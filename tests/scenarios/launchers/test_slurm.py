"""Workers as tasks of a job, with submitit's local executor: preempted, they come back, and leave no secrets behind.

A real Slurm was used by hand (docs/clusters.md); here it is a program that prints what Slurm's prints.
"""

from __future__ import annotations

import os
import signal
import socket
import stat
import subprocess
import sys
import threading
import time
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgpack
import pytest
from clusters import RunWatcher
from processes import is_alive, kill, started_by, wait_for
from worker_kills import alike
from worlds import scenario

from seedbus.scenarios.errors import ScenarioError
from seedbus.scenarios.launchers import node, slurm, slurm_queue
from seedbus.scenarios.launchers.node import Parcel
from seedbus.scenarios.launchers.slurm import FOLDER, Slurm, SlurmWorker
from seedbus.scenarios.launchers.slurm_queue import Job
from seedbus.scenarios.running.run import run
from seedbus.scenarios.transports.placement import Placement

IS_MISSING = find_spec("submitit") is None
pytestmark = pytest.mark.skipif(IS_MISSING, reason='needs submitit: `pip install "seedbus[cluster]"`')


def of_job(job: Any, word: bytes) -> list[int]:
    """Return the processes of a local job whose commands have a word."""
    commands = {pid: Path(f"/proc/{pid}/cmdline").read_bytes() for pid in started_by(job._job._process.pid)}
    return [pid for pid, command in commands.items() if word in command]


def preempt(job: Any) -> None:
    """Do to a local job what Slurm does when it preempts a job: warn its processes, and then kill the tasks.

    The first task queues the job again and ends; the others are killed then.
    """
    tasks, workers = of_job(job, b"submitit.core._submit"), of_job(job, b"--parent-pipe")
    assert len(tasks) == len(workers) == 2
    for process in [*workers, *tasks]:
        kill(process, signal.SIGTERM)
    time.sleep(1.0)  # one that the warning ends has ended by then
    assert all(map(is_alive, [*workers, *tasks]))
    for process in [*workers, *tasks]:
        kill(process, slurm._submitit().JobEnvironment._usr_sig())

    def kill_others() -> None:
        wait_for(lambda: not all(map(is_alive, tasks)))
        for task in filter(is_alive, tasks):
            kill(task, signal.SIGKILL)

    threading.Thread(target=kill_others, daemon=True).start()


@pytest.mark.slow
def test_a_run_whose_job_is_preempted_ends_in_the_same_bits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    workers: list[SlurmWorker] = []
    begin = SlurmWorker.__init__

    def beginning(self: SlurmWorker, *arguments: Any) -> None:
        begin(self, *arguments)
        workers.append(self)

    monkeypatch.setattr(SlurmWorker, "__init__", beginning)
    modes: set[int] = set()

    class Preempting(RunWatcher):
        def round_closed(self, closed: Any, now_ns: int, bytes_so_far: int) -> None:
            super().round_closed(closed, now_ns, bytes_so_far)
            if self.rounds == 30:
                modes.update(stat.S_IMODE(each._file.stat().st_mode) for each in workers)
                preempt(workers[0]._job)

    watcher, what = Preempting(), scenario(stop={"rounds": 120})
    placement = Placement("tcp", 2, launcher=Slurm(cluster="local"), patience_s=60.0)
    results = run(what, tmp_path / "run", placement=placement, observer=watcher)
    assert alike(results, run(what, tmp_path / "here"))
    assert watcher.joined == 4 and len(workers) == 2, "both tasks were ended, and began again as the same job"
    assert not (tmp_path / "run" / FOLDER / "jobs").exists(), (
        "submitit unpickles results: their folder cannot be foreseen"
    )
    logs = [path.read_text() for path in (tmp_path / "run" / FOLDER).glob("jobs-*/*.err")]
    assert len(logs) == 2 and all(log.count("hosting clients ") == 2 for log in logs)
    assert modes == {0o600} and stat.S_IMODE((tmp_path / "run" / FOLDER).stat().st_mode) == 0o700
    assert not [path for path in (tmp_path / "run" / FOLDER).iterdir() if path.is_file()], "their files are gone"


def test_a_machine_without_slurm_and_workers_that_cannot_be_divided_are_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with pytest.raises(ScenarioError, match=r"--workers 3: they cannot be divided among 2 nodes; expected a multiple"):
        Slurm(cluster="local", nodes=2).check(3)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ScenarioError, match=r"--launcher slurm: there is no sbatch here; expected a machine from"):
        Slurm().check(2)


@pytest.mark.parametrize(("cluster", "asked"), [("slurm", "slurm_gpus_per_task"), ("local", "gpus_per_node")])
def test_each_task_of_a_job_has_its_own_gpus(cluster: Any, asked: str) -> None:
    parameters = Slurm(cluster=cluster, worker_gpus=1)._parameters(3)
    assert parameters[asked] == (1 if cluster == "slurm" else 3) and "gpus" not in str(Slurm()._parameters(3))


def test_a_job_is_over_when_slurm_says_so_twice_or_has_forgotten_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "squeue").write_text(f'#!/bin/sh\ncat {tmp_path}/says && exit 0\necho "$SAYS" >&2\nexit 1\n')
    (tmp_path / "squeue").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setattr(slurm_queue, "ASK_S", 0.0)
    job = Job(SimpleNamespace(job_id="7", task=lambda rank: None), 1, lambda event, **facts: None, is_local=False)

    def ends(says: str) -> list[str]:
        (tmp_path / "says").write_text(f"{says}\n")
        return [job.end(), job.end()]

    assert ends("RUNNING") == ends("PENDING") == ends("COMPLETING") == ends("PREEMPTED") == ["", ""]
    assert ends("CANCELLED") == ["", "CANCELLED"]
    assert ends("RUNNING") == ["", ""]
    (tmp_path / "says").unlink()
    monkeypatch.setenv("SAYS", "slurm_load_jobs error: Unable to contact slurm controller (connect failure)")
    assert [job.end(), job.end()] == ["", ""], "it may be there again soon"
    monkeypatch.setenv("SAYS", "slurm_load_jobs error: Invalid job id specified")
    assert [job.end(), job.end()] == ["", "FORGOTTEN"]


@pytest.mark.slow
def test_a_task_whose_file_is_gone_ends_its_process(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The process is one that ends when its input does, whatever it is sent."""
    monkeypatch.setattr(node, "COMMAND", [sys.executable, "-c", "import sys; sys.stdin.read(); sys.exit(7)"])
    monkeypatch.setattr(
        slurm, "_submitit", lambda: SimpleNamespace(JobEnvironment=lambda: SimpleNamespace(global_rank=0))
    )
    file = tmp_path / "it-0"
    parcel = Parcel([], [], "0" * 16, str(tmp_path / "log.jsonl"), "", {})
    file.write_bytes(msgpack.packb([parcel.packed(), b"{}\n"]))
    threading.Timer(0.3, file.unlink).start()
    assert slurm.Task(str(tmp_path / "it"))() == (7, "", socket.gethostname())


@pytest.mark.slow
def test_importing_submitit_closes_no_log_handler() -> None:
    handler = "h = logging.StreamHandler(); h.close = lambda: print('closed')"
    program = (
        f"import logging; {handler}; from seedbus.scenarios.launchers import slurm; slurm._submitit(); del h.close"
    )
    assert subprocess.run([sys.executable, "-c", program], capture_output=True, check=True, text=True).stdout == ""


def test_a_name_by_which_no_node_reaches_this_machine_is_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(socket, "gethostname", lambda: "localhost")
    with pytest.raises(
        ScenarioError, match=r"--launch address=localhost: it is 127.0.0.1, which no other machine reaches"
    ):
        Slurm().host()
    assert Slurm(address="localhost").host() == Slurm(cluster="local").host() == "127.0.0.1"
