"""Members that turn bad are a part of the run like any other: it ends, the same bits come of it, and they are named."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from clusters import Serving, Watcher
from hostile_cases import MEMBERS
from hostile_members import BAD, SILENT, MemberCase, spoiled
from worlds import go, outcome, scenario

from seedbus.agents.observer import NullObserver
from seedbus.bus import HostRequest, Recruit
from seedbus.bus.zeromq import follow
from seedbus.scenarios.reporting.results import Results
from seedbus.scenarios.running import execute, prepare

# one client never answers, so every round waits for its deadline
WHAT = scenario(
    participation={"clients": 8, "deadline_s": 0.5},
    network={"latency": {"distribution": "constant", "value": 0.01}},
    stop={"rounds": len(MEMBERS) + 5},
)


class ByRound(Watcher):
    """Notes who was refused in each round, and why."""

    def __init__(self) -> None:
        super().__init__()
        self.found: dict[int, Counter[tuple[int, str]]] = {}

    def refused(self, refusal: Any) -> None:
        self.found.setdefault(self.rounds, Counter())[refusal.client, refusal.reason] += 1


class Bad(threading.Thread):
    """Followers of whom some are bad, on a thread."""

    def __init__(self, endpoint: str, wish: HostRequest) -> None:
        super().__init__(name="bad clients", daemon=True)
        self._endpoint, self._wish = endpoint, wish
        self.failure: BaseException | None = None
        self.start()

    def run(self) -> None:
        try:
            made = prepare.recruit(WHAT, prepare.bind(WHAT), NullObserver())
            follow(self._endpoint, [self._wish], spoiled(made), patience_s=10.0)
        except BaseException as error:
            self.failure = error


@pytest.fixture(scope="module")
def among_the_bad(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Results, ByRound]]:
    """A run over sockets, and what was refused in each of its rounds."""
    server, watcher = Serving(WHAT, tmp_path_factory.mktemp("among-the-bad") / "run"), ByRound()
    server.watcher = watcher
    with server:
        wishes = HostRequest(((0, SILENT - 1),), 0, True), HostRequest(((SILENT, BAD),), 0, False)
        workers = [Bad(watcher.endpoint, wish) for wish in wishes]
        results = server.results()
        for worker in workers:
            worker.join(10)
            assert not worker.is_alive() and worker.failure is None
    yield results, watcher


@pytest.mark.parametrize("number, case", [*enumerate(MEMBERS)], ids=[*map(str, MEMBERS)])
def test_a_bad_answer_is_refused(among_the_bad: tuple[Results, ByRound], number: int, case: MemberCase) -> None:
    found = among_the_bad[1].found.get(number, Counter())
    assert found == Counter({(BAD, reason): count for reason, count in case.refusals.items()})


def test_the_run_goes_on_with_the_good(among_the_bad: tuple[Results, ByRound]) -> None:
    summary = among_the_bad[0].summary
    expected = sum((Counter(case.refusals) for case in MEMBERS), Counter[str]())
    assert summary["rounds"] == summary["version"] == len(MEMBERS) + 5
    assert {reason: whose[str(BAD)] for reason, whose in summary["refusals"].items()} == dict(expected)
    print(f"refused: {dict(expected)}")


def test_bad_members_give_the_same_bits_over_sockets_and_in_memory(
    among_the_bad: tuple[Results, ByRound], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    good = prepare.recruit

    def recruit(*arguments: Any) -> Recruit:
        return spoiled(good(*arguments))

    monkeypatch.setattr(execute, "recruit", recruit)
    in_memory = go(tmp_path / "in-memory", WHAT)
    assert outcome(in_memory) == outcome(among_the_bad[0])
