"""Launchers by name, what a node is sent, and the restarts and keys that all launchers share."""

from __future__ import annotations

import json
import signal
import socket
import stat
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from queue import SimpleQueue
from typing import Any, ClassVar, Literal

import pytest
from clusters import RunWatcher
from commands import Command
from plugin_files import SIGNS
from processes import wait_for
from pydantic import Field
from worker_kills import alike
from worlds import scenario

from seedbus.bus.zeromq.keys import Identity, KeyPair
from seedbus.discovery import PLUGINS, source_digest
from seedbus.plugin import load_plugin
from seedbus.scenarios.errors import Exit, WorkerFailed
from seedbus.scenarios.launchers import local, node, worker_processes
from seedbus.scenarios.launchers.launcher import Ended, Launcher, Order, Share, Surroundings, Worker
from seedbus.scenarios.launchers.named import LAUNCHERS
from seedbus.scenarios.launchers.node import NodeProcess, Parcel
from seedbus.scenarios.launchers.worker_processes import WorkerProcesses
from seedbus.scenarios.running.run import run
from seedbus.scenarios.transports.access import WorkerKeys
from seedbus.scenarios.transports.placement import Placement

SHARES = [Share(((0, 3),), evaluates=True), Share(((4, 7),), evaluates=False)]


def test_launchers_are_found_by_their_files() -> None:
    assert list(LAUNCHERS.all()) == ["local", "ray", "slurm"]


