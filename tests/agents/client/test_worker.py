"""What one process's followers do with each frame, and that nothing which a frame may hold makes them fail."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from algorithm_cases import make
from event_recorder import EventRecorder
from hypothesis import given, settings
from hypothesis import strategies as st

from seedbus.agents import messages
from seedbus.agents.client.worker import Followers, prove
from seedbus.agents.errors import JoinRefused
from seedbus.agents.messages import DIGEST, EVALUATE, Join, Span
from seedbus.algorithms.dense.payloads import DenseCommit
from seedbus.algorithms.scalar_only.decomfl import DeComFL
from seedbus.bus import EVALUATOR, HOST, SERVER, Envelope, Kind, Offer, decode, encode
from seedbus.models import Iid
from seedbus.models.tasks.null import Null

ALGORITHM: Any = DeComFL(perturbations=2)
PROBLEM: Any = Null(losses="keyed").bind(seed=1, clients=6, partition=Iid())


def followers(
    *spans: tuple[int, int], evaluates: bool = False, stands: list[int] | None = None, verify_every: int = 0
) -> Followers:
    """They have joined, and been told to stand at version 0, or where `stands` says."""
    offer = Offer(HOST, spans, evaluates, b"")
    made = Followers(offer, ALGORITHM, PROBLEM, split="test", verify_every=verify_every, observer=EventRecorder())
    count = sum(last - first + 1 for first, last in spans) + evaluates
    versions = stands or [0] * count
    made.welcome(frame(messages.welcome(ALGORITHM, HOST, 9, versions, log(max(versions)))))
    return made


def log(length: int) -> list[Any]:
    scalars = np.array([[0.5, -0.25]], np.float32)
    return [ALGORITHM.aggregate(None, ALGORITHM.plan(r, r, 7 * r), {0: scalars})[0] for r in range(length)]


def frame(envelope: Envelope) -> bytes:
    return encode(envelope)[0]


def plan(client: int, round: int, version: int = 0, missed: int = 0) -> bytes:
    commits = log(version)[version - missed :]
    return frame(messages.pack_plan(ALGORITHM, client, ALGORITHM.plan(round, version, 5), commits)[0])


def commit(version: int, wants: int, commits: int = 1) -> bytes:
    packed = log(version)[version - commits :]
    return frame(messages.pack_commit(ALGORITHM, version, version, packed, wants))


def said(made: Followers, asked: bytes) -> list[Envelope]:
    return [decode(answer) for answer in made.handle(asked)]


def events(made: Followers) -> list[str]:
    observer = made._observer
    assert isinstance(observer, EventRecorder)
    return observer.events


def test_a_process_joins_with_the_versions_of_its_clients_and_its_proof() -> None:
    made = followers((0, 1), (4, 5), evaluates=True, stands=[3, 2, 2, 0, 1])
    (joining,) = made.join(HOST - 4)
    selftest, x0 = prove(ALGORITHM, PROBLEM).values()
    spans = (Span(0, 1, 2), Span(4, 4, 0), Span(5, 5, 1))
    assert Join.unpack(decode(joining)) == Join(HOST - 4, spans, selftest, x0)


def test_many_spans_are_joined_in_parts() -> None:
    made = followers(*((client, client) for client in range(0, 400, 2)))
    joins = [Join.unpack(decode(joining)) for joining in made.join(HOST)]
    assert [len(join.spans) for join in joins] == [64, 64, 64, 8]
    assert [span.first for join in joins for span in join.spans] == list(range(0, 400, 2))


def test_a_process_that_only_evaluates_joins_too() -> None:
    (joining,) = followers(evaluates=True).join(HOST)
    assert Join.unpack(decode(joining)).spans == ()


def test_a_plan_is_answered_with_a_report_of_its_round_and_version() -> None:
    made = followers((0, 3))
    (report,) = said(made, plan(2, 5, version=3, missed=3))
    assert (report.kind, report.client, report.round, report.base) == (Kind.REPORT, 2, 5, 3)
    assert made.host.replicas.version(2) == 3 and made.host.replicas.version(1) == 0


def test_a_client_that_is_asked_again_gives_the_same_answer() -> None:
    made = followers((0, 3))
    first = made.handle(plan(2, 5, version=1, missed=1))
    assert made.handle(plan(2, 5, version=1)) == first == made.handle(plan(2, 5, version=1, missed=1))
    assert made.handle(plan(2, 6, version=1)) != first


def test_a_client_that_missed_more_commits_than_it_was_sent_reports_its_actual_version() -> None:
    made = followers((0, 3), stands=[0, 0, 2, 0])
    (joining,) = said(made, plan(2, 9, version=5, missed=1))
    assert Join.unpack(joining).spans == (Span(2, 2, 2),) and joining.client == 2
    assert events(made) == ["commit-gap"]
    assert said(made, plan(2, 9, version=5, missed=3))[0].kind is Kind.REPORT


def test_a_plan_that_was_overtaken_is_not_acted_upon() -> None:
    made = followers((0, 3))
    made.handle(plan(2, 6, version=4, missed=4))
    assert made.handle(plan(2, 5, version=3, missed=3)) == []
    assert events(made) == ["stale-plan"] and made.host.replicas.version(2) == 4


def test_the_evaluator_answers_what_it_is_asked_and_nothing_else() -> None:
    made = followers(evaluates=True)
    assert said(made, commit(1, 0)) == []
    (evaluation,) = said(made, commit(2, EVALUATE | DIGEST))
    found = messages.Evaluation.unpack(evaluation)
    assert (found.version, found.metrics, set(found.digests)) == (2, {"loss": 0.0}, {"x"})
    replica = ALGORITHM.replica(PROBLEM.x0())
    ALGORITHM.apply(replica, log(2))
    assert found.digests == replica.digests()


@pytest.mark.parametrize(("verify_every", "folded"), [(0, [4]), (1, [4, 4])])
def test_what_the_evaluator_folded_no_client_beside_it_folds_again_unless_it_is_verified(
    monkeypatch: pytest.MonkeyPatch, verify_every: int, folded: list[int]
) -> None:
    made, counts = followers((0, 3), evaluates=True, verify_every=verify_every), []
    apply = type(ALGORITHM).apply

    def count(self: Any, replica: Any, commits: Any) -> None:
        counts.append(len(commits))
        apply(self, replica, commits)

    monkeypatch.setattr(type(ALGORITHM), "apply", count)
    made.handle(commit(4, 0, commits=4))
    made.handle(plan(1, 7, version=4, missed=4))
    assert made.host.replicas.version(1) == 4
    assert counts == folded
    assert made.evaluator is not None
    assert (made.evaluator.replica is made.host.replicas.get(1)) == (verify_every == 0)


def test_followers_stand_anew_where_they_are_told_to() -> None:
    made = followers((0, 1), evaluates=True)
    made.handle(commit(5, 0, commits=5))
    made.handle(plan(1, 7, version=5, missed=5))
    made.welcome(frame(messages.welcome(ALGORITHM, HOST, 9, [3, 2, 0], log(3))))
    assert made.evaluator is not None
    replica = ALGORITHM.replica(PROBLEM.x0())
    ALGORITHM.apply(replica, log(3))
    assert made.evaluator.replica.digest() == replica.digest()
    assert [made.host.replicas.version(client) for client in (0, 1)] == [2, 0]


REFUSALS: dict[str, tuple[bytes, str]] = {
    "refuse": (frame(messages.refuse(HOST, "x0", "another task")), "x0"),
    "junk": (b"\xc1", "bad-welcome"),
    "another kind": (frame(messages.bye(HOST)), "bad-welcome"),
    "too few versions": (frame(messages.welcome(ALGORITHM, HOST, 0, [0])), "bad-welcome"),
    "a log that is too short": (frame(messages.welcome(ALGORITHM, HOST, 0, [4, 0], log(3))), "bad-welcome"),
    "a log without its beginning": (frame(messages.welcome(ALGORITHM, HOST, 0, [2, 0], log(4)[1:])), "bad-welcome"),
}


@pytest.mark.parametrize("name", REFUSALS)
def test_a_welcome_that_is_none_ends_the_process_and_says_why(name: str) -> None:
    answer, reason = REFUSALS[name]
    made = followers((0, 1), stands=[2, 1])
    with pytest.raises(JoinRefused) as caught:
        made.welcome(answer)
    assert caught.value.reason == reason
    assert [made.host.replicas.version(client) for client in (0, 1)] == [2, 1]


UNASKED = [
    b"",
    b"\xc1" * 9,
    plan(5, 1),
    commit(1, EVALUATE),
    frame(Envelope(Kind.REPORT, 1, 0, 0, [b""])),
    frame(Envelope(Kind.PLAN, 1, 0, 0, [[], []])),
    frame(Envelope(Kind.PLAN, 1, 0, 0, [b"", b""])),
    frame(messages.welcome(ALGORITHM, HOST, 0, [0, 0])),
    frame(messages.bye(HOST)),
    frame(Envelope(Kind.COMMIT, SERVER, 0, 0)),
]


@pytest.mark.parametrize("number", range(len(UNASKED)))
def test_what_is_not_for_them_is_noted_and_not_answered(number: int) -> None:
    made = followers((0, 1))
    assert made.handle(UNASKED[number]) == [] and len(events(made)) == 1


MIXED = followers((0, 5), evaluates=True, verify_every=1)
SOUND = [plan(2, 1), plan(3, 4, version=2, missed=2), commit(1, EVALUATE | DIGEST), commit(2, 0, commits=2)]


@settings(max_examples=400, deadline=None)
@given(
    st.sampled_from(SOUND),
    st.lists(st.tuples(st.integers(0, 200), st.integers(0, 255)), min_size=1, max_size=4),
    st.integers(0, 200),
)
def test_whatever_a_frame_is_it_is_answered_or_noted(sound: bytes, changes: list[tuple[int, int]], length: int) -> None:
    content = bytearray(sound)
    for place, value in changes:
        content[place % len(content)] = value
    for asked in (bytes(content), bytes(content[:length]), bytes([*content, *content[:length]])):
        for answer in MIXED.handle(asked):
            assert decode(answer).kind in (Kind.REPORT, Kind.EVALUATION, Kind.JOIN)
            assert decode(answer).client in (*range(6), EVALUATOR)


@pytest.mark.parametrize("verify_every", [0, 1])
def test_an_old_dense_answer_takes_no_memory_and_is_made_anew_to_the_bit(verify_every: int) -> None:
    """A model for each client that ever answered would fill a process; so would old replicas, which lie in files."""
    algorithm: Any = make("scaffold", local_steps=2).sized(PROBLEM.dimension)
    offer = Offer(HOST, ((0, 5),), False, b"")
    made = Followers(offer, algorithm, PROBLEM, split="test", verify_every=verify_every, observer=EventRecorder())
    made.welcome(frame(messages.welcome(algorithm, HOST, 0, [0] * 6)))

    def asked(round: int) -> bytes:
        model = np.full(PROBLEM.dimension, round + 1, np.float32)
        newest = DenseCommit(round + 1, round, (model, model))
        return frame(messages.pack_plan(algorithm, round, algorithm.plan(round, round + 1, 5), [newest])[0])

    first = [made.handle(asked(round)) for round in range(6)]
    assert sorted(made.host._answers) == [4, 5]
    assert isinstance(made.host.replicas.get(0).x, np.memmap)
    assert [made.handle(asked(round)) for round in (0, 3, 5, 1)] == [first[round] for round in (0, 3, 5, 1)]
    assert events(made) == []
