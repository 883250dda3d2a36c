"""The server's download of a snapshot as a state machine: each event returns the requests to send."""

from __future__ import annotations

import numpy as np
import pytest

from seedbus.agents.catch_up import chunks
from seedbus.agents.catch_up.chunks import Title
from seedbus.agents.catch_up.client import SnapshotSource
from seedbus.agents.catch_up.settings import Lag
from seedbus.agents.messages import Outgoing
from seedbus.agents.server.snapshot_fetch import FetchStep, SnapshotFetch
from seedbus.algorithms.contract import Replica, ReportRefused
from seedbus.bus import EVALUATOR, Envelope

SIZE, WINDOW, ROUND, VERSION = 64, 3, 8, 5
REPLICA = Replica(VERSION, {"x": np.linspace(-1, 1, 100, dtype=np.float32)})  # 400 bytes, 7 chunks
TITLE = chunks.title_of(REPLICA, SIZE)


def fetch(source: str = "evaluator") -> SnapshotFetch:
    lag = Lag(snapshot_after_commits=1, source=source, chunk_bytes=SIZE, window=WINDOW)
    fetching = SnapshotFetch(lag, {"x": np.dtype(np.float32)})
    fetching.open_round(ROUND, VERSION)
    return fetching


def only(outgoing: list[Outgoing]) -> Envelope:
    ((envelope, _),) = outgoing
    return envelope


def describe(fetching: SnapshotFetch) -> FetchStep:
    return fetching.received(chunks.description(TITLE, EVALUATOR, ROUND))


def deliver(fetching: SnapshotFetch, request: Envelope) -> FetchStep:
    """Answer requests as the source does until no request follows; return the last step."""
    while True:
        steps = [fetching.received(piece) for piece in SnapshotSource().pieces(request, REPLICA)]
        if not steps[-1].outgoing:
            return steps[-1]
        request = only(list(steps[-1].outgoing))


@pytest.mark.parametrize("source", ["evaluator", "peer"])
def test_a_snapshot_is_fetched_window_by_window_until_complete(source: str) -> None:
    fetching = fetch(source)
    request = only(fetching.request())
    assert (request.client, request.round, request.base, fetching.awaits_evaluator) == (EVALUATOR, ROUND, VERSION, True)
    if source == "peer":
        assert describe(fetching) == FetchStep() and not fetching.awaits_evaluator
        request = only(fetching.client_reported(2))
        assert request.client == 2
    snapshot = deliver(fetching, request).snapshot
    assert snapshot is not None and snapshot.title == TITLE
    assert b"".join(snapshot.pieces) == REPLICA.fields["x"].tobytes()
    assert not fetching.awaits_evaluator


def test_one_snapshot_is_fetched_at_a_time() -> None:
    fetching = fetch()
    assert len(fetching.request()) == 1 and fetching.request() == []


def test_only_the_first_report_makes_a_peer_the_source() -> None:
    fetching = fetch("peer")
    assert fetching.client_reported(0) == []
    fetching.request()
    assert fetching.client_reported(0) == []
    describe(fetching)
    assert only(fetching.client_reported(1)).client == 1 and fetching.client_reported(2) == []


@pytest.mark.parametrize("event", ["left", "moved on", "none left"])
def test_the_evaluator_is_asked_for_the_pieces_once_the_peer_is_gone(event: str) -> None:
    fetching = fetch("peer")
    fetching.request()
    describe(fetching)
    if event == "none left":
        request = only(fetching.no_peer_left())
    else:
        fetching.client_reported(1)
        assert fetching.client_left(2) == [] and fetching.no_peer_left() == []
        no_snapshot = chunks.description(Title(VERSION, 0, b""), 1, ROUND)
        request = only(fetching.client_left(1) if event == "left" else list(fetching.received(no_snapshot).outgoing))
    assert (request.client, request.body) == (EVALUATOR, [SIZE, [[0, WINDOW - 1]]])
    assert deliver(fetching, request).snapshot is not None


def test_a_fetch_fails_if_the_evaluator_has_another_version() -> None:
    fetching = fetch()
    fetching.request()
    assert fetching.received(chunks.description(Title(VERSION, 0, b""), EVALUATOR, ROUND)) == FetchStep(has_failed=True)
    assert not fetching.awaits_evaluator and len(fetching.request()) == 1


def test_peers_are_trusted_again_after_a_complete_snapshot() -> None:
    fetching = fetch("peer")
    fetching.request()
    fetching.close_round()
    assert fetching.distrusts_peers
    fetching.open_round(ROUND + 1, VERSION)
    request = only(fetching.request())
    assert request.body == [SIZE, [[0, WINDOW - 1]]], "the evaluator is asked for pieces at once"
    deliver(fetching, request)
    assert only(fetching.request()).body == [SIZE, []], "the evaluator describes its replica only"


def test_a_piece_that_is_refused_changes_nothing() -> None:
    fetching = fetch()
    request = only(fetching.request())
    foreign = Replica(VERSION, {"x": np.zeros(300, np.float32)})
    with pytest.raises(ReportRefused, match="was not asked for"):
        fetching.received(
            chunks.cut(foreign, chunks.title_of(foreign, SIZE), 9, SIZE).pack(request.kind.PIECE, EVALUATOR, ROUND)
        )
    assert deliver(fetching, request).snapshot is not None


def test_an_abandoned_snapshot_is_not_received() -> None:
    fetching = fetch()
    request = only(fetching.request())
    fetching.abandon()
    assert not fetching.distrusts_peers
    with pytest.raises(ReportRefused, match="was not asked for its replica"):
        fetching.received(SnapshotSource().pieces(request, REPLICA)[0])
