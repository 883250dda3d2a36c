"""When a run without a server ends, and what it counts on the way: bytes, divergence, absences."""

from __future__ import annotations

import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from worlds import go, outcome, scenario

from seedbus.agents.errors import RunFolderError, Unfinishable
from seedbus.agents.gossip.node import Steps
from seedbus.agents.observer import NullObserver, Observer
from seedbus.agents.server.stopping import BARREN
from seedbus.algorithms.contract import ReportRefused
from seedbus.bus import FaultHooks, Kind, read_ledger
from seedbus.scenarios.errors import Interrupted
from seedbus.scenarios.reporting.results import Results
from seedbus.scenarios.running.replay import replay

NODES, SECOND = 4, 10**9


def executed(folder: Path, *, observer: Observer | None = None, resume: bool = False, **changed: Any) -> Results:
    """Run four nodes on a ring, whose messages take 0.1 s and whose rounds take a second."""
    fields: dict[str, Any] = {
        "task": {"name": "quadratic", "dimension": 20},
        "algorithm": {"name": "decomfl", "arithmetic": "integer", "learning_rate": 0.01},
        "participation": {"clients": NODES},
        "topology": {"kind": "gossip", "graph": "ring"},
        "network": {"latency": 0.1},
        "evaluation": {"every": 1},
    }
    return go(folder, scenario(**fields | changed), observer=observer or NullObserver(), resume=resume)


def test_the_bytes_of_an_evaluation_are_those_that_were_sent_before_it_and_end_a_run(tmp_path: Path) -> None:
    whole = executed(tmp_path / "whole", stop={"rounds": 6})
    columns = read_ledger(whole.folder / "messages")
    size = columns["header_bytes"] + columns["payload_bytes"]
    for line in whole.lines[1:]:
        closed_ns = (line["round"] + 1) * SECOND
        assert line["bytes_up"] == int(size[columns["sent_ns"] < closed_ns].sum()) and not line["bytes_down"]
    starts = SECOND * np.arange(6)
    assert np.array_equal(whole.history.opened_ns, starts) and np.array_equal(whole.history.closed_ns, starts + SECOND)
    budget = whole.lines[3]["bytes_up"]
    ended = executed(tmp_path / "ended", stop={"rounds": 6, "bytes": budget}, evaluation={"every": 2})
    assert ended.summary["reason"] == f"{budget:,} bytes were sent, the budget was {budget:,}"
    assert ended.summary["rounds"] == 3
    assert [line["round"] for line in ended.lines] == [0, 1, 2], "also after the last round"


