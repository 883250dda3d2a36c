"""Real time: members and an evaluator that answer nothing, and processes that come and go, hold up no run."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest
from clusters import ServerThread
from worlds import scenario

from seedbus.agents.errors import Unfinishable
from seedbus.agents.observer import NullObserver
from seedbus.bus import EVALUATOR, HostRequest, Offer, decode
from seedbus.bus.errors import SentAway, ServerGone
from seedbus.bus.transport import Follower
from seedbus.bus.zeromq import Joining, follow
from seedbus.scenarios.running.prepare import bind, recruit
from seedbus.scenarios.running.replay import replay
from seedbus.scenarios.running.run import run
from seedbus.scenarios.schema.scenario import Scenario
from seedbus.scenarios.transports.placement import Placement

KINDS: dict[str, dict[str, Any]] = {
    "rounds": {},
    "buffer": {"participation": {"clients": 6, "cohort": 4, "buffer": 2, "late": {"max_staleness": 5}}},
    "late": {"participation": {"clients": 6, "cohort": 4, "over_selection": 1.4, "late": {"max_staleness": 5}}},
    "snapshots": {"lag": {"source": "peer", "snapshot_after_commits": 1, "chunk_bytes": 64, "window": 2}},
    "secure": {
        "algorithm": {"name": "decomfl", "arithmetic": "integer", "precision": "int32"},
        "participation": {"clients": 6, "cohort": 5, "quorum": 2},
        "secure_aggregation": {},
    },
}
PROCESSES = (HostRequest(((0, 1),), evaluates=False), HostRequest(((2, 3),), evaluates=False), HostRequest(((4, 5),)))


class Died(Exception):
    """Stands for the end of a process."""


class Schedule:
    """Which messages are answered with nothing, and when a process dies.

    Args:
        silence: how likely each follower answers nothing.
        deaths: the rounds in which each process dies.
        seed: of the draws.

    Attributes:
        silent: how often each follower has answered nothing.
    """

    def __init__(self, silence: dict[int, float], deaths: list[list[int]], seed: int = 0) -> None:
        self._silence, self._deaths, self._draw = silence, deaths, Random(seed)
        self._lock = threading.Lock()
        self.silent = Counter[int]()

    @staticmethod
    def drawn(seed: int) -> Schedule:
        """Return a random schedule of silence, in which one client always answers."""
        draw = Random(seed)
        silence = {follower: draw.choice((0, 0, 0.1, 0.5, 1)) for follower in (*range(6), EVALUATOR)}
        silence[draw.randrange(6)] = 0
        return Schedule(silence, [sorted(draw.sample(range(2, 28), draw.randrange(4))) for _ in PROCESSES], seed)

    def handle(self, process: int, follower: Follower, frame: bytes) -> list[bytes]:
        asked, deaths = decode(frame), self._deaths[process]
        with self._lock:
            dies = bool(deaths) and asked.round >= deaths[0]
            if dies:
                deaths.pop(0)
            is_silent = self._draw.random() < self._silence[asked.client]
            if dies and self._draw.random() < 0.5:  # before it has done its work
                raise Died
        answers = follower.handle(frame)
        if dies:
            raise Died
        if is_silent and answers:
            self.silent[asked.client] += 1
        return [] if is_silent else answers


class Scheduled:
    """A follower of a process that keeps to a schedule."""

    def __init__(self, schedule: Schedule, process: int, follower: Follower) -> None:
        self.handle = lambda frame: schedule.handle(process, follower, frame)
        self.join: Callable[[int, bytes], list[bytes]] = follower.join
        self.welcome: Callable[[bytes], None] = follower.welcome


class Process(threading.Thread):
    """A process of clients, which is replaced whenever it dies, if it may be."""

    def __init__(self, what: Scenario, endpoint: str, number: int, schedule: Schedule, is_replaced: bool) -> None:
        super().__init__(name=f"process {number}", daemon=True)
        self._what, self._endpoint, self._number, self._schedule = what, endpoint, number, schedule
        self._is_replaced = is_replaced
        self.start()

    def run(self) -> None:
        make, is_alive = recruit(self._what, bind(self._what), NullObserver()), True

        def scheduled(offer: Offer) -> Scheduled:
            return Scheduled(self._schedule, self._number, make(offer))

        while is_alive:
            try:
                follow(Joining(self._endpoint, PROCESSES[self._number], patience_s=20.0), scheduled)
                return
            except (Died, ServerGone):
                is_alive = self._is_replaced
            except SentAway as sent_away:  # its predecessor died in the last round
                if sent_away.reason != "over":
                    raise
                return


def world(kind: str) -> Scenario:
    document = {
        "clock": "wall",
        "network": {"latency": {"distribution": "exponential", "mean": 0.001}},
        "participation": {"clients": 6, "cohort": 4},
        "stop": {"rounds": 30},
        "evaluation": {"every": 4},
    }
    return scenario(**document | KINDS[kind])


def check(folder: Path, kind: str, schedule: Schedule) -> None:
    """Run a schedule; raises if the run does not end, differs from its journal, or blames who has done nothing."""
    what = world(kind)
    with ServerThread(what, folder, heartbeat_s=0.5) as server:
        processes = [Process(what, server.watcher.endpoint, each, schedule, True) for each in range(len(PROCESSES))]
        results = server.results()
    for process in processes:
        process.join(30)
    assert results.summary["rounds"] == 30
    assert results.summary["version"] > 0 or kind == "secure", "of five clients four at least unmask a sum"
    assert {int(client) for client in results.summary["refusals"].get("no-answer", {})} <= schedule.silent.keys()
    assert "diverged" not in results.summary["refusals"]
    assert replay(folder).digest == results.digest or schedule.silent[EVALUATOR], "no digest of the last model came"


LIARS: dict[int, float] = dict.fromkeys(range(4), 1.0) | {4: 0, 5: 0, EVALUATOR: 0}


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_a_run_waits_for_the_process_of_the_only_clients_that_answer(tmp_path: Path, kind: str) -> None:
    check(tmp_path / "run", kind, Schedule(dict(LIARS), [[], [], [6, 12]]))


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "seed"), [*zip(KINDS, (2, 11, 2, 11, 2), strict=True)])
def test_random_silence_of_members_and_of_the_evaluator_holds_up_no_run(tmp_path: Path, kind: str, seed: int) -> None:
    check(tmp_path / "run", kind, Schedule.drawn(seed))


@pytest.mark.slow
def test_a_run_whose_only_clients_that_answer_never_return_ends_with_a_sentence(tmp_path: Path) -> None:
    what, schedule = world("late"), Schedule(dict(LIARS), [[], [], [6]])
    with ServerThread(what, tmp_path / "run", heartbeat_s=0.5, patience_s=1.0, join_s=1.0, evaluator="own") as server:
        for each in range(len(PROCESSES)):
            Process(what, server.watcher.endpoint, each, schedule, False)
        with pytest.raises(Unfinishable, match=r"no process has hosted 2 clients \(4, 5\) for \d s"):
            server.results()


def test_in_simulated_time_too_rounds_go_on_for_clients_that_return_while_all_others_are_silent(tmp_path: Path) -> None:
    (tmp_path / "there.csv").write_text("client,from_s,to_s\n2,0,1\n2,2,999\n")
    there = [{"fault": "trace", "file": str(tmp_path / "there.csv")}]
    what = scenario(participation={"clients": 3}, faults=there, stop={"rounds": 40}, network={"latency": 0.1})
    schedule = Schedule({0: 1.0, 1: 1.0, 2: 0, EVALUATOR: 0}, [[]])
    where = Placement(wrap=lambda recruit: lambda offer: Scheduled(schedule, 0, recruit(offer)))
    results = run(what, tmp_path / "run", placement=where)
    assert results.summary["rounds"] == 40 and results.summary["version"] > 20
