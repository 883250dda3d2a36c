"""Clients that send what no honest client ever sends."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from worlds import DECOMFL, holds, scenario

from seedbus.agents.catch_up import chunks
from seedbus.agents.catch_up.client import version_of
from seedbus.bus import EVALUATOR, Envelope, Kind, Offer, Recruit, decode, encode
from seedbus.bus.transport import Follower
from seedbus.scenarios.errors import Interrupted
from seedbus.scenarios.running.run import run
from seedbus.scenarios.transports.placement import Placement
from seedbus.studies.stress.invariants import Inspector

LIAR = 2


def note(client: int = LIAR, version: int = 5, **changes: Any) -> bytes:
    """Return a client's note of a partly downloaded snapshot of three chunks."""
    fields = {"count": 3, "digest": bytes(16), "window": 4, "chunk_bytes": 64, "bits": b"\1", "wanted": [[1, 2]]}
    fields["checked"] = bytes(8)
    return encode(Envelope(Kind.WAKE, client, 7, version, list((fields | changes).values())))[0]


FALSE = {
    "bytes": note()[:2] + b"\xff" * 20,
    "cut short": note()[:-1],
    "another's": note(client=LIAR + 1),
    "a word": note(bits="bits"),
    "no chunk": note(count=0, bits=b""),
    "fewer than none": note(count=-5, bits=b""),
    "a window of all there is": note(window=2**40, wanted=[[0, 2**32]]),
    "other bits": note(bits=bytes(9)),
    "a short sum": note(checked=bytes(7)),
}


@pytest.mark.parametrize("frame", FALSE.values(), ids=FALSE)
def test_a_note_that_is_none_is_of_no_version(frame: bytes) -> None:
    assert version_of(note(), LIAR) == 5 and version_of(frame, LIAR) == 0


class _Returning:
    """A follower whose client `LIAR` answers with these frames when it is told to join."""

    def __init__(self, frames: list[bytes], follower: Follower) -> None:
        self._frames = frames
        self._follower = follower
        self.join: Callable[[int, bytes], list[bytes]] = follower.join
        self.welcome: Callable[[bytes], None] = follower.welcome

    def handle(self, frame: bytes) -> list[bytes]:
        answers, asked = self._follower.handle(frame), decode(frame)
        return self._frames if asked.client == LIAR and asked.kind is Kind.WAKE else answers


@pytest.mark.parametrize(
    ("frames", "reason"),
    [
        ([], None),
        ([b"noise"], "malformed"),
        ([encode(Envelope(Kind.JOIN, LIAR, 1, 0, ["no spans"]))[0]], "bad-payload"),
        ([encode(Envelope(Kind.REPORT, LIAR, 1, 0, [b""]))[0]] * 2, "not-a-member"),
    ],
    ids=["silence", "noise", "a JOIN that cannot be read", "reports"],
)
def test_a_run_below_its_quorum_does_not_wait_for_the_join_of_a_client_that_sends_none(
    tmp_path: Path, frames: list[bytes], reason: str | None
) -> None:
    late = [{"fault": "late-joiners", "clients": [client], "at_round": at} for client, at in ((LIAR, 1), (3, 3))]
    what = scenario(participation={"clients": 4, "quorum": 3, "deadline_s": 1.0}, faults=late, stop={"rounds": 8})
    where = Placement(wrap=lambda recruit: lambda offer: _Returning(frames, recruit(offer)))
    summary = run(what, tmp_path / "run", placement=where).summary
    assert (summary["rounds"], summary["version"]) == (8, 5), "client 3 came in round 3 and made the quorum"
    assert reason is None or set(summary["refusals"][reason]) == {str(LIAR)}


class _Answering:
    """A follower of which `LIAR` answers messages of some kinds with what `answer` makes of its honest answers."""

    def __init__(self, kinds: set[Kind], answer: Callable[[list[bytes]], list[bytes]], follower: Follower) -> None:
        self._kinds = kinds
        self._answer = answer
        self._follower = follower
        self.join: Callable[[int, bytes], list[bytes]] = follower.join
        self.welcome: Callable[[bytes], None] = follower.welcome

    def handle(self, frame: bytes) -> list[bytes]:
        answers, asked = self._follower.handle(frame), decode(frame)
        return self._answer(answers) if asked.client == LIAR and asked.kind in self._kinds else answers


def nothing(answers: list[bytes]) -> list[bytes]:
    return []


def misplaced(answers: list[bytes]) -> list[bytes]:
    """Answers of a round that has not begun."""
    return [encode(each._replace(round=each.round + 100))[0] for each in map(decode, answers)]


SECURE = {
    "algorithm": {"name": "decomfl", "arithmetic": "integer", "precision": "int32"},
    "participation": {"clients": 8, "cohort": 5, "quorum": 2},
    "secure_aggregation": {},
}
FROM_PEER = {"lag": {"source": "peer", "snapshot_after_commits": 1, "chunk_bytes": 64, "window": 2}}
BUFFERED = {"participation": {"clients": 8, "cohort": 4, "buffer": 4, "late": {"max_staleness": 5}}}


