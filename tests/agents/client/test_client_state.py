"""The state of clients is stored in the process that hosts them and reproduced bit for bit."""

from __future__ import annotations

import os
import signal
import sqlite3
import threading
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from algorithm_cases import make
from clusters import ClientsThread, RunWatcher, ServerThread
from journal_cases import WAL, flipped, killed_run
from processes import kill, seedbus, workers_of
from worker_kills import alike
from worlds import BARE, outcome, scenario

from seedbus.agents import launcher
from seedbus.agents.client.client_state import KEPT, KEPT_DURABLE, ClientStateStore, _digest, _Link
from seedbus.agents.errors import Forgotten, JournalDamaged, RunFolderError
from seedbus.agents.journal import reader
from seedbus.agents.journal.file import FILE
from seedbus.agents.journal.journal import Journal
from seedbus.agents.journal.reader import KEPT_EVERY
from seedbus.bus import Kind, read_ledger
from seedbus.discovery import PluginError
from seedbus.scenarios.errors import Interrupted, ScenarioError
from seedbus.scenarios.reporting.results import Results
from seedbus.scenarios.run_folder import MEMORY
from seedbus.scenarios.running.replay import replay
from seedbus.scenarios.running.run import run
from seedbus.scenarios.schema.scenario import Scenario
from seedbus.scenarios.transports.placement import Placement

SCAFFOLD: dict[str, Any] = {"name": "scaffold", "learning_rate": 0.05, "local_steps": 2}
FEDDC: dict[str, Any] = {"name": "feddc", "local_steps": 2}
TROUBLE: list[dict[str, Any]] = [
    {"fault": "drop", "probability": 0.15},
    {"fault": "duplicate", "probability": 0.3},
    {"fault": "delay", "probability": 0.3, "by": {"distribution": "constant", "value": 0.7}},
]


def world(algorithm: Any = SCAFFOLD, **changes: Any) -> Scenario:
    """Return a scenario in which plans and reports come late, twice or never."""
    participation = {"clients": 6, "cohort": 4, "deadline_s": 0.4}
    return scenario(**({"algorithm": algorithm, "participation": participation, "faults": TROUBLE} | changes))


def quiet(algorithm: Any = SCAFFOLD, **changes: Any) -> Scenario:
    """Return a scenario in which nothing goes wrong."""
    network = {"latency": {"distribution": "constant", "value": 0.05}}
    return scenario(**({"algorithm": algorithm, "network": network, "participation": {"clients": 4}} | changes))


# one client's sequence of rounds


def test_what_cannot_be_stored_is_one_sentence_with_the_name_of_the_algorithm(tmp_path: Path) -> None:
    memories = ClientStateStore(tmp_path, make("decomfl"))
    with pytest.raises(PluginError, match=r"client of decomfl remembers cannot be kept: .*'numpy.ndarray' object"):
        memories.keep(0, 0, [np.zeros(3)])
    memories.keep(0, 0, [b"", 1.5])
    assert ClientStateStore(tmp_path).before(0, 1) == [b"", 1.5]


@pytest.fixture(params=["folder", "process"])
def memories(request: pytest.FixtureRequest, tmp_path: Path) -> ClientStateStore:
    return ClientStateStore(tmp_path / "memory" if request.param == "folder" else None)


def test_a_round_starts_from_the_state_of_the_last_one_repeatedly(memories: ClientStateStore) -> None:
    assert memories.before(3, 0) is None
    memories.keep(3, 0, {"a": b"0"})
    assert memories.before(3, 0) is None and memories.before(3, 4) == {"a": b"0"}
    memories.keep(3, 4, {"a": b"4"})
    memories.keep(3, 4, {"a": b"again"})
    assert memories.before(3, 4) == {"a": b"0"} and memories.before(3, 5) == {"a": b"4"}
    assert memories.before(4, 5) is None, "another client"


def test_later_work_for_an_earlier_round_keeps_its_place(memories: ClientStateStore) -> None:
    for round in (1, 5, 4):
        memories.keep(0, round, [round])
    assert [memories.before(0, round) for round in (1, 5, 4, 6)] == [None, [1], [5], [4]]


