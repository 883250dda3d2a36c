"""The server's side of snapshots as a state machine: each event adds the messages that are to be sent."""

from __future__ import annotations

import msgpack
import numpy as np
import pytest

from seedbus.agents.catch_up import chunks
from seedbus.agents.catch_up.chunks import Title
from seedbus.agents.catch_up.client import SnapshotSource
from seedbus.agents.catch_up.settings import Lag
from seedbus.agents.catch_up.snapshots import MAX_RESENDS, Snapshot, Snapshots
from seedbus.algorithms.contract import Replica, ReportRefused
from seedbus.bus import EVALUATOR, Envelope, Kind

SIZE, WINDOW, ROUND, VERSION = 64, 3, 8, 5
REPLICA = Replica(VERSION, {"x": np.linspace(-1, 1, 100, dtype=np.float32)})  # 400 bytes, 7 chunks
TITLE = chunks.title_of(REPLICA, SIZE)
PIECES = [chunks.cut(REPLICA, TITLE, index, SIZE).data for index in range(TITLE.count)]
HELD = Snapshot(TITLE, PIECES)
LAGGING = 9
FIRST = [SIZE, [[0, WINDOW - 1]]]
"""The body of a FETCH for the first pieces."""


def snapshots(source: str = "evaluator") -> Snapshots:
    lag = Lag(snapshot_after_commits=1, source=source, chunk_bytes=SIZE, window=WINDOW)
    result = Snapshots(lag, {"x": np.dtype(np.float32)})
    result.round, result.version = ROUND, VERSION
    return result


def holding(held: Snapshot = HELD) -> Snapshots:
    result = snapshots()
    result.held = held
    return result


def sent(of: Snapshots) -> list[Envelope]:
    messages, of.messages = of.messages, []
    return [envelope for envelope, _ in messages]


def only(of: Snapshots) -> Envelope:
    (envelope,) = sent(of)
    return envelope


def requested(of: Snapshots) -> Envelope:
    of.request(LAGGING, is_fresh=True)
    return only(of)


def describe(of: Snapshots, count: int = TITLE.count, client: int = EVALUATOR) -> None:
    of.take_piece(chunks.description(Title(VERSION, count, TITLE.digest if count else b""), client, ROUND))


def deliver(of: Snapshots, request: Envelope) -> Envelope:
    """Answer requests as the source does until no request follows; return the offer."""
    while request.kind is Kind.FETCH:
        for piece in SnapshotSource().pieces(request, REPLICA):
            of.take_piece(piece)
        request = only(of)
    return request


def test_one_snapshot_is_fetched_at_a_time() -> None:
    fetching = snapshots()
    requested(fetching)
    fetching.request(LAGGING + 1, is_fresh=True)
    assert sent(fetching) == [] and fetching.close() == [LAGGING, LAGGING + 1]


def test_only_the_first_report_makes_a_peer_the_source() -> None:
    fetching = snapshots("peer")
    fetching.reported(0)
    assert sent(fetching) == []
    requested(fetching)
    fetching.reported(0)
    assert sent(fetching) == []
    describe(fetching)
    for client in (1, 2):
        fetching.reported(client)
    assert only(fetching).client == 1


def test_the_evaluator_is_asked_for_the_pieces_once_the_peer_has_another_version() -> None:
    fetching = snapshots("peer")
    requested(fetching)
    describe(fetching)
    fetching.settle({LAGGING, 1})
    fetching.reported(1)
    sent(fetching)
    fetching.left([2])
    fetching.settle({LAGGING})
    assert sent(fetching) == [], "the peer is there"
    describe(fetching, 0, client=1)
    request = only(fetching)
    assert (request.client, request.body) == (EVALUATOR, FIRST)
    assert deliver(fetching, request).client == LAGGING


def test_peers_are_trusted_again_after_a_complete_snapshot() -> None:
    fetching = snapshots("peer")
    requested(fetching)
    assert fetching.close() == [LAGGING] and fetching.distrusts_peers
    request = requested(fetching)
    assert request.body == FIRST, "the evaluator is asked for pieces at once"
    deliver(fetching, request)
    assert requested(fetching).body == [SIZE, []], "the evaluator describes its replica only"


def offered(of: Snapshots, *clients: int) -> None:
    for client in clients:
        of.request(client, is_fresh=False)
    sent(of)


def pull(of: Snapshots, client: int, *wanted: int, title: Title = TITLE) -> list[Envelope]:
    assert of.pulled(chunks.pull(title, wanted, client, ROUND))
    return sent(of)


def test_a_client_pulls_all_that_it_was_offered_and_not_one_chunk_more() -> None:
    giving = holding()
    offered(giving, 2)
    with pytest.raises(ReportRefused, match="chunk 7 of a snapshot of 7"):
        pull(giving, 2, 0, 7)
    for _ in range(MAX_RESENDS):
        for wanted in ((0, 1, 2), (3, 4, 5), (6,)):
            pull(giving, 2, *wanted)
    with pytest.raises(ReportRefused, match="client 2 pulls more than it was offered"):
        pull(giving, 2, 6)


def test_a_renewal_wastes_what_clients_have_pulled_or_are_about_to_pull() -> None:
    whole = 900

    def wasted(of: Snapshots, patience: int) -> int:
        return of.renewal_bytes(whole, 0, patience)

    giving = holding()
    giving.version = VERSION + 1
    assert wasted(giving, 6) == 0
    offered(giving, 2)
    assert (wasted(giving, 1), wasted(giving, 0)) == (whole, 0)
    pull(giving, 2, 0, 6)
    assert wasted(giving, 6) == wasted(giving, 0) == 2 * SIZE
    for client in range(3, 20):
        offered(giving, client)
        pull(giving, client, 0, 1, 2)
    assert wasted(giving, 0) == whole
    two, one = [b"".join(PIECES[:4]), b"".join(PIECES[4:])], [b"".join(PIECES)]
    for size, pieces, expected in ((256, two, 256), (400, one, 0)):
        title = chunks.title_of(REPLICA, size)
        other = holding(Snapshot(title, pieces))
        offered(other, 2)
        pull(other, 2, 0, title=title)
        assert wasted(other, 6) == expected, "of a single chunk it has all"


def test_an_offer_ends_when_the_snapshot_is_installed_or_replaced_or_its_client_leaves() -> None:
    giving = holding()
    offered(giving, 1, 2, 3)
    assert [giving.installed(1, version) for version in (4, 5, 5)] == [False, True, False]
    giving.left([2, 2])
    assert list(giving.allowed) == [3]
    deliver(giving, requested(giving))
    assert list(giving.allowed) == [LAGGING]
    with pytest.raises(ReportRefused, match="was not offered"):
        pull(giving, 3, 0)


def test_without_a_snapshot_nothing_is_stored_or_under_way_or_pulled() -> None:
    giving = snapshots()
    assert giving.take_new() is None and giving.renewal_bytes(900, 7, 0) == 0
    assert not giving.pulled(chunks.pull(TITLE, (0,), 2, ROUND))


def test_a_snapshot_that_an_older_build_kept_is_read() -> None:
    """Its record said besides whether a peer had made it."""
    older = msgpack.packb([VERSION, TITLE.count, TITLE.digest, True, b"".join(PIECES)])
    assert Snapshot.unpack(older, SIZE) == HELD == Snapshot.unpack(HELD.pack(), SIZE)
