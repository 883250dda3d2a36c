"""Who sees what of a client: each feature, and the seed shift, changes its own cells and no others."""

from __future__ import annotations

import json
from typing import Any

import pytest
from commands import Command
from worlds import scenario

from seedbus.agents.sight import NEVER, Matter, Viewer
from seedbus.scenarios.consent.who_sees import who_sees

WHOLE = {"name": "decomfl", "arithmetic": "integer", "precision": "int32"}
CROWD = {"clients": 8, "cohort": 5, "quorum": 4}
REAL: dict[str, Any] = {"clock": "wall"}
SERVER, CLIENT, EVALUATOR, READER = Viewer.SERVER, Viewer.CLIENT, Viewer.EVALUATOR, Viewer.READER
REPORTS, COMMITS, GRADIENTS, MODEL = Matter.REPORTS, Matter.COMMITS, Matter.GRADIENTS, Matter.MODEL
FOLLOWERS = (CLIENT, EVALUATOR, READER)


def seen(**more: Any) -> dict[tuple[Viewer, Matter], str]:
    """Return viewer and matter → what is seen of it."""
    sight = who_sees(scenario(**({"algorithm": WHOLE, "participation": CROWD, "faults": []} | REAL | more)))
    return {(viewer, matter): words for viewer, cells in sight.items() for matter, words in cells.items()}


def test_nobody_is_sent_a_sample_and_keys_hide_all_from_a_stranger() -> None:
    bare = seen()
    assert {bare[viewer, Matter.SAMPLES] for viewer in Viewer} == {NEVER}
    assert {bare[Viewer.STRANGER, matter] for matter in Matter} == {NEVER, "sizes and times"}
    assert bare[SERVER, REPORTS] == "each" and bare[SERVER, GRADIENTS] == "of each client"


@pytest.mark.parametrize(("quorum", "cell"), [(1, "a commit of one"), (2, "the other of two"), (3, NEVER)])
def test_who_is_in_a_sum_of_two_knows_the_other_report(quorum: int, cell: str) -> None:
    assert seen(participation={"clients": 8, "quorum": quorum})[CLIENT, REPORTS] == cell


def test_nodes_without_a_server_see_each_other() -> None:
    gossip = {"topology": {"kind": "gossip", "graph": "ring", "interval_s": 1.0}, "clock": "virtual"}
    found = seen(algorithm={"name": "decomfl", "arithmetic": "integer"}, participation={"clients": 4}, **gossip)
    assert {viewer for viewer, _ in found} == {CLIENT, READER}
    assert found[CLIENT, REPORTS] == "each is a commit" and found[CLIENT, GRADIENTS] == "of each node"


def test_the_command_prints_it_with_what_it_depends_on(seedbus: Command) -> None:
    settings = (f"algorithm={json.dumps(WHOLE)}", "participation={clients: 8, quorum: 2}", "secure_aggregation={}")
    masked = ("explain", "small.yaml", "privacy", *(word for each in settings for word in ("--set", each)))
    found = json.loads(seedbus(*masked, "--format", "json").out)
    assert found["sees"]["the server"]["single reports"] == "only their sum"
    assert "a server that passes on the clients' keys, with at most" in found["words"][0]
    told = seedbus(*masked).out
    assert "only their" in told and "with at most 0 of 8 clients" in told, "of a sum of two a client knows the other"
    assert "with at most 3 of 8 clients" in seedbus(*masked, "--set", "participation.quorum=5").out
    assert "without keys a stranger sees what the server sees" in told
    assert (
        "each"
        in json.loads(seedbus("explain", "small.yaml", "privacy", "--format", "json").out)["sees"]["the server"][
            "single reports"
        ]
    )
