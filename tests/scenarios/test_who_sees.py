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
DENSE = {"name": "fedavg", "local_steps": 2, "compression": "fixed-point", "weighting": "uniform"}
CROWD = {"clients": 8, "cohort": 5, "quorum": 4}
REAL: dict[str, Any] = {"clock": "wall"}
TABLE = {"name": "table", "target": "sick", "columns": {"sick": ["no", "yes"], "age": {"mean": 50, "deviation": 9}}}
NOISE = {"clip": 1000, "noise_multiplier": 2.0}
SHARES = {"privacy": NOISE | {"mechanism": "distributed"}, "secure_aggregation": {}}
SERVER, CLIENT, EVALUATOR, READER = Viewer.SERVER, Viewer.CLIENT, Viewer.EVALUATOR, Viewer.READER
REPORTS, COMMITS, GRADIENTS, MODEL = Matter.REPORTS, Matter.COMMITS, Matter.GRADIENTS, Matter.MODEL
FOLLOWERS = (CLIENT, EVALUATOR, READER)


def seen(**more: Any) -> dict[tuple[Viewer, Matter], str]:
    """Return viewer and matter → what is seen of it."""
    sight = who_sees(scenario(**({"algorithm": WHOLE, "participation": CROWD, "faults": []} | REAL | more)))
    return {(viewer, matter): words for viewer, cells in sight.items() for matter, words in cells.items()}


OF_A_COMMIT = "each, of 4 reports or more"
MASKS = {
    (SERVER, REPORTS): "only their sum",
    (SERVER, GRADIENTS): "of a sum",
    (CLIENT, Matter.PRESENCE): "of those it shares masks with",
    (READER, REPORTS): "masked, if under way at the end",
}
AT_SERVER = {(viewer, COMMITS): f"{OF_A_COMMIT}, with noise" for viewer in FOLLOWERS}
AT_SERVER |= {(viewer, GRADIENTS): "of a commit, with noise" for viewer in FOLLOWERS}
AT_SERVER |= {(CLIENT, MODEL): "yes, with noise", (EVALUATOR, MODEL): "yes, with noise"}
AT_SERVER |= {(READER, MODEL): "from commits, with noise", (SERVER, MODEL): "from commits, with noise"}
AT_CLIENTS = {(SERVER, COMMITS): f"{OF_A_COMMIT}, with noise", (SERVER, GRADIENTS): "of a sum, with noise"}
SHIFT = {(viewer, GRADIENTS): "norms alone" for viewer in (SERVER, READER)}
SHIFT |= {(viewer, MODEL): NEVER for viewer in (SERVER, READER)}
HAVE_IT = {(SERVER, MODEL): "yes", (READER, MODEL): "yes"}
CHANGES: dict[str, tuple[dict[str, Any], dict[tuple[Viewer, Matter], str]]] = {
    "masks": ({"secure_aggregation": {}}, MASKS),
    "central noise": ({"privacy": NOISE}, AT_SERVER),
    "masks and noise of clients": (SHARES, MASKS | AT_SERVER | AT_CLIENTS),
    "open noise": (
        {"privacy": NOISE, "clock": "virtual"},
        {cell: words.replace("with noise", "with open noise") for cell, words in AT_SERVER.items()},
    ),
    "seed shift": ({"seed_shift": True}, SHIFT),
    "all three": (SHARES | {"seed_shift": True}, MASKS | AT_SERVER | AT_CLIENTS | SHIFT),
    "the server has a dense model": (
        {"algorithm": DENSE},
        HAVE_IT,
    ),
    "weights by samples": (
        {"algorithm": {"name": "fedavg", "local_steps": 2, "weighting": "samples"}},
        HAVE_IT | {(SERVER, Matter.COUNTS): "of each client"},
    ),
    "a server that remembers": (
        {"algorithm": {"name": "mifa", "local_steps": 2}},
        HAVE_IT | {(READER, REPORTS): "the last of each"},
    ),
    "clients measure": (
        {"evaluation": {"by": "clients"}, "partition": {"kind": "own"}, "task": TABLE},
        {
            (SERVER, Matter.COUNTS): "of each client",
            (SERVER, Matter.LOSSES): "of each client, held out",
            (READER, Matter.COUNTS): "the sum, held out",
            (READER, Matter.LOSSES): "mean, quantiles",
        },
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CHANGES)
def test_each_protection_changes_its_own_cells_and_no_others(name: str) -> None:
    more, expected = CHANGES[name]
    bare = seen()
    changed = {cell: words for cell, words in seen(**more).items() if words != bare[cell]}
    assert changed == expected


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