@pytest.mark.parametrize(
    ("refused", "dropout", "ends"),
    [
        (lambda node, round: round >= 2, None, 2 + BARREN),
        (lambda node, round: round >= 2 and node > 0, None, None),
        (lambda node, round: round == 2, {"at_round": 3}, None),
        (lambda node, round: round >= 2, {"clients": [0, 1, 2]}, 2 + BARREN),
    ],
    ids=["all", "all but one", "all of a round before silence", "one of one"],
)
def test_ten_rounds_without_commit_and_with_a_step_that_is_not_finite_end_a_run(
    refused: Callable[[int, int], bool],
    dropout: dict[str, Any] | None,
    ends: int | None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    honest = Steps.measure

    def measure(steps: Steps, node: int, number: int, round: int, replica: Any) -> Any:
        if refused(node, round):
            raise ReportRefused("not-finite", "a scalar is not finite")
        return honest(steps, node, number, round, replica)

    monkeypatch.setattr(Steps, "measure", measure)
    faults = [] if dropout is None else [{"fault": "dropout"} | dropout]
    results = executed(tmp_path / "run", stop={"rounds": 15}, faults=faults)
    assert results.summary["rounds"] == (ends or 15) and results.training_diverged == (ends is not None)


def test_a_node_that_is_away_sends_nothing_and_tells_all_its_neighbours_when_it_returns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps: list[tuple[int, int]] = []
    monkeypatch.setattr(FaultHooks, "reported", lambda _, node, round: steps.append((node, round)))
    crash = {"fault": "crash", "clients": [1], "at_round": 2, "for_rounds": 3}
    results = executed(tmp_path / "run", stop={"rounds": 7}, faults=[crash])
    columns = read_ledger(results.folder / "messages")
    of_it = columns["sender"] == 1
    away = (columns["sent_ns"] >= 2 * SECOND) & (columns["sent_ns"] < 5 * SECOND)
    assert not (of_it & away).any() and (~of_it & away).any()
    back = of_it & (columns["kind"] == Kind.HAVE) & (columns["sent_ns"] == 5 * SECOND)
    assert np.sort(columns["recipient"][back]).tolist() == [0, 2]
    assert results.summary["version"] == 7 * NODES - 3
    others = [(node, round) for round in range(7) for node in range(NODES) if node != 1 or not 2 <= round < 5]
    assert steps == others, "each is one that a fault may have falsified"


def test_the_model_that_is_evaluated_is_that_of_the_node_that_is_named(tmp_path: Path) -> None:
    cut = {"fault": "partition", "clients": [3]}
    losses = [
        executed(
            tmp_path / str(node),
            topology={"kind": "gossip", "graph": "ring", "evaluated": node, "repair_rounds": 0},
            stop={"rounds": 3},
            faults=[cut],
        ).lines[-1]["loss"]
        for node in (0, 1, 3)
    ]
    assert losses[0] == losses[1] != losses[2]


def test_the_seed_of_a_topology_draws_a_regular_graph_and_no_step(tmp_path: Path) -> None:
    def drawn(name: str, **fields: Any) -> tuple[Any, set[tuple[int, int]]]:
        topology = {"kind": "gossip", "degree": 3} | fields
        results = executed(tmp_path / name, participation={"clients": 8}, topology=topology, stop={"rounds": 2})
        columns = read_ledger(results.folder / "messages")
        pairs = zip(columns["sender"].tolist(), columns["recipient"].tolist(), strict=True)
        return results.digest, {(a, b) for a, b in pairs if a < b}

    (digest, links), (same, others) = drawn("one", seed=1), drawn("another", seed=2)
    assert len(links) == len(others) == 8 * 3 // 2 and links != others and digest == same


class Watching(NullObserver):
    """Keeps the rounds that it is told of, and asks the run to stop after one, as `seedbus runs RUN --stop` does."""

    def __init__(self, last: int | None = None) -> None:
        self.last = last
        self.closed: list[int] = []
        self.measures: list[int] = []
        self.refusals: list[int] = []

    def round_closed(self, closed: Any, now_ns: int, bytes_so_far: int) -> None:
        self.closed.append(closed.round)
        if closed.round == self.last:
            signal.raise_signal(signal.SIGUSR1)

    def measured(self, line: dict[str, Any]) -> None:
        self.measures.append(line["round"])

    def refused(self, refusal: Any) -> None:
        self.refusals.append(refusal.round)


def test_a_run_resumed_twice_ends_like_one_that_was_not_stopped_and_tells_of_new_rounds_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    honest = Steps.measure

    def measure(steps: Steps, node: int, number: int, round: int, replica: Any) -> Any:
        if node == 2 and round % 2:
            raise ReportRefused("not-finite", "a scalar is not finite")
        return honest(steps, node, number, round, replica)

    monkeypatch.setattr(Steps, "measure", measure)
    lossy = [{"fault": "drop", "probability": 0.3}, {"fault": "crash", "clients": [1], "at_round": 1, "for_rounds": 2}]
    there: dict[str, Any] = {"stop": {"rounds": 6}, "faults": lossy}
    first, second, third = Watching(2), Watching(4), Watching()
    whole = executed(tmp_path / "whole", **there)
    with pytest.raises(Interrupted):
        executed(tmp_path / "cut", **there, observer=first)
    assert replay(tmp_path / "cut").round == 3
    with monkeypatch.context() as elsewhere:
        elsewhere.setattr("seedbus.agents.gossip.node.of_step", lambda seed, node, round: 1 + node + 100 * round)
        with pytest.raises(RunFolderError, match="round 0 was computed again, and is not the journal's; expected the"):
            executed(tmp_path / "cut", **there, resume=True)
    with pytest.raises(Interrupted):
        executed(tmp_path / "cut", **there, observer=second, resume=True)
    cut = executed(tmp_path / "cut", **there, observer=third, resume=True)
    assert outcome(cut) == outcome(whole) and cut.digest == replay(cut.folder).digest
    assert (first.closed, second.closed, third.closed) == ([0, 1, 2], [3, 4], [5])
    assert (first.measures, second.measures, third.measures) == ([0, 0, 1, 2], [3, 4], [5])
    assert (first.refusals, second.refusals, third.refusals) == ([1], [3], [5])

    monkeypatch.setattr(Steps, "measure", lambda *_: pytest.fail("a run that has ended is computed again"))
    (cut.folder / "results.json").unlink()  # as if it was killed just before
    assert outcome(executed(tmp_path / "cut", **there, resume=True)) == outcome(whole)


def test_a_sum_beyond_its_range_ends_a_run_in_a_sentence_and_keeps_the_rounds_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    honest = Steps.commit

    def commit(steps: Steps, record: Any) -> Any:
        if record[2] == 2:
            raise OverflowError("the sum of all commits leaves its range")
        return honest(steps, record)

    with monkeypatch.context() as patch:
        patch.setattr(Steps, "commit", commit)
        with pytest.raises(Unfinishable, match="the sum of all commits leaves its range"):
            executed(tmp_path / "run", stop={"rounds": 4})
    assert replay(tmp_path / "run").round == 2
