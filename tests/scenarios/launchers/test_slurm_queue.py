"""What becomes of a run's jobs: they wait with a reason, are refused, killed, cancelled, and taken back on resume.

Slurm's programs are those of `slurm_programs`; a real Slurm was used by hand (docs/clusters.md).
"""

from __future__ import annotations

import os
import signal
import threading
import time
from concurrent.futures import Future
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from clusters import RunWatcher
from commands import Command
from processes import kill, logged, seedbus, started_by, wait_for
from slurm_programs import SlurmPrograms
from worker_kills import alike
from worlds import scenario

from seedbus.agents.errors import NotStarted
from seedbus.scenarios.errors import Exit
from seedbus.scenarios.launchers import slurm_queue
from seedbus.scenarios.launchers.launcher import Surroundings
from seedbus.scenarios.launchers.slurm import FOLDER, Slurm
from seedbus.scenarios.reporting.results import Results
from seedbus.scenarios.running.run import run
from seedbus.scenarios.schema.yaml_text import dump
from seedbus.scenarios.transports.placement import Placement

pytestmark = pytest.mark.skipif(
    find_spec("submitit") is None, reason='needs submitit: `pip install "seedbus[cluster]"`'
)

PLACED = ("--launcher", "slurm", "--workers", "2", "--launch", "address=127.0.0.1")


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SlurmPrograms:
    made = SlurmPrograms(tmp_path / "slurm")
    monkeypatch.setenv("PATH", f"{made.bin}:{os.environ['PATH']}")
    return made


def secrets_in(folder: Path) -> list[Path]:
    return sorted(path for path in (folder / FOLDER).iterdir() if path.is_file())


@pytest.mark.slow
@pytest.mark.parametrize("again", [PLACED, ()], ids=["slurm", "here"])
def test_a_killed_server_that_is_resumed_cancels_its_job_before_anything_else(
    tmp_path: Path, programs: SlurmPrograms, again: tuple[str, ...]
) -> None:
    what = scenario(stop={"rounds": 150})
    (tmp_path / "what.yaml").write_text(dump(what.resolved()))
    server = seedbus("run", tmp_path / "what.yaml", *PLACED, "--out", tmp_path / "run", "-q")
    wait_for(lambda: logged(tmp_path / "run") > 30)
    kill(server.pid, signal.SIGKILL)
    server.communicate()
    before = secrets_in(tmp_path / "run")
    assert len(before) == 2 and programs.cancelled() == []
    resumed = seedbus("run", "--resume", tmp_path / "run", *again)
    _, said = resumed.communicate()
    assert resumed.returncode == 0 and "job 1 of this run, from before, has been cancelled" in said, said
    assert programs.cancelled() == ["1"] and secrets_in(tmp_path / "run") == []
    order = [line.split()[0] for line in programs.asked if line.startswith(("sbatch", "scancel"))]
    assert order[:3] == ["sbatch", "scancel", "sbatch"][: 2 + bool(again)]
    assert alike(Results.read(tmp_path / "run"), run(what, tmp_path / "here"))


@pytest.mark.slow
@pytest.mark.parametrize("answers", [True, False], ids=["sbatch-answers", "sbatch-hangs"])
def test_a_job_that_is_being_submitted_at_a_stop_is_cancelled_or_named(
    tmp_path: Path, programs: SlurmPrograms, answers: bool
) -> None:
    programs.tell("holds", "")
    (tmp_path / "what.yaml").write_text(dump(scenario().resolved()))
    server = seedbus("run", tmp_path / "what.yaml", *PLACED, "--out", tmp_path / "run", "-q")
    wait_for(lambda: any(line.startswith("sbatch") for line in programs.asked))
    kill(server.pid, signal.SIGTERM)
    if answers:
        time.sleep(0.5)
        programs.tell("holds", None)
    _, said = server.communicate()
    assert server.returncode == 128 + signal.SIGTERM and "stopped; every closed round is kept" in said
    assert secrets_in(tmp_path / "run") == []
    if answers:
        assert programs.cancelled() == ["1"] and "scancel" not in said
        return
    command = said.partition("`")[2].partition("`")[0]
    assert command.startswith("scancel --name=seedbus-") and programs.cancelled() == []
    programs.tell("holds", None)
    wait_for(lambda: (programs.folder / "jobs" / "1").exists())
    assert os.system(command) == 0 and programs.cancelled() == ["1"]


