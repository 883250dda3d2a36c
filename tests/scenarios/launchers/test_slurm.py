"""Workers as tasks of a job, with submitit's local executor: preempted, they come back, and leave no secrets behind."""

from __future__ import annotations

import signal
import stat
import threading
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from clusters import RunWatcher
from processes import kill, started_by
from worker_kills import alike
from worlds import scenario

from seedbus.scenarios.errors import ScenarioError
from seedbus.scenarios.launchers.slurm import FOLDER, Slurm, SlurmWorker
from seedbus.scenarios.running.run import run
from seedbus.scenarios.transports.placement import Placement

IS_MISSING = find_spec("submitit") is None
pytestmark = pytest.mark.skipif(IS_MISSING, reason='needs submitit: `pip install "seedbus[cluster]"`')


def tasks_of(job: Any) -> list[int]:
    """Return the processes of a local job's tasks."""
    commands = {pid: Path(f"/proc/{pid}/cmdline").read_bytes() for pid in started_by(job._process.pid)}
    return [pid for pid, command in commands.items() if b"submitit.core._submit" in command]


def preempt(job: Any) -> None:
    """Do to a local job what Slurm does when it preempts a job: warn its tasks, and then kill those that are left."""
    from submitit import JobEnvironment

    tasks = tasks_of(job)
    for task in tasks:
        kill(task, JobEnvironment._usr_sig())
    for task in tasks:
        threading.Timer(1.0, kill, (task, signal.SIGKILL)).start()


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
    logs = [path.read_text() for path in (tmp_path / "run" / FOLDER / "jobs").glob("*.err")]
    assert len(logs) == 2 and all(log.count("hosting: clients 4") == 2 for log in logs)
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
