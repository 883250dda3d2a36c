"""A server that stops or fails during a run does not tell its clients that the run is over, so they reconnect."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import pytest
from clusters import ClientsThread, RunWatcher, ServerThread, free_endpoint, stopped_and_resumed
from worlds import HISO, lossy, outcome

from seedbus.bus import HostRequest
from seedbus.scenarios.reporting.results import Results
from seedbus.scenarios.running.run import run
from seedbus.scenarios.schema.scenario import Scenario

HALVES = (HostRequest(((0, 3),)), HostRequest(((4, 7),), 0, False))


def long(rounds: int) -> Scenario:
    return lossy(algorithm=HISO, stop={"rounds": rounds}, evaluation={"every": 20})


def alike(results: Results, reference: Results) -> bool:
    """Tell whether two runs are equal except for refused connections with a session of the dead server."""
    (mine, my_lines), (theirs, their_lines) = outcome(results), outcome(reference)
    for table in ("refusals", "refusal_details"):
        mine[table].pop("stale-session", None)
    return bool(mine == theirs and my_lines == their_lines)


class Failing(RunWatcher):
    """Ends the server's run with an error once 20 rounds are closed."""

    def round_closed(self, closed: Any, now_ns: int, bytes_so_far: int) -> None:
        super().round_closed(closed, now_ns, bytes_so_far)
        if self.rounds == 20:
            raise RuntimeError("the disk is gone")


@pytest.mark.slow
def test_clients_of_a_server_that_fails_during_a_run_join_the_resumed_one(tmp_path: Path) -> None:
    what = long(40)
    reference, notices = run(what, tmp_path / "whole"), list[str]()
    first = ServerThread(what, tmp_path / "run")
    first.watcher = Failing()
    with first:
        endpoint = first.watcher.endpoint
        note = lambda event, **facts: notices.append(f"{event}: {facts}")  # noqa: E731
        clients = [ClientsThread(what, endpoint, request, note=note) for request in HALVES]
        with pytest.raises(RuntimeError, match="the disk is gone"):
            first.results()
    assert all(client.is_alive() for client in clients), "they believe that the run is over"
    with ServerThread(what, tmp_path / "run", resume=True, bind=endpoint) as second:
        results = second.results()
    for client in clients:
        client.join()
        assert client.failure is None
    assert alike(results, reference)
    assert sum("the server is gone" in line and "for 60 s" in line for line in notices) == len(clients)


@pytest.mark.slow
@pytest.mark.parametrize("stop_signal", [signal.SIGTERM, pytest.param(signal.SIGINT, marks=pytest.mark.soak)])
def test_clients_of_a_server_that_is_told_to_stop_join_the_resumed_one(
    tmp_path: Path, stop_signal: signal.Signals
) -> None:
    what = long(400)
    reference = run(what, tmp_path / "whole")
    endpoint = free_endpoint(lossy(), tmp_path / "port")
    results, code, last_words, client_logs = stopped_and_resumed(what, tmp_path, endpoint, stop_signal)
    assert code == 128 + stop_signal and "--resume" in last_words, last_words
    for notices in client_logs:
        assert notices.count("the server is gone: trying for 120 s") == 1 and notices.count("the run is over") == 1, (
            notices
        )
    assert alike(results, reference)
