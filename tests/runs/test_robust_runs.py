"""Whole runs with robust rules, scalars of 16 bits and clients that decline: reproducible bits, in fewer bytes."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from coordinator_cases import after_rounds, report
from power_cuts import PowerCut, cut_power
from run_worlds import robust
from worlds import DECOMFL, HISO, go, lossy, scenario

import seedbus
from seedbus.agents import messages
from seedbus.agents.journal.journal import Journal
from seedbus.agents.server.coordinator import Coordinator, CoordinatorState
from seedbus.algorithms.contract import Declined
from seedbus.algorithms.scalar_only.precision import FORMATS
from seedbus.bus import Envelope, Kind
from seedbus.scenarios.running.replay import replay
from seedbus.scenarios.running.run import run
from seedbus.scenarios.schema.loading import load

RULES: list[Any] = ["median", {"rule": "trimmed-mean", "f": 1}, {"rule": "krum", "multi": 2}, "clipped"]
WIDTHS = {"float32": 4, "float16": 2, "bfloat16": 2}


# rules


@pytest.mark.few(1)
@pytest.mark.parametrize("base", [DECOMFL, HISO], ids=lambda base: str(base["name"]))
@pytest.mark.parametrize("rule", RULES, ids=str)
def test_replicas_agree_and_replay_finds_the_model_whatever_the_rule(
    tmp_path: Path, base: dict[str, Any], rule: Any
) -> None:
    what = lossy(
        algorithm={**base, "aggregation": rule},
        participation={"clients": 8, "cohort": 6, "quorum": 3, "deadline_s": 0.5},
    )
    results = go(tmp_path / "run", what)
    assert set(results.summary["refusals"]) <= {"late"}, "verified, bit for bit"
    assert replay(tmp_path / "run").digest == results.digest
    assert results.digest != go(tmp_path / "mean", what.model_copy(update={"algorithm": _mean(what)})).digest


def _mean(what: Any) -> Any:
    return what.algorithm.model_copy(update={"aggregation": type(what.algorithm)().aggregation})


# the server's state


@pytest.mark.slow
def test_a_server_that_forgot_would_show(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise the test before this one would prove nothing."""
    whole = run(robust(), tmp_path / "whole")
    restore = Coordinator.restore

    def forgetful(self: Coordinator, state: CoordinatorState, *rest: Any) -> None:
        restore(self, state._replace(rounds=state.rounds._replace(algorithm=None)), *rest)

    with monkeypatch.context() as patch:
        cut_power(patch, Journal, "append", 9, before=False)
        patch.setattr("seedbus.agents.launcher._ServerRun.tidy", lambda self: None)
        with pytest.raises(PowerCut):
            run(robust(), tmp_path / "cut")
    monkeypatch.setattr(Coordinator, "restore", forgetful)
    assert run(robust(), tmp_path / "cut", resume=True).digest != whole.digest


# precision


@pytest.mark.slow
@pytest.mark.parametrize("base", [DECOMFL, HISO], ids=lambda base: str(base["name"]))
def test_a_scalar_costs_its_width_on_the_way_up_and_in_every_catch_up(tmp_path: Path, base: dict[str, Any]) -> None:
    runs = {
        precision: go(tmp_path / precision, lossy(algorithm={**base, "precision": precision})) for precision in WIDTHS
    }
    traffic = {precision: results.summary["traffic"] for precision, results in runs.items()}
    assert len({results.digest for results in runs.values()}) == 3
    for precision, results in runs.items():
        assert set(results.summary["refusals"]) <= {"late"}
        assert replay(tmp_path / precision).digest == results.digest
        for direction in ("up", "down"):
            ours, theirs = traffic[precision][direction], traffic["float32"][direction]
            assert ours["scalars"] == theirs["scalars"] > 0
            # not quite: msgpack has a shorter header for columns below 256 bytes
            saved = theirs["bytes"] - ours["bytes"] - (4 - WIDTHS[precision]) * ours["scalars"]
            assert 0 <= saved <= ours["messages"]


@pytest.mark.few(1)
@pytest.mark.parametrize("precision", ["float16", "bfloat16"])
def test_commits_in_the_journal_hold_what_travelled(tmp_path: Path, precision: Any) -> None:
    what = robust(precision=precision)
    go(tmp_path / "run", what)
    journal = Journal.open(tmp_path / "run", for_writing=False)
    commits = [c for each in journal.rounds() if each.commit for c in what.algorithm.unpack_commits(each.commit)]
    journal.close()
    form, scalars = FORMATS[what.algorithm.precision], [term.scalars for commit in commits for term in commit.terms]
    assert len(scalars) > 10
    assert all(form.widen(form.narrow(each)).tobytes() == each.tobytes() for each in scalars)


# clients that decline

DIVERGING = {**DECOMFL, "learning_rate": 0.3, "precision": "float16"}
OF_THREE = {"clients": 8, "cohort": 3, "quorum": 3}


def test_a_scalar_beyond_the_format_is_not_sent_and_the_round_goes_on_without(tmp_path: Path) -> None:
    """There is no deadline: a server that waited for clients that decline would wait for ever."""
    results = go(tmp_path / "run", scenario(algorithm=DIVERGING, participation=OF_THREE, stop={"rounds": 20}))
    declines = results.messages[results.messages["kind"] == "DECLINE"]
    counted = Counter(str(client) for client in declines["sender"])
    assert results.summary["refusals"] == {"overflow": dict(counted)} and len(declines) > 3
    assert results.summary["rounds"] == 20 > results.summary["version"] > 10
    assert np.isfinite(replay(tmp_path / "run").replica.x).all()
    traffic = results.summary["traffic"]
    assert traffic["by_kind"]["decline"]["messages"] == len(declines)
    assert traffic["up"]["messages"] == 60 == traffic["participations"] + len(declines)
    assert declines[["header_bytes", "payload_bytes"]].sum(axis=1).max() < 100
    assert results.metrics["bytes_up"].iloc[-1] == traffic["up"]["bytes"]