def test_a_client_that_loses_its_state_starts_anew_and_can_repeat_earlier_work(memories: ClientStateStore) -> None:
    memories.keep(0, 1, "one")
    memories.keep(0, 2, "two")
    for _ in range(2):
        memories.forget(0, 4)
        assert memories.before(0, 4) is None and memories.before(0, 2) == "one"
    memories.keep(0, 4, "four")
    memories.forget(0, 4)
    assert memories.before(0, 4) is None and memories.before(0, 5) == "four"
    memories.forget(0, 6)
    assert memories.before(0, 6) is None


def test_a_client_without_state_loses_nothing_the_second_time_either(memories: ClientStateStore) -> None:
    memories.keep(0, 1, None)
    memories.forget(0, 2)
    assert not memories.knows(0)
    memories.keep(0, 2, "two")
    for round in (2, 1):  # work that is repeated
        memories.forget(0, round)
    assert memories.before(0, 3) == "two" and memories.knows(0)


def test_a_limited_number_of_states_is_kept(memories: ClientStateStore) -> None:
    for round in range(KEPT + 2):
        memories.keep(0, round, round)
    assert [memories.before(0, round) for round in range(3, KEPT + 3)] == list(range(2, KEPT + 2))
    assert [memories.before(0, round) for round in (1, 2)] == [KEPT + 1, KEPT + 1]


def test_resuming_before_the_oldest_kept_state_is_refused(tmp_path: Path) -> None:
    for round in range(KEPT + 2):
        ClientStateStore(tmp_path).keep(0, round, round)
    assert len(list((tmp_path / "0").iterdir())) == KEPT
    with pytest.raises(Forgotten, match="client 0's memory from before round 2 is not kept any more"):
        ClientStateStore(tmp_path).before(0, 2)
    assert [ClientStateStore(tmp_path).before(0, round) for round in (3, 4)] == [2, 3]


def test_resuming_before_all_kept_states_is_refused_until_the_client_has_worked(tmp_path: Path) -> None:
    for round in range(1, KEPT + 2):
        ClientStateStore(tmp_path).keep(0, round, round)
    with pytest.raises(Forgotten, match="client 0's memory from before round 1 is not kept any more"):
        ClientStateStore(tmp_path).before(0, 1)
    store = ClientStateStore(tmp_path)
    store.keep(0, KEPT + 2, KEPT + 2)
    assert store.before(0, 1) == KEPT + 2, "a plan that was long under way"


@pytest.mark.parametrize("sound", [0.1, 0.7, 0.8])
def test_a_run_that_lost_rounds_ends_alike_or_says_that_its_clients_memories_are_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sound: float
) -> None:
    what = quiet(stop={"rounds": 9}, participation={"clients": 2})
    folder = killed_run(tmp_path, monkeypatch, what)
    log = (folder / WAL).read_bytes()
    (folder / WAL).write_bytes(log[: int(sound * len(log))])
    if sound < 0.75:  # more than one round is lost
        with pytest.raises(Forgotten, match=r"client 0's memory from before round [0-5] is not kept any more"):
            run(what, folder, resume=True)
    else:
        assert outcome(run(what, folder, resume=True)) == outcome(run(what, tmp_path / "whole"))


def test_another_process_reads_the_same_states(tmp_path: Path) -> None:
    first = ClientStateStore(tmp_path)
    first.keep(7, 10, "ten")
    first.keep(71, 9, "nine")
    first.forget(7, 11)
    first.keep(7, 12, "twelve")
    (tmp_path / "7" / "9-9.unfinished").write_bytes(b"x")
    again = ClientStateStore(tmp_path)
    assert [again.before(7, round) for round in (10, 12, 13)] == [None, None, "twelve"]
    assert again.before(71, 10) == "nine"


# whole runs


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory) -> Results:
    return run(world(), tmp_path_factory.mktemp("run") / "whole")


class _Killing(RunWatcher):
    """Kills a worker once every client has worked."""

    kills = 0

    def round_closed(self, closed: Any, now_ns: int, bytes_so_far: int) -> None:
        super().round_closed(closed, now_ns, bytes_so_far)
        workers = workers_of(os.getpid())
        if self.rounds >= 6 and not self.kills and len(workers) == 2:
            kill(workers[0], signal.SIGKILL)
            self.kills += 1


