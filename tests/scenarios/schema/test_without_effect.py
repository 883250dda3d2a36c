"""Settings without effect and faults that can strike nothing are told, and no others; contradictions are refused."""

from __future__ import annotations

from copy import deepcopy
from functools import reduce
from pathlib import Path
from typing import Any, Literal, get_args

import pytest
import yaml
from mistake_files import blocks, settings
from scenario_files import SMALL
from worlds import go, scenario

from seedbus.plugin import register
from seedbus.scenarios.faults.base import MessageSelector, TrafficSelector
from seedbus.scenarios.schema.loading import load, validate
from seedbus.scenarios.schema.without_effect import caveats, of_faults

INTEGER: dict[str, Any] = {"algorithm": {"name": "decomfl", "arithmetic": "integer"}}
ALWAYS = {"plan", "report", "join"}
LAG: dict[str, Any] = {"lag": {"snapshot_after_commits": 3}}
SECURE: dict[str, Any] = {
    "algorithm": {"name": "decomfl", "arithmetic": "integer", "precision": "int32"},
    "secure_aggregation": {},
    "participation": {"clients": 4, "quorum": 2, "deadline_s": 1},
}
POISSON: dict[str, Any] = {"selection": {"policy": "poisson"}}  # a cohort may be all clients
GOSSIP = INTEGER | {"topology": {"kind": "gossip"}, "participation": {"clients": 8}}


def kinds() -> set[str]:
    (choices, _) = get_args(MessageSelector.model_fields["kind"].annotation)
    return set(get_args(choices))


@pytest.mark.parametrize(
    ("fields", "sent"),
    [({}, ALWAYS), (LAG, ALWAYS | {"snapshot", "pull"}), (SECURE, ALWAYS | {"ask", "tell"})],
    ids=["plain", "lag", "secure"],
)
def test_each_kind_that_a_run_with_a_server_never_sends_is_told_with_the_field_that_it_lacks(
    fields: dict[str, Any], sent: set[str]
) -> None:
    unsent = sorted(kinds() - sent)
    sorts = sorted(sent) + unsent
    faults = [{"fault": "drop", "probability": 0.1, "kind": kind} for kind in sorts]
    participation = {"clients": 8, "deadline_s": 1}
    told = caveats(scenario(**{"participation": participation} | fields | {"faults": faults}))
    assert [sentence.partition(" ")[0] for sentence in told] == [f"faults.{sorts.index(kind)}" for kind in unsent]
    lacking: dict[str, dict[str, Any]] = {
        "snapshot": LAG,
        "pull": LAG,
        "ask": SECURE,
        "tell": SECURE,
        "flood": GOSSIP,
        "have": GOSSIP,
        "measure": {"evaluation.by": "clients"},
        "measured": {"evaluation.by": "clients"},
    }
    for kind, sentence in zip(unsent, told, strict=True):
        field = sentence.partition("without ")[2].partition(" ")[0]
        assert field in lacking[kind] and sentence.endswith(f"no message of the kind {kind} is sent")


def test_without_a_server_commits_and_summaries_are_sent() -> None:
    faults = [{"fault": "drop", "probability": 0.1, "kind": kind} for kind in ("flood", "have")]
    assert caveats(scenario(**GOSSIP, faults=faults)) == []


NO_WORK = "it multiplies the time of local work, and compute.evaluation and compute.replay are 0"


def test_a_fault_of_the_other_direction_or_of_work_that_takes_no_time_is_told() -> None:
    faults: list[dict[str, Any]] = [
        {"fault": "drop", "probability": 0.1, "kind": "plan", "direction": "up"},
        {"fault": "delay", "by": 1, "kind": "report", "direction": "up"},
        {"fault": "duplicate", "kind": "report", "direction": "down"},
        {"fault": "straggler", "factor": 10},
        {"fault": "straggler", "factor": 10, "pause_s": 1},
        {"fault": "device-classes", "classes": [{"share": 1, "factor": 2}]},
    ]
    there: dict[str, Any] = {"participation": {"clients": 8, "deadline_s": 1}, "faults": faults}
    directed = [
        "faults.0 strikes nothing: messages of the kind plan go down, and direction is up",
        "faults.2 strikes nothing: messages of the kind report go up, and direction is down",
    ]
    idle = [f"faults.{number} strikes nothing: {NO_WORK}" for number in (3, 5)]
    slow = f"compute.slowness has no effect: {NO_WORK}"
    assert caveats(scenario(**there)) == [*directed, *idle]
    assert caveats(scenario(**there, compute={"slowness": 3})) == [*directed, *idle, slow]
    assert caveats(scenario(**there, compute={"evaluation": 0.1, "slowness": 3})) == directed
    assert caveats(scenario(**there, compute={"replay": {"distribution": "uniform", "low": 0, "high": 1}})) == directed


