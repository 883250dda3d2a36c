"""`seedbus runs RUN --stop`: a run stops after the round in progress and goes on as if it had not; no other is hit."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from commands import Command
from processes import is_alive, kill, wait_for
from processes import seedbus as process_of
from warm_command import command_of
from worlds import outcome, scenario

from seedbus.agents.journal.holder import RUNNING, Holder, holder
from seedbus.agents.observer import NullObserver
from seedbus.agents.round_record import ClosedRound
from seedbus.agents.stop_request import StopRequest
from seedbus.scenarios.errors import Exit, Interrupted
from seedbus.scenarios.operations.run_state import State, state_of
from seedbus.scenarios.running.run import run
from seedbus.scenarios.schema.yaml_text import dump

pytestmark = pytest.mark.slow
ROUNDS = 600
Start = Callable[..., subprocess.Popen[str]]
HOLDS = """
import sys, pathlib
from seedbus.agents.journal.holder import held
with held(pathlib.Path(sys.argv[1]), listens=sys.argv[2] == "True"):
    print("held", flush=True)
    sys.stdin.read()
"""


def rounds_in(folder: Path) -> list[int]:
    """The rounds that were logged, in order."""
    log = folder / "log.jsonl"
    lines = log.read_text(encoding="utf-8").splitlines() if log.exists() else []
    return [each["round"] for each in map(json.loads, lines) if each["event"] == "round"]


@pytest.fixture
def started(tmp_path: Path) -> Iterator[Start]:
    """A function that starts a command in a folder with a scenario of many rounds, in what.yaml."""
    (tmp_path / "what.yaml").write_text(dump(scenario(stop={"rounds": ROUNDS}).resolved()), encoding="utf-8")

    processes: list[subprocess.Popen[str]] = []

    def start(command: str = "run", *options: object) -> subprocess.Popen[str]:
        processes.append(process_of(command, "what.yaml", "--out", "run", "-q", *options, cwd=tmp_path))
        return processes[-1]

    yield start
    for process in processes:
        kill(process.pid, signal.SIGKILL)
        process.communicate()


@pytest.mark.parametrize("options", [(), ("--workers", 2)], ids=["memory", "workers"])
def test_a_run_that_was_stopped_repeats_no_round_and_ends_in_the_same_bits(
    started: Start, options: tuple[object, ...], seedbus: Command, tmp_path: Path
) -> None:
    process = started("run", *options)
    wait_for(lambda: len(rounds_in(tmp_path / "run")) > 20)
    asked = seedbus("runs", "run", "--stop")
    stopped = state_of(tmp_path / "run")
    assert asked.code == Exit.OK and f"stopped after {stopped.rounds} of {ROUNDS} rounds" in asked.out
    assert process.wait() == Exit.INTERRUPTED
    assert process.stderr is not None and "every closed round is kept" in process.stderr.readline()
    assert stopped.state is State.STOPPED and rounds_in(tmp_path / "run") == list(range(stopped.rounds))
    resumed = run(scenario(stop={"rounds": ROUNDS}), tmp_path / "run", resume=True)
    # a resumed run begins with telling the evaluator of its last durable round once more
    assert rounds_in(tmp_path / "run") == [*range(stopped.rounds), *range(stopped.rounds - 1, ROUNDS)]
    assert outcome(resumed) == outcome(run(scenario(stop={"rounds": ROUNDS}), tmp_path / "whole"))
    assert not any((tmp_path / name / RUNNING).exists() for name in ("run", "whole")), "nobody writes them"


def test_a_server_that_waits_for_its_clients_stops_at_once(started: Start, tmp_path: Path, seedbus: Command) -> None:
    server = started("server", "--bind", f"ipc://{tmp_path}/s")
    wait_for(lambda: (tmp_path / "run" / RUNNING).exists() and holder(tmp_path / "run") is not None)
    wait_for(lambda: "listening" in (tmp_path / "run" / "log.jsonl").read_text())
    asked = seedbus("runs", "run", "--stop", "--patience", "20")
    assert asked.code == Exit.OK and f"stopped after 0 of {ROUNDS} rounds" in asked.out
    assert server.wait() == Exit.INTERRUPTED


def test_a_request_in_the_same_process_ends_the_round_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    requests: list[StopRequest] = []

    class Remembered(StopRequest):
        def __init__(self) -> None:
            super().__init__()
            requests.append(self)

    class AsksAfterRoundSeven(NullObserver):
        def round_closed(self, closed: ClosedRound, now_ns: int, bytes_so_far: int) -> None:
            if closed.round == 7:
                requests[0].make()

    monkeypatch.setattr("seedbus.scenarios.running.open_run.StopRequest", Remembered)
    with pytest.raises(Interrupted):
        run(scenario(), tmp_path / "run", observer=AsksAfterRoundSeven())
    assert rounds_in(tmp_path / "run") == list(range(8))


@pytest.mark.parametrize("content", ["", "{pid}", "\0" * 64])
def test_a_stale_file_stops_nobody_whatever_it_says(seedbus: Command, content: str) -> None:
    assert seedbus("run", "small.yaml", "--out", "run").code == Exit.OK
    Path("run", "results.json").unlink()
    Path("run", RUNNING).write_text(content.format(pid=os.getpid()))
    asked = seedbus("runs", "run", "--stop")
    assert asked.code == Exit.FOLDER
    assert asked.err == "seedbus: run: it is not running; it was stopped after 5 rounds (`seedbus run --resume run`)\n"


def test_what_is_not_running_is_one_sentence(seedbus: Command) -> None:
    seedbus("run", "small.yaml", "--out", "run")
    asked, nothing = seedbus("runs", "run", "--stop"), seedbus("runs", "nowhere", "--stop")
    assert asked.err == "seedbus: run: it is not running; it has ended: all 5 rounds are done\n"
    assert nothing.err == "seedbus: nowhere: there is no run here (no journal.sqlite)\n"
    assert asked.code == nothing.code == Exit.FOLDER


def test_a_program_that_takes_no_requests_gets_no_signal(seedbus: Command, tmp_path: Path) -> None:
    seedbus("run", "small.yaml", "--out", "run")
    command = [sys.executable, "-c", HOLDS, str(tmp_path / "run"), "False"]
    program = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        assert program.stdout is not None and program.stdout.readline() == "held\n"
        assert holder(tmp_path / "run") == Holder(program.pid, listens=False)
        asked = seedbus("runs", "run", "--stop", "--patience", "0.1")
        assert asked.code == Exit.FOLDER and f"process {program.pid} runs it as a part of another program" in asked.err
        assert is_alive(program.pid)
    finally:
        program.communicate("")
    assert holder(tmp_path / "run") is None, "the lock ends with its process"


def test_a_killed_process_holds_nothing(started: Start, tmp_path: Path) -> None:
    process = started()
    wait_for(lambda: len(rounds_in(tmp_path / "run")) > 5)
    assert holder(tmp_path / "run") == Holder(command_of(process.pid), listens=True)
    kill(process.pid, signal.SIGKILL)
    process.wait()
    assert holder(tmp_path / "run") is None and state_of(tmp_path / "run").state is State.STOPPED


def test_a_signal_that_comes_too_late_ends_no_process() -> None:
    before = signal.getsignal(signal.SIGUSR1)
    try:
        stop = StopRequest()
        with stop.by_signal() as listens:
            made = [stop.is_made]
            signal.raise_signal(signal.SIGUSR1)
            made.append(stop.is_made)
        assert listens and made == [False, True]
        signal.raise_signal(signal.SIGUSR1)
        signal.signal(signal.SIGUSR1, lambda number, frame: None)
        with StopRequest().by_signal() as listens:
            assert not listens, "the program has a handler of its own"
    finally:
        signal.signal(signal.SIGUSR1, before)


def test_a_run_on_a_thread_leaves_the_signal_to_its_program() -> None:
    found: list[bool] = []

    def enter() -> None:
        with StopRequest().by_signal() as listens:
            found.append(listens)

    thread = threading.Thread(target=enter)
    thread.start()
    thread.join()
    assert found == [False]
