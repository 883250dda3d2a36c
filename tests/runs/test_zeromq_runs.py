"""A scenario gives the same bits on every transport, with any number of processes, whoever starts them."""

from __future__ import annotations

import io
import socket
import subprocess
import sys
import tempfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import zmq
from clusters import ClientsThread, ServerThread
from processes import seedbus, wait_for
from rich.console import Console
from worlds import DECOMFL, HISO, lossy, outcome, stop_after

from seedbus.agents.refusals import Refusal
from seedbus.bus import HostRequest, Offer, ledger_hash, read_ledger
from seedbus.bus.errors import BadEndpoint, ServerGone
from seedbus.bus.files import temporary_folder
from seedbus.bus.transport import Follower
from seedbus.bus.zeromq import Joining, follow, sockets
from seedbus.bus.zeromq.worker import link, serve
from seedbus.models.errors import DataError
from seedbus.scenarios.errors import Exit
from seedbus.scenarios.reporting.progress import Bar, Lines
from seedbus.scenarios.reporting.results import Results
from seedbus.scenarios.running.run import run
from seedbus.scenarios.schema.scenario import Scenario
from seedbus.scenarios.transports.placement import Placement
from seedbus.scenarios.transports.zeromq import FILES_PER_CONNECTION

STRAGGLERS = [
    {"fault": "drop", "probability": 0.2},
    {"fault": "delay", "by": {"distribution": "pareto", "minimum": 0.2, "shape": 0.8}, "probability": 0.3},
]
LIARS = [
    {"fault": "drop", "probability": 0.1},
    {"fault": "byzantine", "attack": "replay", "fraction": 0.3, "at_round": 5, "probability": 0.7},
    {"fault": "byzantine", "attack": "noise", "sigma": 50.0, "fraction": 0.5, "probability": 0.3},
    {"fault": "byzantine", "attack": "huge", "clients": [6], "probability": 0.5},
]
WORLDS: dict[str, dict[str, Any]] = {
    "hiso": {"algorithm": HISO, "stop": {"rounds": 40}},
    "stragglers": {"algorithm": DECOMFL, "faults": STRAGGLERS, "stop": {"rounds": 60}},
    "target": {"stop": {"rounds": 60, "target": {"metric": "loss", "value": 5000.0, "direction": "below"}}},
    "liars": {
        "algorithm": {**HISO, "aggregation": "clipped", "precision": "float16"},
        "participation": {"clients": 8, "cohort": 5, "quorum": 2, "deadline_s": 0.5},
        "faults": LIARS,
        "stop": {"rounds": 40},
    },
    "declines": {
        "algorithm": {**DECOMFL, "learning_rate": 0.3, "precision": "float16"},
        "participation": {"clients": 8, "cohort": 3, "quorum": 3},
        "faults": [],
    },
    "compute": {
        "algorithm": HISO,
        "compute": {"evaluation": {"distribution": "exponential", "mean": 0.01}},
        "stop": {"rounds": 40},
    },
}


@pytest.fixture(scope="module")
def in_memory(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Results]:
    folder = tmp_path_factory.mktemp("memory")
    return {name: run(lossy(**world), folder / name) for name, world in WORLDS.items()}


@pytest.mark.slow
@pytest.mark.parametrize(("world", "transport"), [*zip(WORLDS, 2 * ["inproc", "ipc", "tcp"], strict=True)])
def test_a_run_is_the_same_on_every_transport(
    tmp_path: Path, in_memory: dict[str, Results], world: str, transport: Any
) -> None:
    what = lossy(**WORLDS[world], transport=transport)
    results = run(what, tmp_path / "run", placement=Placement(transport))
    assert outcome(results) == outcome(in_memory[world])
    ours, theirs = (read_ledger(each.folder / "messages") for each in (results, in_memory[world]))
    assert ledger_hash(ours) == ledger_hash(theirs)


@pytest.mark.slow
@pytest.mark.parametrize(("transport", "workers"), [("tcp", 2), ("ipc", 3)])
@pytest.mark.usefixtures("warm_workers")
def test_a_run_is_the_same_in_any_number_of_processes(
    tmp_path: Path, in_memory: dict[str, Results], transport: Any, workers: int
) -> None:
    what = lossy(**WORLDS["stragglers"])
    results = run(what, tmp_path / "run", placement=Placement(transport, workers))
    assert outcome(results) == outcome(in_memory["stragglers"])
    assert results.summary["traffic"]["transport"]["sessions"]["join"]["messages"] == workers


