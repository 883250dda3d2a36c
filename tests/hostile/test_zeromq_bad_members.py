"""A run with members that turn bad ends, with the same bits everywhere, and its results name them."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from clusters import RunWatcher, ServerThread
from hostile_cases import MEMBERS
from hostile_members import BAD, SILENT, MemberCase, with_bad_clients
from worlds import go, outcome, scenario

from seedbus.agents.observer import NullObserver
from seedbus.bus import HostRequest, Recruit
from seedbus.bus.zeromq import Joining, follow
from seedbus.scenarios.reporting.results import Results
from seedbus.scenarios.running import execute, prepare

# one client never answers, so every round waits for its deadline
WHAT = scenario(
    participation={"clients": 8, "deadline_s": 0.5},
    network={"latency": {"distribution": "constant", "value": 0.01}},
    stop={"rounds": len(MEMBERS) + 5},
)


class ByRound(RunWatcher):
    """Records the refusals of each round.

    Attributes:
        by_round: round → (client, reason) → how often.
    """

    def __init__(self) -> None:
        super().__init__()
        self.by_round: dict[int, Counter[tuple[int, str]]] = {}

    def refused(self, refusal: Any) -> None:
        self.by_round.setdefault(self.rounds, Counter())[refusal.client, refusal.reason] += 1


class BadClients(threading.Thread):
    """The clients of one process, of which some turn bad, on a thread."""

    def __init__(self, endpoint: str, request: HostRequest) -> None:
        super().__init__(name="bad clients", daemon=True)
        self._endpoint = endpoint
        self._request = request
        self.failure: BaseException | None = None
        self.start()

    def run(self) -> None:
        try:
            recruit = prepare.recruit(WHAT, prepare.bind(WHAT), NullObserver())
            follow(Joining(self._endpoint, self._request), with_bad_clients(recruit))
        except BaseException as error:
            self.failure = error


@pytest.fixture(scope="module")
def among_the_bad(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Results, ByRound]]:
    """A run over sockets with clients that turn bad, and the refusals of each round."""
    server, watcher = ServerThread(WHAT, tmp_path_factory.mktemp("among-the-bad") / "run"), ByRound()
    server.watcher = watcher
    with server:
        requests = HostRequest(((0, SILENT - 1),), 0, True), HostRequest(((SILENT, BAD),), 0, False)
        workers = [BadClients(watcher.endpoint, request) for request in requests]
        results = server.results()
        for worker in workers:
            worker.join()
            assert worker.failure is None
    yield results, watcher


@pytest.mark.parametrize("number, case", [*enumerate(MEMBERS)], ids=[*map(str, MEMBERS)])
def test_a_bad_answer_is_refused(among_the_bad: tuple[Results, ByRound], number: int, case: MemberCase) -> None:
    refusals = among_the_bad[1].by_round.get(number, Counter())
    assert refusals == Counter({(BAD, reason): count for reason, count in case.refusals.items()})


def test_the_run_goes_on_with_the_good(among_the_bad: tuple[Results, ByRound]) -> None:
    summary = among_the_bad[0].summary
    expected = sum((Counter(case.refusals) for case in MEMBERS), Counter[str]())
    assert summary["rounds"] == summary["version"] == len(MEMBERS) + 5
    assert {reason: whose[str(BAD)] for reason, whose in summary["refusals"].items()} == dict(expected)
    print(f"refused: {dict(expected)}")


@pytest.mark.slow
def test_bad_members_give_the_same_bits_over_sockets_and_in_memory(
    among_the_bad: tuple[Results, ByRound], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = prepare.recruit

    def recruit(*arguments: Any) -> Recruit:
        return with_bad_clients(original(*arguments))

    monkeypatch.setattr(execute, "recruit", recruit)
    in_memory = go(tmp_path / "in-memory", WHAT)
    assert outcome(in_memory) == outcome(among_the_bad[0])
