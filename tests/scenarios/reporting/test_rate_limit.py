"""Log lines about unregistered peers: a short burst, then one line per second, and a count of the rest."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from worlds import scenario

from seedbus.agents.observer import NullObserver
from seedbus.agents.refusals import MAX_PEERS, NOBODY, Refusal, Refusals
from seedbus.scenarios.reporting.progress import Bar, Lines
from seedbus.scenarios.reporting.rate_limit import SERVER_BURSTS, RateLimit
from seedbus.scenarios.running.recording import LOG, MAX_REFUSALS, Recorder


class Hand:
    """A clock set by the test, in seconds."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def __call__(self) -> float:
        return self.seconds


def admitted(limit: RateLimit, event: str, times: int = 1) -> list[str]:
    """Return the events that are written; a count of omitted events is `N more`."""
    return [
        f"{facts['count']} more" if name == "omitted" else name
        for _ in range(times)
        for name, facts in limit.admitted(event, {})
    ]


def test_a_flood_is_a_burst_then_a_line_a_second_and_nothing_goes_uncounted() -> None:
    clock = Hand()
    limit = RateLimit({"gone": 20}, now=clock)
    assert admitted(limit, "gone", 5000) == ["gone"] * 20
    clock.seconds = 1.5
    assert admitted(limit, "gone", 5000) == ["4980 more", "gone"]
    clock.seconds = 1000.0
    assert admitted(limit, "gone", 5000) == ["4999 more"] + ["gone"] * 20
    assert list(limit.rest()) == [("omitted", {"of": "gone", "count": 4980})] and not list(limit.rest())
    assert admitted(limit, "round", 5000) == ["round"] * 5000


def test_a_thousand_honest_processes_that_join_and_leave_are_all_logged() -> None:
    limit = RateLimit(SERVER_BURSTS, now=Hand())
    assert admitted(limit, "joined", 1000) == ["joined"] * 1000
    assert admitted(limit, "gone", 1000) == ["gone"] * 1000


def flood(watcher: Any, times: int) -> None:
    """Report peers that leave or are refused, each with markup in its text and a port of its own."""
    words = "[/b]\x1b]0;title\x07" * 500
    for number in range(times):
        watcher.noted("gone", host=-3, clients="clients " + "1, " * 5000, why=f"127.0.0.1:{number}: {words}")
        watcher.refused(Refusal(NOBODY, 0, "strange", f"127.0.0.1:{number}: {words}"))


def test_ten_thousand_strangers_write_a_few_lines_of_the_log(tmp_path: Path) -> None:
    class Counting(NullObserver):
        seen = 0

        def noted(self, event: str, **facts: Any) -> None:
            self.seen += 1

    then = Counting()
    recorder = Recorder(tmp_path, [], then)
    flood(recorder, 10_000)
    for sender in (7, -3):
        recorder.refused(Refusal(sender, 0, "late", "its round is over"))
    recorder.close()
    text = (tmp_path / LOG).read_text()
    lines = [json.loads(line) for line in text.splitlines()]
    for event in ("gone", "refused"):
        left_out = sum(line["count"] for line in lines if line["event"] == "omitted" and line["of"] == event)
        assert sum(line["event"] == event for line in lines) + left_out == (10_002 if event == "refused" else 10_000)
    named = [line for line in lines if line["event"] == "refused" and {"client", "host"} & set(line)]
    assert [(line.get("client"), line.get("host")) for line in named] == [(7, None), (None, -3)], "no stranger is one"
    assert len(text) < 150_000 and max(map(len, text.splitlines())) < 2500
    assert then.seen == 10_000, "whoever watches the run is told of all"


@pytest.mark.slow
@pytest.mark.parametrize("is_terminal", [False, True])
def test_ten_thousand_strangers_write_a_few_lines_of_the_terminal(is_terminal: bool) -> None:
    shown = io.StringIO()
    console = Console(file=shown, force_terminal=is_terminal, color_system=None, width=200)
    watcher = Bar(scenario(), console) if is_terminal else Lines(scenario(), console)
    flood(watcher, 10_000)
    watcher.close()
    assert shown.getvalue().count("is gone (") < 60 and len(shown.getvalue()) < 300_000
    assert "\x1b]0;title" not in shown.getvalue() and "[/b] ]0;title" in shown.getvalue()


def test_whoever_starts_processes_is_told_that_the_evaluator_is_missing() -> None:
    shown = io.StringIO()
    watcher = Lines(scenario(), Console(file=shown, width=200))
    watcher.noted("joined", host=-3, clients="clients 0…3", missing=0, lacks_evaluator=True)
    watcher.noted("joined", host=-4, clients="the evaluator", missing=0)
    first, second = shown.getvalue().splitlines()
    assert first.endswith("; 0 clients still missing, and the evaluator")
    assert second.endswith("with the evaluator; 0 clients still missing")


def test_a_client_that_is_always_refused_has_a_few_lines_and_then_a_count(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path, [], NullObserver())
    for round in range(MAX_REFUSALS + 250):
        recorder.refused(Refusal(3, round, "late", "too late"))
    recorder.refused(Refusal(4, 0, "late", "too late"))
    recorder.close()
    lines = [json.loads(line) for line in (tmp_path / LOG).read_text().splitlines()]
    assert len(lines) == MAX_REFUSALS + 2
    (rest,) = [line for line in lines if line["event"] == "omitted"]
    assert (rest["client"], rest["reason"], rest["count"]) == (3, "late", 250)


def test_a_metrics_name_is_no_argument_of_the_log(tmp_path: Path) -> None:
    names = ("event", "self", "method_name", "facts", "timestamp", "_logger")
    line = {"round": 0, "bytes_up": 1, "bytes_down": 2} | dict.fromkeys(names, 0.5)
    recorder = Recorder(tmp_path, [], NullObserver())
    recorder.measured(line)
    recorder.close()
    (line,) = [json.loads(text) for text in (tmp_path / LOG).read_text().splitlines()]
    assert line["event"] == "metrics" and line["self"] == line["facts"] == 0.5


def test_strangers_are_listed_separately_up_to_a_limit_and_all_counted() -> None:
    refusals = Refusals()
    separate = sum(refusals.of_peer(f"127.0.0.1:{port}", "strange", "…") for port in range(50_000))
    counted = refusals.by_reason()["strange"]
    assert len(counted) == MAX_PEERS + 1 and sum(counted.values()) == 50_000 and counted["others"] == 50_000 - MAX_PEERS
    assert separate == MAX_PEERS + 5
