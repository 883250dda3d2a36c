"""Workers that die, servers that die, networks that stall: in simulated time none of them changes a result."""

from __future__ import annotations

import errno
import os
import random
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from availability_scenarios import availability_scenario
from bus_harness import FakeRegistration, Follower
from clusters import ClientsThread, ServerThread, free_endpoint, stopped_and_resumed
from processes import is_alive, kill, seedbus, wait_for, workers_of
from running_transports import echo, listening_hub, until
from snapshot_cases import rough
from tcp_proxy import CountingProxy
from worker_kills import alike, run_and_kill
from worlds import HISO, lossy

from seedbus.agents import launcher
from seedbus.agents.errors import Unfinishable
from seedbus.bus import Offer
from seedbus.scenarios.running.run import run
from seedbus.scenarios.schema.scenario import Scenario
from seedbus.scenarios.schema.yaml_text import dump
from seedbus.scenarios.transports.hosted_thread import HostedThread
from seedbus.scenarios.transports.placement import Placement


def long(rounds: int) -> Scenario:
    task = {"name": "quadratic", "dimension": 20_000}
    return lossy(task=task, algorithm=HISO, stop={"rounds": rounds}, evaluation={"every": 50})


def pulling(rounds: int) -> Scenario:
    """Return a scenario of thirty clients that lag, with models of 200 chunks, on links that lose a tenth."""
    task, lag = {"name": "quadratic", "dimension": 3_000}, {"source": "peer", "window": 16}
    return rough(0.1, task=task, algorithm=HISO, stop={"rounds": rounds}, lag=lag)


def coming(name: str) -> Scenario:
    task = {"name": "quadratic", "dimension": 20_000}
    return availability_scenario(name, task=task, algorithm=HISO, stop={"rounds": 300}, evaluation={"every": 50})


soak = pytest.mark.soak


@pytest.mark.slow
@pytest.mark.parametrize(
    ("make", "kills", "least"),
    [
        pytest.param(partial(long, 300), 4, 4, id="in a long run"),
        pytest.param(partial(pulling, 200), 4, 4, id="with half snapshots"),
        pytest.param(partial(coming, "all at once"), 5, 3, id="while clients come and go"),
        pytest.param(partial(coming, "churn from another run"), 5, 3, id="churn", marks=soak),
        pytest.param(partial(coming, "crash without state"), 5, 3, id="crash", marks=soak),
        pytest.param(partial(long, 6000), 100, 100, id="a hundred", marks=soak),
    ],
)
@pytest.mark.usefixtures("warm_workers")
def test_workers_killed_at_random_moments_leave_no_trace(
    tmp_path: Path, make: Callable[[], Scenario], kills: int, least: int
) -> None:
    results, found = run_and_kill(make(), tmp_path / "killed", kills)
    assert found >= least
    assert alike(results, run(make(), tmp_path / "whole"))


@pytest.mark.slow
@pytest.mark.parametrize("what", [long(150), pulling(120)], ids=["long", "pulling"])
def test_a_network_that_breaks_and_stalls_leaves_no_trace(tmp_path: Path, what: Scenario) -> None:
    whole = run(what, tmp_path / "whole")
    with ServerThread(what, tmp_path / "run", heartbeat_s=0.2) as server, CountingProxy(server.port) as proxy:
        client = ClientsThread(what, proxy.endpoint)
        for at, trouble in ((20, "cut"), (50, "stall"), (90, "cut")):
            wait_for(lambda at=at: server.watcher.rounds >= at or not server.is_alive())  # type: ignore[misc]
            before = server.watcher.gone
            if trouble == "cut":
                proxy.cut()
            else:
                proxy.pause()
                wait_for(lambda before=before: server.watcher.gone > before)  # type: ignore[misc]
                proxy.resume()
        results = server.results()
        client.join()
    assert client.failure is None
    assert server.watcher.gone >= 3
    assert alike(results, whole)


@pytest.mark.slow
@pytest.mark.parametrize("what", [long(400), pulling(200)], ids=["long", "pulling"])
def test_clients_outlive_a_server_that_is_killed_and_resumed(tmp_path: Path, what: Scenario) -> None:
    whole = run(what, tmp_path / "whole")
    endpoint = free_endpoint(lossy(), tmp_path / "port")
    results, _, _, said = stopped_and_resumed(what, tmp_path, endpoint, signal.SIGKILL)
    assert all("the run is over" in told for told in said), said
    assert alike(results, whole)


