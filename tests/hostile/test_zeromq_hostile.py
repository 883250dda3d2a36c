"""Whatever strangers do, the run ends as if they had not been there, and each refusal is counted under their name."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hostile_cases import CASES, PENDING, STRANGERS
from hostile_peers import Case
from hostile_pending import PendingCase
from hostile_run import HostileRun
from worlds import go, scenario

MOST_GROWTH = 50 * 10**6
# a step of the run is a round or two
WHAT = scenario(task={"name": "quadratic", "dimension": 50}, stop={"rounds": 2 * len(STRANGERS) + 100})
SAME = ("digest", "ledger_hash", "metrics", "rounds", "reason")


def test_there_are_many_cases_and_no_two_have_one_name() -> None:
    names = Counter(case.name for case in CASES)
    assert len(CASES) >= 200 and not [name for name, count in names.items() if count > 1]


@pytest.fixture(scope="module")
def hostile_run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HostileRun]:
    with HostileRun(WHAT, tmp_path_factory.mktemp("among-strangers") / "run") as hostile_run:
        hostile_run.play_patient([case for case in STRANGERS if case.is_patient])
        yield hostile_run


@pytest.fixture(scope="module")
def without_worker(hostile_run: HostileRun) -> HostileRun:
    hostile_run.stop_worker()
    return hostile_run


@pytest.mark.few(37)
@pytest.mark.parametrize("case", STRANGERS, ids=str)
def test_a_stranger_is_refused_and_the_run_goes_on(hostile_run: HostileRun, case: Case) -> None:
    hostile_run.play(case)


@pytest.mark.few(21)
@pytest.mark.parametrize("case", PENDING, ids=str)
def test_a_peer_with_an_offer_is_refused(without_worker: HostileRun, case: PendingCase) -> None:
    without_worker.play_pending(case)


@pytest.mark.slow
def test_the_run_ends_as_if_nobody_had_come(hostile_run: HostileRun, tmp_path: Path) -> None:
    resident, descriptors, threads = hostile_run.before
    hostile_run.start_worker()
    hostile_run.step()
    hostile_run.server.wait_for(lambda: hostile_run.server.descriptors == descriptors, "closes what it opened")
    assert hostile_run.server.threads == threads
    growth = hostile_run.server.resident - resident
    hostile_run.gate.open_to(2**32)
    summary, undisturbed = hostile_run.server.results(), go(tmp_path / "undisturbed", WHAT).summary
    assert {name: summary[name] for name in SAME} == {name: undisturbed[name] for name in SAME}
    refused = {key: count for key, count in hostile_run.refused.items() if key[1] != "said-nothing"}
    assert {(who, reason): summary["refusals"].get(reason, {}).get(who) for who, reason in refused} == refused
    # a peer that was given an earlier one's port may have been refused for silence as well
    silent = {who: count for (who, reason), count in hostile_run.refused.items() if reason == "said-nothing"}
    assert all(summary["refusals"]["said-nothing"].get(who, 0) >= count for who, count in silent.items())
    print(f"refused: {_by_reason(summary)}; {growth / 1e6:.1f} MB more")
    assert growth < MOST_GROWTH
    assert not [name for name in hostile_run.server.threads if name.startswith("ZMQ")]


def _by_reason(summary: dict[str, Any]) -> dict[str, int]:
    return {reason: sum(whose.values()) for reason, whose in summary["refusals"].items()}