@pytest.mark.slow
@pytest.mark.usefixtures("warm_workers")
def test_the_client_state_of_a_killed_worker_survives(tmp_path: Path, reference: Results) -> None:
    watcher = _Killing()
    results = run(world(), tmp_path / "run", observer=watcher, placement=Placement("tcp", 2, heartbeat_s=0.2))
    assert watcher.kills == 1
    assert alike(results, reference)


@pytest.mark.slow
def test_clients_that_reconnect_to_a_server_keep_their_state(tmp_path: Path) -> None:
    """Clients of `seedbus client` without a folder keep their state as long as their process lives."""
    from tcp_proxy import CountingProxy

    what = quiet(participation={"clients": 2}, stop={"rounds": 60})
    reference = run(what, tmp_path / "whole")
    with ServerThread(what, tmp_path / "run") as server:
        with CountingProxy(server.port) as proxy:
            client, cut = ClientsThread(what, proxy.endpoint), threading.Event()
            while server.is_alive():
                if server.watcher.rounds >= 20 and not cut.is_set():
                    proxy.cut()
                    cut.set()
                server.join(0.01)
            results = server.results()
            client.join()
    assert client.failure is None and cut.is_set() and server.watcher.gone >= 1
    assert alike(results, reference)


@pytest.mark.slow
def test_a_process_says_once_that_what_its_clients_remember_is_lost_with_it(tmp_path: Path) -> None:
    told = {}
    for algorithm in (SCAFFOLD, {"name": "fedavg"}):
        name = algorithm["name"]
        with ServerThread(quiet(algorithm), tmp_path / name, evaluator="own") as server:
            command = ("client", "--connect", server.watcher.endpoint, "--clients", 2)
            clients = [seedbus(*command, "--out", tmp_path / f"memory-{name}"), seedbus(*command)]
            server.results()
            told[name] = [each.communicate()[1].count("by --out FOLDER") for each in clients]
    assert told == {"scaffold": [0, 1], "fedavg": [0, 0]}


@pytest.fixture
def all_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """Memories stay that no work needs any more, so that they can be looked at."""
    monkeypatch.setattr(launcher, "prune", lambda *arguments: None)


@pytest.mark.usefixtures("all_kept")
def test_a_lost_report_advances_the_state_of_its_client(tmp_path: Path) -> None:
    """The server ignores it, and the client goes on from its own state."""
    faults = [{"fault": "drop", "kind": "report", "clients": [2], "at_round": 1, "for_rounds": 1}]
    participation = {"clients": 4, "deadline_s": 1.0}
    run(quiet(participation=participation, faults=faults, stop={"rounds": 2}), tmp_path / "run")
    assert (read_ledger(tmp_path / "run" / "messages")["kind"] == Kind.REPORT).sum() == 8
    store = ClientStateStore(tmp_path / "run" / MEMORY)
    first, second = store.before(2, 1)["scaffold.c"], store.before(2, 2)["scaffold.c"]
    assert first != second and np.isfinite(np.frombuffer(second, "<f4")).all()


@pytest.mark.usefixtures("all_kept")
@pytest.mark.parametrize(("returns", "is_lost"), [("with-state", False), ("without-state", True)])
def test_a_crash_without_state_deletes_the_memory_of_a_client(tmp_path: Path, returns: str, is_lost: bool) -> None:
    crash = {"fault": "crash", "clients": [1], "at_round": 3, "for_rounds": 2, "returns": returns}
    what = quiet(faults=[crash], stop={"rounds": 6}, participation={"clients": 4, "deadline_s": 5.0})
    run(what, tmp_path / "run")
    memory = ClientStateStore(tmp_path / "run" / MEMORY)
    assert (memory.before(1, 5) is None) == is_lost and memory.before(0, 5) is not None
    assert memory.before(1, 6) is not None


@pytest.mark.parametrize("memory", [5, {"scaffold.c": b"1234"}, {1: b""}], ids=str)
def test_a_memory_of_another_form_is_damage(tmp_path: Path, memory: Any) -> None:
    algorithm = make("scaffold").sized(3)
    ClientStateStore(tmp_path).keep(2, 0, memory)
    with pytest.raises(RunFolderError, match=r"0-0\.memory: the client's memory is damaged: it has"):
        ClientStateStore(tmp_path, algorithm).before(2, 1)
    ClientStateStore(tmp_path).keep(3, 0, {"scaffold.c": bytes(12)})
    assert ClientStateStore(tmp_path, algorithm).before(3, 1) == {"scaffold.c": bytes(12)}