@pytest.mark.parametrize("name", ["ray", "submitit"])
def test_a_launcher_whose_package_is_missing_says_what_to_install(
    seedbus: Command, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setitem(sys.modules, name, None)  # importing it fails, as when the extra is not installed
    launcher = {"submitit": "slurm"}.get(name, name)
    said = seedbus("run", "quickstart", "--launcher", launcher)
    assert said.code == Exit.USAGE
    assert f"--launcher {launcher}: {name} is not installed" in said.err
    assert 'pip install "seedbus[cluster]"' in said.err


@pytest.mark.filterwarnings("ignore")  # Ray's own
def test_an_address_without_a_cluster_is_refused_at_once(seedbus: Command) -> None:
    pytest.importorskip("ray", reason='needs Ray: `pip install "seedbus[cluster]"`')
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{unused.getsockname()[1]}"
        said = seedbus("run", "quickstart", "--launcher", "ray", "--launch", f"address={address}")
    assert said.code == Exit.USAGE and "Traceback" not in said.err
    assert (
        f"--launch address={address}: there is no Ray cluster (Connection refused); expected HOST:PORT of a" in said.err
    )


@pytest.mark.filterwarnings("ignore")  # Ray's own
@pytest.mark.parametrize(
    ("address", "sentence"),
    [
        ("127.0.0.1:1", "RAY_ADDRESS 127.0.0.1:1: there is no Ray cluster (Connection refused); expected"),
        ("ray://127.0.0.1:1", "RAY_ADDRESS ray://127.0.0.1:1: it is no address of a cluster; expected"),
        ("\x1b[31m:$(id)", "[31m:$(id): it is no address of a cluster; expected"),
    ],
)
def test_a_variable_that_names_no_cluster_is_refused_at_once(
    seedbus: Command, monkeypatch: pytest.MonkeyPatch, address: str, sentence: str
) -> None:
    """Ray itself would try for minutes, and write the address to the terminal as it is."""
    pytest.importorskip("ray", reason='needs Ray: `pip install "seedbus[cluster]"`')
    monkeypatch.setenv("RAY_ADDRESS", address)
    said = seedbus("run", "quickstart", "--launcher", "ray")
    assert said.code == Exit.USAGE and sentence in said.err
    assert said.err.count("\n") == 1 and "\x1b" not in said.err


@pytest.mark.usefixtures("no_plugins")
def test_a_node_gets_plug_ins_as_files_in_a_folder_of_its_user_and_no_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    load_plugin(SIGNS)
    log = tmp_path / "log.jsonl"
    log.write_text('{"run": "00ff"}\n')
    around = Surroundings("00ff", log, tmp_path / "clients", keeps_state=False, note=print)
    order = Order(0, ["--clients", "0-3"], b"the key\n")
    parcel = Parcel.unpacked(Parcel.of(order, around).packed())
    assert b"the key" not in parcel.packed() and "the key" not in repr(order)
    says = "import sys; print(*sys.argv[1:], sys.stdin.readline(), sep='\\n', file=sys.stderr, flush=True); input()"
    monkeypatch.setattr(node, "COMMAND", [sys.executable, "-c", says])
    process = NodeProcess(parcel, order.secrets)
    lines: list[str] = []

    def has_printed() -> bool:
        lines.extend(process.read()[0])
        return "the key" in lines

    wait_for(has_printed)
    plugin = Path(lines[lines.index("--plugin") + 1])
    assert plugin.read_bytes() == SIGNS.read_bytes() and plugin.name == SIGNS.name
    assert stat.S_IMODE(plugin.parents[1].stat().st_mode) == 0o700
    assert lines[lines.index("--out") + 1] == str(tmp_path / "clients")
    assert process.sees_folder and not node._is_log_of(log, "0100"), "a folder of another run is not this run's"
    process.end()
    wait_for(lambda: process.read()[1] is not None)
    assert not plugin.exists()
    ((digest, files),) = parcel.plugins
    assert digest == source_digest(files) == PLUGINS["signs"].digest
    files[SIGNS.name] += b"# changed on its way\n"
    with pytest.raises(ValueError, match="another digest"):
        NodeProcess(parcel, order.secrets)


def test_a_node_that_names_no_places_of_its_own_gets_those_of_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of the data, and of the clients' secret; a secret's content is not sent."""
    names = ("SEEDBUS_DATA", "SEEDBUS_SEED_SECRET")
    for name in names:
        monkeypatch.setenv(name, f"/of/the/run/{name}")
    around = Surroundings("00ff", tmp_path / "log.jsonl", None, keeps_state=False, note=print)
    parcel = Parcel.unpacked(Parcel.of(Order(0, [], b"the key\n"), around).packed())
    monkeypatch.setenv(names[0], "/of/the/node")
    monkeypatch.delenv(names[1])
    says = f"import os, sys; print(*map(os.environ.get, {names}), sep='\\n', file=sys.stderr, flush=True); input()"
    monkeypatch.setattr(node, "COMMAND", [sys.executable, "-c", says])
    process, lines, code = NodeProcess(parcel, b"the key\n"), list[str](), None
    while code is None:  # it ends when it has read the key
        more, code = process.read()
        lines += more
    assert lines == ["/of/the/node", "/of/the/run/SEEDBUS_SEED_SECRET"]


@pytest.mark.slow
def test_a_worker_that_joins_before_the_one_that_evaluates_waits_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    late = 'case "$*" in *--evaluator*) sleep 4;; esac; exec "$@"'
    monkeypatch.setattr(local, "COMMAND", ["sh", "-c", late, "sh", *local.COMMAND])
    what = scenario()
    results = run(what, tmp_path / "run", placement=Placement("tcp", 2))
    assert alike(results, run(what, tmp_path / "here"))


class _Fake:
    """A worker that ends as the test says."""

    def __init__(self, order: Order) -> None:
        self.order = order
        self.ends: SimpleQueue[Ended] = SimpleQueue()

    def wait(self) -> Ended:
        return self.ends.get()

    def end(self) -> None:
        self.ends.put(Ended(0))

    def kill(self) -> None:
        self.ends.put(Ended(0))


class _Deaf(_Fake):
    """A worker that has to be killed, as one that loads data."""

    was_asked: ClassVar[threading.Event] = threading.Event()

    def end(self) -> None:
        self.was_asked.set()


class _Fakes(Launcher):
    grace_s: ClassVar[float] = 60.0

    launcher: Literal["fakes"] = "fakes"
    started: list[Any] = Field(default_factory=list)
    are_deaf: bool = False
    answers: Any = None

    def start(self, orders: Sequence[Order], run: Surroundings) -> list[Worker]:
        if self.started and self.answers is not None:
            self.answers.wait()
        workers = [(_Deaf if self.are_deaf else _Fake)(order) for order in orders]
        self.started.extend(workers)
        return list(workers)


def _processes(fakes: _Fakes, keys: WorkerKeys, watcher: RunWatcher, log: Path) -> WorkerProcesses:
    def surroundings(note: Any) -> Surroundings:
        return Surroundings("00ff", log, None, keeps_state=False, note=note)

    return WorkerProcesses(
        fakes, SHARES, "tcp://127.0.0.1:1", watcher, keys, surroundings, patience_s=1.0, devices=["cpu"]
    )


def test_a_second_ctrl_c_ends_the_wait_for_workers_and_not_their_end(tmp_path: Path) -> None:
    fakes, keys = _Fakes(are_deaf=True), WorkerKeys(KeyPair.new())
    processes = _processes(fakes, keys, RunWatcher(), tmp_path / "log.jsonl")
    processes.start()
    main, pressed = threading.get_ident(), list[int]()

    def interrupt(number: int, frame: object) -> None:
        if not pressed:
            pressed.append(number)
            raise KeyboardInterrupt

    def press() -> None:
        _Deaf.was_asked.wait()
        while not pressed:  # a signal just before a wait for a lock does not end that wait
            signal.pthread_kill(main, signal.SIGUSR2)
            time.sleep(0.05)

    _Deaf.was_asked.clear()
    before = signal.signal(signal.SIGUSR2, interrupt)  # Ctrl-C itself may be ignored here
    again = threading.Thread(target=press)
    again.start()
    with pytest.raises(KeyboardInterrupt):
        processes.close()
    again.join()
    signal.signal(signal.SIGUSR2, before)
    assert not any(watcher.is_alive() for watcher in processes._watchers)
    identities = [Identity.unpacked(json.loads(each.order.secrets)) for each in fakes.started]
    assert not any(keys.rights(each.own.public.decode()) for each in identities)


def test_a_second_ctrl_c_while_workers_are_being_told_to_end_kills_them_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def end(worker: _Fake) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(_Fake, "end", end)
    processes = _processes(_Fakes(), WorkerKeys(KeyPair.new()), RunWatcher(), tmp_path / "log.jsonl")
    processes.start()
    with pytest.raises(KeyboardInterrupt):
        processes.close()
    assert not any(watcher.is_alive() for watcher in processes._watchers)


def test_a_scheduler_that_does_not_answer_keeps_no_run_from_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker_processes, "START_S", 0.1)
    fakes, watcher = _Fakes(answers=threading.Event()), RunWatcher()
    processes = _processes(fakes, WorkerKeys(KeyPair.new()), watcher, tmp_path / "log.jsonl")
    processes.start()
    fakes.started[1].ends.put(Ended(-signal.SIGKILL))
    wait_for(processes._starting.locked)
    processes.close()
    assert ("worker", {"number": 1, "ended": "killed by SIGKILL"}) in watcher.events
    fakes.answers.set()
    wait_for(lambda: not any(each.is_alive() for each in processes._watchers))
    assert len(fakes.started) == 3 and not fakes.started[2].ends.empty(), "killed, since it came after the end"


def test_a_worker_that_takes_anothers_place_has_another_key_and_all_are_revoked_at_the_end(tmp_path: Path) -> None:
    fakes, keys, watcher = _Fakes(), WorkerKeys(KeyPair.new()), RunWatcher()
    processes = _processes(fakes, keys, watcher, tmp_path / "log.jsonl")
    processes.start()
    fakes.started[1].ends.put(Ended(-9, "its node is lost"))
    wait_for(lambda: len(fakes.started) == 3)
    identities = [Identity.unpacked(json.loads(each.order.secrets)) for each in fakes.started]
    rights = [keys.rights(each.own.public.decode()) for each in identities]
    assert rights == [SHARES[0].rights, None, SHARES[1].rights], "each key is for one share, and one process"
    fakes.started[2].ends.put(Ended(3, "at 10.0.0.7: seedbus: there is no such file"))

    class Registration:
        rounds_closed = 0

    failures: list[WorkerFailed] = []

    def has_failed() -> bool:
        try:
            processes.check(Registration())  # type: ignore[arg-type]
        except WorkerFailed as error:
            failures.append(error)
        return bool(failures)

    wait_for(has_failed)
    assert str(failures[0]) == (
        "worker 1 ended with exit code 3 (at 10.0.0.7: seedbus: there is no such file); every closed round is kept"
    )
    assert ("worker", {"number": 1, "ended": "its node is lost"}) in watcher.events
    processes.close()
    assert not any(keys.rights(each.own.public.decode()) for each in identities)
