"""Whole runs with late reports and asynchronous rounds: equal bits, no report counted twice, and always an end."""

from __future__ import annotations

from collections import Counter
from contextlib import closing
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from power_cuts import PowerCut
from run_worlds import POLICIES, STRAGGLERS, with_policy
from worlds import go, outcome

from seedbus.agents.journal.journal import Journal
from seedbus.agents.launcher import history
from seedbus.agents.server.arrivals import Arrivals
from seedbus.agents.server.rounds import Rounds
from seedbus.agents.server.server import Server
from seedbus.algorithms.scalar_only.payloads import ScalarCommit
from seedbus.bus import SERVER, Bus
from seedbus.scenarios.reporting.results import Results
from seedbus.scenarios.running.replay import replay
from seedbus.scenarios.running.run import run
from seedbus.scenarios.schema.scenario import Scenario

each_policy = pytest.mark.parametrize("policy", POLICIES)


@pytest.fixture(scope="module")
def in_memory(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Results]:
    folder = tmp_path_factory.mktemp("memory")
    return {name: run(with_policy(name), folder / name) for name in POLICIES}


def log_of(results: Results) -> list[ScalarCommit]:
    with closing(Journal.open(results.folder, for_writing=False)) as journal:
        return list(history(with_policy("late").algorithm, journal))


@each_policy
def test_late_reports_count_in_such_a_run_and_no_replica_diverges(in_memory: dict[str, Results], policy: str) -> None:
    """Otherwise the rest of this file would prove nothing."""
    results, log = in_memory[policy], log_of(in_memory[policy])
    late = [(commit, term) for commit in log for term in commit.terms if term.round != commit.round]
    shapes = {(term.scalars.shape == commit.terms[0].scalars.shape) for commit, term in late if commit.terms[0].weight}
    assert len(late) > 5 and shapes == {True, False}
    assert set(results.summary["refusals"]) <= {"late"}
    assert results.summary["traffic"]["catchup_bytes"] > 0
    if "buffer" in policy:
        assert any(commit.terms[0].weight < 1 for commit in log)
    if policy == "scarce":
        assert (results.rounds["asked"] < 8).sum() > 5, "in some rounds clients are at work"


@pytest.mark.few(2)
@each_policy
def test_verification_changes_no_bit_of_a_run_with_late_reports(
    tmp_path: Path, in_memory: dict[str, Results], policy: str
) -> None:
    assert go(tmp_path / "run", with_policy(policy, verify=False)).digest == in_memory[policy].digest


@each_policy
def test_replay_rebuilds_the_model_of_any_round_from_the_journal(in_memory: dict[str, Results], policy: str) -> None:
    results = in_memory[policy]
    assert replay(results.folder).digest == results.digest
    log = log_of(results)
    for round in (1, 11, 16, 29):
        rebuilt = replay(results.folder, round).replica
        assert rebuilt.version == sum(commit.round < round for commit in log)


# cut off and resumed


@pytest.mark.slow
@pytest.mark.parametrize("at", [1, 2, 3])
def test_a_run_cut_off_while_it_waits_for_clients_at_work_ends_alike(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, in_memory: dict[str, Results], at: int
) -> None:
    what, read, wait, waits = with_policy("scarce"), Server._read, Arrivals.wait, list[int | None]()

    async def noted(self: Arrivals, latest_ns: int | None, is_done: Any) -> None:
        waits.append(latest_ns)
        await wait(self, latest_ns, is_done)

    def watched(self: Server, letter: Any) -> None:
        if len(waits) >= at and self.coordinator.rounds.current is None:
            raise PowerCut
        read(self, letter)

    monkeypatch.setattr("seedbus.agents.launcher._ServerRun.tidy", lambda self: None)
    with monkeypatch.context() as patch, pytest.raises(PowerCut):
        patch.setattr(Arrivals, "wait", noted)
        patch.setattr(Server, "_read", watched)
        run(what, tmp_path / "cut")
    assert outcome(run(what, tmp_path / "cut", resume=True)) == outcome(in_memory["scarce"])


@pytest.mark.slow
def test_a_process_that_joins_while_the_server_waits_for_clients_at_work_changes_no_bits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, in_memory: dict[str, Results]
) -> None:
    send = Bus._send_answer

    def joined(self: Bus, answer: Any) -> None:
        send(self, answer)
        self._mailboxes[SERVER].put(None)  # as the server is told of it, at any moment of real time

    with monkeypatch.context() as patch:
        patch.setattr(Bus, "_send_answer", joined)
        assert outcome(run(with_policy("scarce"), tmp_path / "joined")) == outcome(in_memory["scarce"])


