"""Whole runs: the same scenario gives the same bits, whatever happens to its messages."""

from __future__ import annotations

import json
import os
import struct
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from worlds import DECOMFL, HISO, go, lossy, outcome, scenario

from seedbus.agents.client.clients import Host
from seedbus.agents.client.replicas import Replicas
from seedbus.agents.errors import Unfinishable
from seedbus.algorithms.contract import Replica
from seedbus.bus import Envelope, Kind
from seedbus.scenarios.running.replay import replay

COMING_AND_GOING = {"JOIN", "WELCOME", "REFUSE", "BYE", "LINK"}


@pytest.mark.few(1)
@pytest.mark.parametrize("algorithm", [DECOMFL, HISO], ids=lambda algorithm: str(algorithm["name"]))
def test_the_same_scenario_twice_gives_the_same_bits_and_the_same_messages(
    tmp_path: Path, algorithm: dict[str, Any]
) -> None:
    what = lossy(algorithm=algorithm)
    assert outcome(go(tmp_path / "a", what)) == outcome(go(tmp_path / "b", what))


@pytest.mark.slow
def test_a_run_is_evaluated_on_the_samples_that_its_scenario_names(tmp_path: Path) -> None:
    found = {}
    for split in ("train", "validation", "test"):
        evaluation = {"every": 3, "split": split}
        results = go(tmp_path / split, scenario(task={"name": "digits"}, evaluation=evaluation, stop={"rounds": 3}))
        replayed = replay(results.folder)
        found[split] = results.lines[-1]["loss"]
        assert found[split] == replayed.problem.evaluate(replayed.point, split)["loss"]
    assert len(set(found.values())) == 3


def test_another_seed_gives_another_run(tmp_path: Path) -> None:
    one, two = (go(tmp_path / str(seed), scenario(seed=seed)) for seed in (1, 2))
    assert one.digest != two.digest
    assert one.summary["ledger_hash"] != two.summary["ledger_hash"]


@pytest.mark.slow
def test_torch_code_for_another_processor_changes_no_message_and_no_byte(tmp_path: Path) -> None:
    """Digests may differ, as README says beside the quickstart's."""
    summaries = []
    for code in ("default", "avx2"):
        command = [sys.executable, "-m", "seedbus", "run", "quickstart", "--set", "stop.rounds=20", "-q"]
        done = subprocess.run(
            [*command, "--format", "json", "--out", str(tmp_path / code)],
            env={**os.environ, "ATEN_CPU_CAPABILITY": code},
            capture_output=True,
            check=True,
        )
        summaries.append(json.loads(done.stdout))
    default, avx2 = [{key: each[key] for key in ("ledger_hash", "simulated_s", "version", "lag")} for each in summaries]
    assert default == avx2 and summaries[0]["traffic"] == summaries[1]["traffic"]


