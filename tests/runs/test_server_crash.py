"""A server that crashes when a scenario says so: durable rounds stay, and the open round is repeated."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from run_worlds import CRASH_PHASES, crashing
from worlds import HISO, scenario

from seedbus.bus import Fate, Kind, read_ledger
from seedbus.scenarios.errors import ScenarioError
from seedbus.scenarios.faults.server_crash import ServerCrash
from seedbus.scenarios.running.run import run


def test_a_crash_is_in_its_round_and_then_in_every_so_many_and_lasts_as_long_as_it_says() -> None:
    fields: dict[str, Any] = {"at_round": 4, "phase": "committing", "down_s": 2.5}
    once, again = ServerCrash(**fields), ServerCrash(**fields, every_rounds=2)
    assert [round for round in range(10) if once.outage_ns(round, "committing") is not None] == [4]
    assert [round for round in range(10) if again.outage_ns(round, "committing") is not None] == [4, 6, 8]
    assert once.outage_ns(4, "committing") == 2_500_000_000 and once.outage_ns(4, "asking") is None


@pytest.mark.few(1)
@pytest.mark.parametrize("phase", CRASH_PHASES)
@pytest.mark.parametrize("algorithm", [{}, {"algorithm": HISO}], ids=["decomfl", "hiso"])
def test_a_server_that_comes_back_ends_at_the_same_model_later(
    tmp_path: Path, phase: str, algorithm: dict[str, Any]
) -> None:
    calm = run(scenario(**algorithm), tmp_path / "calm").summary
    rough = run(crashing(phase, **algorithm), tmp_path / "rough").summary
    assert (rough["digest"], rough["version"], rough["refusals"]) == (calm["digest"], calm["version"], {})
    assert rough["simulated_s"] > calm["simulated_s"] + 4 * 2.5, "four outages"
    again = rough["traffic"]["by_kind"]["plan"]["messages"] - calm["traffic"]["by_kind"]["plan"]["messages"]
    assert again == (0 if phase == "publishing" else 5 * 3), "five rounds are begun again"


@pytest.mark.few(3)
@pytest.mark.parametrize("phase", CRASH_PHASES)
def test_what_arrives_while_the_server_is_away_is_lost_and_counted(tmp_path: Path, phase: str) -> None:
    dropped = run(crashing(phase), tmp_path / "rough").summary["traffic"]["fates"]["dropped"]
    assert (dropped > 0) == (phase in ("asking", "gathering"))


@pytest.mark.parametrize("phase", CRASH_PHASES)
def test_two_outages_of_one_moment_follow_each_other(tmp_path: Path, phase: str) -> None:
    one = {"fault": "server-crash", "at_round": 3, "phase": phase, "down_s": 2.0}
    summary = run(scenario(faults=[one, one | {"down_s": 3.0}]), tmp_path / "run").summary
    assert [fault["crashed"] for fault in summary["faults"]] == [1, 1]
    again = 0 if phase == "publishing" else 2
    assert summary["traffic"]["by_kind"]["plan"]["messages"] == (20 + again) * 3


@pytest.mark.parametrize("policy", [{"mode": "stream"}, {"buffer": 2, "late": {}}], ids=["stream", "buffer"])
def test_clients_whose_late_reports_an_outage_loses_are_asked_again(tmp_path: Path, policy: dict[str, Any]) -> None:
    integer = {"name": "decomfl", "arithmetic": "integer"}
    asked = {"clients": 4, "cohort": 4} | policy
    with pytest.raises(ScenarioError, match=r"would count as at work for ever; set participation.deadline_s"):
        crashing("gathering", algorithm=integer, participation=asked)
    what = crashing("gathering", algorithm=integer, participation=asked | {"deadline_s": 2.0}, stop={"rounds": 40})
    run(what, tmp_path / "run")
    ledger = read_ledger(tmp_path / "run" / "messages")
    is_late = (ledger["kind"] == Kind.REPORT) & (ledger["fate"] == Fate.DELIVERED) & (ledger["round"] > 30)
    assert set(ledger["sender"][is_late]) == {0, 1, 2, 3}
