"""An owner who comes back is sent commits, their sum or a snapshot, whichever takes the fewest bytes."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Any

import msgpack
import pytest
from owners import own_scenario, own_tables
from worlds import holds

from seedbus.agents.journal.journal import Journal
from seedbus.agents.launcher import history
from seedbus.algorithms.scalar_only import pool
from seedbus.scenarios.reporting.results import Results
from seedbus.scenarios.running.run import run
from seedbus.scenarios.schema.loading import load
from seedbus.scenarios.transports.placement import Placement

LEAVES = 2  # the round from which on owner 2 is away
SNAPSHOT = {"decomfl": 190, "fedkseed": 290}  # bytes that its messages take at least, for the network's 26 numbers
LARGE = 4096  # seeds of a pool
DECOMFL: dict[str, Any] = {"name": "decomfl", "perturbations": 3, "learning_rate": 0.01}


def fedkseed(seeds: int) -> dict[str, Any]:
    """Return an algorithm whose commits can be added up, to so many numbers at most."""
    return DECOMFL | {"name": "fedkseed", "pool": seeds}


def away(folder: Path, algorithm: dict[str, Any], rounds: int, **lag: Any) -> Results:
    """Run three owners, of whom one is away for so many rounds."""
    tables = own_tables(folder / "owners")
    what = own_scenario(
        algorithm=algorithm,
        lag={"snapshot_after_bytes": "snapshot"} | lag,
        faults=[{"fault": "crash", "clients": [2], "at_round": LEAVES, "for_rounds": rounds}],
        participation={"clients": 3, "cohort": 3, "quorum": 2, "deadline_s": 5},
        evaluation={"by": "clients", "every": 20},
        stop={"rounds": LEAVES + rounds + 3},
    )
    placement = Placement("memory", own=str(tables[0].parent.parent / "*/*.csv"))
    return run(load(what), folder / "run", placement=placement, page=False)


def ways(results: Results, rounds: int) -> dict[str, int]:
    """Return the bytes of the commits that owner 2 had missed when it came back, and of their sum, if there is one."""
    what, asked, back = load(results.folder / "scenario.yaml"), results.history.asked, LEAVES + rounds
    (lag,) = results.history.lags[(asked.round == back) & (asked.client == 2)]
    algorithm: Any = what.algorithm.sized(what.dimension)
    with closing(Journal.open(results.folder, for_writing=False)) as journal:
        missed = list(history(algorithm, journal))[back - lag : back]
    assert len(missed) > rounds, "those of its absence, and what the server did not know that it had"
    if what.algorithm.facts.label == "decomfl":
        return {"commits": len(msgpack.packb(algorithm.pack_commits(missed).body))}
    bodies = {
        "commits": algorithm.pack_commits(missed, whole=True).body,
        "sum": pool.pack_sum(pool.summed(missed), algorithm.pool),
    }
    return {name: len(msgpack.packb(body)) for name, body in bodies.items()}


def sent(results: Results, rounds: int) -> tuple[int, int]:
    """Return the bytes of catching up in the plan with which owner 2 came back, and of its snapshot's messages."""
    rows = results.messages.query(f"round == {LEAVES + rounds} and (sender == 2 or recipient == 2)")
    plan, of_snapshot = rows[rows["kind"] == "PLAN"], rows[rows["kind"].isin(["SNAPSHOT", "PULL"])]
    whole = of_snapshot["header_bytes"] + of_snapshot["payload_bytes"]
    return int(plan["catchup_bytes"].iloc[0]), int(whole.sum())


@pytest.mark.slow
@pytest.mark.parametrize(
    ("algorithm", "rounds", "smallest"),
    [(DECOMFL, 2, "commits"), (fedkseed(LARGE), 2, "sum"), (fedkseed(64), 30, "sum")],
    ids=["decomfl", "fedkseed-4096", "fedkseed-64"],
)
def test_where_commits_or_their_sum_take_the_fewest_bytes_they_are_sent(
    tmp_path: Path, algorithm: dict[str, Any], rounds: int, smallest: str
) -> None:
    results = away(tmp_path, algorithm, rounds)
    found = ways(results, rounds)
    assert sent(results, rounds) == (found[smallest], 0)
    assert found[smallest] == min(found.values()) < SNAPSHOT[algorithm["name"]], found
    assert holds(results)


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", [DECOMFL, fedkseed(LARGE)], ids=["decomfl", "fedkseed-4096"])
@pytest.mark.parametrize("source", ["evaluator", "peer"])
def test_where_they_take_more_bytes_than_a_snapshot_one_is_sent(
    tmp_path: Path, source: str, algorithm: dict[str, Any]
) -> None:
    results = away(tmp_path, algorithm, 30, source=source)
    commits, of_snapshot = sent(results, 30)  # those since the snapshot
    assert of_snapshot >= SNAPSHOT[algorithm["name"]] and commits + of_snapshot < min(ways(results, 30).values())
    fetched = results.messages.query("kind == 'PIECE' and sender in (0, 1)")
    assert fetched.empty == (source == "evaluator"), "from an owner that was there"
    replayed = away(tmp_path / "replayed", algorithm, 30, snapshot_after_bytes=10**6)
    assert results.digest == replayed.digest and holds(results)
