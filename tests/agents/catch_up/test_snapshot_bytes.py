"""The bytes of a snapshot are counted as its messages have them, without making them all."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from seedbus.agents.catch_up import chunks, snapshot_bytes
from seedbus.agents.catch_up.settings import Lag
from seedbus.agents.catch_up.snapshot_bytes import SnapshotBytes
from seedbus.agents.messages import Join, Span
from seedbus.algorithms.contract import Replica
from seedbus.bus import Envelope, Kind
from seedbus.bus.codec import encode

CHUNK = 256
PROOFS = {"selftest": bytes(8), "x0": bytes(8)}


@pytest.mark.parametrize("size", [4, CHUNK - 4, CHUNK, CHUNK + 4, 300 * CHUNK, 300 * CHUNK + 8])
def test_the_count_is_the_length_of_all_messages(size: int) -> None:
    lag, version, client, round = Lag(snapshot_after_commits=1, chunk_bytes=CHUNK, window=7), 70_000, 200, 3
    replica = Replica(version, {"x": np.zeros(size // 4, np.float32)})
    title = chunks.title_of(replica, CHUNK)
    cut = [chunks.cut(replica, title, index, CHUNK) for index in range(title.count)]
    windows = [range(first, min(first + 7, title.count)) for first in range(0, title.count, 7)]
    sent, pieces = (
        sum(len(encode(each.pack(kind, client, round))[0]) for each in cut) for kind in (Kind.SNAPSHOT, Kind.PIECE)
    )
    pulls = sum(len(encode(chunks.pull(title, each, client, round))[0]) for each in windows)
    fetches = sum(len(encode(chunks.fetch(version, CHUNK, each, client, round))[0]) for each in windows)
    offer = len(encode(chunks.offer(title, 7, client, round))[0])
    join = len(encode(Join(client, (Span(client, client, version),), **PROOFS).pack())[0])
    counts = SnapshotBytes(size, lag, PROOFS)
    assert counts.of_offer(version, client, round) == (offer + sent, join + pulls)
    assert counts.of_fetch(version, client, round) == (fetches, pieces)


def test_a_large_replica_is_counted_without_its_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    encoded: list[Envelope] = []

    def seen(envelope: Envelope) -> Any:
        encoded.append(envelope)
        return encode(envelope)

    monkeypatch.setattr(snapshot_bytes, "encode", seen)
    counts = SnapshotBytes(44_000_000, Lag(snapshot_after_commits=1), PROOFS)
    down, _ = counts.of_offer(1000, 1, 1)
    assert 44_000_000 < down < 44_200_000
    assert sum(each.kind is Kind.SNAPSHOT for each in encoded) == 3, "the offer, one chunk, and the last one"