def test_a_memory_with_a_flipped_bit_or_of_another_client_or_round_is_damage(tmp_path: Path) -> None:
    ClientStateStore(tmp_path).keep(2, 0, {"scaffold.c": b"twelve bytes"})
    path = tmp_path / "2" / "0-0.memory"
    content = path.read_bytes()
    for at in range(len(content)):
        path.write_bytes(flipped(content, at, 1 << at % 8))
        with pytest.raises(RunFolderError, match="the client's memory is damaged"):
            ClientStateStore(tmp_path).before(2, 1)
    for other in ("3/0-0.memory", "2/1-1.memory"):
        (tmp_path / other).parent.mkdir(exist_ok=True)
        (tmp_path / other).write_bytes(content)
        with pytest.raises(RunFolderError, match="the client's memory is damaged"):
            ClientStateStore(tmp_path).before(int(other[0]), 2)
    (tmp_path / "2" / "1-1.memory").unlink()
    path.write_bytes(content)
    assert ClientStateStore(tmp_path).before(2, 1) == {"scaffold.c": b"twelve bytes"}


def test_a_memory_with_a_key_that_no_map_can_have_is_damage(tmp_path: Path) -> None:
    packed = b"\x81\x90\x00"  # {[]: 0}
    (tmp_path / "2").mkdir()
    (tmp_path / "2" / "0-0.memory").write_bytes(_digest(2, _Link(0, 0, False), packed) + packed)
    with pytest.raises(RunFolderError, match=r"0-0\.memory: the client's memory is damaged \(TypeError\)"):
        ClientStateStore(tmp_path).before(2, 1)


REPLACED = {"fault": "replacement", "active": 3, "every_rounds": 4, "probability": 1.0, "returns": "without-state"}