@pytest.mark.few(4)
@pytest.mark.parametrize("clock", ["virtual", "wall"])
@pytest.mark.parametrize("answer", [nothing, misplaced])
@pytest.mark.parametrize(
    ("kinds", "changes"),
    [
        ({Kind.PLAN}, {}),
        ({Kind.PLAN}, BUFFERED),
        ({Kind.ASK}, SECURE),
        ({Kind.SNAPSHOT}, FROM_PEER),
        ({Kind.FETCH}, FROM_PEER),
    ],
    ids=["plan", "plan with a buffer", "ask", "snapshot", "fetch"],
)
def test_a_member_whose_answers_are_none_does_not_hold_up_a_run_without_a_deadline(
    tmp_path: Path, kinds: set[Kind], changes: dict[str, Any], answer: Any, clock: str
) -> None:
    what = scenario(**({"network": {}} | changes), clock=clock, seed=3)
    where = Placement(wrap=lambda recruit: lambda offer: _Answering(kinds, answer, recruit(offer)))
    results = run(what, tmp_path / "run", placement=where)
    refused = {client for clients in results.summary["refusals"].values() for client in clients}
    assert results.summary["rounds"] == 20 and holds(results)
    assert refused <= {str(LIAR)} and (refused or kinds & {Kind.SNAPSHOT, Kind.FETCH}), results.summary["refusals"]


def other_weights(answers: list[bytes]) -> list[bytes]:
    """Pieces of another replica, each of which looks right by itself."""
    pieces = [(each, chunks.unpack(each)) for each in map(decode, answers)]
    changed = [
        (each, replace(chunk, data=bytes([chunk.data[0] ^ 1]) + chunk.data[1:]))
        for each, chunk in pieces
        if isinstance(chunk, chunks.Chunk)
    ]
    return [encode(chunk.pack(Kind.PIECE, LIAR, each.round))[0] for each, chunk in changed]


def test_a_forged_snapshot_is_counted_under_the_peer_that_made_it(tmp_path: Path) -> None:
    """Not under the client that it was meant for, which is given the evaluator's."""
    what = scenario(**FROM_PEER, network={}, seed=3)
    where = Placement(wrap=lambda recruit: lambda offer: _Answering({Kind.FETCH}, other_weights, recruit(offer)))
    results = run(what, tmp_path / "run", placement=where)
    assert holds(results) and set(results.summary["refusals"]) == {"bad-snapshot"}
    assert set(results.summary["refusals"]["bad-snapshot"]) == {str(LIAR)}


def test_an_evaluator_that_answers_nothing_does_not_hold_up_a_run(tmp_path: Path) -> None:
    what = scenario(stop={"rounds": 5})
    where = Placement(wrap=lambda recruit: lambda offer: _Mute(recruit(offer)))
    summary = run(what, tmp_path / "run", placement=where).summary
    assert (summary["rounds"], summary["version"]) == (5, 5)
    assert summary["refusals"] == {"no-answer": {str(EVALUATOR): 2}}


def adding(frame: bytes, recruit: Recruit) -> Recruit:
    """Return a `recruit` of which one client adds a frame to its answer to every chunk of a snapshot."""
    return lambda offer: _Adding(frame, recruit(offer), offer)


class _Mute:
    """A follower whose evaluator answers nothing."""

    def __init__(self, follower: Follower) -> None:
        self._follower = follower
        self.join: Callable[[int, bytes], list[bytes]] = follower.join
        self.welcome: Callable[[bytes], None] = follower.welcome

    def handle(self, frame: bytes) -> list[bytes]:
        answers = self._follower.handle(frame)
        return [] if decode(frame).client == EVALUATOR else answers


class _Adding:
    def __init__(self, frame: bytes, follower: Follower, offer: Offer) -> None:
        self._frame = frame
        self._follower = follower
        self.join: Callable[[int, bytes], list[bytes]] = follower.join
        self.welcome: Callable[[bytes], None] = follower.welcome

    def handle(self, frame: bytes) -> list[bytes]:
        answers, asked = self._follower.handle(frame), decode(frame)
        is_chunk = asked.client == LIAR and asked.kind is Kind.SNAPSHOT
        return [*answers, self._frame] if is_chunk else answers


@pytest.mark.few(1)
@pytest.mark.parametrize("frame", [FALSE["bytes"], FALSE["other bits"]], ids=["bytes", "other bits"])
def test_a_run_in_which_a_client_noted_nonsense_can_be_resumed(tmp_path: Path, frame: bytes) -> None:
    what = scenario(
        algorithm=DECOMFL,
        participation={"clients": 8, "cohort": 2, "deadline_s": 1.0},
        lag={"snapshot_after_commits": 2, "chunk_bytes": 64, "window": 1},
    )
    where = Placement(wrap=partial(adding, frame))
    whole = run(what, tmp_path / "whole", placement=where)
    assert "SNAPSHOT" in set(whole.messages.query(f"recipient == {LIAR}")["kind"])
    with pytest.raises(Interrupted):
        run(what, tmp_path / "run", placement=where, observer=Inspector(what, stop_after=15))
    resumed = run(what, tmp_path / "run", resume=True, placement=where)
    assert resumed.summary["version"] == whole.summary["version"]


def test_an_answer_of_no_bytes_cannot_be_damaged_on_its_way(tmp_path: Path) -> None:
    upwards = {"fault": "corrupt", "bits": 2, "direction": "up"}
    what = scenario(
        participation={"clients": 8, "cohort": 3, "deadline_s": 1.0},
        faults=[{"fault": "hostile", "clients": [LIAR], "kinds": ["noise", "join"]}, upwards],
    )
    assert run(what, tmp_path / "run").summary["rounds"] == 20