def test_the_same_run_overflows_nowhere_with_the_range_of_float32(tmp_path: Path) -> None:
    for precision in ("float32", "bfloat16"):
        what = scenario(algorithm={**DIVERGING, "precision": precision}, participation=OF_THREE, stop={"rounds": 20})
        assert go(tmp_path / precision, what).summary["refusals"] == {}


def declined(client: int, round: int, base: int, reason: str = "overflow") -> Envelope:
    return Envelope(Kind.DECLINE, client, round, base, [reason, "too large"])


def test_a_client_that_declines_is_counted_and_no_longer_waited_for() -> None:
    coordinator = after_rounds(2)
    refusal = coordinator.reported(declined(1, 2, 2))
    assert refusal is not None and (refusal.client, refusal.round, refusal.reason) == (1, 2, "overflow")
    assert (coordinator.missing, coordinator.refusals.clients) == ([0, 2], {(1, "overflow"): 1})
    for client in (0, 2):
        assert coordinator.reported(report(coordinator, client)) is None
    assert coordinator.rounds.is_over and coordinator.close_round().reported == (0, 2)


@pytest.mark.parametrize(
    ("envelope", "reason", "missing"),
    [
        (declined(99, 2, 2), "not-a-member", [0, 1, 2]),
        (declined(1, 1, 1), "late", [0, 1, 2]),
        (declined(1, 3, 2), "wrong-round", [0, 1, 2]),
        (declined(1, 2, 3), "wrong-version", [0, 2]),
        (declined(1, 2, 2, "because"), "bad-payload", [0, 2]),
        (Envelope(Kind.DECLINE, 1, 2, 2, []), "bad-payload", [0, 2]),
        (Envelope(Kind.DECLINE, 1, 2, 2, ["overflow", "a" * 201]), "bad-payload", [0, 2]),
    ],
)
def test_a_decline_that_is_none_is_refused(envelope: Envelope, reason: str, missing: list[int]) -> None:
    coordinator = after_rounds(2)
    refusal = coordinator.reported(envelope)
    assert refusal is not None and refusal.reason == reason
    assert coordinator.missing == missing


def test_nobody_answers_twice() -> None:
    coordinator = after_rounds(2)
    reasons = [coordinator.reported(each) for each in (declined(1, 2, 2), declined(1, 2, 2), report(coordinator, 1))]
    assert [refusal.reason for refusal in reasons if refusal] == ["overflow", "duplicate", "duplicate"]
    assert coordinator.reported(report(coordinator, 0)) is None
    again = coordinator.reported(declined(0, 2, 2))
    assert again is not None and again.reason == "duplicate"
    assert coordinator.reported(report(coordinator, 2)) is None
    assert coordinator.close_round().reported == (0, 2)


def test_a_decline_says_why_in_few_words() -> None:
    plan = DECOMFL_PLAN
    envelope = messages.decline(3, plan, Declined("overflow", "x" * 9000))
    assert messages.unpack_decline(envelope) == ("overflow", "x" * 200)
    assert (envelope.client, envelope.round, envelope.base) == (3, plan.round, plan.version)


DECOMFL_PLAN = scenario().algorithm.plan(4, 2, 9)


# the effect on accuracy


FOOLED = [
    {"fault": "byzantine", "attack": "scale", "by": -10.0, "fraction": 0.2},
    {"fault": "byzantine", "attack": "huge", "fraction": 0.1},
]
"""A fifth of the clients flip the sign of their scalars and enlarge them; a tenth send 1e30."""


def accuracy(folder: Path, faults: list[dict[str, Any]], **changes: str) -> tuple[float, dict[str, Any]]:
    settings = [
        "participation={clients: 50, cohort: 20, quorum: 11}",
        "network={latency: {distribution: constant}}",
        *(f"algorithm.{field}={value}" for field, value in changes.items()),
        "verify=false",
        "evaluation.every=100",
        "stop.rounds=200",
    ]
    what = load("quickstart", [*settings, "faults=[]"])
    document = what.resolved() | {"faults": faults}
    results = seedbus.run(scenario(**document), folder)
    return float(results.metrics["accuracy"].iloc[-1]), results.summary["refusals"]


@pytest.mark.slow
def test_a_fifth_of_the_clients_ruins_the_mean_and_no_robust_rule(tmp_path: Path) -> None:
    """Accuracy on 297 test images after 200 rounds, from 9 % at the start."""
    honest, _ = accuracy(tmp_path / "honest", [])
    fooled, refusals = accuracy(tmp_path / "mean", FOOLED)
    assert honest > 0.85
    assert fooled < 0.3
    assert set(refusals) == {"absurd"} and len(refusals["absurd"]) == 5, "1e30 is refused, by whom it came from"
    for rule in ("median", "trimmed-mean", "{rule: krum, f: 4, multi: 6}", "clipped"):
        found, refusals = accuracy(tmp_path / rule[:12], FOOLED, aggregation=rule)
        assert found > honest - 0.15, rule
        assert set(refusals) == {"absurd"}


@pytest.mark.soak
def test_sixteen_bits_learn_as_well_as_thirty_two(tmp_path: Path) -> None:
    found = [accuracy(tmp_path / each, [], precision=each)[0] for each in WIDTHS]
    assert min(found) > 0.85 and max(found) - min(found) < 0.04