@pytest.mark.few(3)
@pytest.mark.parametrize(("name", "cares"), [("scaffold", True), ("feddyn", True), ("feddc", True), ("fedacg", False)])
def test_a_new_client_has_no_state_and_fedacg_needs_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, cares: bool
) -> None:
    """Half of the clients are replaced repeatedly; the state of a new client starts at zero."""
    what = quiet({"name": name, "local_steps": 2}, participation={"clients": 6}, faults=[REPLACED], stop={"rounds": 12})
    had_state: dict[tuple[int, int], bool] = {}
    before = ClientStateStore.before

    def note(self: ClientStateStore, client: int, round: int) -> Any:
        state = before(self, client, round)
        had_state[client, round] = state is not None
        return state

    monkeypatch.setattr(ClientStateStore, "before", note)
    run(what, tmp_path / "run")
    newcomers = {
        min(each for each in had_state if each[0] == client and each[1] // 4 == epoch)
        for client, epoch in {(client, round // 4) for client, round in had_state}
    }
    assert len(newcomers) == 3 * 3 and len(had_state) > 3 * len(newcomers)
    if not cares:
        assert not any(had_state.values()) and not (tmp_path / "run" / MEMORY).exists()
        return
    assert {each for each in had_state if not had_state[each]} == newcomers


@pytest.mark.slow
def test_a_dense_journal_keeps_the_newest_and_some_older_models(tmp_path: Path) -> None:
    run(quiet(participation={"clients": 1}, stop={"rounds": KEPT_EVERY + 3}), tmp_path / "run")
    journal = Journal.open(tmp_path / "run", for_writing=False)
    try:
        versions = [each.version for each in journal.rounds() if each.commit]
    finally:
        journal.close()
    assert versions == [KEPT_EVERY, KEPT_EVERY + 3]
    expected = r"^round 10: its model is not kept; .*: in .*run those after rounds 0, 50, 53$"
    with pytest.raises(ScenarioError, match=expected):
        replay(tmp_path / "run", round=10)


@pytest.mark.slow
def test_a_dense_journal_of_any_length_keeps_a_bounded_number_of_models(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is verified as any other, resumed as one, and misses a model that it has to keep."""
    monkeypatch.setattr(reader, "KEPT_EVERY", 3)
    monkeypatch.setattr(reader, "MOST_KEPT", 4)
    for rounds in (20, 53):  # the second resumes the first
        what = quiet(participation={"clients": 1}, stop={"rounds": rounds})
        run(what, tmp_path / "run", resume=rounds > 20)
        with closing(Journal.open(tmp_path / "run", for_writing=False)) as journal:
            kept = [each.version for each in journal.rounds() if each.commit]
        assert kept == {20: [6, 12, 18, 20], 53: [12, 24, 36, 48, 53]}[rounds]
    assert replay(tmp_path / "run", round=24).round == 24
    expected = r"keeps every 12th and the last: .* those after rounds 0, 12, 24, 36, 48, 53$"
    with pytest.raises(ScenarioError, match=expected):
        replay(tmp_path / "run", round=6)
    with closing(sqlite3.connect(tmp_path / "run" / FILE)) as database, database:
        database.execute("DELETE FROM models WHERE version = 24")
    found = pytest.raises(JournalDamaged, match="the model of version 24 does not verify")
    with closing(Journal.open(tmp_path / "run", for_writing=False)) as journal, found:
        list(journal.rounds())


# what is kept of them


def memories_in(folder: Path) -> dict[int, int]:
    """Return how many memories each client has in the folder of a run."""
    return {int(each.name): len(list(each.iterdir())) for each in (folder / MEMORY).iterdir()}


class _Counting(RunWatcher):
    """Sees how many memories a client has when a round has just been closed, and may stop the run there."""

    def __init__(self, folder: Path, stops_at: int | None = None) -> None:
        super().__init__()
        self._folder = folder
        self._stops_at = stops_at
        self.most = 0

    def round_closed(self, closed: Any, now_ns: int, bytes_so_far: int) -> None:
        super().round_closed(closed, now_ns, bytes_so_far)
        if (self._folder / MEMORY).exists():
            self.most = max(self.most, *memories_in(self._folder).values())
        if closed.round == self._stops_at:
            raise KeyboardInterrupt


FEDDYN: dict[str, Any] = {"name": "feddyn", "learning_rate": 0.05, "local_steps": 2}
LATE = {"clients": 6, "cohort": 4, "deadline_s": 0.4, "late": {}}


def test_a_run_keeps_two_memories_of_a_client_and_one_at_its_end(tmp_path: Path) -> None:
    what, folder = quiet(FEDDYN, stop={"rounds": 12}), tmp_path / "run"
    watcher = _Counting(folder)
    results = run(what, folder, observer=watcher)
    assert watcher.most == KEPT_DURABLE and memories_in(folder) == dict.fromkeys(range(4), 1)
    vectors = [results.memory(client) for client in range(4)]
    stored = sum(file.stat().st_size for file in (folder / MEMORY).glob("*/*"))
    assert stored < 1.1 * sum(vector.nbytes for memory in vectors for vector in memory.values()) + 4 * 200


@pytest.mark.slow
@pytest.mark.parametrize(
    ("algorithm", "changes"),
    [
        (FEDDYN, {}),
        (SCAFFOLD, {"participation": LATE}),
        (FEDDC, {"faults": [*TROUBLE, BARE]}),
        (FEDDYN, {"faults": [{"fault": "server-crash", "at_round": 3, "down_s": 1.0, "phase": "gathering"}, *TROUBLE]}),
    ],
    ids=["late-and-twice", "late-counts", "lost-memories", "server-crash"],
)
def test_a_run_that_is_stopped_at_each_commit_and_made_longer_ends_alike(
    tmp_path: Path, algorithm: dict[str, Any], changes: dict[str, Any]
) -> None:
    """Plans come late and twice, so that work is repeated after later work."""
    long, short, folder = world(algorithm, **changes), world(algorithm, stop={"rounds": 8}, **changes), tmp_path / "run"
    whole = run(long, tmp_path / "whole")
    for round in range(8):
        with suppress(Interrupted):
            run(short, folder, resume=round > 0, observer=_Counting(folder, stops_at=round))
    run(short, folder, resume=True)
    longer = run(long, folder, resume=True)
    assert longer.digest == whole.digest
    assert (folder / "metrics.jsonl").read_text() == (tmp_path / "whole" / "metrics.jsonl").read_text()
