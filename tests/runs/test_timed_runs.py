"""Runs whose rounds begin at multiples of a time, or that end after one; what happens while their server waits."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from random import Random
from typing import Any

import pytest
from worlds import go, scenario

from seedbus.agents.errors import Unfinishable
from seedbus.agents.journal.journal import Journal
from seedbus.agents.journal.records import StoredRound
from seedbus.scenarios.reporting.results import Results
from seedbus.scenarios.schema.scenario import Scenario
from seedbus.scenarios.transports.placement import Placement
from seedbus.studies.check.runs import ended, require_equal_ends, world

INTEGER = {"name": "decomfl", "arithmetic": "integer", "learning_rate": 0.01}
WORK = {"evaluation": {"distribution": "exponential", "mean": 0.05}}
KINDS: dict[str, dict[str, Any]] = {
    "rounds": {},
    "buffer": {
        "participation": {"clients": 8, "cohort": 4, "buffer": 2, "deadline_s": 9, "late": {"max_staleness": 5}},
        "compute": WORK,
    },
    "stream": {"participation": {"mode": "stream", "clients": 8, "cohort": 4}, "algorithm": INTEGER, "compute": WORK},
    "gossip": {"topology": {"kind": "gossip", "graph": "ring"}, "algorithm": INTEGER, "participation": {"clients": 4}},
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_the_round_in_which_the_time_is_over_is_the_last_and_is_evaluated(tmp_path: Path, kind: str) -> None:
    whole = go(tmp_path / "whole", world(**KINDS[kind]))
    closed_ns = whole.history.closed_ns
    for limit_ns, rounds in ((closed_ns[4], 5), (closed_ns[4] + 1, 6)):
        limit_s = int(limit_ns) / 1e9
        what = world(**KINDS[kind], stop={"rounds": 12, "simulated_s": limit_s})
        end = ended(what)
        require_equal_ends(ended(what, interrupted=True), end, "resumed", "in one piece")  # stopped after round 4
        if kind != "gossip":
            require_equal_ends(ended(what, Placement("tcp")), end, "on tcp", "in memory")
        assert end[0]["rounds"] == rounds and end[0]["metrics"]["round"] == rounds - 1
        passed = f"{closed_ns[rounds - 1] / 1e9:,.1f} s have passed, the limit was {limit_s:,g} s"
        assert end[0]["reason"].startswith(passed)


@pytest.mark.few(1, slow=3)
@pytest.mark.parametrize("kind", ["rounds", "stream", "gossip"])
def test_a_limit_of_time_ends_a_run_without_a_number_of_rounds(tmp_path: Path, kind: str) -> None:
    given, alone = (
        go(tmp_path / str(len(stop)), world(**KINDS[kind], stop=stop))
        for stop in ({"simulated_s": 4.5, "rounds": 10**6}, {"simulated_s": 4.5})
    )
    assert alone.digest == given.digest and alone.summary["reason"] == given.summary["reason"]
    assert alone.metrics["round"].iloc[-1] == alone.summary["rounds"] - 1 > 2


def test_a_run_that_only_time_would_end_is_given_up_if_none_passes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("seedbus.agents.server.coordinator.TIMELESS", 50)
    what = world(network={"latency": {"distribution": "uniform", "low": 0, "high": 0}}, stop={"simulated_s": 9})
    with pytest.raises(Unfinishable, match=r"50 rounds took no time by the run's clock, and only stop\.simulated_s"):
        go(tmp_path / "run", what)


@pytest.mark.slow
def test_rounds_begin_at_multiples_of_a_time_and_none_at_the_end(tmp_path: Path) -> None:
    paced = {"clients": 8, "cohort": 4, "deadline_s": 0.7, "every_s": 0.5}
    what = world(participation=paced, stop={"rounds": 50, "simulated_s": 6.5})
    whole = go(tmp_path / "whole", what)
    opened_ns, closed_ns = whole.history.opened_ns, whole.history.closed_ns
    assert opened_ns[0] == 0 and set(opened_ns % 500_000_000) == {0}
    after_ns = opened_ns[1:] - closed_ns[:-1]
    assert ((after_ns > 0) & (after_ns < 500_000_000)).all(), "the next multiple, though a round takes several"
    assert {500_000_000, 1_000_000_000} <= set(opened_ns[1:] - opened_ns[:-1])
    assert whole.summary["reason"] == "6.5 s have passed, the limit was 6.5 s" and closed_ns[-1] < 6_500_000_000
    assert [*whole.metrics["round"]] == [0, 3, opened_ns.size - 1], "x₀, every fourth round, and the last"
    end = ended(what)
    require_equal_ends(ended(what, interrupted=True), end, "resumed", "in one piece")
    require_equal_ends(ended(what, Placement("tcp")), end, "on tcp", "in memory")


def trace(folder: Path, *spans: tuple[int, float, float], **fields: Any) -> list[dict[str, Any]]:
    """The clients that have a line are there for these seconds, and the others always."""
    (folder / "there.csv").write_text("client,from_s,to_s\n" + "".join(f"{c},{b},{e}\n" for c, b, e in spans))
    return [{"fault": "trace", "file": str(folder / "there.csv"), **fields}]


def paced(every_s: float, faults: list[dict[str, Any]], rounds: int = 3, **changes: Any) -> Scenario:
    """Four clients, all of whom a round asks; a message takes 0.1 s, and a round 0.2 s."""
    participation = {"clients": 4, "every_s": every_s, "deadline_s": 60} | changes.pop("participation", {})
    document = {"network": {"latency": 0.1}, "participation": participation, "stop": {"rounds": rounds}}
    return world(task={"name": "null", "dimension": 10}, faults=faults, **document | changes)


def rounds_of(results: Results) -> list[StoredRound]:
    with closing(Journal.open(results.folder, for_writing=False)) as journal:
        return list(journal.rounds())


def require_the_same_everywhere(what: Scenario) -> None:
    end = ended(what)
    require_equal_ends(ended(what, interrupted=True), end, "resumed", "in one piece")
    require_equal_ends(ended(what, Placement("tcp")), end, "on tcp", "in memory")


def test_who_comes_or_goes_between_two_rounds_is_there_or_not_there_at_the_next(tmp_path: Path) -> None:
    faults = trace(tmp_path, (0, 0, 100_000), (1, 0, 100_000), (2, 3000, 3700), (3, 3000, 7300))
    results = go(tmp_path / "run", paced(3600, faults))
    assert [each.reported for each in rounds_of(results)] == [[0, 1], [0, 1, 2, 3], [0, 1, 3]]


def test_each_round_asks_those_who_are_there_when_it_begins_whatever_happened_since_the_one_before(
    tmp_path: Path,
) -> None:
    draw, spans = Random(5), []
    for client in range(1, 12):
        at_s = draw.uniform(0, 20)
        for _ in range(20):
            begin_s = at_s + draw.expovariate(1 / 8)
            at_s = begin_s + 0.5 + draw.expovariate(1 / 8)
            spans.append((client, round(begin_s, 3), round(at_s, 3)))
    faults = trace(tmp_path, *spans, (0, 0, 10_000))
    asked = rounds_of(go(tmp_path / "run", paced(10, faults, rounds=40, participation={"clients": 12})))
    for each in asked:
        there = {c for c, begin_s, end_s in spans if begin_s + 0.1 < 10 * each.round < end_s}
        doubtful = {c for c, begin_s, _ in spans if 10 * each.round - 0.1 <= begin_s <= 10 * each.round}
        assert set(each.cohort) - doubtful == {0} | there - doubtful, each.round
    assert {len(each.cohort) for each in asked} >= {3, 5, 7}


def test_a_round_that_is_due_while_nobody_is_there_begins_when_somebody_comes(tmp_path: Path) -> None:
    # two days of the phones of docs/faults.md, by hand: who is there at each full hour, and at two other instants
    phones = [(0, 33_000, 66_600), (0, 122_700, 154_800), (1, 42_000, 64_200), (1, 117_000, 152_100)]
    phones += [(2, 28_800, 38_700), (3, 37_200, 72_600), (3, 127_800, 150_000)]
    h = 3600.0
    there = {28_800.1: [2], 9 * h: [2], 10 * h: [0, 2], 11 * h: [0, 3]}  # the first is due at 0 h; a JOIN takes 0.1 s
    there |= {hour * h: [0, 1, 3] for hour in range(12, 18)}
    there |= {18 * h: [0, 3], 19 * h: [3], 20 * h: [3]}
    there |= {117_000.1: [1], 33 * h: [1], 34 * h: [1], 35 * h: [0, 1]}  # the first is due at 21 h
    there |= {hour * h: [0, 1, 3] for hour in range(36, 42)} | {42 * h: [0, 1]}
    asked: dict[str, Any] = {"participation": {"cohort": 3, "deadline_s": 300}, "stop": {"simulated_s": 172_800}}
    rounds = rounds_of(go(tmp_path / "run", paced(3600, trace(tmp_path, *phones), **asked)))
    assert {each.record[0] / 1e9: each.cohort for each in rounds} == there
    assert {each.record[0] / 1e9: each.reported for each in rounds} == there and sum(map(len, there.values())) == 53


@pytest.mark.slow
def test_a_run_whose_clients_come_and_go_while_its_server_waits_ends_alike_everywhere(tmp_path: Path) -> None:
    spans = [(c, 2.0 * c + 7 * k, 2.0 * c + 7 * k + 3 + c) for c in (1, 2, 3) for k in range(10)]
    faults = trace(tmp_path, *spans, announced=False, returns="without-state")
    require_the_same_everywhere(paced(5, faults, rounds=12, compute={"evaluation": 0.05}))


def test_a_report_that_a_client_sends_after_it_vanished_while_the_server_waits_is_lost(tmp_path: Path) -> None:
    slow = {"fault": "straggler", "clients": [3], "pause_s": 29.9}
    policy = {"deadline_s": 5, "late": {}}
    for vanishes_s, late in ((25.0, 0), (35.0, 1)):
        gone = trace(tmp_path, (3, 0, vanishes_s), (3, 70, 1000), announced=False)
        results = go(tmp_path / str(late), paced(60, [slow, *gone], rounds=2, participation=policy))
        assert len(rounds_of(results)[1].record[4]) == late


@pytest.mark.parametrize("takes_s", [0.0, 5.0], ids=["no time", "as long as the pace"])
def test_a_round_begins_at_each_multiple_once_even_if_it_takes_no_time_or_all_of_it(
    tmp_path: Path, takes_s: float
) -> None:
    what = paced(5, [], rounds=8, network={"latency": takes_s / 2}, participation={"deadline_s": takes_s or 1})
    opened_ns = go(tmp_path / "run", what).history.opened_ns
    assert opened_ns.tolist() == [round * 5 * 10**9 for round in range(8)]
    if not takes_s:
        require_equal_ends(ended(what, interrupted=True), ended(what), "resumed", "in one piece")


def test_a_run_whose_time_is_over_while_its_server_waits_for_a_multiple_ends_then(tmp_path: Path) -> None:
    summary = go(tmp_path / "run", paced(10, [], stop={"rounds": 9, "simulated_s": 25})).summary
    assert (summary["rounds"], summary["simulated_s"]) == (3, 25)
    assert summary["reason"] == "25.0 s have passed, the limit was 25 s"


def test_who_comes_while_a_round_waits_for_clients_at_work_ends_the_wait(tmp_path: Path) -> None:
    slow = {"fault": "straggler", "clients": [0], "pause_s": 1000}
    policy = {"clients": 3, "quorum": 2, "deadline_s": 20, "late": {"max_staleness": 99}, "every_s": None}
    faults = [slow, *trace(tmp_path, (2, 25, 10_000))]
    _, second = rounds_of(go(tmp_path / "run", paced(1, faults, rounds=2, participation=policy)))
    assert second.cohort == [1, 2] and second.record[:2] == (20 * 10**9, 25_300_000_000)


def test_who_leaves_while_a_round_waits_for_clients_at_work_is_not_asked(tmp_path: Path) -> None:
    slow = {"fault": "straggler", "clients": [0, 1], "pause_s": 30}
    policy = {"quorum": 3, "deadline_s": 20, "late": {"max_staleness": 99}, "every_s": None}
    faults = [slow, *trace(tmp_path, (2, 0, 22), (2, 100, 9999))]
    _, second = rounds_of(go(tmp_path / "run", paced(1, faults, rounds=2, participation=policy)))
    assert second.cohort == [0, 1, 3] and second.record[0] == 20 * 10**9


def test_in_real_time_rounds_begin_at_multiples_too(tmp_path: Path) -> None:
    opened_ns = go(tmp_path / "run", paced(0.1, [], network={}, clock="wall")).history.opened_ns
    assert opened_ns.size == 3 and (opened_ns[1:] // 10**8 > opened_ns[:-1] // 10**8).all()


@pytest.mark.slow
def test_in_real_time_it_is_real_time_that_passes(tmp_path: Path) -> None:
    what = scenario(clock="wall", network={}, stop={"rounds": 10**6, "simulated_s": 0.4})
    summary = go(tmp_path / "run", what).summary
    assert 0.4 <= summary["simulated_s"] < 5 and 1 <= summary["rounds"] < 10**6
    assert "s have passed, the limit was 0.4 s" in summary["reason"]
