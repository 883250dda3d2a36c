"""Statistics of clients and rounds, against ledgers counted by hand and against whole runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from worlds import go, lossy, scenario

from seedbus.agents.journal.records import StoredRound
from seedbus.agents.round_record import RoundRecord
from seedbus.bus import Fate, Kind
from seedbus.bus.envelope import SERVER
from seedbus.bus.ledger import COLUMNS, Columns, Row
from seedbus.scenarios.reporting.closing_table import groups
from seedbus.scenarios.reporting.round_table import RoundTable
from seedbus.scenarios.reporting.statistics import (
    ArrivedReports,
    clients_table,
    gini,
    histogram,
    spread,
    waited_by_round_ns,
)
from seedbus.scenarios.reporting.statistics import describe as describe_all

S = 10**9


def report(round: int, client: int, arrived_s: float, fate: Fate = Fate.DELIVERED) -> Row:
    arrived_ns = round_ns(arrived_s) if fate is not Fate.DROPPED else -1
    return Row(0, arrived_ns, round, Kind.REPORT, client, SERVER, 6, 14, 0, 8, 0, 3, 0, fate)


def plan(round: int, client: int) -> Row:
    return Row(0, 1, round, Kind.PLAN, SERVER, client, 6, 94, 0, 0, 50, 0, 3, Fate.DELIVERED)


def table_of(columns: Columns, history: RoundTable) -> dict[str, Any]:
    return clients_table(columns, history, ArrivedReports(columns, history))


def describe(columns: Columns, history: RoundTable, simulated_s: float) -> dict[str, Any]:
    return describe_all(history, ArrivedReports(columns, history), table_of(columns, history), simulated_s)


def round_ns(seconds: float) -> int:
    return round(seconds * S)


def columns(rows: list[Row]) -> Columns:
    table = np.array(rows, np.int64).reshape(-1, len(COLUMNS))
    return {name: table[:, number] for number, name in enumerate(COLUMNS)}


def by_hand() -> tuple[Columns, RoundTable]:
    """Return the ledger and rounds of five clients. Client 4 is never asked; no report of client 3 arrives.

    round 0 (0 to 4 s)   asks 0 1 2 3   reports of 0, 1, 2 arrive at 1, 2, 4 s; the last closes the round; commit 1
    round 1 (4 to 14 s)  asks 0 3       no report arrives in time; the deadline closes the round; no commit
    round 2 (14 to 20 s) asks 1 2       report of 1 at 15 s; late report of 0 for round 1 at 16 s (no commit since);
                                        report of 2 is lost; the deadline closes the round; commit 2
    """
    rows = [
        *(plan(0, client) for client in range(4)),
        report(0, 2, 4),
        report(0, 0, 1),
        report(0, 1, 2),
        report(0, 1, 3),  # a duplicate
        report(0, 3, 0, Fate.DROPPED),
        *(plan(1, client) for client in (0, 3)),
        *(plan(2, client) for client in (1, 2)),
        report(2, 1, 15),
        report(1, 0, 16),
        report(2, 2, 0, Fate.DROPPED),
        Row(0, 5, 0, Kind.EVALUATION, -2, SERVER, 6, 500, 0, 0, 0, 0, 0, Fate.DELIVERED),
    ]
    courses = [
        RoundRecord(0, 4 * S, False, [0, 0, 0, 0]),
        RoundRecord(4 * S, 14 * S, True, [0, 1]),
        RoundRecord(14 * S, 20 * S, True, [0, 0], [(1, 0, [0])]),
    ]
    rounds = [
        StoredRound(0, 1, [0, 1, 2, 3], [0, 1, 2], courses[0], ["commit"]),
        StoredRound(1, 1, [0, 3], [], courses[1], None),
        StoredRound(2, 2, [1, 2], [1], courses[2], ["commit"]),
    ]
    return columns(rows), RoundTable.of(rounds, 5)


def test_a_table_of_clients_counted_by_hand() -> None:
    table = {name: column.tolist() for name, column in table_of(*by_hand()).items()}
    assert table["asked"] == [2, 2, 2, 2, 0]
    assert table["answered"] == [2, 2, 1, 0, 0]  # the duplicate does not count as a second answer
    assert table["counted"] == [2, 2, 1, 0, 0] and table["late"] == [1, 0, 0, 0, 0]
    assert table["lag_mean"] == [0, 0, 0, 0.5, -1] and table["lag_max"] == [0, 0, 0, 1, -1]
    assert table["bytes_up"] == [24, 36, 24, 12, 0]  # 6 + 14 − 8 bytes per report, including lost ones and duplicates
    assert table["bytes_down"] == [200, 200, 200, 200, 0]
    assert table["catchup_bytes"] == [100, 100, 100, 100, 0] and table["replayed"] == [4, 4, 4, 4, 0]
    assert table["last_heard_s"][:3] == [16, 15, 4] and np.isnan(table["last_heard_s"][3:]).all()


def test_a_table_of_rounds_counted_by_hand() -> None:
    assert {name: column.tolist() for name, column in by_hand()[1].columns().items()} == {
        "opened_s": [0.0, 4.0, 14.0], "took_s": [4.0, 10.0, 6.0],
        "is_expired": [False, True, True], "has_commit": [True, False, True],
        "asked": [4, 2, 2], "reported": [3, 0, 1], "late": [0, 0, 1], "lag_max": [0, 1, 0],
    }  # fmt: skip


def test_a_summary_counted_by_hand() -> None:
    described = describe(*by_hand(), simulated_s=20.0)
    participation = described["participation"]
    assert (participation["clients"], participation["heard"], participation["heard_share"]) == (5, 3, 0.6)
    assert participation["asked"] == {"min": 0, "mean": 1.6, "median": 2.0, "p95": 2, "max": 2, "total": 8, "none": 1}
    assert participation["counted"] == {"min": 0, "mean": 1.0, "median": 1.0, "p95": 2, "max": 2, "total": 5, "none": 2}
    # The absolute differences of (0, 0, 1, 2, 2) over all ordered pairs sum to 24; Gini = 24 / (2 · 5² · mean).
    assert participation["gini"] == pytest.approx(24 / 50)
    assert described["lag"] == {
        "min": 0, "mean": 0.125, "median": 0.0, "p95": 1, "max": 1, "histogram": {"0": 7, "1": 1},
    }  # fmt: skip
    assert described["staleness"]["late"] == 1 and described["staleness"]["late_share"] == 0.2
    assert described["round_times"] == {
        "min_s": 4.0, "mean_s": pytest.approx(20 / 3), "median_s": 6.0, "p95_s": 10.0, "max_s": 10.0, "total_s": 20.0,
        "at_deadline": 2, "without_commit": 1, "without_commit_s": 10.0,
        # Round 0: from the second of three reports (2 s) to 4 s. Round 2: from its only report (15 s) to 20 s, when the
        # deadline ends the wait for a client that never answers.
        "stragglers_s": 2.0, "stragglers_share": 0.1, "in_vain_s": 5.0, "in_vain_share": 0.25,
    }  # fmt: skip


def test_an_old_report_is_as_stale_as_the_commits_made_since() -> None:
    rounds = [
        StoredRound(0, 1, [0, 1], [0], RoundRecord(0, S, True, [0, 3]), ["commit"]),
        StoredRound(1, 2, [0], [0], RoundRecord(S, 2 * S, False, [0], [(0, 1, [1])]), ["commit"]),
        StoredRound(
            2, 2, [0], [0], RoundRecord(2 * S, 3 * S, False, [0]), None
        ),  # the report is in time, but no commit counts it
    ]
    described = describe(columns([]), RoundTable.of(rounds, 2), 3.0)
    assert described["staleness"] | {"median": 0} == {
        "min": 0, "mean": pytest.approx(1 / 3), "median": 0, "p95": 1, "max": 1, "late": 1, "late_share": 1 / 3,
    }  # fmt: skip
    assert described["participation"]["counted"]["total"] == 3
    assert described["round_times"]["stragglers_s"] == 0.0  # the ledger records no arrival
    at_once = columns([report(0, 0, 0.0)])
    table = table_of(at_once, RoundTable.of(rounds, 2))
    assert table["lag_mean"].tolist() == [0, 3] and table["last_heard_s"][0] == 0 and np.isnan(table["last_heard_s"][1])
    assert describe(at_once, RoundTable.of(rounds, 2), 3.0)["round_times"]["in_vain_s"] == 1.0


def test_a_report_that_answers_no_plan_does_not_count() -> None:
    honest, history = by_hand()
    evaluators = report(1, -2, 6)  # 1 · 5 − 2 is 0 · 5 + 3, and client 3 was asked in round 0
    declined = report(1, 3, 8)._replace(kind=Kind.DECLINE)
    forged = columns([report(0, 4, 2), report(1, 1, 6), report(2**32 - 1, 0, 9), evaluators, declined])
    both = {name: np.concatenate([honest[name], forged[name]]) for name in honest}
    assert table_of(both, history)["answered"].tolist() == [2, 2, 1, 0, 0]
    assert ArrivedReports(both, history).keys.tolist() == ArrivedReports(honest, history).keys.tolist()


def test_a_round_waits_for_reports_until_the_server_asks_clients_to_unmask_their_sum() -> None:
    def ask(round: int, sent_s: float, sender: int = SERVER) -> Row:
        return plan(round, 0)._replace(kind=Kind.ASK, sent_ns=round_ns(sent_s), sender=sender)

    honest, _ = by_hand()
    rounds = [
        StoredRound(0, 1, [0, 4], [0, 4], RoundRecord(0, 4 * S, False, [0, 0]), ["commit"]),
        StoredRound(1, 1, [0, 4], [], RoundRecord(4 * S, 14 * S, True, [0, 0]), None),
        StoredRound(2, 2, [0, 1], [1], RoundRecord(14 * S, 20 * S, True, [0, 0]), ["commit"]),
    ]
    declined, lost = (report(*which)._replace(kind=Kind.DECLINE) for which in ((2, 0, 16), (1, 4, 6, Fate.DROPPED)))
    forged = report(2, -1, 16)._replace(kind=Kind.DECLINE)  # of the evaluator: 2 · 5 − 1 is 1 · 5 + 4
    asked = [ask(0, 0), ask(0, 3), ask(0, 3.5, sender=1), ask(1, 9), ask(3, 21)]  # round 3 is not over
    both = {
        name: np.append(honest[name], column)
        for name, column in columns([report(0, 4, 2), declined, lost, forged, *asked]).items()
    }
    history = RoundTable.of(rounds, 5)
    arrived = ArrivedReports(both, history)
    assert arrived.awaited_until_ns.tolist() == [3 * S, 14 * S, 20 * S]
    assert arrived.waited_in_vain.tolist() == [False, True, False], "one that declines has answered, if that arrives"
    assert waited_by_round_ns(history, arrived).tolist() == [2 * S, 0, 5 * S], "since the first of two reports"


def test_a_report_that_is_not_in_the_ledger_has_no_time_of_arrival() -> None:
    arrived = ArrivedReports(*by_hand())
    others = np.array([arrived.keys.max() + 1, arrived.keys.min() - 1])
    found = arrived.arrival_times(np.append(others, arrived.keys))
    assert found.tolist() == [-1, -1, *arrived.arrived_ns.tolist()]
    assert ArrivedReports(columns([]), by_hand()[1]).arrival_times(others).tolist() == [-1, -1]


def test_a_report_that_the_server_lost_when_it_crashed_does_not_count(tmp_path: Path) -> None:
    crash = {"fault": "server-crash", "at_round": 2, "phase": "gathering", "down_s": 100}
    what = scenario(faults=[crash], network={"latency": 0.1}, compute={"evaluation": 0.01}, stop={"rounds": 4})
    times = go(tmp_path / "run", what).summary["round_times"]
    assert times["stragglers_s"] <= times["total_s"] < 10, "the server was away, and no client was waited for"


def test_nothing_at_all_is_described_with_zeros() -> None:
    described = describe(columns([]), RoundTable.of([], 3), 0.0)
    assert described["participation"]["heard_share"] == 0.0 and described["lag"]["histogram"] == {}
    assert not any(described["round_times"].values()) and not any(described["staleness"].values())


def test_the_buckets_of_a_histogram_double() -> None:
    values = np.array([0, 0, 1, 2, 3, 4, 5, 8, 9, 16, 17, 2**31 + 1], np.int64)
    described = histogram(values)
    first = {"0": 2, "1": 1, "2": 1, "3-4": 2, "5-8": 2, "9-16": 2, "17-32": 1}
    assert dict(list(described.items())[:7]) == first and described[f"{2**31 + 1}-{2**32}"] == 1
    assert sum(described.values()) == values.size


@given(st.lists(st.integers(0, 1000), min_size=1, max_size=60))
def test_every_value_lies_in_its_bucket_and_below_its_p95(values: list[int]) -> None:
    described, column = histogram(np.array(values, np.int64)), np.array(values)
    for name, count in described.items():
        low, _, high = name.partition("-")
        assert count == ((column >= int(low)) & (column <= int(high or low))).sum()
    p95 = spread(column)["p95"]
    assert p95 in values and (column <= p95).mean() >= 0.95 and (column < p95).mean() < 0.95


@given(st.lists(st.integers(0, 50), min_size=1, max_size=30))
def test_gini_is_the_mean_difference_over_twice_the_mean(values: list[int]) -> None:
    column = np.array(values)
    differences = np.abs(column[:, None] - column[None, :]).mean()
    assert gini(column) == pytest.approx(differences / (2 * column.mean()) if column.any() else 0.0)


def test_a_whole_run_agrees_with_its_own_messages(tmp_path: Path) -> None:
    results = go(tmp_path / "run", lossy(stop={"rounds": 40}))
    messages, clients, summary = results.messages, results.clients, results.summary
    plans, reports = messages[messages["kind"] == "PLAN"], messages[messages["kind"] == "REPORT"]
    assert clients["asked"].tolist() == plans.groupby("recipient").size().reindex(range(8), fill_value=0).tolist()
    delivered = reports[reports["fate"] == "DELIVERED"].groupby("sender").size().reindex(range(8), fill_value=0)
    assert clients["answered"].tolist() == delivered.tolist()
    assert (clients["counted"] <= clients["answered"]).all() and (clients["answered"] <= clients["asked"]).all()
    traffic = summary["traffic"]
    assert (clients["bytes_up"].sum(), clients["bytes_down"].sum()) == (
        traffic["up"]["bytes"], traffic["down"]["bytes"],
    )  # fmt: skip
    lags, history = results.history.lags, results.history
    version: Any = np.cumsum(history.has_commit) - history.has_commit
    came = plans[plans["fate"] == "DELIVERED"]
    for lag, round, client in zip(lags, history.asked.round, history.asked.client, strict=True):
        before = came[(came["recipient"] == client) & (came["arrived_ns"] <= history.opened_ns[round])]["round"]
        assert lag == version[round] - max(version[before], default=0)
    # A plan of this family carries its own seed and one seed per commit since the version that the server knows of.
    sent = (plans.sort_values(["round", "recipient"])["seeds"] - 1).to_numpy()
    assert (lags <= sent).all() and (lags < sent).any() and lags.sum() == clients["lag_mean"] @ clients["asked"]
    assert summary["lag"]["max"] == lags.max() > 0
    times = summary["round_times"]
    assert times["total_s"] == pytest.approx(summary["simulated_s"]) and times["max_s"] == 0.5
    assert times["without_commit"] == 40 - summary["version"] and 0 < times["stragglers_share"] < 1
    fates = [each["fates"] for each in traffic["by_kind"].values()]
    assert {name: sum(each[name] for each in fates) for name in fates[0]} == traffic["fates"]


@pytest.mark.slow
@pytest.mark.parametrize("returns", ["with-state", "without-state"])
def test_the_lag_of_clients_that_come_and_go_is_what_they_were_sent_and_had_not(tmp_path: Path, returns: str) -> None:
    stays, away = ({"distribution": "exponential", "mean": mean} for mean in (3, 2))
    churn = {"fault": "churn", "stays": stays, "away": away, "returns": returns}
    participation = {"clients": 8, "cohort": 3, "deadline_s": 2}
    results = go(tmp_path / "run", scenario(faults=[churn], participation=participation, stop={"rounds": 60}))
    messages, history = results.messages, results.history
    plans = messages[messages["kind"] == "PLAN"].sort_values("sent_ns", kind="stable")
    first = plans.drop_duplicates(["round", "recipient"]).sort_values(["round", "recipient"])
    assert history.asked.round.tolist() == first["round"].tolist()
    assert history.asked.client.tolist() == first["recipient"].tolist()
    came, compared = plans[plans["fate"] == "DELIVERED"], 0
    of_lost_state = [0] if returns == "without-state" else []  # one that loses it meanwhile cannot fold them
    rows: list[Any] = list(first.itertuples())
    for lag, plan in zip(history.lags, rows, strict=True):
        others = came[(came["recipient"] == plan.recipient) & came["arrived_ns"].between(plan.sent_ns, plan.arrived_ns)]
        if len(others) == 1:  # the plan itself; of one that did not arrive there are none
            folded = plan.seeds - 1 - plan.repeated
            assert folded in [lag, *of_lost_state]
            compared += folded == lag
    assert compared > 0.8 * len(came) and history.lags.max() > 10


@pytest.mark.parametrize("clock", ["virtual", "wall"])
def test_rounds_follow_each_other_on_every_clock(tmp_path: Path, clock: str) -> None:
    changes: dict[str, Any] = {"network": {}, "stop": {"rounds": 6}, "clock": clock}
    history = go(tmp_path / "run", scenario(**changes)).history
    assert history.opened_ns.size == 6 and (history.opened_ns <= history.closed_ns).all()
    assert (history.closed_ns[:-1] <= history.opened_ns[1:]).all()


@pytest.mark.parametrize("network", [{}, {"latency": {"distribution": "lognormal", "median": 0.1, "sigma": 0.5}}])
def test_reports_that_come_too_late_to_count_are_told_with_their_bytes(tmp_path: Path, network: Any) -> None:
    policy = {"clients": 8, "cohort": 3, "over_selection": 2}
    results = go(tmp_path / "run", scenario(participation=policy, network=network, stop={"rounds": 12}))
    refused, participation = results.summary["refusals"]["late"], results.summary["participation"]
    answered, counted = results.clients["answered"], results.clients["counted"]
    reports = results.summary["traffic"]["by_kind"]["report"]
    assert {str(client): n for client, n in enumerate(answered - counted) if n} == refused
    assert results.clients["late"].sum() == 0, "late are those that count"
    unused, size = sum(refused.values()), (reports["bytes"] - reports["digest_bytes"]) // reports["messages"]
    assert participation["unused"] == {"reports": unused, "bytes": unused * size}
    rows = dict(row for group in groups(results.summary) for row in group)
    assert rows["of that in no commit"].endswith(f"{unused} reports, all of them too late")


def test_each_report_that_arrives_counts_or_is_in_no_commit(tmp_path: Path) -> None:
    network = {"latency": {"distribution": "lognormal", "median": 0.1, "sigma": 1.0}}
    policy = {"clients": 8, "cohort": 4, "quorum": 3, "deadline_s": 0.25, "late": {"max_staleness": 5}}
    results = go(tmp_path / "run", scenario(participation=policy, network=network, stop={"rounds": 40}))
    participation = results.summary["participation"]
    assert results.summary["version"] < 20 and results.clients["late"].sum() > 10
    assert participation["counted"]["total"] + participation["unused"]["reports"] == participation["answered"]["total"]


@pytest.mark.slow
def test_a_run_whose_reports_come_late_says_how_stale_they_are(tmp_path: Path) -> None:
    late = {"clients": 8, "cohort": 6, "deadline_s": 0.3, "late": {"discount": 0.5}}
    results = go(tmp_path / "late", lossy(participation=late, stop={"rounds": 40}))
    staleness = results.summary["staleness"]
    assert staleness["late"] == results.clients["late"].sum() > 0 and staleness["max"] >= 1
    assert results.summary["participation"]["counted"]["total"] == results.clients["counted"].sum()
    in_time = go(tmp_path / "time", scenario()).summary["staleness"]
    assert (in_time["late"], in_time["max"], in_time["late_share"]) == (0, 0, 0.0)


@pytest.mark.slow
def test_a_hundred_thousand_clients_and_two_million_messages_are_described() -> None:
    clients, rounds = 100_000, 20
    draws = np.random.Generator(np.random.Philox(1))
    table = {name: np.zeros(clients * rounds, np.int64) for name in COLUMNS}
    table["round"], table["sender"] = np.divmod(np.arange(clients * rounds), clients)
    table["kind"][:], table["recipient"][:] = Kind.REPORT, SERVER
    table["arrived_ns"] = table["round"] * S + draws.integers(0, S, clients * rounds)
    cohort = list(range(clients))
    lags = [0] * clients
    stored = (
        StoredRound(r, r + 1, cohort, cohort, RoundRecord(r * S, (r + 1) * S, False, lags), [1]) for r in range(rounds)
    )
    described = describe(table, RoundTable.of(stored, clients), float(rounds))
    assert described["participation"]["answered"]["min"] == rounds
    assert described["round_times"]["stragglers_share"] == pytest.approx(0.5, abs=0.01)


def test_messages_of_clients_that_a_run_does_not_have_count_for_nobody() -> None:
    """In a foreign folder there may be such; a table with an entry for each would not fit into memory."""
    found, history = by_hand()
    strange = columns([report(0, 2**40, 1), plan(0, 2**40), *(plan(1, client) for client in (5, 2**62))])
    both = {name: np.concatenate([column, strange[name]]) for name, column in found.items()}
    replayed = [
        clients_table(each, history, ArrivedReports(each, history), lambda client, round, commits: 1.0)
        for each in (found, both)
    ]
    for name, column in replayed[0].items():
        np.testing.assert_array_equal(replayed[1][name], column, name)
