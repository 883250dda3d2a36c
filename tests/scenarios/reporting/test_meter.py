"""Progress where no terminal shows bars: lines that become seldom, and how long it will go on."""

from __future__ import annotations

import pytest

from seedbus.scenarios.reporting.meter import Meter
from seedbus.scenarios.reporting.remaining_time import roughly
from seedbus.studies.study.progress import StudyProgress


class Time:
    now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def time(monkeypatch: pytest.MonkeyPatch) -> Time:
    time = Time()
    monkeypatch.setattr("seedbus.scenarios.reporting.meter.wall_seconds", time)
    return time


@pytest.mark.parametrize("is_quiet", [False, True])
def test_without_a_terminal_a_line_says_ever_more_seldom_how_far_it_is(
    is_quiet: bool, time: Time, capsys: pytest.CaptureFixture[str]
) -> None:
    with Meter(is_quiet=is_quiet) as meter:
        for second in meter.over("reading", range(500)):
            time.now_s = float(second + 1)
    said = [
        "reading: 15 of 500, about 8 min left",
        "reading: 45 of 500, about 8 min left",
        "reading: 135 of 500, about 6 min left",
        "reading: 405 of 500, about 95 s left",
    ]
    assert capsys.readouterr().err.splitlines() == ([] if is_quiet else said)


def test_the_line_of_each_run_says_how_long_those_with_it_will_go_on_but_the_first(
    time: Time, capsys: pytest.CaptureFixture[str]
) -> None:
    with Meter() as meter:
        progress = StudyProgress("mine", meter)
        progress.begins(None, "trials (batch 2 of 3)", 4, 30, 1)  # type: ignore[arg-type]
        time.now_s = 60.0
        progress.ended("a", 1, 10, None)
        time.now_s = 65.0
        progress.advanced("b", 1, 5)
        time.now_s = 70.0
        progress.ended("b", 1, 10, "no memory")
        progress.ended("c", 1, 10, None)
        progress.begins(None, "trials (batch 3 of 3)", 1, 10, 0)  # type: ignore[arg-type]
        progress.advanced("d", 1, 1)
        time.now_s = 100.0
        progress.advanced("d", 1, 4)
    assert capsys.readouterr().err.splitlines() == [
        "mine: 4 trials (batch 2 of 3), 1 of them finished already",
        "mine  2/4 trials (batch 2 of 3): 10 of 30 rounds",
        "2/4  a, seed 1: done",
        "mine  2/4 trials (batch 2 of 3) (b, seed 1: 5): 15 of 30 rounds, about 15 s left",
        "2/4  b, seed 1: failed: no memory; about 10 s left",
        "3/4  c, seed 1: done",
        "mine: 1 trial (batch 3 of 3)",
        "mine  0/1 trials (batch 3 of 3) (d, seed 1: 4): 4 of 10 rounds, about 60 s left",
    ]


def test_a_time_has_the_unit_that_people_would_use() -> None:
    assert [roughly(seconds) for seconds in (0.4, 119, 121, 7199, 9000, 259_200)] == [
        "0 s",
        "119 s",
        "2 min",
        "120 min",
        "2.5 h",
        "3 days",
    ]