@pytest.mark.slow
def test_a_run_is_the_same_in_three_terminals(tmp_path: Path, in_memory: dict[str, Results]) -> None:
    what = lossy(**WORLDS["hiso"])
    with ServerThread(what, tmp_path / "run", evaluator="own") as server:
        endpoint = ("--connect", server.watcher.endpoint)
        clients = [seedbus("client", *endpoint, "--clients", "0-2,5")]
        wait_for(lambda: sum(event == "joined" for event, _ in server.watcher.events) == 2)  # and the evaluator
        clients.append(seedbus("client", *endpoint, "--clients", 4))
        results = server.results()
        told = [client.communicate()[1] for client in clients]
    assert [client.returncode for client in clients] == [0, 0]
    assert "hosting clients 0…2, 5\n" in told[0] and "hosting clients 3…4, 6…7\n" in told[1]
    assert outcome(results) == outcome(in_memory["hiso"])


@pytest.mark.slow
@pytest.mark.parametrize(("first", "then"), [("memory", "tcp"), ("tcp", "memory")])
def test_a_run_may_change_its_transport_when_it_is_resumed(
    tmp_path: Path, in_memory: dict[str, Results], monkeypatch: pytest.MonkeyPatch, first: Any, then: Any
) -> None:
    what = lossy(**WORLDS["stragglers"])
    with monkeypatch.context() as patch:
        stop_after(patch, 25)
        with pytest.raises(KeyboardInterrupt):
            run(what, tmp_path / "run", placement=Placement(first))
    assert outcome(run(what, tmp_path / "run", resume=True, placement=Placement(then))) == outcome(
        in_memory["stragglers"]
    )


def small() -> Scenario:
    return lossy(stop={"rounds": 5})


@pytest.mark.slow
def test_a_server_that_is_not_there_is_named_after_a_while() -> None:
    with pytest.raises(ServerGone, match=r"no server answers at tcp://127\.0\.0\.1:9; gave up after 1 s"):
        follow(Joining("tcp://127.0.0.1:9", patience_s=1.0), lambda offer: pytest.fail("nothing was offered"))