@pytest.mark.slow
@settings(max_examples=12, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(seed=st.integers(0, 2**63 - 1), loss=st.floats(0, 0.6), hiso=st.booleans())
def test_no_replica_ever_diverges_and_no_message_vanishes_silently(
    tmp_path_factory: pytest.TempPathFactory, seed: int, loss: float, hiso: bool
) -> None:
    what = lossy(loss, seed=seed, algorithm=HISO if hiso else DECOMFL)
    results = go(tmp_path_factory.mktemp("run"), what)
    assert set(results.summary["refusals"]) <= {"late"}
    traffic, messages = results.summary["traffic"], results.messages
    of_rounds = messages[~messages["kind"].isin(COMING_AND_GOING)]
    assert {str(fate).lower(): count for fate, count in of_rounds["fate"].value_counts().items()} == {
        fate: count for fate, count in traffic["fates"].items() if count
    }
    assert sum(kind["messages"] for kind in traffic["by_kind"].values()) == len(of_rounds)
    assert traffic["transport"]["rows"] == len(messages) - len(of_rounds)
    assert traffic["fates"]["refused"] == 0


def test_a_bit_flipped_in_one_replica_is_caught_at_the_next_digest_and_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flipped: list[int] = []
    advance = Replicas.advance

    def meddle(self: Replicas, client: int, commits: Any, version: int) -> Replica:
        replica = advance(self, client, commits, version)
        if client == 5 and version >= 6 and not flipped:
            flipped.append(version)
            replica.x.view("u4")[123] ^= 1
        return replica

    monkeypatch.setattr(Replicas, "advance", meddle)
    seen: list[Any] = []
    results = go(tmp_path / "run", scenario(stop={"rounds": 40}), observer=_Refusals(seen))
    assert set(results.summary["refusals"]) == {"diverged"}
    assert set(results.summary["refusals"]["diverged"]) == {"5"}
    first = f"client 5 holds other bits than the evaluator at version {flipped[0]}: its x differs"
    assert seen[0].detail == first


def test_a_run_goes_on_when_a_client_answers_with_nonsense(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    answer = Host._answer

    def nonsense(self: Host, asked: Any, outcome: Any) -> Envelope:
        envelope, client = answer(self, asked, outcome), asked.client
        if client == 2:
            envelope.body[0] = b"\x00\x00\xc0\x7f" * (len(envelope.body[0]) // 4)  # NaN
        if client == 3:
            envelope.body[0] = envelope.body[0][:-1]
        if client == 4:
            envelope.body.append({"a": 1})
        return envelope

    monkeypatch.setattr(Host, "_answer", nonsense)
    results = go(tmp_path / "run", scenario(participation={"clients": 8, "cohort": 8}))
    refusals = results.summary["refusals"]
    assert refusals == {"not-finite": {"2": 20}, "bad-payload": {"3": 20}, "malformed": {"4": 20}}
    assert results.summary["version"] == 20


def test_a_round_without_quorum_makes_no_commit(tmp_path: Path) -> None:
    participation = {"clients": 8, "cohort": 3, "quorum": 3, "deadline_s": 1.0}
    results = go(tmp_path / "run", lossy(0.2, participation=participation, stop={"rounds": 40}))
    assert 0 < results.summary["version"] < results.summary["rounds"]


@pytest.mark.parametrize("clock", ["virtual", "wall"])
def test_a_run_that_nobody_answers_says_so_instead_of_hanging(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, clock: str
) -> None:
    monkeypatch.setattr(Host, "on_plans", lambda self, envelopes: [[] for _ in envelopes])
    with pytest.raises(Unfinishable, match=r"round 0 waits for 3 clients .* set participation.deadline_s"):
        go(tmp_path / "run", scenario(participation={"clients": 3}, clock=clock))


def test_a_target_ends_the_run_early(tmp_path: Path) -> None:
    stop: dict[str, Any] = {"rounds": 500}
    full = go(tmp_path / "full", scenario(stop={"rounds": 1}, evaluation={"every": 1}))
    value = float(full.metrics["loss"].iloc[0]) * 0.9
    stop["target"] = {"metric": "loss", "value": value, "direction": "below"}
    results = go(tmp_path / "run", scenario(stop=stop, evaluation={"every": 1}))
    assert results.summary["rounds"] < 500
    assert "moving average of loss" in results.summary["reason"]
    stop["target"]["smoothed"] = False
    first = go(tmp_path / "first", scenario(stop=stop, evaluation={"every": 1}))
    assert (first.metrics["loss"] <= value).to_list() == [False] * first.summary["rounds"] + [True]
    assert first.summary["rounds"] < results.summary["rounds"] and first.summary["reason"].startswith("loss reached")


def test_a_budget_of_bytes_ends_the_run_early(tmp_path: Path) -> None:
    results = go(tmp_path / "run", scenario(stop={"rounds": 500, "bytes": 5000}))
    assert results.summary["rounds"] < 100
    assert 5000 <= results.summary["traffic"]["bytes"] < 6000


def test_bytes_in_the_closing_table_are_the_sum_of_the_messages(tmp_path: Path) -> None:
    results = go(tmp_path / "run", lossy())
    messages, traffic = results.messages, results.summary["traffic"]
    for direction, kind in (("up", "REPORT"), ("down", "PLAN")):
        of_kind = messages[messages["kind"] == kind]
        total = of_kind[["header_bytes", "payload_bytes"]].to_numpy().sum()
        assert traffic[direction]["bytes"] == total - of_kind["digest_bytes"].sum()
        assert traffic[direction]["messages"] == len(of_kind)
    assert (messages["header_bytes"] <= 16).all()
    assert (messages["framing_bytes"] == 0).all(), "in memory nothing is framed"


def test_joins_and_goodbyes_are_counted_apart_from_the_messages_of_rounds(tmp_path: Path) -> None:
    results = go(tmp_path / "run", scenario())
    messages, traffic = results.messages, results.summary["traffic"]
    assert set(traffic["by_kind"]) == {"plan", "report", "commit", "evaluation"}
    assert {name: each["messages"] for name, each in traffic["transport"]["sessions"].items()} == {
        "join": 1,
        "welcome": 1,
        "bye": 1,
    }
    for name, each in (traffic["by_kind"] | traffic["transport"]["sessions"]).items():
        of_kind = messages[messages["kind"] == name.upper()]
        assert each["messages"] == len(of_kind)
        assert each["bytes"] == of_kind[["header_bytes", "payload_bytes"]].to_numpy().sum() > 0
    assert (traffic["transport"]["link_bytes"], traffic["transport"]["framing_bytes"]) == (0, 0)


def test_bandwidth_and_compute_cost_simulated_time_and_nothing_else(tmp_path: Path) -> None:
    slow = {"latency": {"distribution": "constant", "value": 0.1}, "up_mbps": 0.001, "down_mbps": 0.001}
    compute = {"evaluation": {"distribution": "constant", "value": 0.5}}
    fast, slowed = go(tmp_path / "a", scenario()), go(tmp_path / "b", scenario(network=slow, compute=compute))
    assert fast.digest == slowed.digest
    assert slowed.summary["simulated_s"] > fast.summary["simulated_s"] + 20 * 4 * 0.5


def test_clients_cost_memory_by_version_and_not_by_head(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    most, advance = [0], Replicas.advance

    def count(self: Replicas, client: int, commits: Any, version: int) -> Replica:
        replica = advance(self, client, commits, version)
        distinct = {id(held) for held in self._by_client.values()}
        assert len(distinct) == len({held.version for held in self._by_client.values()})
        most[0] = max(most[0], len(distinct))
        return replica

    monkeypatch.setattr(Replicas, "advance", count)
    go(tmp_path / "run", scenario(verify=False, participation={"clients": 200, "cohort": 50}, stop={"rounds": 6}))
    assert most[0] <= 7  # versions 0 … 6; only the evaluator holds the last one


def test_a_client_cannot_pass_for_the_evaluator(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    on_plans = Host.on_plans

    def boast(self: Host, envelopes: Sequence[Envelope]) -> list[list[Envelope]]:
        boasts = [Envelope(Kind.EVALUATION, 1, 0, 0, [["loss"], struct.pack("<d", -1e9), []])]
        clients = [envelope.client for envelope in envelopes]
        answers = zip(clients, on_plans(self, envelopes), strict=True)
        return [(boasts if client == 1 else []) + answer for client, answer in answers]

    monkeypatch.setattr(Host, "on_plans", boast)
    stop = {"rounds": 20, "target": {"metric": "loss", "value": -1.0, "direction": "below"}}
    results = go(tmp_path / "run", scenario(stop=stop))
    assert results.summary["rounds"] == 20
    assert set(results.summary["refusals"]) == {"wrong-kind"}


def test_bytes_of_the_last_measurement_are_those_of_the_closing_table(tmp_path: Path) -> None:
    slow = {"clients": 8, "cohort": 3, "deadline_s": 0.2}
    for number, changes in enumerate(({}, {"participation": slow, "verify": False})):
        results = go(tmp_path / str(number), scenario(**changes))
        last = results.metrics.iloc[-1]
        traffic = results.summary["traffic"]
        assert (last["bytes_up"], last["bytes_down"]) == (traffic["up"]["bytes"], traffic["down"]["bytes"])


class _Refusals:
    def __init__(self, seen: list[Any]) -> None:
        self.seen = seen

    def round_closed(self, closed: Any, now_ns: int, bytes_so_far: int) -> None: ...

    def measured(self, line: dict[str, Any]) -> None: ...

    def refused(self, refusal: Any) -> None:
        self.seen.append(refusal)

    def noted(self, event: str, **facts: Any) -> None: ...


@pytest.mark.parametrize("algorithm", [DECOMFL, {"name": "fedavg"}], ids=["decomfl", "fedavg"])
def test_an_evaluation_has_the_bytes_of_the_rounds_until_then(algorithm: dict[str, Any], tmp_path: Path) -> None:
    results = go(tmp_path / "run", scenario(algorithm=algorithm, evaluation={"every": 3}, stop={"rounds": 10}))
    messages = results.messages
    sizes = messages["header_bytes"] + messages["payload_bytes"] - messages["digest_bytes"]
    for line, rounds in zip(results.metrics.itertuples(), [0, 3, 6, 9, 10], strict=True):
        until = messages["round"] < rounds
        assert line.bytes_up == sizes[until & messages["kind"].isin(["REPORT"])].sum()
        assert line.bytes_down == sizes[until & messages["kind"].isin(["PLAN"])].sum()
