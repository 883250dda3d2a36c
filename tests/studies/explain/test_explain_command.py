"""`seedbus explain`: a scenario in plain words, and its cost."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from commands import Command
from owners import own_scenario
from worlds import lossy, scenario

from seedbus.scenarios.errors import Exit
from seedbus.scenarios.reporting.words import plain
from seedbus.scenarios.schema.loading import library, load
from seedbus.scenarios.schema.yaml_text import dump
from seedbus.studies.explain.explain import explain, show
from seedbus.studies.explain.words import words

pytestmark = pytest.mark.slow

FAULTS = [
    {"fault": "drop", "probability": 0.3},
    {"fault": "straggler", "clients": [1, 5], "pause_s": 2, "at_round": 3, "for_rounds": 2, "every_rounds": 10},
    {"fault": "server-crash", "at_round": 7},
    {"fault": "byzantine", "attack": "noise", "sigma": 2},
]


def said(seedbus: Command, *arguments: Any) -> Any:
    result = seedbus("explain", *arguments, "--format", "json")
    assert (result.code, result.err) == (Exit.OK, ""), result.err
    return json.loads(result.out)


def test_it_says_whom_each_fault_strikes_and_when_and_what_it_did(seedbus: Command) -> None:
    Path("faults.yaml").write_text(dump(lossy(faults=FAULTS).resolved()))
    explained = said(seedbus, "faults.yaml")
    drop, straggler, crash, lie = explained["words"]["faults"]
    assert drop.startswith("drop: lose the selected messages; all clients; with probability 0.3 for each message")
    assert "; 2 of 8 clients (1, 5); from round 3 for 2 rounds, again every 10; " in straggler
    assert straggler.endswith("drawn every_round, pause_s 2") and "at_round 7" in crash
    assert lie.endswith("; attack noise, sigma 2")  # and no fields of other attacks
    lost = {"dropped": 2}  # messages that came while the server was away
    assert explained["faults"][2] == {"fault": "server-crash", "crashed": 1} | lost
    assert explained["faults"][0]["dropped"]
    table = seedbus("explain", "faults.yaml").out
    assert re.search(r"→ \d+ dropped", re.sub(r"\s*│\n│\s*│ ", " ", table)) and "1 crashed" in table


def test_the_bytes_are_those_that_the_run_then_sends(seedbus: Command) -> None:
    traffic = said(seedbus, "small.yaml", "--set", "stop.rounds=12")["traffic"]
    run = json.loads(seedbus("run", "small.yaml", "--set", "stop.rounds=12", "--format", "json", "-q").out)
    assert traffic["is_exact"] and traffic["up"] == run["traffic"]["up"]["bytes"]
    assert traffic["down"] == run["traffic"]["down"]["bytes"] and traffic["simulated_s"] == run["simulated_s"]
    short = re.sub(r"\s*│\n│\s*│ ", " ", seedbus("explain", "small.yaml", "--set", "stop.rounds=1").out)
    assert "from 1 round that was tried out" in short


def test_what_a_limit_of_real_time_saves_is_known_only_of_one_process() -> None:
    real = explain(scenario(stop={"rounds": 9, "simulated_s": 3600}, clock="wall"), 0.01)["assumes"]
    assert "the limit of real time is not reached earlier, which would cost less" in real
    long = scenario(stop={"rounds": 10**6, "simulated_s": 1}, clock="wall", network={"latency": 0})
    explained = explain(long, 0.01)
    takes_s = explained["time"]["total"] - explained["time"]["start"]
    rounds = round(10**6 / takes_s)
    sentence = f"would cost less: in one process on this machine it is, after at most about {rounds:,} rounds"
    assert 1 < rounds < 10**5 and any(sentence in each for each in explained["assumes"])
    assert not explain(scenario(stop={"rounds": 9, "simulated_s": 4}), 0.01)["assumes"]


def test_a_scenario_of_owners_is_explained_without_their_data(seedbus: Command) -> None:
    Path("own.yaml").write_text(dump(own_scenario()))
    found = said(seedbus, "own.yaml", "--seconds", "0.001")
    assert found["traffic"]["rounds"] == 5 and found["traffic"]["up"] > 0
    counted = ["3 clients, each with the samples of its owner, which are not counted here"]
    assert found["words"]["data"] == counted


def test_no_exact_bytes_are_promised_where_commits_depend_on_losses(seedbus: Command) -> None:
    shown = seedbus("explain", "small.yaml", "--set", "algorithm=fedkseed", "--seconds", "0.001").out
    text = " ".join(shown.replace("│", " ").split())
    assert "rounds without the model, extrapolated" in text and "exact" not in text.replace("exact sum", "")


def test_it_tells_the_budget_for_snapshots_from_what_makes_clients_lag(seedbus: Command) -> None:
    quiet = said(seedbus, "small.yaml", "--seconds", "0", "--set", "participation={clients: 4}")["words"]["lag"]
    assert quiet[0].startswith("what makes clients lag here: nothing; a smaller cohort (or fraction), a deadline")
    lag = said(seedbus, "stress/dropout-30", "--seconds", "0", "--set", "lag={snapshot_after_commits: 9}")["words"][
        "lag"
    ]
    assert "asked about every 5 rounds; faults 0, 1: messages are lost; participation.deadline_s" in lag[0]
    assert "the field lag is the snapshot budget: a client that missed more than 9 commits gets a snapshot" in lag[1]
    both = "lag={snapshot_after_commits: 9, snapshot_after_bytes: snapshot}"
    lag = said(seedbus, "small.yaml", "--seconds", "0", "--set", both)["words"]["lag"]
    assert "more than 9 commits or for which it takes fewer bytes than the commits gets a snapshot" in lag[1]


def test_without_the_data_the_messages_are_known_and_time_and_memory_are_not(
    seedbus: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SEEDBUS_DATA", str(tmp_path))
    setting = "task={name: fashion-mnist, model: softmax}"
    explained = said(seedbus, "small.yaml", "--set", setting)
    assert explained["traffic"]["is_exact"] and explained["time"] is explained["memory"] is None
    assert "fashion-mnist" in explained["why_not"]
    assert "not measured: " in seedbus("explain", "small.yaml", "--set", setting).out


def test_seconds_0_measures_nothing(seedbus: Command) -> None:
    result = seedbus("explain", "small.yaml", "--seconds", "0")
    assert result.code == Exit.OK and "nothing was measured (--seconds 0)" in result.out


def test_without_a_number_of_rounds_it_says_how_many_the_time_has_room_for_or_that_nobody_knows(
    seedbus: Command,
) -> None:
    only = ("small.yaml", "--set", "stop={simulated_s: 20}")
    explained = said(seedbus, *only)
    assert explained["words"]["end"][0] == "after the round in which 20.0 s of simulated time are over"
    run = json.loads(seedbus("run", *only, "-q", "--format", "json", "--out", "run").out)
    assert explained["traffic"]["rounds"] == pytest.approx(run["rounds"], rel=0.3) and run["rounds"] > 2
    result = seedbus("explain", *only, "--set", "clock=wall")
    assert (result.code, result.out, result.err.count("\n")) == (Exit.USAGE, "", 1)
    assert "stop.rounds is missing, and how many rounds 20 s have room for is not known before; with" in result.err


@pytest.mark.few(16, slow=0)
@pytest.mark.parametrize("name", [name for name in library() if not name.startswith("lm/")])
def test_every_scenario_of_the_library_has_words(name: str) -> None:
    found = words(load(name, ["task.classifier_steps=20"] if name == "blackbox-attack" else []))
    topics = {"model", "data", "clients", "rounds", "algorithm", "links", "faults", "lag", "evaluation", "end"}
    assert found.keys() == topics
    assert all(sentence and "=" not in sentence.replace("d = ", "") for each in found.values() for sentence in each)


def test_a_schedule_is_told_from_other_mappings() -> None:
    assert plain({0: 0.1, 500: None}) == "0.1 from round 0, none from round 500"
    assert plain({"accuracy": "accuracy", "mine": "mine:top2"}) == "{accuracy: accuracy, mine: mine:top2}"


def test_one_round_and_one_commit_are_not_in_the_plural(capsys: pytest.CaptureFixture[str]) -> None:
    late = {"clients": 8, "cohort": 3, "deadline_s": 1.0, "late": {"max_staleness": 1}}
    explained = explain(scenario(participation=late, stop={"rounds": 1}), 1)
    explained["lag"]["median"] = 1.0
    show(explained)
    told = " ".join(capsys.readouterr().out.replace("│", " ").split())
    assert "a rehearsal of the one round without" in told and "counts for 1 more round, with" in told
    assert "clients had missed 1 commit when asked" in told


def test_of_a_run_without_a_server_it_speaks_of_nodes(capsys: pytest.CaptureFixture[str]) -> None:
    explained = explain(load("gossip-digits", ["stop.rounds=3", "faults.0.probability=0.1"]), 20)
    said = explained["words"]
    assert said["clients"][0] == "16 nodes without a server, each with 4 neighbours"
    assert "or without a server the selected nodes from the others" in said["faults"][1]
    assert any(each.startswith("a node evaluates the loss") for each in said["algorithm"])
    show(explained)
    told = " ".join(capsys.readouterr().out.replace("│", " ").split())
    assert " between nodes; " in told and "nodes lacked" in told and " up and " not in told
