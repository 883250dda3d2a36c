"""Whole runs without a server: faults, the ledger, equal digests at the end, replay, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from seedbus.agents.gossip.node import Node
from seedbus.agents.observer import NullObserver
from seedbus.bus import Fate, Kind, read_ledger
from seedbus.scenarios.errors import ScenarioError
from seedbus.scenarios.reporting.closing_table import groups
from seedbus.scenarios.reporting.results import Results
from seedbus.scenarios.running.replay import replay
from seedbus.scenarios.running.run import run
from seedbus.scenarios.schema.scenario import Scenario
from seedbus.studies.study.runs import Run

NODES, ROUNDS = 6, 12
CUT = {"fault": "partition", "clients": [0, 1, 2], "at_s": 2, "for_s": 5}
FAULTS: dict[str, list[dict[str, Any]]] = {
    "none": [],
    "loss": [{"fault": "drop", "probability": 0.4}],
    "a cut that heals": [CUT],
    "reordered and doubled": [
        {"fault": "duplicate", "probability": 0.5},
        {"fault": "reorder", "probability": 0.5, "window_s": 2.5},
        {"fault": "delay", "probability": 0.3, "by": {"distribution": "exponential", "mean": 1.0}},
    ],
    "churn and late joiners": [
        {"fault": "churn", "stays": 3, "away": {"distribution": "uniform", "low": 1, "high": 3}},
        {"fault": "late-joiners", "clients": [5], "at_round": 4},
    ],
    "stragglers and dropout": [
        {"fault": "straggler", "factor": 30, "clients": [1, 2]},
        {"fault": "dropout", "probability": 0.3},
        {"fault": "bandwidth", "up_mbps": 0.01},
    ],
    "damage": [{"fault": "corrupt", "probability": 0.3}, CUT],
}


def fields(**changed: Any) -> dict[str, Any]:
    return {
        "name": "gossip",
        "task": {"name": "quadratic", "dimension": 50},
        "algorithm": {"name": "decomfl", "arithmetic": "integer", "perturbations": 3, "learning_rate": 0.01},
        "participation": {"clients": NODES},
        "topology": {"kind": "gossip", "graph": "ring"},
        "network": {"latency": 0.1},
        "compute": {"evaluation": 0.02, "replay": 0.001},
        "evaluation": {"every": 4},
        "stop": {"rounds": ROUNDS},
        "verify": True,
    } | changed


def executed(folder: Path, **changed: Any) -> Results:
    return run(Scenario.model_validate(fields(**changed)), folder)


@pytest.mark.slow
@pytest.mark.parametrize("faults", FAULTS.values(), ids=list(FAULTS))
def test_all_nodes_end_with_the_sum_of_all_commits_whatever_the_network_does(
    faults: list[dict[str, Any]], tmp_path: Path
) -> None:
    results = executed(tmp_path / "run", faults=faults)
    summary = results.summary
    assert summary["reason"] == f"all {ROUNDS} rounds are done"  # and no node lacks a commit
    assert not summary["refusals"]
    replayed = replay(tmp_path / "run")
    assert (replayed.digest, replayed.replica.version) == (summary["digest"], summary["version"])
    assert all(did for fault in summary["faults"] for name, did in fault.items() if name != "fault")
    again = executed(tmp_path / "again", faults=faults)
    assert (again.summary["digest"], again.summary["ledger_hash"]) == (summary["digest"], summary["ledger_hash"])
    assert float(results.metrics["loss"].iloc[-1]) < float(results.metrics["loss"].iloc[0])


@pytest.mark.few(2)
@pytest.mark.parametrize("graph", ["torus", "complete", {"graph": "regular", "degree": 3}], ids=str)
def test_other_graphs_end_the_same_way(graph: Any, tmp_path: Path) -> None:
    topology = {"kind": "gossip"} | (graph if isinstance(graph, dict) else {"graph": graph})
    results = executed(tmp_path / "run", topology=topology, faults=[{"fault": "drop", "probability": 0.3}])
    assert results.summary["reason"] == f"all {ROUNDS} rounds are done"
    assert replay(tmp_path / "run").digest == results.summary["digest"]
    assert not results.summary["refusals"]
    table = str(groups(results.summary))
    assert "measured, per node" in table and "per client" not in table


def test_a_node_that_counts_a_commit_twice_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    honest = Node.add

    def add(node: Node, records: Any, sender: int | None = None) -> None:
        if node.address == 3 and sender is not None and node.round == 5:
            node._unfolded += records
        honest(node, records, sender)

    monkeypatch.setattr(Node, "add", add)
    results = executed(tmp_path / "run")
    assert results.summary["refusals"] == {"diverged": {"3": 1}}


def test_without_loss_each_commit_crosses_each_link_once_and_the_ledger_counts_it(tmp_path: Path) -> None:
    results = executed(tmp_path / "run", compute={}, topology={"kind": "gossip", "graph": "complete"})
    columns = read_ledger(tmp_path / "run" / "messages")
    floods = columns["kind"] == Kind.FLOOD
    commits = NODES * ROUNDS
    # its origin sends it to five; each of them to the four others
    assert int(columns["seeds"][floods].sum()) == commits * ((NODES - 1) + (NODES - 1) * (NODES - 2))
    assert (columns["fate"] == Fate.DELIVERED).all()
    assert results.summary["traffic"]["catchup_bytes"] == 0
    assert results.summary["traffic"]["links"]["count"] == NODES * (NODES - 1)
    size = columns["header_bytes"] + columns["payload_bytes"]
    assert results.summary["traffic"]["bytes"] == int(size.sum())
    assert set(np.unique(columns["sender"])) == set(range(NODES))


def test_a_step_takes_the_time_to_fold_what_its_node_has_heard(tmp_path: Path) -> None:
    compute, topology = {"evaluation": 0, "replay": 0.05}, {"kind": "gossip", "graph": "complete"}
    executed(tmp_path / "run", compute=compute, network={}, topology=topology, stop={"rounds": 2})
    columns = read_ledger(tmp_path / "run" / "messages")
    second = columns["sent_ns"][(columns["kind"] == Kind.FLOOD) & (columns["round"] == 1)]
    assert second.min() == 10**9 + NODES * 5 * 10**7


def test_an_evaluation_folds_for_itself_and_takes_none_of_the_time_of_later_steps(tmp_path: Path) -> None:
    ends = [
        executed(tmp_path / str(every), compute={"replay": 0.2}, evaluation={"every": every}).summary["digest"]
        for every in (1, ROUNDS)
    ]
    assert ends[0] == ends[1]


def test_a_node_that_drops_out_of_a_round_makes_no_step_in_it(tmp_path: Path) -> None:
    dropout = {"fault": "dropout", "clients": [1], "at_round": 1}
    results = executed(tmp_path / "run", faults=[dropout], compute={}, stop={"rounds": 3})
    assert results.summary["version"] == NODES + 2 * (NODES - 1)


def test_nodes_tell_what_they_have_in_the_middle_of_every_third_round(tmp_path: Path) -> None:
    executed(tmp_path / "run", topology={"kind": "gossip", "graph": "ring", "repair_every": 3}, stop={"rounds": 7})
    columns = read_ledger(tmp_path / "run" / "messages")
    told = columns["sent_ns"][columns["kind"] == Kind.HAVE]
    assert sorted(told.tolist()) == [25 * 10**8] * NODES + [55 * 10**8] * NODES


def test_the_sides_of_a_cut_lack_each_others_commits_and_are_as_far_apart_as_their_models(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    what = Scenario.model_validate(fields(faults=[CUT | {"at_s": 0, "for_s": None}], compute={}))
    nodes: dict[int, Node] = {}
    honest, apart = Node.add, []

    def add(node: Node, records: Any, sender: int | None = None) -> None:
        nodes[node.address] = node
        honest(node, records, sender)

    class Measuring(NullObserver):
        def measured(self, line: Any) -> None:
            points = [np.asarray(what.algorithm.point(each.replica), np.float64) for each in nodes.values()]
            squares = [((point - np.mean(points, axis=0)) ** 2).sum() for point in points]
            apart.append(np.sqrt(np.mean(squares)) if squares else 0.0)

    monkeypatch.setattr(Node, "add", add)
    results = run(what, tmp_path / "run", observer=Measuring())
    assert results.metrics["lacking"].tolist() == [0.0, 12.0, 24.0, 36.0], "three commits of each round"
    assert results.summary["lag"]["max"] == 36
    found = results.metrics["consensus_distance"].tolist()
    assert found == pytest.approx(apart) and found[0] == 0 < found[1] < found[3]


def test_a_step_that_is_not_done_when_the_last_round_closes_makes_no_commit(tmp_path: Path) -> None:
    """Whether nodes repair decides nothing: with and without losses the journal holds all commits."""
    loss = {"fault": "drop", "probability": 0.9, "for_rounds": 3}
    for name, faults in (("repaired", [loss]), ("whole", [])):
        results = executed(tmp_path / name, compute={"evaluation": 0.3}, stop={"rounds": 3}, faults=faults)
        assert results.summary["version"] == NODES, "the second step of each node is not done"
        assert results.summary["digest"] == replay(tmp_path / name).digest


@pytest.mark.parametrize(("evaluation_s", "begun"), [(0.02, [0, 1, 2]), (0.3, [0])], ids=["in a round", "in two"])
def test_forward_passes_are_those_of_the_rounds_in_which_the_steps_of_commits_began(
    evaluation_s: float, begun: list[int], tmp_path: Path
) -> None:
    algorithm = fields()["algorithm"] | {"perturbations": {"0": 3, "1": 5, "2": 7}}
    compute, evaluation = {"evaluation": evaluation_s}, {"every": 1}
    executed(tmp_path / "run", algorithm=algorithm, compute=compute, evaluation=evaluation, stop={"rounds": 3})
    passes = Run.read(tmp_path / "run").passes
    assert passes is not None and passes[-1] == passes[-2] == NODES * sum(3 + 2 * round + 1 for round in begun)
    assert passes[:2] == [0, NODES * 4 if len(begun) > 1 else 0], "of the rounds before each evaluation"


def test_nodes_that_stay_away_are_named_by_what_they_lack(tmp_path: Path) -> None:
    crash = {"fault": "crash", "clients": [2], "at_round": 3}
    topology = {"kind": "gossip", "graph": "ring", "repair_rounds": 3}
    results = executed(tmp_path / "run", faults=[crash], topology=topology, compute={})
    assert results.summary["reason"] == "all 12 rounds are done; 1 node lacks up to 45 commits"
    assert results.summary["digest"] == replay(tmp_path / "run").digest


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"participation": {"clients": 7}, "topology": {"kind": "gossip", "graph": "torus"}}, "a torus of 7 nodes"),
    ({"faults": [{"fault": "partition"}]}, "cuts none off"),
    ({"faults": [{"fault": "partition", "fraction": 1}]}, "cuts none off"),
    ({"faults": [{"fault": "partition", "fraction": 0.95}]}, "a partition of all nodes cuts none off"),
    ({"faults": [{"fault": "partition", "clients": [*range(NODES), 0]}]}, "faults.0: .* of all nodes cuts none off"),
    ({"topology": {"kind": "gossip", "evaluated": 6}}, "nodes are 0 to 5"),
]


@pytest.mark.parametrize(("changed", "why"), REFUSED, ids=[why for _, why in REFUSED])
def test_graphs_and_cuts_that_are_none_are_refused(changed: dict[str, Any], why: str) -> None:
    with pytest.raises(ScenarioError, match=why) as refused:
        Scenario(**fields(**changed))
    assert len(refused.value.problems) == 1
