"""A run that will take long says so once, by the time of its first rounds."""

from __future__ import annotations

import io
from typing import Any

import pytest
from rich.console import Console
from worlds import DECOMFL, scenario

from seedbus.agents.round_record import ClosedRound
from seedbus.agents.server.stopping import Stop
from seedbus.scenarios.reporting import progress, remaining_time
from seedbus.scenarios.reporting.progress import Lines
from seedbus.scenarios.reporting.remaining_time import Outlook, expected_rounds


def said(monkeypatch: pytest.MonkeyPatch, seconds: float, first: int = 0, **changes: Any) -> list[tuple[int, str]]:
    """Return what is said of a run of 100 rounds of so many seconds, with the round; its start takes 50 s."""
    now_s = 50.0
    monkeypatch.setattr(remaining_time, "wall_seconds", lambda: now_s)
    watch, found = Outlook(scenario(**({"stop": {"rounds": 100}} | changes))), []
    for round in range(first, 100):
        if (text := watch.closed(round, (round + 1) * 10**9)) is not None:
            found.append((round, text))
        now_s += seconds
    return found


def test_a_run_of_more_than_a_minute_says_so_once(monkeypatch: pytest.MonkeyPatch) -> None:
    assert said(monkeypatch, 1) == [(3, "this run will take about 2 minutes, judged by its first 3 rounds")]
    assert said(monkeypatch, 70) == [(2, "this run will take about 1.9 hours, judged by its first 2 rounds")]
    assert said(monkeypatch, 0.5) == []


def test_a_run_that_ends_by_its_clock_is_judged_by_the_rounds_that_this_allows(monkeypatch: pytest.MonkeyPatch) -> None:
    (found,) = said(monkeypatch, 3, stop={"rounds": 10**6, "simulated_s": 80.5})  # a round takes a second of its clock
    assert found == (2, "this run will take at most about 4 minutes, judged by its first 2 rounds")
    stop = Stop(rounds=50, simulated_s=80)
    assert [expected_rounds(stop, done, 2 * done * 10**9) for done in (1, 39, 40, 41)] == [40, 40, 40, 41]
    assert expected_rounds(stop, 10, 10**9) == 50 == expected_rounds(stop, 10, 0)
    by_time = Stop(simulated_s=80)
    assert (expected_rounds(by_time, 10, 20 * 10**9), expected_rounds(by_time, 1, 0)) == (40, None)


def test_rounds_with_more_work_take_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    algorithm = DECOMFL | {"perturbations": {0: 3, 50: 7}}  # 4 evaluations, then 8
    assert said(monkeypatch, 1, algorithm=algorithm)[0][1].startswith("this run will take about 2 minutes")
    assert said(monkeypatch, 0.5, algorithm=algorithm)[0][1].startswith("this run will take about 74.5 s")


def test_a_resumed_run_is_judged_by_what_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    assert said(monkeypatch, 1, first=30) == [(33, "this run will take about 69.0 s, judged by its first 3 rounds")]
    assert said(monkeypatch, 1, first=50) == []


PRIVATE: dict[str, Any] = {
    "algorithm": {"name": "decomfl", "arithmetic": "integer", "precision": "int32", "unit_bits": 24},
    "participation": {"clients": 8, "cohort": 4, "quorum": 4},
    "privacy": {"clip": 2_000_000, "noise_multiplier": 8},
}


@pytest.mark.parametrize(
    ("earlier", "changes"),
    [
        ({"target": {"metric": "loss", "value": 0.1, "direction": "below"}}, {}),
        ({"bytes": 10**6}, {}),
        ({"epsilon": 1.0}, PRIVATE),
    ],
)
def test_a_target_or_a_budget_may_end_the_run_earlier(
    monkeypatch: pytest.MonkeyPatch, earlier: dict[str, Any], changes: dict[str, Any]
) -> None:
    (found,) = said(monkeypatch, 1, stop={"rounds": 100} | earlier, **changes)
    assert found[1].startswith("this run will take at most about 2 minutes")


@pytest.mark.parametrize("is_resumed", [False, True])
def test_the_first_line_counts_the_rounds_that_are_over_also_of_a_resumed_run(is_resumed: bool) -> None:
    """A first round without a commit is measured with the numbers of x₀, which a resumed run does not measure again."""
    shown = io.StringIO()
    lines, line = Lines(scenario(), Console(file=shown)), {"round": 0, "version": 0, "bytes_up": 0, "bytes_down": 0}
    if not is_resumed:
        lines.measured(line)
    lines.round_closed(ClosedRound(0, 0, (1,), (), None), 0, 0)
    lines.measured(line)
    counted = [each.split("/")[0] for each in shown.getvalue().splitlines()]
    assert counted == ["round 0"] * (not is_resumed) + ["round 1"]


def test_a_long_wait_is_forgotten_by_the_rate_and_the_time_that_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    shown, now_s = io.StringIO(), [0.0]
    monkeypatch.setattr(progress, "wall_seconds", lambda: now_s[0])
    lines = Lines(scenario(stop={"rounds": 100}), Console(file=shown))
    for done in range(31):
        lines.round_closed(ClosedRound(done, 0, (1,), (), None), 0, 0)
        lines.measured({"round": done, "version": done, "bytes_up": 0, "bytes_down": 0})
        now_s[0] += 1000.0 if done == 5 else 0.5
    rates = [line.partition("B  ")[2].split()[:2] for line in shown.getvalue().splitlines()]
    assert rates.count(["2.0", "rounds/s"]) == len(rates) - 2
    assert rates[0] == rates[6] == [], "nothing is known of the first round, nor of those after the wait"
