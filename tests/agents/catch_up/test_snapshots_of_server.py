"""The server's side of snapshots, without an event loop: which client may pull what, from whom, and what is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from coordinator_cases import (
    ALGORITHM,
    PROOF,
    DrivenCoordinator,
    cohort_of,
    joined_coordinator,
    joins,
    plans_of,
    positions,
    report,
)
from hypothesis import given, settings
from hypothesis import strategies as st

from seedbus.agents import messages
from seedbus.agents.catch_up import chunks
from seedbus.agents.catch_up.chunks import Chunk, Title
from seedbus.agents.catch_up.client import SnapshotSource
from seedbus.agents.catch_up.settings import Lag
from seedbus.agents.messages import Join, Span
from seedbus.algorithms.contract import Replica
from seedbus.bus import EVALUATOR, Envelope, Kind, Tally

SIZE, WINDOW = 64, 3
X0 = np.linspace(-1, 1, 200, dtype=np.float32)  # 800 bytes, 13 chunks


class SnapshotScene:
    """A coordinator with three clients that are asked in every round; client 2 joins after `rounds` rounds."""

    def __init__(self, source: str = "evaluator", rounds: int = 5, **options: Any) -> None:
        lag = Lag(snapshot_after_commits=2, source=source, chunk_bytes=SIZE, window=WINDOW)
        self.coordinator: DrivenCoordinator = joined_coordinator(clients=3, cohort=3, lag=lag, **options)
        self.truth: Replica = ALGORITHM.replica(X0)
        self.plans: list[Envelope] = []
        self.coordinator.left([2])
        for _ in range(rounds):
            self.open()
            for client in (0, 1):
                assert self.coordinator.reported(report(self.coordinator, client)) is None
            self.close()
        self.coordinator.joined(Join(2, (Span(2, 2, 0),), **PROOF), is_due=True)

    def open(self) -> list[Envelope]:
        self.plans = [envelope for envelope, _ in plans_of(self.coordinator)]
        return self.plans

    def close(self) -> None:
        commit = self.coordinator.close_round().commit
        if commit is not None:
            ALGORITHM.apply(self.truth, [commit])

    def sent(self) -> list[Envelope]:
        return [envelope for envelope, _ in self.coordinator.take_sent()]

    def give(self, request: Envelope) -> None:
        """Let the source send what it is asked for."""
        for piece in SnapshotSource().pieces(request, self.truth):
            assert self.coordinator.reported(piece) is None

    def awaits(self) -> bool:
        return self.coordinator.catch_up.awaits_evaluator

    def holds(self) -> bool:
        return self.coordinator.catch_up.held is not None

    def request_snapshot(self) -> list[Envelope]:
        """Let each source send the pieces that it is asked for; return the other messages that are sent."""
        others: list[Envelope] = []
        while sent := self.sent():
            for envelope in sent:
                if envelope.kind is Kind.FETCH:
                    self.give(envelope)
                else:
                    others.append(envelope)
        return others

    @property
    def title(self) -> Title:
        return chunks.title_of(self.truth, SIZE)

    def offered(self) -> Title:
        """Let client 2 be offered a snapshot; return its title."""
        self.open()
        (offer,) = self.request_snapshot()
        title = chunks.unpack(offer)
        assert title == (self.title, WINDOW)
        return self.title

    def pull(self, *indices: int, client: int = 2, title: Title | None = None) -> Any:
        return self.coordinator.reported(chunks.pull(title or self.title, indices, client, self.coordinator.round))


def reason(refusal: Any) -> str:
    assert refusal is not None
    return str(refusal.reason)


def test_a_lagging_client_is_offered_a_snapshot_and_others_get_their_plans() -> None:
    stage = SnapshotScene()
    assert [plan.client for plan in stage.open()] == [0, 1]
    (offer,) = stage.request_snapshot()
    assert (offer.kind, offer.client, offer.base) == (Kind.SNAPSHOT, 2, 5)
    assert stage.pull(0, 1, 2) is None
    sent = stage.coordinator.take_sent()
    contents = b"".join(field.tobytes() for _, field in sorted(stage.truth.fields.items()))
    for index, (envelope, tally) in enumerate(sent):
        assert chunks.unpack(envelope) == Chunk(stage.title, index, contents[SIZE * index : SIZE * (index + 1)])
        assert tally == Tally(catchup_bytes=tally.catchup_bytes) and tally.catchup_bytes > SIZE
    assert len(sent) == 3


def test_a_client_that_has_installed_a_snapshot_gets_the_rest_in_its_plan() -> None:
    stage = SnapshotScene()
    stage.offered()
    plans, refusal = joins(stage.coordinator, Join(2, (Span(2, 2, 5),), **PROOF))
    assert refusal is None
    ((plan, _),) = plans
    assert (plan.kind, plan.client, ALGORITHM.unpack_commits(plan.body[1])) == (Kind.PLAN, 2, [])


def test_a_snapshot_serves_until_it_is_older_than_the_budget() -> None:
    stage = SnapshotScene()
    stage.offered()
    versions = []
    for _ in range(6):
        for client in (0, 1):
            stage.coordinator.reported(report(stage.coordinator, client))
        stage.close()
        stage.open()
        versions += [envelope.base for envelope in stage.request_snapshot()]
    assert versions == [5, 5, 8, 8, 8, 11]


def test_no_snapshot_is_fetched_without_a_client_that_needs_it() -> None:
    stage = SnapshotScene(rounds=2)
    assert len(stage.open()) == 3 and stage.sent() == []


@pytest.mark.parametrize(
    ("wanted", "word"),
    [((13,), "no-chunk"), ((2**31,), "no-chunk"), ((0, 1, 2, 3), "bad-payload"), ((0, 2, 1), "bad-payload")],
)
def test_absurd_chunks_are_refused(wanted: tuple[int, ...], word: str) -> None:
    stage = SnapshotScene()
    stage.offered()
    assert reason(stage.pull(*wanted)) == word
    assert stage.sent() == []


def test_only_a_client_that_was_offered_a_snapshot_can_pull_it() -> None:
    stage = SnapshotScene()
    assert reason(stage.pull(0)) == "no-snapshot"
    title = stage.offered()
    assert reason(stage.pull(0, client=0)) == "not-offered"
    assert reason(stage.pull(0, client=7)) == "not-a-member"
    others = (Title(4, 13, title.digest), Title(5, 13, b"x" * 16))
    for other in others:  # its version was not the expected one, so it gets its plan again
        assert stage.pull(0, client=0, title=other) is None
        assert [(envelope.kind, envelope.client) for envelope in stage.sent()] == [(Kind.PLAN, 0)]
    assert reason(stage.pull(0, client=0, title=others[0])) == "no-snapshot"
    assert stage.sent() == []


@pytest.mark.slow
@settings(max_examples=300)
@given(
    st.sampled_from([Kind.PULL, Kind.PIECE]),
    st.sampled_from([EVALUATOR, 0, 1, 2, 3, 9]),
    st.integers(0, 7),
    st.recursive(
        st.one_of(st.integers(-2, 2**32), st.binary(max_size=20), st.floats(), st.text(max_size=3)),
        lambda inner: st.lists(inner, max_size=4),
        max_leaves=8,
    ).filter(lambda body: isinstance(body, list)),
)
def test_any_message_is_refused_or_harmless(kind: Kind, client: int, base: int, body: Any) -> None:
    stage = SnapshotScene("peer")
    stage.open()
    before = stage.coordinator.catch_up.pack()
    refusal = stage.coordinator.reported(Envelope(kind, client, stage.coordinator.round, base, body))
    assert refusal is not None or client == EVALUATOR
    assert stage.coordinator.catch_up.held is None and stage.coordinator.catch_up.pack() == before


def test_a_description_of_the_evaluator_comes_before_a_peer_is_asked() -> None:
    stage = SnapshotScene("peer")
    stage.open()
    (request,) = stage.sent()
    assert (request.kind, request.client, request.body) == (Kind.FETCH, EVALUATOR, [SIZE, []])
    assert stage.awaits()
    stage.give(request)
    assert not stage.awaits() and stage.sent() == []
    stage.coordinator.reported(report(stage.coordinator, 1))
    (request,) = stage.sent()
    assert (request.client, request.base, request.body) == (1, 5, [SIZE, [[0, 2]]])
    stage.give(request)
    (offer,) = stage.request_snapshot()
    assert (offer.kind, offer.client) == (Kind.SNAPSHOT, 2)


def test_a_client_that_has_reported_gets_no_plan_in_place_of_a_snapshot_that_is_gone() -> None:
    stage = SnapshotScene()
    stage.open()
    stage.request_snapshot()
    stage.coordinator.reported(report(stage.coordinator, 0))
    gone = Title(1, 1, bytes(chunks.DIGEST_BYTES))
    assert reason(stage.pull(0, client=0, title=gone)) == "no-snapshot" and stage.sent() == []
    assert stage.pull(0, client=1, title=gone) is None and [each.kind for each in stage.sent()] == [Kind.PLAN]


def test_a_client_that_reports_late_is_no_peer() -> None:
    stage = SnapshotScene("peer", policy={"late": {}})
    stage.open()
    stage.give(stage.sent()[0])
    late = report(stage.coordinator, 0)
    stage.coordinator.deadline_passed(5)
    stage.close()
    stage.open()
    stage.sent()
    assert stage.coordinator.reported(late) is None and stage.sent() == []


def _peer_asked() -> tuple[SnapshotScene, Envelope]:
    stage = SnapshotScene("peer")
    stage.open()
    stage.give(stage.sent()[0])
    stage.coordinator.reported(report(stage.coordinator, 1))
    return stage, stage.sent()[0]


def _damaged(piece: Envelope) -> Envelope:
    *rest, data = piece.body
    return Envelope(piece.kind, piece.client, piece.round, piece.base, [*rest, bytes([data[0] ^ 1]) + data[1:]])


def test_pieces_that_were_not_requested_are_refused() -> None:
    stage, request = _peer_asked()
    title = stage.title
    good = SnapshotSource().pieces(request, stage.truth)
    cases: list[tuple[Envelope, str]] = [
        (_damaged(good[0]), "bad-payload"),
        (chunks.cut(stage.truth, title, 9, SIZE).pack(Kind.PIECE, 1, 5), "not-fetched"),
        (Chunk(title, 0, b"short").pack(Kind.PIECE, 1, 5), "bad-payload"),
        (Chunk(title, 0, bytes(SIZE + 1)).pack(Kind.PIECE, 1, 5), "bad-payload"),
        (Chunk(Title(5, 12, title.digest), 0, bytes(SIZE)).pack(Kind.PIECE, 1, 5), "not-fetched"),
        (Chunk(Title(4, 13, title.digest), 0, bytes(SIZE)).pack(Kind.PIECE, 1, 5), "not-fetched"),
        (chunks.cut(stage.truth, title, 0, SIZE).pack(Kind.PIECE, 0, 5), "not-fetched"),
        (chunks.description(title, 1, 5), "not-fetched"),
    ]
    for piece, word in cases:
        assert reason(stage.coordinator.reported(piece)) == word
    for piece in good:
        assert stage.coordinator.reported(piece) is None
    assert reason(stage.coordinator.reported(good[0])) == "not-fetched"
    assert [offer.client for offer in stage.request_snapshot()] == [2]


def test_a_peer_that_leaves_is_replaced_by_the_evaluator_at_once() -> None:
    stage, _ = _peer_asked()
    stage.coordinator.left([1])
    assert [request.client for request in stage.sent()] == [EVALUATOR]


def test_a_peer_that_does_not_deliver_is_replaced_in_the_next_round() -> None:
    stage, request = _peer_asked()
    stage.coordinator.deadline_passed(stage.coordinator.round)
    stage.close()
    assert stage.coordinator.reported(SnapshotSource().pieces(request, stage.truth)[0]) is not None
    stage.open()
    (request,) = stage.sent()
    assert (request.client, request.body) == (EVALUATOR, [SIZE, [[0, 2]]])


def test_the_evaluator_is_the_source_once_no_client_can_be_the_peer() -> None:
    stage = SnapshotScene("peer")
    stage.open()
    stage.give(stage.sent()[0])
    stage.coordinator.left([0, 1])
    assert [(request.kind, request.client) for request in stage.sent()] == [(Kind.FETCH, EVALUATOR)]


def test_a_forged_snapshot_is_counted_under_the_peer_that_made_it_and_given_to_nobody() -> None:
    stage, request = _peer_asked()
    forged = ALGORITHM.replica(X0 + 1)
    forged.version = stage.truth.version
    title = chunks.title_of(stage.truth, SIZE)
    stage.request_snapshot()
    while request.client != EVALUATOR:
        _, indices = chunks.unpack_fetch(request, WINDOW)
        pieces = [chunks.cut(forged, title, index, SIZE) for index in indices if index < title.count]
        refused = [stage.coordinator.reported(each.pack(Kind.PIECE, 1, request.round)) for each in pieces]
        (request,) = stage.sent()
    assert [each.reason for each in refused if each is not None] == ["bad-snapshot"]
    assert refused[-1] is not None and refused[-1].client == 1 and not stage.holds()
    assert not stage.coordinator.catch_up._asks_peers, "also if the server is killed before that"
    stage.give(request)
    stage.request_snapshot()
    assert stage.holds(), "the evaluator delivers it in the same round"


def test_a_client_that_finds_a_snapshot_bad_replays_and_others_may_still_pull_it() -> None:
    """Also if it came from a peer: it has the digest that the evaluator described."""
    stage, request = _peer_asked()
    stage.give(request)
    stage.request_snapshot()
    assert stage.holds()
    assert reason(stage.pull()) == "bad-snapshot"
    (plan,) = stage.sent()
    assert (plan.kind, plan.client, len(ALGORITHM.unpack_commits(plan.body[1]))) == (Kind.PLAN, 2, 5)
    title = stage.title
    stage.coordinator.deadline_passed(stage.coordinator.round)
    stage.close()
    stage.open()
    assert [chunks.unpack(offer) for offer in stage.sent()] == [(title, WINDOW)]


def test_a_client_that_has_reported_gets_no_plan_if_it_says_that_its_snapshot_is_bad() -> None:
    stage = SnapshotScene()
    stage.offered()
    assert stage.coordinator.reported(report(stage.coordinator, 2)) is None
    assert reason(stage.pull()) == "bad-snapshot" and stage.sent() == []


def test_clients_that_lag_replay_if_the_evaluator_has_no_snapshot() -> None:
    stage = SnapshotScene()
    stage.open()
    stage.sent()
    assert stage.coordinator.reported(chunks.description(Title(5, 0, b""), EVALUATOR, 5)) is None
    (plan,) = stage.sent()
    assert (plan.kind, len(messages.unpack_plan(ALGORITHM, plan)[1])) == (Kind.PLAN, 5)
    assert not stage.awaits()


def test_a_client_that_replays_because_there_is_no_snapshot_may_report_late() -> None:
    stage = SnapshotScene(policy={"late": {"max_staleness": 5}})
    stage.open()
    stage.sent()
    stage.coordinator.reported(chunks.description(Title(5, 0, b""), EVALUATOR, 5))
    assert [plan.client for plan in stage.sent()] == [2]
    answer = report(stage.coordinator, 2)
    stage.coordinator.deadline_passed(5)
    stage.close()
    assert stage.coordinator.reported(answer) is None


def test_a_restored_server_holds_the_same_snapshot_and_serves_it_alike() -> None:
    stage = SnapshotScene()
    title = stage.offered()
    stage.pull(0, 1)
    stage.sent()
    stage.coordinator.deadline_passed(stage.coordinator.round)
    stage.close()
    packed = stage.coordinator.catch_up.take_new()
    assert packed and stage.coordinator.catch_up.take_new() is None
    other = SnapshotScene(rounds=0)
    commits = stage.coordinator.history.since(0)
    other.coordinator.restore(stage.coordinator.checkpoint(), commits, positions(stage.coordinator), packed)
    assert other.coordinator.catch_up.pack() == stage.coordinator.catch_up.pack()
    answers = []
    for coordinator in (stage.coordinator, other.coordinator):
        assert coordinator.reported(chunks.pull(title, (7, 12), 2, 5)) is None
        answers.append([envelope for envelope, _ in coordinator.take_sent()])
    assert answers[0] == answers[1] and len(answers[0]) == 2


def test_a_client_that_joins_after_a_snapshot_may_still_lose_its_position_twice() -> None:
    stage = SnapshotScene()
    stage.offered()
    words = []
    for version in (5, 0, 0, 0):
        _, refusal = joins(stage.coordinator, Join(2, (Span(2, 2, version),), **PROOF))
        words.append(None if refusal is None else refusal.reason)
    assert words == [None, None, None, "joins-again"]


def test_cohorts_are_drawn_as_without_snapshots() -> None:
    stage = SnapshotScene()
    assert cohort_of(stage.coordinator) == [0, 1]
    assert stage.coordinator.missing == [0, 1, 2]


def test_a_server_that_crashed_asks_its_source_again() -> None:
    stage, request = _peer_asked()
    pieces = SnapshotSource().pieces(request, stage.truth)
    assert stage.coordinator.reported(pieces[0]) is None
    stage.coordinator.checkpoint()
    stage.coordinator.crashed()
    assert reason(stage.coordinator.reported(pieces[1])) == "not-fetched"
    stage.open()
    (again,) = stage.sent()
    assert (again.kind, again.client) == (Kind.FETCH, EVALUATOR)


def test_a_client_that_has_installed_a_snapshot_gets_its_plan_even_if_it_was_told_to_join() -> None:
    stage = SnapshotScene()
    stage.offered()
    plans, refusal = joins(stage.coordinator, Join(2, (Span(2, 2, 5),), **PROOF), is_due=True)
    assert refusal is None and [(plan.kind, plan.client) for plan, _ in plans] == [(Kind.PLAN, 2)]


def test_a_client_that_was_sent_nothing_before_its_round_closed_is_asked_again() -> None:
    stage = SnapshotScene("peer", policy={"buffer": 2, "late": {"max_staleness": 100}})
    assert 2 not in [plan.client for plan in stage.open()] and 2 in stage.coordinator.missing
    for client in (0, 1):
        assert stage.coordinator.reported(report(stage.coordinator, client)) is None
    stage.close()
    stage.open()
    assert 2 in stage.coordinator.missing
