"""Whole runs in which clients leave and return: equal bits on every transport and wherever a run is cut off."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from availability_scenarios import FAULTS, availability_scenario, churn, ramp
from worlds import lossy

from seedbus.agents.availability import Availability
from seedbus.agents.errors import TooFew, Unfinishable
from seedbus.agents.journal.journal import Journal
from seedbus.agents.journal.records import Entry
from seedbus.agents.messages import Outgoing
from seedbus.agents.server.server import Server
from seedbus.bus import Bus, Fate, Kind, read_ledger
from seedbus.scenarios.reporting.results import Results
from seedbus.scenarios.running.run import run
from seedbus.scenarios.schema.scenario import Scenario
from seedbus.scenarios.transports.placement import Placement
from seedbus.studies.check.runs import ended, require_equal_ends


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Results]:
    folder = tmp_path_factory.mktemp("whole")
    return {name: run(availability_scenario(name), folder / name.replace(" ", "-")) for name in FAULTS}


@pytest.mark.parametrize("name", FAULTS)
def test_nobody_diverges_and_the_run_comes_to_its_end(whole: dict[str, Results], name: str) -> None:
    summary = whole[name].summary
    assert "diverged" not in summary["refusals"] and summary["rounds"] == 25
    assert summary["version"] > 5
    rows = read_ledger(whole[name].folder / "messages")
    joins = (rows["kind"] == Kind.JOIN) & (rows["sender"] >= 0)
    assert joins.sum() >= 3, "whoever comes introduces itself"
    assert summary["traffic"]["by_kind"]["join"]["messages"] == joins.sum()
    assert (rows["header_bytes"] + rows["payload_bytes"])[joins].min() > 20
    assert joins.sum() < 6 * 25


def test_the_worlds_are_different(whole: dict[str, Results]) -> None:
    assert len({results.summary["ledger_hash"] for results in whole.values()}) == len(whole)


def test_every_message_that_is_lost_has_a_fault_that_lost_it(tmp_path: Path) -> None:
    absent = {"fault": "crash", "clients": [0, 1], "at_round": 2, "for_rounds": 5}
    down = {"fault": "server-crash", "at_round": 9, "phase": "gathering", "down_s": 0.3}
    policy = {"clients": 8, "cohort": 6, "quorum": 2, "deadline_s": 2.0}
    results = run(lossy(faults=[absent, down], participation=policy, stop={"rounds": 12}), tmp_path / "run")
    crashed, server = (each["dropped"] for each in results.summary["faults"])
    rows = read_ledger(tmp_path / "run" / "messages")
    assert crashed + server == (rows["fate"] == Fate.DROPPED).sum() and crashed > 0 and server > 0


@pytest.mark.slow
def test_the_cuts_meet_with_joins_in_flight_and_with_clients_that_are_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen, append = Counter[str](), Journal.append

    def look(self: Journal, entry: Entry) -> None:
        append(self, entry)
        _, (_, _, flights, *_), _, expected = entry.state
        seen["joins in flight"] += any(flight[2] == Kind.JOIN for flight in flights)
        seen["refusals in flight"] += any(flight[2] == Kind.REFUSE for flight in flights)
        seen["arrived and not joined"] += bool(expected)
        seen["left"] += any(not position.is_member for _, position in entry.positions)

    monkeypatch.setattr(Journal, "append", look)
    for number, name in enumerate(FAULTS):
        run(availability_scenario(name), tmp_path / str(number))
    assert min(seen.values()) >= 5 and len(seen) == 4, seen


@pytest.mark.few(4)
@pytest.mark.parametrize("name", FAULTS)
def test_a_client_that_has_left_is_not_asked_and_no_report_counts_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    said, send = list[tuple[int, int]](), Bus.send_all
    there: list[Availability] = []
    make = Server.__init__

    def init(self: Server, *parts: Any) -> None:
        make(self, *parts)
        there.append(self._availability)

    def sent(self: Bus, messages: Iterable[Outgoing]) -> None:
        messages = list(messages)
        assert not any(there[-1].has_left(envelope.client) for envelope, _ in messages)
        send(self, messages)

    monkeypatch.setattr(Server, "__init__", init)
    monkeypatch.setattr(Bus, "send_all", sent)
    run(availability_scenario(name), tmp_path / "run")
    journal = Journal.open(tmp_path / "run", for_writing=False)
    for each in journal.rounds():
        assert set(each.reported) <= set(each.cohort) and len(set(each.reported)) == len(each.reported)
        said += [(each.round, client) for client in each.reported]
    journal.close()
    rows = read_ledger(tmp_path / "run" / "messages")
    here = (rows["kind"] == Kind.REPORT) & (rows["fate"] == Fate.DELIVERED)
    delivered = Counter(zip(rows["round"][here].tolist(), rows["sender"][here].tolist(), strict=True))
    assert set(said) <= set(delivered) and len(said) == len(set(said))


@pytest.mark.slow
def test_a_client_that_returns_without_state_is_sent_the_whole_log(tmp_path: Path) -> None:
    fault = {"fault": "crash", "clients": [2], "at_round": 14, "for_rounds": 2, "returns": "without-state"}
    everybody = {"clients": 8, "deadline_s": 3.0}
    kept, lost = (
        run(
            availability_scenario("crash", faults=[fault | {"returns": returns}], participation=everybody),
            tmp_path / returns,
        )
        for returns in ("with-state", "without-state")
    )
    assert kept.digest == lost.digest
    rows = [read_ledger(results.folder / "messages") for results in (kept, lost)]
    told = [each["catchup_bytes"][(each["kind"] == Kind.PLAN) & (each["recipient"] == 2)] for each in rows]
    assert told[1].max() > 3 * told[0].max()


def test_a_client_that_comes_from_another_run_is_refused_and_starts_anew(tmp_path: Path) -> None:
    fault = {"fault": "crash", "clients": [2], "at_round": 5, "for_rounds": 2, "returns": "from-another-run"}
    results = run(availability_scenario("crash", faults=[fault]), tmp_path / "run")
    assert results.summary["refusals"]["foreign-version"] == {"2": 1}
    rows = read_ledger(results.folder / "messages")
    kinds = [int(kind) for kind in rows["kind"][np.maximum(rows["sender"], rows["recipient"]) == 2]]
    session = [kind for kind in kinds if kind in (Kind.JOIN, Kind.REFUSE)]
    assert session == [Kind.JOIN, Kind.REFUSE, Kind.JOIN]
    assert set(rows["round"][rows["kind"] == Kind.JOIN].tolist()) <= {0, 7, 8}, "a JOIN says when it was"


def quiet(**changes: Any) -> Scenario:
    """Without lost messages and deadlines: a round that waits for an absent client would never end."""
    participation = {"clients": 8, "cohort": 4} | changes.pop("participation", {})
    return availability_scenario("churn", participation=participation, **changes)


@pytest.mark.few(2)
@pytest.mark.parametrize("name", ["churn", "diurnal", "replacement", "ramp", "nobody at first", "late joiners"])
def test_those_who_say_that_they_leave_are_not_waited_for(tmp_path: Path, name: str) -> None:
    assert quiet(faults=FAULTS[name]) and run(quiet(faults=FAULTS[name]), tmp_path / "run").summary["rounds"] == 25


@pytest.mark.slow
def test_a_night_in_which_nobody_is_there_is_waited_for(tmp_path: Path) -> None:
    night = {"fault": "diurnal", "low": 0.0, "high": 1.0, "period_s": 1000.0}
    results = run(quiet(faults=[night], participation={"quorum": 4}, stop={"rounds": 1000}), tmp_path / "run")
    assert results.summary["rounds"] == results.summary["version"] == 1000
    assert results.summary["simulated_s"] > 1000


def test_rounds_go_on_for_those_who_come_by_rounds_whatever_time_does(tmp_path: Path) -> None:
    faults = [ramp(0, (5, 0), (5, 8)), churn(0.01, 0.01)]
    results = run(quiet(faults=faults, participation={"quorum": 2}), tmp_path / "run")
    assert 15 < results.summary["version"] < 20 and "joins-again" not in results.summary["refusals"]


STUCK: dict[str, tuple[dict[str, Any], str]] = {
    "nobody ever": (
        {"faults": [{"fault": "crash"}], "participation": {"deadline_s": 1.0}},
        "round 0 needs 1 client (participation.quorum), and 0 of 8 are there, and nobody comes or goes any more",
    ),
    "all go for good": (
        {"faults": [ramp(8, (5, 0))]},
        "round 5 needs 1 client (participation.quorum), and 0 of 8 are there, and nobody comes or goes any more",
    ),
    "too few stay": (
        {"faults": [ramp(8, (5, 3))], "participation": {"quorum": 4}},
        "round 5 needs 4 clients (participation.quorum), and 3 of 8 are there, and nobody comes or goes any more",
    ),
    "never enough at a time": (
        {
            "faults": [{"fault": "diurnal", "low": 0.0, "high": 0.5, "period_s": 10.0}],
            "participation": {"quorum": 4, "cohort": 8},
            "seed": 5,
        },
        "(participation.quorum), and at most",
    ),
}


@pytest.mark.few(1)
@pytest.mark.parametrize("name", STUCK)
def test_a_quorum_that_can_never_be_is_given_up_with_a_sentence(tmp_path: Path, name: str) -> None:
    changes, sentence = STUCK[name]
    with pytest.raises(Unfinishable) as caught:
        run(quiet(**changes), tmp_path / "run")
    assert sentence in str(caught.value)
    assert str(caught.value).endswith("lower the quorum, or change the faults that take clients away")


@pytest.mark.slow
def test_a_run_that_nobody_comes_back_to_ends_at_its_limit_of_time(tmp_path: Path) -> None:
    what = quiet(faults=[ramp(8, (5, 0))], stop={"rounds": 25, "simulated_s": 100}, evaluation={"every": 3})
    results = run(what, tmp_path / "run")
    assert (results.summary["rounds"], results.summary["simulated_s"]) == (5, 100)
    assert results.summary["reason"] == "100.0 s have passed, the limit was 100 s"
    assert results.metrics["round"].iloc[-1] == 4, "the last model is evaluated"
    end = ended(what)
    require_equal_ends(ended(what, interrupted=True), end, "resumed", "in one piece")
    require_equal_ends(ended(what, Placement("tcp")), end, "on tcp", "in memory")
    never = quiet(
        faults=[{"fault": "crash"}], participation={"deadline_s": 1.0}, stop={"rounds": 25, "simulated_s": 100}
    )
    with pytest.raises(Unfinishable, match="round 0 needs 1 client"):
        run(never, tmp_path / "never")


def test_an_event_beyond_the_end_of_time_troubles_nobody_who_is_there(tmp_path: Path) -> None:
    (tmp_path / "devices.csv").write_text("client,from_s,to_s\n1,0,1e12\n2,1e11,1e12\n")
    faults = [{"fault": "trace", "file": str(tmp_path / "devices.csv")}]
    assert run(quiet(faults=faults), tmp_path / "run").summary["version"] == 25


def test_a_quorum_that_no_day_brings_together_is_named_at_the_end_of_time(tmp_path: Path) -> None:
    day = {"fault": "diurnal", "low": 0.0, "high": 0.5}
    what = lossy(faults=[day], participation={"clients": 8, "cohort": 8, "quorum": 8, "deadline_s": 1.0})
    with pytest.raises(
        TooFew, match=r"round 0 needs 8 clients \(participation.quorum\), and at most \d of 8 were there"
    ):
        run(what, tmp_path / "run")
