"""The server's distribution of a snapshot as a state machine: each event returns the messages to send."""

from __future__ import annotations

import numpy as np
import pytest

from seedbus.agents.catch_up import chunks
from seedbus.agents.catch_up.chunks import Chunk
from seedbus.agents.catch_up.settings import Lag
from seedbus.agents.server.snapshot import Snapshot
from seedbus.agents.server.snapshot_offers import MAX_RESENDS, BadSnapshot, NoSnapshot, SnapshotOffers
from seedbus.algorithms.contract import Replica, ReportRefused
from seedbus.bus import Kind

SIZE, ROUND = 64, 8
REPLICA = Replica(5, {"x": np.linspace(-1, 1, 100, dtype=np.float32)})  # 400 bytes, 7 chunks
TITLE = chunks.title_of(REPLICA, SIZE)
PIECES = [chunks.cut(REPLICA, TITLE, index, SIZE).data for index in range(TITLE.count)]


def offers() -> tuple[SnapshotOffers, Snapshot]:
    offering = SnapshotOffers(Lag(snapshot_after_commits=1, chunk_bytes=SIZE, window=3))
    snapshot = Snapshot(TITLE, PIECES)
    offering.replace(snapshot)
    return offering, snapshot


def test_a_client_pulls_the_chunks_that_it_was_offered() -> None:
    offering, snapshot = offers()
    offer, tally = offering.offer(2, snapshot, ROUND)
    assert chunks.unpack(offer) == (TITLE, 3) and tally.catchup_bytes > 0
    sent = offering.pulled(chunks.pull(TITLE, (0, 6), 2, ROUND), ROUND)
    assert [chunks.unpack(envelope) for envelope, _ in sent] == [Chunk(TITLE, i, PIECES[i]) for i in (0, 6)]
    assert [envelope[:3] for envelope, _ in sent] == [(Kind.SNAPSHOT, 2, ROUND)] * 2
    assert offering.allowed == {2: MAX_RESENDS * 7 - 2}


def test_a_client_pulls_all_that_it_was_offered_and_not_one_chunk_more() -> None:
    offering, snapshot = offers()
    offering.offer(2, snapshot, ROUND)
    with pytest.raises(ReportRefused, match="chunk 7 of a snapshot of 7"):
        offering.pulled(chunks.pull(TITLE, (0, 7), 2, ROUND), ROUND)
    for _ in range(MAX_RESENDS):
        for wanted in ((0, 1, 2), (3, 4, 5), (6,)):
            offering.pulled(chunks.pull(TITLE, wanted, 2, ROUND), ROUND)
    with pytest.raises(ReportRefused, match="client 2 pulls more than it was offered"):
        offering.pulled(chunks.pull(TITLE, (6,), 2, ROUND), ROUND)


def test_a_renewal_wastes_what_clients_have_pulled_or_are_about_to_pull() -> None:
    offering, snapshot = offers()
    whole, later = 900, TITLE.version + 1

    def wasted(since: int) -> int:
        return offering.bytes_under_way(whole, since)

    assert wasted(0) == 0
    offering.offer(2, snapshot, ROUND)
    assert (wasted(TITLE.version), wasted(later)) == (whole, 0)
    offering.pulled(chunks.pull(TITLE, (0, 6), 2, ROUND), ROUND)
    assert wasted(0) == wasted(later) == 2 * SIZE
    for client in range(3, 20):
        offering.offer(client, snapshot, ROUND)
        offering.pulled(chunks.pull(TITLE, (0, 1, 2), client, ROUND), ROUND)
    assert wasted(later) == whole
    two = Snapshot(chunks.title_of(REPLICA, 256), [b"".join(PIECES[:4]), b"".join(PIECES[4:])])
    offering.replace(two)
    offering.offer(2, two, ROUND)
    offering.pulled(chunks.pull(two.title, (0,), 2, ROUND), ROUND)
    assert wasted(0) == 256
    one = Snapshot(chunks.title_of(REPLICA, 400), [b"".join(PIECES)])
    offering.replace(one)
    offering.offer(2, one, ROUND)
    offering.pulled(chunks.pull(one.title, (0,), 2, ROUND), ROUND)
    assert wasted(0) == 0  # it has all of it


def test_an_offer_ends_when_the_snapshot_is_installed_withdrawn_or_replaced() -> None:
    offering, snapshot = offers()
    for client in (1, 2, 3):
        offering.offer(client, snapshot, ROUND)
    assert [offering.installed(1, version) for version in (4, 5, 5)] == [False, True, False]
    offering.withdraw(2)
    offering.withdraw(2)
    assert list(offering.allowed) == [3]
    offering.replace(snapshot)
    assert offering.allowed == {}
    with pytest.raises(ReportRefused, match="was not offered"):
        offering.pulled(chunks.pull(TITLE, (0,), 3, ROUND), ROUND)


def test_a_snapshot_that_a_client_calls_bad_is_kept_for_others() -> None:
    offering, snapshot = offers()
    offering.take_new()
    for client in (1, 2):
        offering.offer(client, snapshot, ROUND)
    with pytest.raises(BadSnapshot):
        offering.pulled(chunks.pull(TITLE, (), 2, ROUND), ROUND)
    assert offering.held is snapshot and list(offering.allowed) == [1]
    assert offering.take_new() is None


def test_without_a_snapshot_nothing_is_stored_or_under_way() -> None:
    offering = SnapshotOffers(Lag(snapshot_after_commits=1))
    assert offering.take_new() is None and offering.bytes_under_way(900, 0) == 0


def test_a_pull_without_a_snapshot_is_refused() -> None:
    offering, _ = offers()
    offering.replace(None)
    with pytest.raises(NoSnapshot):
        offering.pulled(chunks.pull(TITLE, (0,), 2, ROUND), ROUND)


def test_a_stored_snapshot_is_read_back_unchanged() -> None:
    offering, snapshot = offers()
    packed = offering.take_new()
    assert packed is not None and Snapshot.unpack(packed, SIZE) == snapshot
    assert offering.take_new() is None, "it is new once"