@pytest.mark.usefixtures("no_plugins")
def test_a_field_kind_of_ones_own_fault_is_no_kind_of_message() -> None:
    @register
    class Fog(TrafficSelector):
        """Fog."""

        fault: Literal["fog"] = "fog"
        kind: Literal["dense", "snapshot"] = "dense"

    faults = [{"fault": "fog", "kind": kind, "direction": "up"} for kind in ("dense", "snapshot")]
    assert caveats(scenario(faults=faults)) == []


ALL = {"clients": 8}
NO_TIME = "no simulated time passes; network.latency or compute.evaluation lets it pass"
DIGITS = {"name": "digits"}
UNIFORM = {"name": "fedavg", "weighting": "uniform"}
TOLD = {
    said: settings(block, typed) for block in blocks("without_effect") for typed, said in block["rows"].items() if said
}


@pytest.mark.slow
@pytest.mark.parametrize("sentence", TOLD)
def test_what_is_told_of_a_setting_is_true(sentence: str, tmp_path: Path) -> None:
    idle = load(yaml.safe_load(SMALL), [*TOLD[sentence], "stop.rounds=4", "network.latency=0.1"]).resolved()
    left_out = deepcopy(idle)
    *path, field = sentence.partition(" ")[0].split(".")
    del reduce(lambda at, name: at[name], path, left_out)[field]
    runs = [go(tmp_path / str(n), validate(each, "a test")) for n, each in enumerate((idle, left_out))]
    assert runs[0].digest == runs[1].digest
    assert runs[0].summary["simulated_s"] == runs[1].summary["simulated_s"]


CHURN: dict[str, Any] = {"fault": "churn", "stays": 5, "away": 5}
DAYS: dict[str, Any] = {"fault": "diurnal", "low": 0.1}
LATER: dict[str, Any] = {"fault": "partition", "clients": [1], "at_s": 5}
LIES: dict[str, Any] = {"fault": "byzantine", "attack": "noise"}
LOSS: dict[str, Any] = {"fault": "drop", "probability": 0.1}


@pytest.mark.parametrize(
    ("faults", "told"),
    [
        ([CHURN], ["strikes nothing"]),
        ([CHURN | {"announced": False, "initially": 0.5}], ["stays as at second 0"]),
        ([CHURN | {"initially": 0}], [""]),  # the server waits until clients come
        ([CHURN | {"announced": False}, DAYS], ["strikes nothing", "strikes nothing"]),
        ([CHURN, {"fault": "crash", "at_round": 1, "for_rounds": 2}], ["", ""]),
        ([DAYS | {"high": 0.5}], ["stays as at second 0"]),
        ([LATER, LIES, CHURN], ["strikes nothing", "", "strikes nothing"]),
        ([LATER | {"at_s": 0}, CHURN], ["", ""]),
        ([CHURN, LATER, LOSS], ["", "", ""]),
    ],
)
def test_a_fault_that_waits_for_simulated_time_is_told_where_none_passes(
    faults: list[dict[str, Any]], told: list[str], tmp_path: Path
) -> None:
    timed: dict[str, Any] = {"faults": faults, "participation": ALL | {"deadline_s": 1}}
    timeless = scenario(**timed, network={})
    assert of_faults(timeless) == [why and f"{why}: {NO_TIME}" for why in told]
    assert of_faults(scenario(**timed)) == [""] * len(faults)
    assert (go(tmp_path / "run", timeless).summary["simulated_s"] == 0) == any(told)


def test_a_fault_that_begins_after_the_last_round_is_told() -> None:
    late = {"at_round": 20}
    faults = [
        LOSS | late,
        {"fault": "crash"} | late,
        {"fault": "server-crash"} | late,
        {"fault": "late-joiners"} | late,
    ]
    fields = {"participation": ALL | {"deadline_s": 1}, "faults": faults}
    why = "strikes nothing: it begins at round 20, and the last one is 19"
    assert of_faults(scenario(**fields)) == [why] * 3 + [""]
    assert of_faults(scenario(**fields, stop={"rounds": 21})) == [""] * 4
    assert of_faults(scenario(**GOSSIP, faults=faults[:1])) == [""], "nodes repair after the last round"


def test_the_share_of_a_table_for_the_test_is_told_beside_a_test_file(tmp_path: Path) -> None:
    table = tmp_path / "table.csv"
    table.write_text("x,y\n" + "".join(f"{row},{row % 2}\n" for row in range(9)))
    task = {"name": "table", "file": str(table), "target": "y", "test": 0.3}
    assert caveats(scenario(task=task)) == []
    sentence = "task.test has no effect: the rows of task.test_file are the test set"
    assert caveats(scenario(task=task | {"test_file": str(table)})) == [sentence]