@pytest.mark.parametrize("signals", [pytest.param(5, marks=pytest.mark.slow), pytest.param(100, marks=soak)])
def test_ctrl_c_at_any_moment_ends_the_command_and_leaves_no_process(tmp_path: Path, signals: int) -> None:
    what, draw = long(10**6), random.Random(9)
    (tmp_path / "what.yaml").write_text(dump(what.resolved()))
    for number in range(signals):
        folder = tmp_path / str(number)
        command = seedbus("run", tmp_path / "what.yaml", "--workers", 2, "--out", folder, "-q")
        wait_for(lambda: len(workers_of(command.pid)) == 2)  # noqa: B023
        time.sleep(draw.uniform(0, 4.0))
        workers = workers_of(command.pid)
        kill(command.pid, signal.SIGINT)
        _, told = command.communicate()
        assert command.returncode == 130 and "Traceback" not in told, told
        assert not any(map(is_alive, workers)), "it ends after them"


@pytest.mark.slow
def test_workers_end_with_a_server_that_is_killed(tmp_path: Path) -> None:
    (tmp_path / "what.yaml").write_text(dump(long(5000).resolved()))
    command = seedbus("run", tmp_path / "what.yaml", "--workers", 2, "--out", tmp_path / "run", "-q")
    wait_for(lambda: (tmp_path / "run" / "log.jsonl").exists())
    wait_for(lambda: '"event": "round"' in (tmp_path / "run" / "log.jsonl").read_text())
    workers = workers_of(command.pid)
    command.kill()
    command.communicate()
    assert len(workers) == 2
    wait_for(lambda: not any(map(is_alive, workers)))


@pytest.mark.slow
def test_a_worker_that_cannot_begin_ends_the_run_in_its_own_words(tmp_path: Path) -> None:
    text = dump(lossy(task={"name": "mnist"}, participation={"clients": 8}, faults=[]).resolved())
    (tmp_path / "what.yaml").write_text(text)
    (tmp_path / "mnist").mkdir()
    environment: dict[str, Any] = {**os.environ, "SEEDBUS_DATA": str(tmp_path)}
    command = seedbus("run", tmp_path / "what.yaml", "--workers", 2, "--out", tmp_path / "run", "-q", env=environment)
    _, told = command.communicate()
    assert command.returncode == 3
    assert "train-images-idx3-ubyte" in told and "ended with exit code 3; every closed round is kept" in told
    assert "Traceback" not in told
    assert not (tmp_path / "run").exists()


def test_a_worker_that_cannot_be_started_ends_the_run_and_those_that_were(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[subprocess.Popen[bytes]] = []
    popen = subprocess.Popen

    def start(*arguments: Any, **options: Any) -> subprocess.Popen[bytes]:
        if started:
            raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))
        started.append(popen(*arguments, **options))
        return started[0]

    monkeypatch.setattr(subprocess, "Popen", start)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(Unfinishable, match=r"worker 1 cannot be started \(Resource temporarily unavailable\)"):
        run(lossy(), placement=Placement("tcp", 2))
    assert started[0].poll() is not None and not list(tmp_path.iterdir())


def test_a_run_that_fails_before_it_begins_leaves_nobody_listening(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("no server")

    monkeypatch.setattr(launcher, "Server", fail)
    with ServerThread(lossy(), tmp_path / "run") as server:
        pass
    with pytest.raises(RuntimeError, match="no server"):
        server.results()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", server.port))


@pytest.mark.slow
async def test_a_thread_that_is_building_is_not_waited_for(tmp_path: Path) -> None:
    is_building, may_end = threading.Event(), threading.Event()

    def build(offer: Offer) -> Follower:
        is_building.set()
        may_end.wait()
        return Follower(offer, echo)

    async with listening_hub("inproc", tmp_path) as (hub, context):
        hub.start(FakeRegistration((0, 3)))
        worker = HostedThread(hub.endpoint, build, context, None)
        await until(is_building.is_set)
        worker.close()  # which would wait for ever
        may_end.set()