@pytest.mark.parametrize("program", ["squeue", "scancel"])
def test_a_job_that_slurm_does_not_cancel_is_named_with_the_command_that_does(
    tmp_path: Path, programs: SlurmPrograms, program: str
) -> None:
    (programs.bin / program).write_text("#!/bin/sh\nexit 1\n")
    left: list[str] = []
    command = "`scancel --name=seedbus-00ff` cancels it"

    def note(event: str, **facts: Any) -> None:
        left.append(facts["what"])

    run = Surroundings("00ff", tmp_path / "run" / "log.jsonl", None, keeps_state=False, note=note)
    jobs = tmp_path / "run" / FOLDER / "jobs-1"
    jobs.mkdir(parents=True)
    (jobs / "1_submission.sh").touch()
    (jobs.parent / "0-ab-0").write_text("a key")
    Slurm.end_left(tmp_path / "run", "00ff", note)
    assert left == [f"Slurm may still have a job of this run from before: {command}"]
    assert secrets_in(tmp_path / "run") == []
    goes_on = SimpleNamespace(paths=SimpleNamespace(result_pickle=jobs / "absent"))
    submission: Future[Any] = Future()
    submission.set_result(SimpleNamespace(num_tasks=1, task=lambda rank: goes_on))
    launcher = Slurm(address="127.0.0.1")
    launcher._submissions[submission] = run
    launcher.close()
    assert left[1:] == [f"Slurm may still have a job of this run: {command}"] * (program == "scancel")


