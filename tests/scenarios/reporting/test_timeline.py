"""The picture of which clients took part: what a client did, cell by cell, for any number of clients and rounds."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest
from pages import own, plots, text_of, traces
from worlds import go, lossy, scenario

from seedbus.scenarios.reporting.looks import Marks
from seedbus.scenarios.reporting.results import Results
from seedbus.scenarios.reporting.round_table import Pairs
from seedbus.scenarios.reporting.timeline import FATES, absences, fates, timeline


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Results:
    return go(tmp_path_factory.mktemp("timeline") / "run", lossy(stop={"rounds": 30}))


def test_who_took_part_is_drawn_cell_by_cell_and_stays_small_with_many_clients(results: Results) -> None:
    history, arrived = results.history, results.arrived
    what = fates(history, arrived, np.zeros(history.asked.client.size, bool))
    asked, reported = (
        set(zip(each.round.tolist(), each.client.tolist(), strict=True)) for each in (history.asked, history.reported)
    )
    assert np.bincount(what, minlength=4)[3] == len(asked & reported) and 0 < len(reported) < len(asked)
    drawn = traces(plots(timeline(history, what, Marks()))["Which clients took part"])
    cells = {
        (round, client, name.split(" ")[0])
        for name, each in drawn.items()
        for client, row in enumerate(each["z"])
        for round, is_so in enumerate(row)
        if is_so
    }
    found = zip(history.asked.round.tolist(), history.asked.client.tolist(), what.tolist(), strict=True)
    assert cells == {(round, client, FATES[fate].split(" ")[0]) for round, client, fate in found}
    many = 10_000
    pairs = Pairs(np.repeat(np.arange(500), many // 10), np.random.default_rng(1).integers(0, many, 50 * many))
    large = dataclasses.replace(
        history,
        clients=many,
        opened_ns=np.arange(500),
        asked=pairs,
        reported=Pairs(pairs.round[::2], pairs.client[::2]),
    )
    what = fates(large, arrived, np.zeros(pairs.client.size, bool))
    assert len(timeline(large, what, Marks(np.arange(500) + 0.5))) < 700_000


def test_a_client_that_was_away_when_it_was_asked_is_absent_and_not_dropped(tmp_path: Path) -> None:
    away = {"fault": "crash", "clients": [1, 2], "at_round": 5, "for_rounds": 10}
    what = lossy(stop={"rounds": 30}, faults=[away], participation={"clients": 8, "cohort": 6, "deadline_s": 5.0})
    results = go(tmp_path / "run", what)
    history = results.history
    rounds, clients = history.asked.round, history.asked.client
    is_absent = absences(what, history)
    assert is_absent.any()
    assert (is_absent == (np.isin(clients, [1, 2]) & (rounds >= 5) & (rounds < 15))).all()
    found = fates(history, results.arrived, is_absent)
    assert (found[is_absent] == FATES.index("absent")).all()
    assert f"absent {int(is_absent.sum())}" in own(text_of(results))
    assert not absences(lossy(), history).any()


def test_who_was_away_is_asked_of_the_clients_of_a_round_and_not_of_all_that_were_away(
    monkeypatch: pytest.MonkeyPatch, results: Results
) -> None:
    """Of hundreds of thousands that are away, a walk through all in each round took longer than the run."""

    class Away:
        def __contains__(self, client: int) -> bool:
            return client == 1

    class Schedules:
        away = Away()
        is_changing = True

        def __init__(self, *arguments: object) -> None: ...

        def advance(self, round: int, opened_ns: int) -> None: ...

    monkeypatch.setattr("seedbus.scenarios.reporting.timeline.Availability", Schedules)
    what = lossy(faults=[{"fault": "crash", "clients": [1], "at_round": 5, "for_rounds": 10}])
    assert (absences(what, results.history) == (results.history.asked.client == 1)).all()


def test_a_client_whose_report_is_refused_is_not_said_to_have_come_too_late(tmp_path: Path) -> None:
    lies = {"fault": "byzantine", "clients": [3], "attack": "nan"}
    everybody = {"clients": 8, "cohort": 8, "deadline_s": 2.0}
    results = go(tmp_path / "run", scenario(participation=everybody, faults=[lies], stop={"rounds": 5}))
    drawn = traces(plots(text_of(results))["Which clients took part"])
    assert results.summary["refusals"] == {"not-finite": {"3": 5}} and list(drawn) == [
        "took part 35",
        "late or refused 5",
    ]
