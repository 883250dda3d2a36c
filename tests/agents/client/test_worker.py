"""The followers of one process: their response to each frame, and their robustness against arbitrary frames."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NoReturn

import numpy as np
import pytest
from algorithm_cases import make
from event_recorder import EventRecorder
from hypothesis import given, settings
from hypothesis import strategies as st

from seedbus.agents import messages
from seedbus.agents.availability import RETURNS
from seedbus.agents.catch_up import chunks
from seedbus.agents.catch_up.chunks import Chunk, Title
from seedbus.agents.catch_up.client import pack_notes
from seedbus.agents.client.client_spec import ClientSpec
from seedbus.agents.client.clients import ELSEWHERE
from seedbus.agents.client.worker import Followers, prove
from seedbus.agents.errors import JoinRefused
from seedbus.agents.messages import DIGEST, EVALUATE, Join, Span
from seedbus.algorithms.contract import Replica
from seedbus.algorithms.dense.payloads import DenseCommit
from seedbus.algorithms.scalar_only.decomfl import DeComFL
from seedbus.bus import EVALUATOR, HOST, SERVER, Envelope, Kind, Offer, decode, encode
from seedbus.models import Iid
from seedbus.models.tasks.null import Null

ALGORITHM: Any = DeComFL(perturbations=2)
PROBLEM: Any = Null(losses="keyed").bind(seed=1, clients=6, partition=Iid())


def followers(
    *spans: tuple[int, int], evaluates: bool = False, versions: list[int] | None = None, verify_every: int = 0
) -> Followers:
    """Return followers that have joined at version 0, or at `versions`."""
    offer = Offer(HOST, spans, evaluates, b"")
    created = Followers(offer, ClientSpec(ALGORITHM, verify_every=verify_every), PROBLEM, EventRecorder())
    count = sum(last - first + 1 for first, last in spans) + evaluates
    start_versions = versions or [0] * count
    created.welcome(frame(messages.welcome(ALGORITHM, HOST, 9, start_versions, log(max(start_versions)))))
    return created


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


def answers_to(hosted: Followers, request: bytes) -> list[Envelope]:
    return [decode(answer) for answer in hosted.handle(request)]


def events(hosted: Followers) -> list[str]:
    observer = hosted._observer
    assert isinstance(observer, EventRecorder)
    return observer.events


def test_a_process_joins_with_the_versions_of_its_clients_and_its_proof() -> None:
    hosted = followers((0, 1), (4, 5), evaluates=True, versions=[3, 2, 2, 0, 1])
    (joining,) = hosted.join(HOST - 4)
    selftest, x0 = prove(ALGORITHM, PROBLEM).values()
    spans = (Span(0, 1, 2), Span(4, 4, 0), Span(5, 5, 1))
    assert Join.unpack(decode(joining)) == Join(HOST - 4, spans, selftest, x0)


def test_many_spans_are_joined_in_parts() -> None:
    hosted = followers(*((client, client) for client in range(0, 400, 2)))
    joins = [Join.unpack(decode(joining)) for joining in hosted.join(HOST)]
    assert [len(join.spans) for join in joins] == [64, 64, 64, 8]
    assert [span.first for join in joins for span in join.spans] == list(range(0, 400, 2))


def test_a_process_that_only_evaluates_joins_too() -> None:
    (joining,) = followers(evaluates=True).join(HOST)
    assert Join.unpack(decode(joining)).spans == ()


def test_a_plan_is_answered_with_a_report_of_its_round_and_version() -> None:
    hosted = followers((0, 3))
    (report,) = answers_to(hosted, plan(2, 5, version=3, missed=3))
    assert (report.kind, report.client, report.round, report.base) == (Kind.REPORT, 2, 5, 3)
    assert hosted.host.replicas.version(2) == 3 and hosted.host.replicas.version(1) == 0


def test_a_client_that_is_asked_again_gives_the_same_answer() -> None:
    hosted = followers((0, 3))
    first = hosted.handle(plan(2, 5, version=1, missed=1))
    assert hosted.handle(plan(2, 5, version=1)) == first == hosted.handle(plan(2, 5, version=1, missed=1))
    assert hosted.handle(plan(2, 6, version=1)) != first


def test_a_client_that_missed_more_commits_than_it_was_sent_reports_its_actual_version() -> None:
    hosted = followers((0, 3), versions=[0, 0, 2, 0])
    (joining,) = answers_to(hosted, plan(2, 9, version=5, missed=1))
    assert Join.unpack(joining).spans == (Span(2, 2, 2),) and joining.client == 2
    assert events(hosted) == ["commit-gap"]
    assert answers_to(hosted, plan(2, 9, version=5, missed=3))[0].kind is Kind.REPORT


def test_an_outdated_plan_is_ignored() -> None:
    hosted = followers((0, 3))
    hosted.handle(plan(2, 6, version=4, missed=4))
    assert hosted.handle(plan(2, 5, version=3, missed=3)) == []
    assert events(hosted) == ["stale-plan"] and hosted.host.replicas.version(2) == 4


TRUTH = ALGORITHM.replica(PROBLEM.x0())
ALGORITHM.apply(TRUTH, log(4))
HALF = -(-chunks.bytes_of(chunks.shape_of(TRUTH)) // 2)
TITLE = chunks.title_of(TRUTH, HALF)


def offer(client: int) -> bytes:
    """An offer of a snapshot of version 4, in two chunks."""
    return frame(chunks.offer(TITLE, 1, client, 6))


def test_a_client_that_has_installed_a_snapshot_joins_and_what_comes_of_it_later_is_stale() -> None:
    hosted = followers((0, 1))
    pieces = [frame(chunks.cut(TRUTH, TITLE, index, HALF).pack(Kind.SNAPSHOT, 0, 6)) for index in range(2)]
    answers = [answers_to(hosted, request) for request in (offer(0), *pieces)]
    (joining,) = answers.pop()
    assert [[answer.kind for answer in each] for each in answers] == [[Kind.PULL, Kind.WAKE]] * 2
    assert Join.unpack(joining).spans == (Span(0, 0, 4),) and joining.round == 6
    assert hosted.host.replicas.get(0).digests() == TRUTH.digests() and hosted.host.replicas.version(1) == 0
    assert [each.kind for each in answers_to(hosted, offer(0))] == [Kind.JOIN]
    assert answers_to(hosted, pieces[0]) == [] and events(hosted) == ["stale-snapshot"] * 2


def test_an_offer_that_cannot_be_read_is_noted_and_leaves_the_download_as_it_was() -> None:
    hosted = followers((0, 1))
    hosted.handle(offer(0))
    (note,) = answers_to(hosted, frame(Envelope(Kind.SNAPSHOT, 0, 6, 5, ["no title", 1, 2])))
    assert note.kind is Kind.WAKE and note.base == 4 and events(hosted) == ["bad-snapshot"]


def test_a_plan_ends_the_download_of_a_snapshot_that_is_no_newer() -> None:
    for version, is_left in ((3, True), (4, False)):
        hosted = followers((0, 1))
        hosted.handle(offer(0))
        hosted.handle(plan(0, 7, version=version, missed=version))
        assert bool(hosted.host.downloads.note(0, 7)) == is_left


@pytest.mark.parametrize(
    ("how", "states", "holds"), [("with-state", 3, 3), ("without-state", 0, 0), ("from-another-run", ELSEWHERE, 0)]
)
def test_a_client_that_is_there_again_joins_with_the_state_that_it_still_has(how: Any, states: int, holds: int) -> None:
    hosted = followers((0, 1), versions=[3, 3])
    hosted.handle(offer(0))
    joining, *notes = answers_to(hosted, frame(Envelope(Kind.WAKE, 0, 8, 9, [RETURNS.index(how)])))
    assert Join.unpack(joining).spans == (Span(0, 0, states),) and (joining.client, joining.round) == (0, 8)
    assert [note.kind for note in notes] == [Kind.WAKE] * bool(holds) and hosted.host.replicas.version(0) == holds
    assert hosted.host.replicas.version(1) == 3


def test_a_client_that_is_refused_starts_from_x0() -> None:
    hosted = followers((0, 1), versions=[3, 3])
    hosted.handle(offer(0))
    (joining,) = answers_to(hosted, frame(Envelope(Kind.REFUSE, 0, 8, 0, ["foreign-version", "…"])))
    assert Join.unpack(joining).spans == (Span(0, 0, 0),) and joining.round == 8
    assert hosted.host.downloads.note(0, 8) == [] and events(hosted) == ["starts-anew"]
    assert answers_to(hosted, plan(0, 8, version=3, missed=3))[0].kind is Kind.REPORT


@pytest.mark.parametrize(("gathers", "tried"), [(True, [1, 3]), (False, [1])])
def test_a_first_round_is_tried_with_as_many_clients_as_work_together_and_nothing_of_it_is_kept(
    monkeypatch: pytest.MonkeyPatch, gathers: bool, tried: list[int]
) -> None:
    """Those with the most samples take the most memory, which is measured meanwhile."""
    worked: list[int] = []
    evaluated: list[str] = []
    monkeypatch.setattr(PROBLEM, "samples", [3, 9, 1, 9].__getitem__)

    def evaluate(x: Any, split: str) -> dict[str, float]:
        evaluated.append(split)
        return {"loss": 0.0}

    monkeypatch.setattr(PROBLEM, "evaluate", evaluate)

    class Counted:
        def __init__(self, client: int) -> None:
            self._client = client
            self.point = PROBLEM.point

        def loss(self, step: int) -> float:
            worked.append(self._client)
            return 0.0

    spec = ClientSpec(ALGORITHM, gathers=gathers)
    hosts: list[tuple[tuple[int, int], ...]] = [((0, 3),), ()]
    hosted, without_clients = (
        Followers(Offer(HOST, spans, True, b""), spec, PROBLEM, EventRecorder()) for spans in hosts
    )
    with monkeypatch.context() as patch:
        patch.setattr(PROBLEM, "objective", lambda client, round: Counted(client))
        hosted.try_first_round(2)
        without_clients.try_first_round(2)
    assert sorted(set(worked)) == tried and evaluated == ["test", "test"]
    hosted.welcome(frame(messages.welcome(ALGORITHM, HOST, 0, [0] * 5)))
    assert hosted.handle(plan(1, 0)) == followers((0, 3)).handle(plan(1, 0))


def test_the_evaluator_answers_only_what_it_is_asked() -> None:
    hosted = followers(evaluates=True)
    assert answers_to(hosted, commit(1, 0)) == []
    (evaluation,) = answers_to(hosted, commit(2, EVALUATE | DIGEST))
    result = messages.Evaluation.unpack(evaluation)
    assert (result.version, result.metrics, set(result.digests)) == (2, {"loss": 0.0}, {"x"})
    replica = ALGORITHM.replica(PROBLEM.x0())
    ALGORITHM.apply(replica, log(2))
    assert result.digests == replica.digests()


@pytest.mark.parametrize(("verify_every", "folded"), [(0, [4]), (1, [4, 4])])
def test_clients_beside_the_evaluator_reuse_its_replica_unless_it_is_verified(
    monkeypatch: pytest.MonkeyPatch, verify_every: int, folded: list[int]
) -> None:
    hosted, counts = followers((0, 3), evaluates=True, verify_every=verify_every), []
    apply = type(ALGORITHM).apply

    def count(self: Any, replica: Any, commits: Any) -> None:
        counts.append(len(commits))
        apply(self, replica, commits)

    monkeypatch.setattr(type(ALGORITHM), "apply", count)
    hosted.handle(commit(4, 0, commits=4))
    hosted.handle(plan(1, 7, version=4, missed=4))
    assert hosted.host.replicas.version(1) == 4
    assert counts == folded
    assert hosted.evaluator is not None
    assert (hosted.evaluator.replica is hosted.host.replicas.get(1)) == (verify_every == 0)


def test_followers_are_reset_to_the_given_versions() -> None:
    hosted = followers((0, 1), evaluates=True)
    hosted.handle(commit(5, 0, commits=5))
    hosted.handle(plan(1, 7, version=5, missed=5))
    hosted.welcome(frame(messages.welcome(ALGORITHM, HOST, 9, [3, 2, 0], log(3))))
    assert hosted.evaluator is not None
    replica = ALGORITHM.replica(PROBLEM.x0())
    ALGORITHM.apply(replica, log(3))
    assert hosted.evaluator.replica.digest() == replica.digest()
    assert [hosted.host.replicas.version(client) for client in (0, 1)] == [2, 0]


@pytest.mark.parametrize("begin", [0, 3])
def test_followers_that_come_back_where_they_were_need_no_log(begin: int) -> None:
    hosted = followers((0, 1))
    from_base = base(begin) if begin else None
    hosted.welcome(frame(messages.welcome(ALGORITHM, HOST, 9, [5, 4], log(5)[begin:], base=from_base)))
    for _ in range(2):  # at first no replica is in memory yet
        hosted.welcome(frame(messages.welcome(ALGORITHM, HOST, 9, [5, 4])))
        replicas = hosted.host.replicas
        assert [replicas.get(client).digest() for client in (0, 1)] == [at_version(5).digest(), at_version(4).digest()]


def at_version(version: int) -> Replica:
    replica: Replica = ALGORITHM.replica(PROBLEM.x0())
    ALGORITHM.apply(replica, log(version))
    return replica


def base(version: int, **changes: Any) -> messages.PackedReplica:
    """The packed replica of a version, of an algorithm whose only field is x."""
    replica = at_version(version)
    packed = messages.PackedReplica(version, bytes.fromhex(replica.digest()), replica.x.tobytes())
    return packed._replace(**changes)


@pytest.mark.parametrize("verify_every", [0, 1])
def test_followers_begin_at_the_base_of_a_pruned_journal_or_anew(verify_every: int) -> None:
    hosted = followers((0, 2), evaluates=True, verify_every=verify_every)
    for _ in range(2):  # a process that goes on joins again
        hosted.welcome(frame(messages.welcome(ALGORITHM, HOST, 5, [5, 4, 0, 3], log(5)[3:], base=base(3))))
        assert hosted.evaluator is not None
        addresses = (EVALUATOR, 0, 1, 2)
        versions = [hosted.host.replicas.get(address).version for address in addresses]
        assert sorted(versions) == [0, 3, 4, 5]
        for address, version in zip(addresses, versions, strict=True):
            assert hosted.host.replicas.get(address).digest() == at_version(version).digest()
        hosted.handle(commit(6, 0, commits=1))
        assert hosted.evaluator.replica.digest() == at_version(6).digest()


REFUSALS: dict[str, tuple[bytes, str]] = {
    "versions before the base": (
        frame(messages.welcome(ALGORITHM, HOST, 4, [4, 2], log(4)[3:], base=base(3))),
        "bad-welcome",
    ),
    "a log that does not follow on the base": (
        frame(messages.welcome(ALGORITHM, HOST, 4, [4, 0], log(4)[1:], base=base(3))),
        "bad-welcome",
    ),
    "a base of another digest": (
        frame(messages.welcome(ALGORITHM, HOST, 4, [4, 0], log(4)[3:], base=base(3, digest=bytes(16)))),
        "bad-welcome",
    ),
    "a base that is too short": (
        frame(messages.welcome(ALGORITHM, HOST, 4, [4, 0], log(4)[3:], base=base(3, fields=b"x"))),
        "bad-welcome",
    ),
    "a base that is none": (frame(Envelope(Kind.WELCOME, HOST, 0, 4, [bytes(8), [], b"", [3, 4, [5]]])), "bad-welcome"),
    "refuse": (frame(messages.refuse(HOST, "x0", "another task")), "x0"),
    "junk": (b"\xc1", "bad-welcome"),
    "another kind": (frame(messages.bye(HOST)), "bad-welcome"),
    "too few versions": (frame(messages.welcome(ALGORITHM, HOST, 0, [0])), "bad-welcome"),
    "a log that is too short": (frame(messages.welcome(ALGORITHM, HOST, 0, [4, 0], log(3))), "bad-welcome"),
    "no log to where they are not": (frame(messages.welcome(ALGORITHM, HOST, 0, [2, 2])), "bad-welcome"),
    "a log without its beginning": (frame(messages.welcome(ALGORITHM, HOST, 0, [2, 0], log(4)[1:])), "bad-welcome"),
}


@pytest.mark.parametrize("name", REFUSALS)
def test_a_malformed_welcome_ends_the_process_with_a_reason(name: str) -> None:
    answer, reason = REFUSALS[name]
    hosted = followers((0, 1), versions=[2, 1])
    with pytest.raises(JoinRefused) as caught:
        hosted.welcome(answer)
    assert caught.value.reason == reason
    assert [hosted.host.replicas.version(client) for client in (0, 1)] == [2, 1]


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
def test_frames_for_others_are_noted_and_not_answered(number: int) -> None:
    hosted = followers((0, 1))
    assert hosted.handle(UNASKED[number]) == [] and len(events(hosted)) == 1


MIXED = followers((0, 5), evaluates=True, verify_every=1)
SOUND = [plan(2, 1), plan(3, 4, version=2, missed=2), commit(1, EVALUATE | DIGEST), commit(2, 0, commits=2)]


@pytest.mark.slow
@settings(max_examples=400)
@given(
    st.sampled_from(SOUND),
    st.lists(st.tuples(st.integers(0, 200), st.integers(0, 255)), min_size=1, max_size=4),
    st.integers(0, 200),
)
def test_any_frame_is_answered_or_noted(sound: bytes, changes: list[tuple[int, int]], length: int) -> None:
    content = bytearray(sound)
    for place, value in changes:
        content[place % len(content)] = value
    for request in (bytes(content), bytes(content[:length]), bytes([*content, *content[:length]])):
        for answer in MIXED.handle(request):
            assert decode(answer).kind in (Kind.REPORT, Kind.EVALUATION, Kind.JOIN)
            assert decode(answer).client in (*range(6), EVALUATOR)


@pytest.mark.parametrize("verify_every", [0, 1])
def test_an_old_dense_answer_is_not_stored_and_is_recomputed_to_the_bit(verify_every: int) -> None:
    """Old answers are recomputed instead of stored, and old replicas lie in files, so memory stays bounded."""
    algorithm: Any = make("scaffold", local_steps=2).sized(PROBLEM.dimension)
    offer = Offer(HOST, ((0, 5),), False, b"")
    hosted = Followers(offer, ClientSpec(algorithm, verify_every=verify_every), PROBLEM, EventRecorder())
    hosted.welcome(frame(messages.welcome(algorithm, HOST, 0, [0] * 6)))

    def request(round: int) -> bytes:
        model = np.full(PROBLEM.dimension, round + 1, np.float32)
        newest = DenseCommit(round + 1, round, (model, model))
        return frame(messages.pack_plan(algorithm, round, algorithm.plan(round, round + 1, 5), [newest])[0])

    first = [hosted.handle(request(round)) for round in range(6)]
    assert sorted(hosted.host._answers) == [4, 5]
    assert isinstance(hosted.host.replicas.get(0).x.base, np.memmap)
    assert [hosted.handle(request(round)) for round in (0, 3, 5, 1)] == [first[round] for round in (0, 3, 5, 1)]
    assert events(hosted) == []


def test_a_dense_client_works_without_a_look_at_the_answers_of_others() -> None:
    """Else a round of m clients takes m² looks."""

    class Unseen(dict[int, Envelope]):
        def items(self) -> NoReturn:
            raise AssertionError("all answers were looked at")

    algorithm: Any = make("fedavg", local_steps=1).sized(PROBLEM.dimension)
    offer = Offer(HOST, ((0, 5),), False, b"")
    hosted = Followers(offer, ClientSpec(algorithm, verify_every=1), PROBLEM, EventRecorder())
    hosted.welcome(frame(messages.welcome(algorithm, HOST, 0, [0] * 6)))
    plans = [messages.pack_plan(algorithm, client, algorithm.plan(3, 0, 5), [])[0] for client in range(6)]
    hosted.handle(frame(plans[0]))
    hosted.host._answers = Unseen(hosted.host._answers)
    assert [len(answers) for answers in hosted.handle_all([frame(plan) for plan in plans[1:]])] == [1] * 5


@pytest.mark.parametrize("name", ["decomfl", "hiso", "scaffold"])
def test_a_plan_that_is_not_the_scenarios_is_not_acted_upon(name: str) -> None:
    """A server could make clients work for hours, or divide by a rate of zero."""
    algorithm: Any = make(name, local_steps=2, learning_rate={0: 0.1, 3: 0.01}).sized(PROBLEM.dimension)
    hosted = Followers(Offer(HOST, ((0, 1),), False, b""), ClientSpec(algorithm), PROBLEM, EventRecorder())
    hosted.welcome(frame(messages.welcome(algorithm, HOST, 0, [0, 0])))

    def asked(**changes: Any) -> list[Envelope]:
        plan = replace(algorithm.plan(0, 0, 5), **changes)
        return answers_to(hosted, frame(messages.pack_plan(algorithm, 0, plan, [])[0]))

    false: list[dict[str, Any]] = [
        {"steps": 1},
        {"steps": 1000},
        {"learning_rate": 0.0},
        {"learning_rate": float(np.float32(0.01))},
    ]
    false += [{"steps": 0, "epochs": 2}] if algorithm.facts.is_dense else [{"perturbations": 1}]
    assert [asked(**changes) for changes in false] == [[]] * len(false)
    assert events(hosted) == ["bad-plan"] * len(false)
    assert [answer.kind for answer in asked()] == [Kind.REPORT]


def test_a_server_that_asks_for_a_model_that_it_never_sent_gets_no_answer() -> None:
    algorithm = make("fedavg").sized(PROBLEM.dimension)
    hosted = Followers(Offer(HOST, ((0, 1),), False, b""), ClientSpec(algorithm), PROBLEM, EventRecorder())
    hosted.welcome(frame(messages.welcome(algorithm, HOST, 5, [5, 5])))
    assert answers_to(hosted, frame(chunks.fetch(5, 100, [], 0, 1))) == [] and events(hosted)[-1:] == ["bad-fetch"]


def test_a_chunk_of_a_snapshot_that_a_false_note_told_of_is_asked_for_anew() -> None:
    """The note is of a part of version 7, in a WELCOME whose log ends at 0: no replica at 7 can be checked."""
    title, lacks = Title(7, 2, b"d" * 16), 1
    note = Envelope(Kind.WAKE, 0, 0, 7, [2, title.digest, 8, 16, bytes([1]), [[1, 1]], bytes(8)])
    hosted = followers((0, 1))
    hosted.welcome(frame(messages.welcome(ALGORITHM, HOST, 0, [0, 0], (), pack_notes([frame(note)]))))
    (answer,) = answers_to(hosted, frame(Chunk(title, lacks, b"x" * 8).pack(Kind.SNAPSHOT, 0, 1)))
    assert answer.kind is Kind.PULL and events(hosted)[-1:] == ["bad-snapshot"]