def of_job(programs: SlurmPrograms, number: int, words: bytes) -> list[int]:
    """Return the processes of a job whose commands have some words, but srun."""
    group = int((programs.folder / "jobs" / str(number) / "group").read_text())
    commands = {pid: Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ") for pid in started_by(group)}
    return [pid for pid, command in commands.items() if words in command and b"--kill-on-bad-exit" not in command]


def placed(launcher: Slurm | None = None) -> Placement:
    return Placement("tcp", 2, launcher=launcher or Slurm(address="127.0.0.1"), patience_s=60.0)


@pytest.mark.slow
def test_a_job_that_waits_says_why_once_for_each_reason(
    tmp_path: Path, programs: SlurmPrograms, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(slurm_queue, "ASK_S", 0.05)
    programs.tell("reason", "Resources")
    watcher, what = RunWatcher(), scenario()

    def reasons() -> list[str]:
        return [facts["reason"] for event, facts in watcher.events if event == "queued"]

    def free() -> None:
        wait_for(lambda: reasons() == ["Resources"])
        programs.tell("reason", "ReqNodeNotAvail, UnavailableNodes:node1")
        wait_for(lambda: len(reasons()) == 2)
        programs.tell("reason", None)

    threading.Thread(target=free, daemon=True).start()
    results = run(what, tmp_path / "run", placement=placed(), observer=watcher)
    assert reasons() == ["Resources", "ReqNodeNotAvail, UnavailableNodes:node1"]
    assert alike(results, run(what, tmp_path / "here"))


def test_a_job_that_can_never_start_is_cancelled_and_leaves_no_folder(
    tmp_path: Path, programs: SlurmPrograms, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(slurm_queue, "ASK_S", 0.05)
    programs.tell("reason", "AssocMaxCpuPerJobLimit")
    with pytest.raises(NotStarted, match=r"Slurm will never start job 1 .* \(its reason: AssocMaxCpuPerJobLimit\)"):
        run(scenario(), tmp_path / "run", placement=placed())
    assert programs.cancelled() == ["1"] and not (tmp_path / "run").exists()


def test_a_job_that_slurm_refuses_leaves_no_folder(tmp_path: Path, programs: SlurmPrograms, seedbus: Command) -> None:
    programs.tell("refuses", "sbatch: error: Batch job submission failed: Invalid qos specification\n")
    said = seedbus("run", "quickstart", *PLACED, "--out", "mine", "-q")
    assert (
        said.code == Exit.STUCK and "the job of the workers cannot be submitted (sbatch: error: Batch job" in said.err
    )
    assert not Path("mine").exists()


NEVER = {
    ("--launch", "minutes=2"): "--launch minutes=2: Slurm warns a job up to 150 s before its time limit",
    ("--launch", "minutes=300"): "--launch minutes=300: jobs of this partition may take 240 minutes; expected that",
    ("--launch", "partition=lang"): "partition=lang: Slurm has no such partition; expected one of long, work",
    (
        "--launch",
        "worker_cpus=2",
    ): "--workers 2: they need 4 CPUs and no GPU on one node (--launch nodes), and there are 2 "
    "nodes with 2 CPUs and no GPU; expected",
    ("--launch", "worker_cpus=16", "--launch", "nodes=2"): "they need 16 CPUs and no GPU on each of 2 nodes",
    ("--launch", "worker_gpus=1"): "they need 2 CPUs and 2 GPUs on one node",
    (
        "--launch",
        "worker_gpus=2",
        "--launch",
        "partition=long",
    ): "2 CPUs and 4 GPUs on one node (--launch nodes), and there are 1 node with 8 CPUs and 2 GPUs",
}


@pytest.mark.parametrize("options", NEVER)
def test_what_no_node_has_is_refused_before_anything_is_asked(
    programs: SlurmPrograms, seedbus: Command, options: tuple[str, ...]
) -> None:
    said = seedbus("run", "quickstart", *PLACED, *options, "--out", "mine")
    assert said.code == Exit.USAGE and NEVER[options] in said.err and said.err.count("\n") == 1
    assert not Path("mine").exists() and [line.split()[0] for line in programs.asked] in ([], ["sinfo"])


@pytest.mark.parametrize("nodes", ["another version's words", "work*|2|2"])
def test_a_slurm_that_does_not_tell_its_nodes_is_not_asked_for_less(programs: SlurmPrograms, nodes: str) -> None:
    Slurm(address="127.0.0.1", partition="long", worker_gpus=1).check(2)  # it has these
    programs.tell("nodes", nodes)
    Slurm(address="127.0.0.1", partition="anything", worker_cpus=99).check(2)


@pytest.mark.parametrize(
    ("limit", "minutes"), [("30:00", 30), ("4:00:00", 240), ("1-12:00:00", 2160), ("infinite", float("inf"))]
)
def test_a_time_limit_is_read_as_slurm_writes_it(limit: str, minutes: float) -> None:
    assert slurm_queue._minutes(limit) == minutes


@pytest.mark.slow
def test_a_worker_that_is_killed_is_told_with_what_killed_it(
    tmp_path: Path, programs: SlurmPrograms, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(slurm_queue, "ASK_S", 0.05)
    (tmp_path / "tmp").mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))  # of the tasks

    class Killing(RunWatcher):
        def round_closed(self, closed: Any, now_ns: int, bytes_so_far: int) -> None:
            super().round_closed(closed, now_ns, bytes_so_far)
            if self.rounds == 30:
                (worker,) = of_job(programs, 1, b"--clients 4-7")
                kill(worker, signal.SIGKILL)
            if self.rounds == 60:
                (task,) = of_job(programs, 2, b"python -u -m submitit.core._submit")
                kill(task, signal.SIGKILL)

    watcher, what = Killing(), scenario(stop={"rounds": 90})
    results = run(what, tmp_path / "run", placement=placed(), observer=watcher)
    assert [facts["ended"] for event, facts in watcher.events if event == "worker"] == [
        "job 1, its process at node1: killed by SIGKILL",
        "job 2: failed, node1: task 0: Killed",
    ]
    assert alike(results, run(what, tmp_path / "here"))
    assert list((tmp_path / "tmp").glob("seedbus-*")) == [], "a killed task's folder went when the next one began"
