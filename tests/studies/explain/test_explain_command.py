"""`seedbus explain`: a scenario in plain words, and its cost."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from commands import Command
from worlds import lossy, scenario

from seedbus.scenarios.errors import Exit
from seedbus.scenarios.schema.loading import library, load
from seedbus.scenarios.schema.without_effect import caveats
from seedbus.scenarios.schema.yaml_text import dump
from seedbus.studies.explain.explain import explain, show
from seedbus.studies.explain.fault_words import plain
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


def test_it_says_how_many_scalars_a_report_holds(seedbus: Command) -> None:
    for name, count in (("decomfl", "20 scalars (K·P)"), ("hizoo", "40 scalars (2·K·P)")):
        algorithm = f"algorithm={{name: {name}, perturbations: 20}}"
        words = said(seedbus, "small.yaml", "--seconds", "0", "--set", algorithm)["words"]
        assert any(f"a report holds {count}, and a plan" in each for each in words["algorithm"])


def test_it_says_by_which_clock_a_run_ends() -> None:
    stop = {"rounds": 9, "simulated_s": 7200}
    assert words(scenario(stop=stop))["end"][1] == "or after the round in which 2.0 hours of simulated time are over"
    assert words(scenario(stop=stop, clock="wall"))["end"][1].endswith("2.0 hours of real time are over")


@pytest.mark.slow
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


def test_what_schedules_change_is_said_of_all_rounds_that_the_run_has() -> None:
    schedules = {"perturbations": {0: 2, 3: 100, 20: 500}, "local_steps": {0: 1, 5: 3}}
    told = words(scenario(algorithm={"name": "decomfl"} | schedules))["algorithm"]
    assert told[1].startswith("a report holds 2 to 300 scalars (K·P), and a plan")
    assert told[2] == "a client evaluates the loss 3 to 303 times a round (a gradient counts 3)"


def test_a_fault_of_messages_that_are_never_sent_is_told() -> None:
    kinds = ["report", "snapshot", "tell", "flood"]
    idle = lossy(faults=[{"fault": "drop", "probability": 0.1, "kind": kind} for kind in kinds])
    assert ["it strikes nothing" in each for each in words(idle)["faults"]] == [False, True, True, True]
    assert caveats(idle)[0] == "faults.1 strikes nothing: without lag no message of the kind snapshot is sent"
    lagging = lossy(faults=[{"fault": "drop", "probability": 0.1, "kind": "pull"}], lag={"snapshot_after_commits": 3})
    assert caveats(lagging) == [] and "idle" not in words(lagging)
    (told,) = words(scenario(evaluation={"split": "train"}))["idle"]
    assert told.startswith("evaluation.split has no effect")


def test_the_lag_of_a_method_that_sends_models_is_not_denied() -> None:
    """The table says below how many commits clients had missed when asked."""
    told = words(scenario(algorithm={"name": "fedavg"}))["lag"]
    assert told == ["a client catches up at once, however many commits it missed: a plan always holds the newest model"]


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


@pytest.mark.parametrize(
    ("buffer", "clients", "rounds", "lag"),
    [
        (1, "a commit for each report, fresh or late", "when 1 report has come, never sooner", "every 8 commits"),
        (2, "a commit for every 2 reports, fresh or late", "when 2 reports have come, never sooner", "every 4 commits"),
    ],
)
def test_it_says_that_asynchronous_rounds_end_with_their_buffer(
    buffer: int, clients: str, rounds: str, lag: str
) -> None:
    participation = {"clients": 8, "cohort": 4, "buffer": buffer, "late": {"discount": 0.5}}
    told = words(scenario(participation=participation))
    assert told["clients"] == ["asynchronous rounds: 4 of 8 clients are at work at a time (uniform)", clients]
    assert rounds in told["rounds"][0] and "a late report counts for" in told["rounds"][1]
    assert told["lag"][0] == f"what makes clients lag here: participation: a client is asked about {lag}"


def test_it_says_that_a_round_with_over_selection_ends_with_the_reports_that_it_wants() -> None:
    told = words(scenario(participation={"clients": 8, "cohort": 4, "over_selection": 1.5}))
    assert "a round is over when 4 reports have come" in told["rounds"][0]


def test_it_tells_the_deadline_of_a_stream_the_window_of_a_snapshot_and_that_divergence_ends_nothing() -> None:
    stream = {"clients": 8, "cohort": 4, "mode": "stream", "deadline_s": 4, "deadline": {"factor": 2, "window": 9}}
    told = words(
        scenario(
            algorithm={"name": "decomfl", "arithmetic": "integer"},
            participation=stream,
            lag={"snapshot_after_commits": 3, "window": 2},
            stop={"rounds": 5, "diverged": "continue"},
        )
    )
    assert "its deadline adapts: 2 times the 0.9 quantile of the last 9 answers" in told["rounds"]
    assert told["lag"][1].endswith("in chunks of 32,768 bytes, asking for 2 at a time")
    assert told["end"] == ["after 5 rounds", "training that diverges goes on all the same"]


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


def test_a_mistake_in_the_scenario_is_one_sentence(seedbus: Command) -> None:
    result = seedbus("explain", "small.yaml", "--set", "stop.rounds=0")
    assert (result.code, result.out) == (Exit.USAGE, "")
    assert result.err.count("\n") == 1 and "stop.rounds: 0 is not accepted" in result.err


@pytest.mark.few(16, slow=0)
@pytest.mark.parametrize("name", [name for name in library() if not name.startswith("lm/")])
def test_every_scenario_of_the_library_has_words(name: str) -> None:
    found = words(load(name, ["task.classifier_steps=20"] if name == "blackbox-attack" else []))
    topics = {"model", "data", "clients", "rounds", "algorithm", "links", "faults", "lag", "evaluation", "end"}
    assert found.keys() == topics
    assert all(sentence and "=" not in sentence.replace("d = ", "") for each in found.values() for sentence in each)


def test_a_description_does_not_end_at_an_abbreviation() -> None:
    said = words(load("quickstart", ["algorithm=zo-signsgd"]))
    assert said["algorithm"][0].startswith("zo-signsgd: ZO-signSGD (Liu et al. 2019; arXiv:2405.15861, A.1): DeComFL ")


def test_a_schedule_is_told_from_other_mappings() -> None:
    assert plain({0: 0.1, 500: None}) == "0.1 from round 0, none from round 500"
    assert plain({"accuracy": "accuracy", "mine": "mine:top2"}) == "{accuracy: accuracy, mine: mine:top2}"


def test_large_numbers_have_no_exponents() -> None:
    far = {"fault": "drop", "at_round": 2_000_000, "at_s": 1_500_000.5, "probability": 0.1}
    crowd = {"clients": 200_000, "cohort": 5, "deadline_s": 1_000_000.0}
    said = words(lossy(participation=crowd, faults=[far], task={"name": "null"}, verify=False))
    everything = " ".join(sentence for each in said.values() for sentence in each)
    assert "each client about every 40,000 rounds" in everything and "after 1,000,000 s at the latest" in everything
    assert "from round 2,000,000; from second 1,500,000.5" in everything
    assert not re.search(r"\de\+\d", everything)


def test_it_says_what_hides_reports_and_whether_the_noise_can_be_made_again() -> None:
    exact = {"name": "decomfl", "arithmetic": "integer", "precision": "int32", "unit_bits": 24}
    private: dict[str, Any] = {
        "algorithm": exact,
        "participation": {"clients": 8, "quorum": 8},
        "secure_aggregation": {},
        "privacy": {"clip": 1000, "noise_multiplier": 7, "mechanism": "distributed"},
        "stop": {"rounds": 5, "epsilon": 8},
    }
    told = words(scenario(**private))
    assert told["privacy"][0].startswith("reports are masked: a server that passes on the clients' keys, with too few")
    assert "reports are clipped, and noise is added in shares, by clients, to their reports" in told["privacy"]
    assert "so it protects nobody from those who know it" in told["privacy"][-1]
    assert "or before a commit with which ε could exceed 8" in told["end"]
    system = private | {"privacy": private["privacy"] | {"noise": "system"}}
    assert not any("protects nobody" in each for each in words(scenario(**system))["privacy"])
    assert "privacy" not in words(scenario())


def test_it_says_how_secret_cohorts_are_drawn_and_that_each_round_makes_a_commit() -> None:
    exact = {"name": "decomfl", "arithmetic": "integer", "precision": "int32", "unit_bits": 24}
    private: dict[str, Any] = {
        "algorithm": exact,
        "participation": {"clients": 8, "cohort": 2, "selection": {"policy": "poisson"}},
        "privacy": {"clip": 1000, "noise_multiplier": 7, "cohorts": "secret"},
    }
    told = words(scenario(**private))
    assert told["clients"][0].startswith("each round asks about 2 of 8 clients (poisson): each client about")
    assert told["rounds"][0].endswith("; each makes a commit, of noise alone without a report")
    assert told["rounds"][1] == "a sum is divided by 2, whoever reports"
    public = words(scenario(**private | {"privacy": {"clip": 1000, "noise_multiplier": 7}}))
    assert public["rounds"][0].endswith("; without a usable report it makes no commit")
    assert words(scenario())["clients"][0].startswith("each round asks 3 of 8 clients (uniform): each client about")


def test_it_says_of_a_pool_that_plans_hold_no_seed_and_that_a_sum_may_take_the_place_of_commits() -> None:
    told = words(scenario(algorithm={"name": "fedkseed"}))
    report = "a report holds 1 scalar (K·P) and for each the number of its direction, and a plan the missed commits"
    assert report in told["algorithm"]
    assert "or is sent their sum, whichever takes fewer bytes" in told["lag"][1]
    assert "sum" not in words(scenario())["lag"][1]


def test_it_says_whether_all_evaluations_are_counted() -> None:
    cnn = {"name": "digits", "model": "cnn"}
    for settings, said in (
        ({"name": "fedmlb", "local_steps": 2}, "6 times a round at least (a"),
        ({"name": "fedntd", "local_steps": 2}, "8 times a round (a"),
        ({"name": "fedmlb", "epochs": 2}, "6 times a round for each batch of its samples (a"),
    ):
        assert any(said in each for each in words(scenario(algorithm=settings, task=cnn))["algorithm"])


def test_it_says_that_a_client_at_work_is_not_asked_again() -> None:
    late = {"clients": 8, "cohort": 3, "deadline_s": 1.0, "late": {}}
    assert words(scenario(participation=late))["rounds"][-1].startswith("its client is not asked again while it works")
    buffered = words(scenario(participation=late | {"buffer": 2}))["rounds"]
    assert "not asked again" not in str(buffered), "asynchronous rounds may ask it when the deadline has passed"


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
