"""Traces: files that list when clients are available."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from commands import Command
from power_cuts import PowerCut, cut_power
from worlds import outcome, scenario

from seedbus.agents.availability import Availability
from seedbus.agents.errors import RunFolderError
from seedbus.agents.journal.journal import Journal
from seedbus.bus import FaultHooks, KeyedRandom
from seedbus.scenarios.errors import Exit, ScenarioError
from seedbus.scenarios.faults.trace import Trace
from seedbus.scenarios.running.run import run
from seedbus.scenarios.schema.loading import load
from seedbus.scenarios.schema.without_effect import caveats
from seedbus.scenarios.schema.yaml_text import dump

HEADER = "client,from_s,to_s\n"
SECOND = 10**9


def trace(folder: Path, lines: str, **fields: Any) -> Trace:
    (folder / "devices.csv").write_text(HEADER + lines)
    return Trace(file=str(folder / "devices.csv"), **fields)


def present(fault: Trace, seconds: list[float], clients: int = 4) -> dict[float, set[int]]:
    schedule, presence = fault.schedule(clients, KeyedRandom(1, clients, repr(fault))), {}
    for second in seconds:
        schedule.advance(0, round(second * SECOND))
        presence[second] = set(range(clients)) - schedule.absent
    return presence


def test_clients_are_there_in_their_intervals_and_those_not_named_always(tmp_path: Path) -> None:
    fault = trace(tmp_path, "0,0,10\n1,5,6.5\n1,20,30\n\n2,1e-3,4\n")
    assert present(fault, [0, 0.001, 4, 5, 6.5, 10, 19.9, 20, 30, 99]) == {
        0: {0, 3},
        0.001: {0, 2, 3},
        4: {0, 3},
        5: {0, 1, 3},
        6.5: {0, 3},
        10: {3},
        19.9: {3},
        20: {1, 3},
        30: {3},
        99: {3},
    }


@pytest.mark.parametrize(
    ("lines", "told"),
    [
        ("0,0,9\n1,0,3\n1,3,5\n2,0,9\n3,0,9\n", ""),
        ("0,0,9\n2,0,9\n2,8,10\n3,0,9\n", "never takes client 1 away, of whom its file has no line, and takes the "
         "lines of client 2 that overlap for one interval"),
        ("2,0,9\n", "never takes clients 0, 1, 3 away, of whom its file has no line"),
    ],
)  # fmt: skip
def test_clients_without_a_line_and_lines_that_overlap_are_told(tmp_path: Path, lines: str, told: str) -> None:
    faults = [{"fault": "trace", "file": trace(tmp_path, lines).file}]
    what = scenario(faults=faults, participation={"clients": 4}, network={"latency": 0.1})
    assert caveats(what) == ([f"faults.0 {told}"] if told else [])


def test_a_trace_begins_anew_after_every_s_and_a_stay_over_the_end_is_one(tmp_path: Path) -> None:
    fault = trace(tmp_path, "0,0,3\n0,8,10\n1,2,5\n2,0,4\n2,4,10\n", every_s=10)
    late = 10**6
    expected = {0: {0, 2, 3}, 2: {0, 1, 2, 3}, 3: {1, 2, 3}, 5: {2, 3}, 8: {0, 2, 3}, 10: {0, 2, 3}, 12: {0, 1, 2, 3}}
    expected |= {13: {1, 2, 3}, 15: {2, 3}, late - 1: {0, 2, 3}, late + 2: {0, 1, 2, 3}, late + 4: {1, 2, 3}}
    assert present(fault, list(expected)) == expected
    schedule = fault.schedule(4, KeyedRandom(1, 4, "any"))
    schedule.advance(0, 5 * SECOND)
    edges = [(when // SECOND, schedule.advance(0, when)) for when in (schedule.next_ns() or 0 for _ in range(7))]
    assert edges == [(8, {0}), (12, {1}), (13, {0}), (15, {1}), (18, {0}), (22, {1}), (23, {0})]


def test_a_client_that_is_there_at_one_end_of_a_period_only_leaves_and_returns_in_each(tmp_path: Path) -> None:
    fault = trace(tmp_path, "0,0,3\n1,7,10\n", every_s=10)
    assert present(fault, [0, 3, 7, 10, 13, 17, 20], clients=2) == {
        0: {0}, 3: set(), 7: {1}, 10: {0}, 13: set(), 17: {1}, 20: {0}
    }  # fmt: skip


def test_intervals_that_touch_or_overlap_are_one_in_any_order(tmp_path: Path) -> None:
    fault = trace(tmp_path, "1,20,30\n1,21,25\n1,6,12\n1,3,7\n1,12,13\n1,4,5\n1,29,40\n")
    schedule = fault.schedule(4, KeyedRandom(1, 4, "any"))
    schedule.advance(0, 0)
    edges = []
    while (next_ns := schedule.next_ns()) is not None:
        assert set(schedule.advance(0, next_ns)) == {1}
        edges.append(next_ns // SECOND)
    assert edges == [3, 13, 20, 40] and schedule.is_over


def test_times_are_those_of_the_file_to_the_nanosecond_and_the_latest_are_accepted(tmp_path: Path) -> None:
    schedule = trace(tmp_path, "1,4.1,1e12\n").schedule(4, KeyedRandom(1, 4, "any"))
    assert schedule.next_ns() == 4_100_000_000 and set(schedule.advance(0, 4_100_000_000)) == set()
    assert schedule.next_ns() == 10**21 and set(schedule.advance(0, 10**21)) == {1} == schedule.absent


def test_only_the_chosen_clients_follow_the_file(tmp_path: Path) -> None:
    fault = trace(tmp_path, "0,5,6\n1,5,6\n", clients=[1, 2])
    assert present(fault, [0, 5]) == {0: {0, 2, 3}, 5: {0, 1, 2, 3}}


def test_each_client_has_one_of_the_devices_of_a_trace_drawn_once(tmp_path: Path) -> None:
    (tmp_path / "devices.csv").write_text('device,from_s,to_s\nphone,0,10\ntablet,5,20\nphone,30,40\n"a, b",1,2\n')
    fault = Trace(file=str(tmp_path / "devices.csv"))
    seen = present(fault, [0, 1, 2, 5, 10, 20, 30, 40], 300)
    phones, tablets, others = seen[0], seen[10], seen[1] - seen[0]
    assert phones | tablets | others == set(range(300)) and min(map(len, (phones, tablets, others))) > 70
    assert [seen[each] for each in (2, 5, 20, 30, 40)] == [phones, phones | tablets, set(), phones, set()]
    assert not any(found for _, found in fault.oddities(300, KeyedRandom(1, 300, repr(fault))))
    some = present(Trace(file=fault.file, clients=[3, 4]), [999], 300)
    assert set(range(300)) - some[999] == {3, 4}, "only the chosen ones have a device"


def test_a_spreadsheet_writes_a_mark_and_other_line_ends(tmp_path: Path) -> None:
    (tmp_path / "devices.csv").write_bytes(b"\xef\xbb\xbf" + HEADER.strip().encode() + b"\r\n1,5,6\r\n")
    assert present(Trace(file=str(tmp_path / "devices.csv")), [0, 5], 2) == {0: {0}, 5: {0, 1}}


@pytest.mark.parametrize("kind", ["device", "pipe", "folder", "large"])
def test_a_trace_that_is_no_file_or_too_large_is_one_sentence(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "devices.csv"
    if kind == "device":
        path.symlink_to("/dev/zero")
    elif kind == "pipe":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    else:
        with path.open("wb") as file:
            file.write(HEADER.encode())
            file.truncate(2**40)
    found = "of 1,099,511,627,776 bytes" if kind == "large" else "no file"
    sentence = f"{path}: it is {found}; expected a file of at most 268,435,456 bytes"
    for use in (lambda: Trace(file=str(path)).file_digest(4), lambda: present(Trace(file=str(path)), [0])):
        with pytest.raises(ScenarioError) as caught:
            use()
        assert str(caught.value) == sentence


def test_a_relative_path_is_relative_to_the_file_of_the_scenario(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    document = scenario().resolved() | {"faults": [{"fault": "trace", "file": "devices.csv"}]}
    (tmp_path / "there").mkdir()
    (tmp_path / "there" / "what.yaml").write_text(dump(document))
    monkeypatch.chdir(tmp_path)
    (fault,) = load(Path("there/what.yaml")).faults
    assert isinstance(fault, Trace) and fault.file == str(tmp_path / "there" / "devices.csv")


@pytest.mark.parametrize("command", [("run",), ("explain", "fields")], ids=" ".join)
def test_the_command_says_what_is_wrong_with_a_trace(
    seedbus: Command, tmp_path: Path, command: tuple[str, ...]
) -> None:
    (tmp_path / "there").mkdir()
    document = scenario().resolved() | {"faults": [{"fault": "trace", "file": "devices.csv"}]}
    (tmp_path / "there" / "what.yaml").write_text(dump(document))
    (tmp_path / "there" / "devices.csv").write_text(HEADER + "1,2,1\n")
    said = seedbus(command[0], "there/what.yaml", *command[1:])
    sentence = 'line 2: "1,2,1" is not accepted; expected times with 0 ≤ from_s < to_s ≤ 1e+12'
    told = f"seedbus: {tmp_path / 'there' / 'devices.csv'}, {sentence}\n"
    assert (said.code, said.err) == (Exit.USAGE, told) and not Path("runs").exists()


@pytest.mark.slow
def test_a_trace_lies_beside_its_scenario_and_where_changes_no_draw(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    digests = []
    for place in (tmp_path / "here", tmp_path / "there"):
        place.mkdir()
        fault = trace(place, "".join(f"{client},0.3,2\n" for client in range(8)), fraction=0.5)
        document = scenario().resolved() | {"faults": [{"fault": "trace", "file": "devices.csv", "fraction": 0.5}]}
        (place / "what.yaml").write_text(dump(document))
        monkeypatch.chdir(tmp_path)
        what = load(place.relative_to(tmp_path) / "what.yaml")
        assert what.resolved()["faults"] == [fault.model_dump(mode="json")]
        digests.append((Availability(FaultHooks([fault], 1, 8)).at_start, outcome(run(what, place / "run"))))
        monkeypatch.chdir(place)
        assert outcome(run(what, place / "run", resume=True)) == digests[-1][1]
    assert digests[0] == digests[1] and len(digests[0][0]) == 4


def test_a_run_is_not_resumed_with_another_trace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    what = scenario(faults=[trace(tmp_path, "1,0,1\n2,0.5,9\n").model_dump()])
    with monkeypatch.context() as patch:
        cut_power(patch, Journal, "append", 3, before=False)
        with pytest.raises(PowerCut):
            run(what, tmp_path / "run")
    trace(tmp_path, "1,0,1\n2,0.5,8\n")
    with pytest.raises(RunFolderError, match=r"begun with faults\.0\.file .*: the bits would differ"):
        run(what, tmp_path / "run", resume=True)
    trace(tmp_path, "2,0.50,9\n\n1,0,1\n")
    assert run(what, tmp_path / "run", resume=True).summary["rounds"] == 20, "it says the same"