def test_a_process_that_was_stopped_does_not_take_that_for_the_absence_of_its_server(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = SimpleNamespace(s=0.0)
    stops_s = [1000.0]

    class Stopped(zmq.Poller):
        def poll(self, timeout: float | None = 0) -> list[tuple[Any, int]]:
            now.s += (timeout or 0) / 1000 + (stops_s.pop() if stops_s else 0.0)
            return []

    monkeypatch.setattr(zmq, "Poller", Stopped)
    for module in (serve, link):
        monkeypatch.setattr(module, "wall_seconds", lambda: now.s)
    with pytest.raises(ServerGone):
        follow(Joining("tcp://127.0.0.1:9", patience_s=5.0), lambda offer: pytest.fail("nothing was offered"))
    assert 1005 <= now.s < 1015


@pytest.mark.parametrize("endpoint", ["tcp://", "nonsense", "tcp://127.0.0.1:99999999"])
def test_what_is_no_address_is_refused_at_once(endpoint: str) -> None:
    with pytest.raises(BadEndpoint, match="expected a server's address, like tcp://host:5555"):
        follow(Joining(endpoint), lambda offer: pytest.fail("nothing was offered"))


@pytest.mark.few(1)
@pytest.mark.parametrize("way", ["tcp", "ipc"])
def test_an_address_that_is_taken_is_refused_by_name_and_leaves_no_folder(tmp_path: Path, way: str) -> None:
    with ServerThread(small(), tmp_path / "one", bind=_free(way, tmp_path)) as server:
        endpoint = server.watcher.endpoint
        with pytest.raises(BadEndpoint, match="address already in use"):
            run(small(), tmp_path / "two", placement=Placement("tcp", bind=endpoint))
        ClientsThread(small(), endpoint)
        server.results()
    assert not (tmp_path / "two").exists()


def _free(way: str, folder: Path) -> str:
    return "tcp://127.0.0.1:*" if way == "tcp" else f"ipc://{folder}/hub"


def test_an_address_that_a_server_left_when_it_was_killed_is_free(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(tmp_path / "hub"))
    with ServerThread(small(), tmp_path / "run", bind=_free("ipc", tmp_path)) as server:
        ClientsThread(small(), server.watcher.endpoint)
        assert server.results().summary["rounds"] == 5


def test_a_file_in_the_place_of_an_address_is_not_taken_away(tmp_path: Path) -> None:
    (tmp_path / "hub").write_text("dear")
    with pytest.raises(BadEndpoint, match="address already in use"):
        run(small(), tmp_path / "run", placement=Placement("tcp", bind=_free("ipc", tmp_path)))
    assert (tmp_path / "hub").read_text() == "dear"


def test_a_process_that_cannot_build_what_it_was_offered_is_named_with_a_code(tmp_path: Path) -> None:
    def make(offer: Offer) -> Follower:
        raise DataError("data set mnist", "no [local] files\x1b", "some")

    with ServerThread(small(), tmp_path / "run") as server:
        with pytest.raises(DataError):
            follow(Joining(server.watcher.endpoint), make)
        ClientsThread(small(), server.watcher.endpoint)
        server.results()
    (why,) = [facts["why"] for event, facts in server.watcher.events if event == "gone"]
    assert why.endswith("it gave up: failed, before it had joined"), (
        "the sentence, which may hold a line of its files, stays with it"
    )


def test_a_person_is_shown_no_markup_of_a_peer_and_the_first_few_refusals() -> None:
    shown = io.StringIO()
    for console in (Console(file=shown), Console(file=shown, force_terminal=True, color_system=None)):
        for watcher in (Lines(small(), console), Bar(small(), console)):
            watcher.noted("gone", clients="clients 0", why="[/b] [red]")
            for number in range(9):
                watcher.refused(Refusal(0, number, "late", f"[/b] [red] round {number} is closed"))
            watcher.close()
    said = shown.getvalue()
    assert said.count("[/b] [red]") == 4 * 6
    assert said.count("refused (late): [/b] [red] round 4 is closed") == 4 and "round 5 is closed" not in said
    assert said.count("further refusals are counted") == 4


@pytest.mark.slow
def test_a_process_that_asks_for_too_many_clients_is_told_how_many_are_left(tmp_path: Path) -> None:
    with ServerThread(small(), tmp_path / "run", evaluator="own") as server:
        command = seedbus("client", "--connect", server.watcher.endpoint, "--clients", 9)
        _, told = command.communicate()
        assert command.returncode == Exit.PEER and "9 clients asked for, 8 left" in told
        follower = ClientsThread(small(), server.watcher.endpoint, HostRequest(((0, 7),)))
        server.results()
        follower.join()
    assert follower.failure is None


@pytest.mark.slow
def test_a_process_of_another_run_is_sent_away(tmp_path: Path) -> None:
    with ServerThread(small(), tmp_path / "one") as server:
        endpoint = server.watcher.endpoint
        client = ClientsThread(small(), endpoint, HostRequest(((0, 3),)))
        with ServerThread(lossy(seed=5), tmp_path / "two") as other:
            client._joining = Joining(other.watcher.endpoint, HostRequest(((0, 3),)))
            ClientsThread(lossy(seed=5), other.watcher.endpoint)
            other.results()
        ClientsThread(small(), endpoint, HostRequest(((4, 7),)))
        server.results()


@pytest.mark.slow
def test_too_low_a_limit_on_files_is_refused_before_anything_begins(tmp_path: Path) -> None:
    options = f"--workers 500 --set participation.clients=500 --out {tmp_path}/run"
    line = f"ulimit -n 200; exec {sys.executable} -m seedbus server quickstart {options}"
    done = subprocess.run(["bash", "-c", line], capture_output=True, text=True, check=False)
    assert done.returncode == Exit.PEER
    assert "this process may open 200 files, and" in done.stderr and "needed for its connections" in done.stderr


@pytest.mark.slow
@pytest.mark.parametrize(("hard", "wanted", "soft"), [(900, 500, 564), (500, 800, 500), (900, 10, 100)])
def test_the_limit_on_files_is_raised_as_far_as_it_goes_and_never_lowered(hard: int, wanted: int, soft: int) -> None:
    code = f"""import resource
from seedbus.bus.zeromq.sockets import allow_files
resource.setrlimit(resource.RLIMIT_NOFILE, (100, {hard}))
allow_files({wanted})
print(*resource.getrlimit(resource.RLIMIT_NOFILE))"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == [str(soft), str(hard)]


def test_a_server_can_open_a_socket_for_every_client_that_may_come(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    allowed: list[int] = []
    monkeypatch.setattr(sockets, "allow_files", allowed.append)
    with ServerThread(small(), tmp_path / "run") as server:
        ClientsThread(small(), server.watcher.endpoint)
        server.results()
    assert allowed == [8 * FILES_PER_CONNECTION]


@pytest.mark.parametrize(("way", "folders"), [("tcp", 0), ("ipc", 1)])
def test_only_ipc_needs_a_folder_for_its_address(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: Any, folders: int
) -> None:
    made: list[str | None] = []

    def temporary(place: str | None = None) -> Any:
        made.append(place)
        return temporary_folder(place)

    monkeypatch.setattr("seedbus.bus.files.temporary_folder", temporary)
    run(small(), tmp_path / "run", placement=Placement(way))
    assert len(made) == folders


def test_a_long_folder_for_what_is_temporary_is_no_obstacle(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / ("x" * 100)))
    assert run(small(), tmp_path / "run", placement=Placement("ipc")).summary["reason"]
