"""How the server gets a snapshot, as a state machine alone: each event returns the requests to send."""

from __future__ import annotations

import numpy as np
import pytest

from seedbus.agents import chunks
from seedbus.agents.chunks import Title
from seedbus.agents.client.snapshot_source import SnapshotSource
from seedbus.agents.messages import Outgoing
from seedbus.agents.policies.snapshot_budget import Lag
from seedbus.agents.server.snapshot_fetch import FetchStep, SnapshotFetch
from seedbus.algorithms.contract import Replica, ReportRefused
from seedbus.bus import EVALUATOR, Envelope

SIZE, WINDOW, ROUND, VERSION = 64, 3, 8, 5
REPLICA = Replica(VERSION, {"x": np.linspace(-1, 1, 100, dtype=np.float32)})  # 400 bytes, 7 chunks
TITLE = chunks.title_of(REPLICA, SIZE)


def fetch(source: str = "evaluator") -> SnapshotFetch:
    made = SnapshotFetch(Lag(snapshot_after_commits=1, source=source, chunk_bytes=SIZE, window=WINDOW))
    made.open_round(ROUND, VERSION)
    return made


def only(outgoing: list[Outgoing]) -> Envelope:
    ((envelope, _),) = outgoing
    return envelope


def describe(made: SnapshotFetch) -> FetchStep:
    return made.received(chunks.description(TITLE, EVALUATOR, ROUND))


def deliver(made: SnapshotFetch, asked: Envelope) -> FetchStep:
    """The source sends what it was asked for, and whatever it is asked next."""
    while True:
        steps = [made.received(piece) for piece in SnapshotSource().pieces(asked, REPLICA)]
        if not steps[-1].outgoing:
            return steps[-1]
        asked = only(list(steps[-1].outgoing))


@pytest.mark.parametrize("source", ["evaluator", "peer"])
def test_a_snapshot_is_fetched_window_by_window_until_it_is_whole(source: str) -> None:
    made = fetch(source)
    asked = only(made.request())
    assert (asked.client, asked.round, asked.base, made.awaits_evaluator) == (EVALUATOR, ROUND, VERSION, True)
    if source == "peer":
        assert describe(made) == FetchStep() and not made.awaits_evaluator
        asked = only(made.client_reported(2))
        assert asked.client == 2
    snapshot = deliver(made, asked).snapshot
    assert snapshot is not None and (snapshot.title, snapshot.is_of_peer) == (TITLE, source == "peer")
    assert b"".join(snapshot.pieces) == REPLICA.fields["x"].tobytes()
    assert not made.awaits_evaluator


def test_one_snapshot_is_fetched_at_a_time() -> None:
    made = fetch()
    assert len(made.request()) == 1 and made.request() == []


def test_only_the_first_report_makes_a_peer_the_source() -> None:
    made = fetch("peer")
    assert made.client_reported(0) == []
    made.request()
    assert made.client_reported(0) == []
    describe(made)
    assert only(made.client_reported(1)).client == 1 and made.client_reported(2) == []


@pytest.mark.parametrize("event", ["left", "moved on", "none left"])
def test_without_its_peer_the_evaluator_is_asked_for_the_pieces(event: str) -> None:
    made = fetch("peer")
    made.request()
    describe(made)
    if event == "none left":
        asked = only(made.no_peer_left())
    else:
        made.client_reported(1)
        assert made.client_left(2) == [] and made.no_peer_left() == []
        gone = chunks.description(Title(VERSION, 0, b""), 1, ROUND)
        asked = only(made.client_left(1) if event == "left" else list(made.received(gone).outgoing))
    assert (asked.client, asked.body) == (EVALUATOR, [SIZE, [[0, WINDOW - 1]]])
    assert deliver(made, asked).snapshot is not None


def test_it_fails_once_the_evaluator_has_another_version() -> None:
    made = fetch()
    made.request()
    assert made.received(chunks.description(Title(VERSION, 0, b""), EVALUATOR, ROUND)) == FetchStep(has_failed=True)
    assert not made.awaits_evaluator and len(made.request()) == 1


def test_peers_are_trusted_again_after_a_snapshot_that_is_whole() -> None:
    made = fetch("peer")
    made.request()
    made.close_round()
    assert made.distrusts_peers
    made.open_round(ROUND + 1, VERSION)
    asked = only(made.request())
    assert asked.body == [SIZE, [[0, WINDOW - 1]]], "the evaluator is asked for pieces at once"
    deliver(made, asked)
    assert only(made.request()).body == [SIZE, []], "the evaluator describes its replica only"


def test_a_piece_that_is_refused_changes_nothing() -> None:
    made = fetch()
    asked = only(made.request())
    foreign = Replica(VERSION, {"x": np.zeros(300, np.float32)})
    with pytest.raises(ReportRefused, match="was not asked for"):
        made.received(
            chunks.cut(foreign, chunks.title_of(foreign, SIZE), 9, SIZE).pack(asked.kind.PIECE, EVALUATOR, ROUND)
        )
    assert deliver(made, asked).snapshot is not None


def test_what_is_abandoned_is_received_no_more() -> None:
    made = fetch()
    asked = only(made.request())
    made.abandon()
    assert not made.distrusts_peers
    with pytest.raises(ReportRefused, match="was not asked for its replica"):
        made.received(SnapshotSource().pieces(asked, REPLICA)[0])
