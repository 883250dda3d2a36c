"""A client outside its owner's limits is away: it leaves, comes back with what it has, and the bits are those."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from clusters import ClientsThread, ServerThread
from commands import Command
from gates import Gate
from processes import HANGS_S, wait_for
from tcp_proxy import CountingProxy
from worlds import DECOMFL, HISO, go, holds, outcome, scenario

from seedbus.bus import HostRequest
from seedbus.bus.zeromq.keys import KeyPair
from seedbus.bus.zeromq.worker import link
from seedbus.scenarios.consent import owner_limits
from seedbus.scenarios.consent.owner_limits import OwnerLimits
from seedbus.scenarios.errors import ScenarioError
from seedbus.scenarios.reporting.results import Results
from seedbus.scenarios.schema.scenario import Scenario

HALVES = (HostRequest(((0, 3),)), HostRequest(((4, 7),), evaluates=False))
SCAFFOLD = {"name": "scaffold", "learning_rate": 0.1, "local_steps": 2}
LEFT = "its owner keeps it away for a while"
LEAVES = (5, 12)  # the rounds in which one half goes away


@pytest.fixture(autouse=True)
def _looks_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(link, "LOOK_S", 0.02)
    monkeypatch.setattr(owner_limits, "EVERY_S", 0.05)


@pytest.fixture
def calendar(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """The local time, which a test sets."""
    now = SimpleNamespace(tm_year=2026, tm_yday=1, tm_hour=23)
    monkeypatch.setattr(owner_limits, "local_time", lambda: now)
    return now


def absences(server: ServerThread) -> int:
    return sum(event == "gone" and LEFT in facts["why"] for event, facts in server.watcher.events)


def has_closed(server: ServerThread, rounds: int) -> bool:
    return server.watcher.rounds >= rounds


def has_left(server: ServerThread, times: int) -> bool:
    return absences(server) == times


def has_joined(server: ServerThread, times: int) -> bool:
    return server.watcher.joined >= times


def twice_away(
    what: Scenario,
    folder: Path,
    why_away: Callable[[int], str],
    leave: Callable[[], None],
    come: Callable[[], None],
    *,
    goes_on: int = 0,
) -> Results:
    """Run a server and two halves of its clients, of which one is away twice; goes_on: rounds that it misses."""
    gate = Gate()
    with ServerThread(what, folder) as server:
        endpoint = server.watcher.endpoint
        clients = [
            ClientsThread(what, endpoint, HALVES[0], gate=gate),
            ClientsThread(what, endpoint, HALVES[1], why_away=why_away),
        ]
        for count, round in enumerate(LEAVES, 1):
            gate.open_to(round)
            wait_for(partial(has_closed, server, round))
            leave()
            wait_for(partial(has_left, server, count))
            if goes_on:
                gate.open_to(round + goes_on)
                wait_for(partial(has_closed, server, round + goes_on))
            joined = server.watcher.joined
            come()
            wait_for(partial(has_joined, server, joined + 1))
        gate.open_to(2**32)
        results = server.results()
        for client in clients:
            client.join(HANGS_S)
            assert client.failure is None
        assert absences(server) == len(LEAVES)
    return results


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", [DECOMFL, HISO, SCAFFOLD], ids=["decomfl", "hiso", "scaffold"])
def test_out_of_its_hours_a_client_is_away_and_the_bits_do_not_depend_on_it(
    tmp_path: Path, calendar: SimpleNamespace, algorithm: dict[str, Any]
) -> None:
    what = scenario(algorithm=algorithm)
    owner = OwnerLimits(hours="22-6")
    hours = iter((6, 23, 21, 22))
    ran = twice_away(
        what,
        tmp_path / "away",
        owner.why_away,
        lambda: setattr(calendar, "tm_hour", next(hours)),
        lambda: setattr(calendar, "tm_hour", next(hours)),
    )
    assert outcome(ran) == outcome(go(tmp_path / "alone", what))


@pytest.mark.slow
def test_past_its_bytes_a_client_is_away_until_the_next_day(
    tmp_path: Path, calendar: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    what = scenario()
    monkeypatch.setattr(owner_limits, "LEAST_BYTES", 1)
    owner, counts = OwnerLimits(bytes_a_day="10MB"), list[int]()

    def why_away(wire_bytes: int) -> str:
        counts.append(wire_bytes)
        return owner.why_away(wire_bytes)

    def spend() -> None:
        owner._most = owner._bytes_today

    def next_day() -> None:
        calendar.tm_yday += 1
        owner._most = 10**7

    ran = twice_away(what, tmp_path / "away", why_away, spend, next_day)
    assert outcome(ran) == outcome(go(tmp_path / "alone", what))
    assert counts == sorted(counts) and 0 < owner._bytes_today < counts[-1]


@pytest.mark.slow
def test_in_real_time_rounds_close_without_it_and_it_catches_up(tmp_path: Path, calendar: SimpleNamespace) -> None:
    what = scenario(
        clock="wall",
        participation={"clients": 8, "cohort": 8, "deadline_s": 0.3},
        network={},
        stop={"rounds": 24},
    )
    owner = OwnerLimits(hours="22-6")
    ran = twice_away(
        what,
        tmp_path / "away",
        owner.why_away,
        lambda: setattr(calendar, "tm_hour", 12),
        lambda: setattr(calendar, "tm_hour", 22),
        goes_on=4,
    )
    assert holds(ran) and ran.summary["rounds"] == 24
    assert ran.summary["lag"]["max"] >= 4, "its clients had missed commits, and have replayed them"


@pytest.mark.slow
def test_the_bytes_that_count_are_those_on_the_wire(tmp_path: Path) -> None:
    what, counts = scenario(), list[int]()

    def why_away(wire_bytes: int) -> str:
        counts.append(wire_bytes)
        return ""

    with ServerThread(what, tmp_path / "run") as server:
        with CountingProxy(server.port) as proxy:
            client = ClientsThread(what, proxy.endpoint, why_away=why_away)
            server.results()
            client.join(HANGS_S)
            assert client.failure is None
            wire = proxy.up + proxy.down
    assert 0 <= wire - counts[-1] < 200, "the last ones follow the last look"


@pytest.mark.slow
def test_while_its_command_says_no_a_client_does_not_even_connect(seedbus: Command, tmp_path: Path) -> None:
    what, may = scenario(), tmp_path / "on the mains"
    with ServerThread(what, tmp_path / "run") as server:

        def plug_in() -> None:
            may.touch()

        later = threading.Timer(1.0, plug_in)
        later.start()
        command = f"test -e '{may}'"
        said = seedbus("client", "--connect", server.watcher.endpoint, "--evaluator", "--while", command)
        assert said.code == 0 and may.exists()
        lines = said.err.splitlines()
        assert lines[:2] == ["away: because --while: its command ended with status 1", "back"], said.err
        assert server.watcher.joined == 1 and absences(server) == 0
        server.results()


def test_a_command_that_hangs_is_a_no_and_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(owner_limits, "TIMEOUT_S", 0.2)
    owner = OwnerLimits(command=f"{sys.executable} -c 'import time; time.sleep(600)'")
    assert owner.why_away(0) == "--while: its command took more than 0.2 s"
    command = owner._command
    assert command is not None and command._running is None
    owner.close()


def test_a_shell_is_asked_nothing(tmp_path: Path) -> None:
    trap = tmp_path / "trap"
    owner = OwnerLimits(command=f"true ; touch {trap}")
    assert owner.why_away(0) == "" and not trap.exists()


@pytest.mark.parametrize(
    ("hours", "within"), [("22-6", {22, 23, 0, 5}), ("9-17", {9, 16}), ("22-0", {22, 23}), ("0-24", {0, 5, 12, 23})]
)
def test_hours_may_pass_midnight(calendar: SimpleNamespace, hours: str, within: set[int]) -> None:
    owner = OwnerLimits(hours=hours)
    for hour in (0, 5, 6, 8, 9, 12, 16, 17, 21, 22, 23):
        calendar.tm_hour = hour
        is_there = hour in within or hours == "0-24" or (hours == "9-17" and hour == 12)
        assert (owner.why_away(0) == "") == is_there, hour


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"hours": "22"}, "--hours 22: expected two hours of a day, like 22-6"),
        ({"hours": "6-6"}, "--hours 6-6: expected two hours"),
        ({"hours": "24-6"}, "--hours 24-6: expected two hours"),
        ({"bytes_a_day": "much"}, "--bytes-a-day much: expected bytes, like 20MB, at least 100,000"),
        ({"bytes_a_day": "99999"}, "--bytes-a-day 99999: expected bytes"),
        ({"command": "nothing-of-that-name now"}, "--while nothing-of-that-name now: there is no such program"),
        ({"command": "test 'x"}, "--while test 'x: it has no end (No closing quotation)"),
    ],
)
def test_limits_that_cannot_be_read_are_refused(given: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ScenarioError) as refused:
        OwnerLimits(**given)
    assert sentence in str(refused.value)


def test_bytes_of_a_day_are_kept_for_a_process_that_is_started_again(calendar: SimpleNamespace, tmp_path: Path) -> None:
    first = OwnerLimits(bytes_a_day="100kB", file=tmp_path / owner_limits.TODAY)
    assert [first.why_away(wire_bytes) for wire_bytes in (0, 60_000)] == ["", ""]
    first.close()
    second = OwnerLimits(bytes_a_day="100kB", file=tmp_path / owner_limits.TODAY)
    assert second.why_away(30_000) == "" and second.why_away(40_000) == "--bytes-a-day: 100,000 bytes today"
    second.close()
    calendar.tm_yday = 2
    third = OwnerLimits(bytes_a_day="100kB", file=tmp_path / owner_limits.TODAY)
    assert third.why_away(99_000) == "" and third.why_away(198_000) == ""
    third.close()
    (tmp_path / owner_limits.TODAY).write_text('{"day": 3}')
    with pytest.raises(ScenarioError, match=rf"--bytes-a-day, .*{owner_limits.TODAY}: the bytes of a day cannot be"):
        OwnerLimits(bytes_a_day="100kB", file=tmp_path / owner_limits.TODAY)


def test_without_a_folder_the_bytes_of_a_day_are_kept_beside_the_key(seedbus: Command, tmp_path: Path) -> None:
    key = tmp_path / "keys" / "ward-1.secret"
    beside = tmp_path / "keys" / f"ward-1-{owner_limits.TODAY}"
    key.parent.mkdir()
    assert owner_limits.file_of_today(None, key) == beside
    assert owner_limits.file_of_today(tmp_path, key) == tmp_path / owner_limits.TODAY
    assert owner_limits.file_of_today(None, None) is None
    assert owner_limits.file_of_today(None, tmp_path / "nowhere" / "ward-1.secret") is None
    beside.write_text('{"day": 3}')
    pair = KeyPair.new()
    pair.save(key.parent, "ward-1")
    keys = ("--server-key", KeyPair.new().public.decode(), "--key", key)
    command = ("client", "--connect", "tcp://127.0.0.1:9", "--patience", 1, "--bytes-a-day", "1MB")
    said = seedbus(*command, *keys)
    assert (said.code, str(beside) in said.err) == (2, True), said.err
    told = "the bytes of this day are lost with this process: keep them by --out FOLDER"
    assert told not in said.err and told in seedbus(*command).err.splitlines()
