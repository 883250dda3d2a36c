"""Link traces: files that list the speeds of clients' links."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from bus_harness import MS, SECOND, Harness, plan, report
from worlds import outcome, scenario

from seedbus.agents.errors import RunFolderError
from seedbus.bus import KeyedRandom, Network
from seedbus.scenarios.errors import ScenarioError
from seedbus.scenarios.faults.link_trace import LinkTrace
from seedbus.scenarios.faults.trace import Trace
from seedbus.scenarios.running.run import run
from seedbus.scenarios.schema.without_effect import caveats

HEADER = "client,from_s,up_mbps,down_mbps\n"
BIT_MS = 117  # the size of a payload whose whole frame has a thousand bits, 1 ms at 1 Mbit/s


def trace(folder: Path, lines: str, **fields: Any) -> LinkTrace:
    (folder / "links.csv").write_text(lines if "device" in lines else HEADER + lines)
    return LinkTrace(file=str(folder / "links.csv"), **fields)


def arrivals(fault: LinkTrace, *sent: tuple[Any, float], network: Network | None = None) -> list[float]:
    """Return when messages arrive, in milliseconds, that are sent at given seconds."""
    found = []
    for message, at_s in sent:
        harness = Harness(network, [fault])
        harness.send(message, round(at_s * SECOND))
        harness.run()
        found += [(each / MS) for each in harness.arrivals_ns]
    return found


def test_links_have_the_speeds_of_their_lines_in_any_order(tmp_path: Path) -> None:
    fault = trace(tmp_path, "1,2,0.5,\n0,0,1,4\n1,0,1,2\n1,1,0,1\n")
    up, down = report(1, size=BIT_MS), plan(1, size=BIT_MS)
    assert arrivals(fault, (up, 0), (up, 0.9995), (up, 1.5), (up, 7)) == [1, 2001, 2002, 7002]
    assert arrivals(fault, (down, 0), (down, 1), (down, 2)) == [0.5, 1001, 2000]
    assert arrivals(fault, (plan(0, size=BIT_MS), 9), (report(2, size=BIT_MS), 9)) == [9000.25, 9000]
    assert arrivals(fault, (down, 2), network=Network(down_mbps=0.25)) == [2004]


def test_a_trace_begins_anew_and_a_trace_that_does_not_keeps_its_last_speeds(tmp_path: Path) -> None:
    lines, message = "0,0,1,\n0,2,0.25,\n", report(0, size=BIT_MS)
    assert arrivals(trace(tmp_path, lines, every_s=3), (message, 3), (message, 5)) == [3001, 5004]
    assert arrivals(trace(tmp_path, lines), (message, 3), (message, 5)) == [3004, 5004]


def test_each_client_has_the_links_of_one_of_the_devices(tmp_path: Path) -> None:
    fault = trace(tmp_path, "device,from_s,up_mbps,down_mbps\nbus,0,1,1\nattic,0,0.5,2\n")
    random = KeyedRandom(1, 200, repr(fault))
    links = fault.speeds(200, random)
    assert links.keys() == {(client, upward) for client in range(200) for upward in (True, False)}
    limits = [(links[client, True].at(0)[0], links[client, False].at(0)[0]) for client in range(200)]
    assert set(limits) == {(1, 1), (0.5, 2)} and 70 < limits.count((1, 1)) < 130
    groups = fault.client_groups(200, random)
    assert groups.keys() == {"device attic", "device bus"} and sum(map(len, groups.values())) == 200
    assert all((limits[client] == (1, 1)) == (client in groups["device bus"]) for client in range(200))
    some = fault.model_copy(update={"clients": [7, 9]})
    assert {client for client, _ in some.speeds(200, random)} == {7, 9}
    assert all(some.speeds(200, random)[7, upward].at(0) == links[7, upward].at(0) for upward in (True, False))
    many = "device,from_s,up_mbps,down_mbps\n" + "".join(f"{name},0,1,1\n" for name in map(str, range(31)))
    assert trace(tmp_path, many).client_groups(200, random) == {"link-trace": [*range(200)]}, "too many for a table"


def test_a_client_has_the_same_device_in_all_traces_that_have_the_same_devices(tmp_path: Path) -> None:
    links = trace(tmp_path, "device,from_s,up_mbps,down_mbps\n" + "".join(f"{name},0,1,1\n" for name in "abc"))
    (tmp_path / "there.csv").write_text("device,from_s,to_s\n" + "".join(f"{name},0,9\n" for name in "cab"))
    presence = Trace(file=str(tmp_path / "there.csv"), fraction=0.5)
    one, other = (fault.client_groups(90, KeyedRandom(4, 90, repr(fault))) for fault in (links, presence))
    assert one.keys() == other.keys() and all(set(other[device]) < set(one[device]) for device in one)


def test_speeds_without_times_always_hold(tmp_path: Path) -> None:
    found = []
    for name, text in (("timed", HEADER + "0,0,1,2\n3,0,,4\n"), ("bare", "client,up_mbps,down_mbps\n0,1,2\n3,,4\n")):
        (tmp_path / name).write_text(text)
        fault = LinkTrace(file=str(tmp_path / name))
        found.append((fault.file_digest(4), fault.lines(4), sorted(fault.speeds(4, KeyedRandom(1, 4, "any")))))
    assert found[0] == found[1] and len(found[0][2]) == 4


def test_the_closest_lines_the_latest_and_the_lowest_speed_are_accepted(tmp_path: Path) -> None:
    fault = trace(tmp_path, "1,0,0.000001,1\n1,0.001,1,0.000001\n", every_s=0.002)
    assert fault.lines(8) == {1: [(0, 1e-6, 1.0), (MS, 1.0, 1e-6)]}
    latest = {1: [(0, 1.0, 1.0), (10**12 * SECOND, 1.0, 1.0)]}
    assert trace(tmp_path, "1,0,1,1\n1,1e12,1,1\n").lines(8) == latest


def test_a_client_without_a_line_is_told_and_one_in_two_traces_is_refused(tmp_path: Path) -> None:
    (tmp_path / "more").mkdir()
    first, more = trace(tmp_path, "0,0,1,1\n2,0,1,1\n"), trace(tmp_path / "more", "1,0,1,1\n2,0,2,2\n")
    what = scenario(faults=[first.model_dump()], participation={"clients": 4})
    assert caveats(what) == ["faults.0 limits no link of clients 1, 3, of whom its file has no line"]
    both = [first.model_dump(), more.model_dump()]
    with pytest.raises(ScenarioError, match=r"it says the speeds of client 2, and so does .*one link-trace for each"):
        scenario(faults=both).check()
    scenario(faults=[both[0], both[1] | {"clients": [1]}]).check()


def test_a_run_is_not_resumed_with_other_speeds_and_ends_as_one_that_was_not_stopped(tmp_path: Path) -> None:
    fault = trace(tmp_path, "0,0,0.001,0.01\n0,1.5,0.002,\n1,0.2,,0.004\n1,3,0.001,0.004\n2,0,0,0\n2,2.5,0.01,0.01\n")
    what = scenario(faults=[fault.model_dump()])
    whole = outcome(run(what, tmp_path / "whole"))
    short = scenario(faults=[fault.model_dump()], stop={"rounds": 7})
    run(short, tmp_path / "run")
    trace(tmp_path, "0,0,0.001,0.01\n0,1.5,0.003,\n1,0.2,,0.004\n1,3,0.001,0.004\n2,0,0,0\n2,2.5,0.01,0.01\n")
    with pytest.raises(RunFolderError, match=r"begun with faults\.0\.file .*: the bits would differ"):
        run(what, tmp_path / "run", resume=True)
    trace(tmp_path, "0,0,0.001,0.01\n1,0.2,,0.004\n1,3,0.001,0.004\n2,2.5,0.010,0.01\n2,0,0,0\n0,1.5,0.002,\n")
    assert outcome(run(what, tmp_path / "run", resume=True)) == whole