# the ledger, and an end whatever happens


faults = st.lists(
    st.one_of(
        st.builds(lambda p: {"fault": "drop", "probability": p}, st.sampled_from([0.1, 0.35, 0.7, 1.0])),
        st.builds(
            lambda p, up: {
                "fault": "delay",
                "probability": p,
                "direction": up,
                "by": {"distribution": "pareto", "minimum": 0.5, "shape": 0.6},
            },
            st.sampled_from([0.3, 1.0]),
            st.sampled_from(["up", "down", "both"]),
        ),
        st.just({"fault": "drop", "clients": [0, 1, 2, 3, 4, 5, 6]}),
    ),
    max_size=2,
)


@pytest.mark.slow
@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(seed=st.integers(0, 2**63 - 1), policy=st.sampled_from(sorted(POLICIES)), faults=faults)
def test_a_run_ends_and_its_ledger_balances_whatever_the_faults(
    tmp_path_factory: pytest.TempPathFactory, seed: int, policy: str, faults: Any
) -> None:
    results = go(tmp_path_factory.mktemp("run"), with_policy(policy, seed=seed, faults=faults, stop={"rounds": 25}))
    balances(results, with_policy(policy))
    assert results.summary["rounds"] == 25


def balances(results: Results, what: Scenario) -> None:
    """Check that each report that arrived was counted or refused, and that each term of a commit has its report.

    Rounds that are not asynchronous ask no client that is computing.
    """
    assert set(results.summary["refusals"]) <= {"late"}
    messages = results.messages
    reports = messages[messages["kind"] == "REPORT"]
    assert not reports.duplicated(["sender", "round"]).any()
    plans = messages[messages["kind"] == "PLAN"].groupby("round").size()
    assert (plans <= what.participation.asked).all()
    arrived = Counter(reports[reports["fate"] == "DELIVERED"]["round"].tolist())
    most = what.participation.staleness
    for commit in log_of(results):
        for term in commit.terms:
            if term.weight:
                assert arrived[term.round] > 0 and 0 <= commit.round - term.round <= most
    if not what.participation.is_asynchronous:
        done_ns = reports.set_index(["sender", "round"])["sent_ns"].to_dict()
        plans_of_clients = messages[messages["kind"] == "PLAN"].groupby(["recipient", "round"], as_index=False)
        asked: list[Any] = list(plans_of_clients["sent_ns"].min().itertuples())
        for before, now in pairwise(asked):
            if before.recipient == now.recipient and now.round - before.round <= most:
                assert done_ns.get((before.recipient, before.round), 0) <= now.sent_ns


@pytest.mark.slow
@pytest.mark.parametrize("policy", ["buffer", "buffer of two"])
def test_asynchronous_rounds_go_on_though_a_third_of_all_messages_is_lost(tmp_path: Path, policy: str) -> None:
    lossy = [{"fault": "drop", "probability": 0.35}, STRAGGLERS[1]]
    results = go(tmp_path / "run", with_policy(policy, faults=lossy, stop={"rounds": 60}))
    balances(results, with_policy(policy))
    assert results.summary["version"] > 20
    fates = results.summary["traffic"]["fates"]
    assert fates["dropped"] > 0.3 * sum(fates.values()) - 20


@pytest.mark.slow
@pytest.mark.parametrize("policy", ["buffer", "buffer of two"])
def test_no_more_than_the_cohort_is_at_work_at_any_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, policy: str
) -> None:
    """A client is at work from when its plan is sent until its report arrives, and is not asked again meanwhile."""
    what = with_policy(policy, faults=[], participation={"clients": 10, **POLICIES[policy], "deadline_s": None})
    what = what.model_copy(update={"stop": what.stop.model_copy(update={"rounds": 80})})
    asked: list[int] = []
    opened = Rounds.open

    def watch(self: Rounds, *arguments: Any) -> Any:
        attempt = opened(self, *arguments)
        asked.append(len(attempt.cohort) + len(self._overdue.busy(-1)))
        assert not self._overdue.busy(-1) & set(attempt.cohort)
        return attempt

    monkeypatch.setattr(Rounds, "open", watch)
    results = go(tmp_path / "run", what)
    assert results.summary["version"] == 80 and set(asked) == {POLICIES[policy]["cohort"]}
