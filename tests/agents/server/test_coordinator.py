"""The coordinator's decisions, without a loop, a bus or a disk."""

from __future__ import annotations

import math
from typing import Any

import msgpack
import pytest
from coordinator_cases import ALGORITHM, after_rounds, cohort_of, joined_coordinator, plans_of, positions, report
from hypothesis import given
from hypothesis import strategies as st

from seedbus.agents.catch_up.chunks import DIGEST_BYTES, Chunk, Title
from seedbus.agents.messages import DIGEST, Evaluation
from seedbus.agents.round_record import RoundRecord
from seedbus.agents.server.stopping import Progress, Sent, Stop
from seedbus.algorithms.contract import BadPayload
from seedbus.algorithms.scalar_only.decomfl import DeComFL
from seedbus.bus import EVALUATOR, Envelope, Kind
from seedbus.bus.records import record

FOUND, DIGESTS = {"loss": 1.0, "gap": 2.0}, {"x": b"x" * 8}


def test_a_cohort_is_drawn_from_the_members_and_depends_on_seed_and_round_only() -> None:
    first, second = joined_coordinator(), joined_coordinator()
    assert cohort_of(first) == cohort_of(second)
    assert len(set(cohort_of(joined_coordinator(100, 30)))) == 30


def test_the_order_of_arrival_changes_nothing() -> None:
    commits = []
    for order in (1, -1):
        coordinator = joined_coordinator()
        for client in cohort_of(coordinator)[::order]:
            assert coordinator.reported(report(coordinator, client, [client / 3, client * 1e5])) is None
        assert coordinator.rounds.is_over
        commits.append(coordinator.close_round().commit)
    assert commits[0].terms[0].scalars.tobytes() == commits[1].terms[0].scalars.tobytes()


@given(st.lists(st.integers(0, 2), min_size=3, max_size=40))
def test_a_report_counts_at_most_once(order: list[int]) -> None:
    coordinator = joined_coordinator()
    cohort = cohort_of(coordinator)
    for place in order:
        coordinator.reported(report(coordinator, cohort[place]))
    seen = len(set(order))
    assert coordinator.refusals.clients.total() == len(order) - seen
    assert {reason for _, reason in coordinator.refusals.clients} <= {"duplicate"}
    coordinator.deadline_passed(coordinator.round)
    assert len(coordinator.close_round().reported) == seen


@pytest.mark.parametrize(
    ("reason", "changes"),
    [
        ("not-finite", {"values": [float("nan"), 1.0]}),
        ("not-finite", {"values": [1.0, float("inf")]}),
        ("absurd", {"values": [1e38, 1.0]}),
        ("bad-payload", {"values": [1.0, 2.0, 3.0]}),
        ("wrong-round", {"round": 5}),
        ("wrong-version", {"base": 3}),
    ],
)
def test_a_report_that_must_not_count_is_refused_with_its_reason(reason: str, changes: dict[str, Any]) -> None:
    coordinator = joined_coordinator()
    client = cohort_of(coordinator)[0]
    refusal = coordinator.reported(report(coordinator, client, **changes))
    assert refusal is not None
    assert (refusal.client, refusal.reason) == (client, reason)
    assert coordinator.refusals.clients == {(client, reason): 1}
    coordinator.deadline_passed(coordinator.round)
    assert coordinator.close_round().commit is None


def test_a_report_from_outside_is_refused_and_the_round_still_waits_for_its_cohort() -> None:
    coordinator = joined_coordinator(clients=6)
    cohort = cohort_of(coordinator)
    outsider = next(client for client in range(6) if client not in cohort)
    for client, reason in ((outsider, "not-asked"), (99, "not-a-member")):
        refusal = coordinator.reported(report(coordinator, client))
        assert refusal is not None
        assert refusal.reason == reason
    assert coordinator.missing == cohort


def test_a_report_for_a_closed_round_is_late_and_changes_nothing() -> None:
    coordinator = joined_coordinator()
    late = report(coordinator, cohort_of(coordinator)[0])
    coordinator.deadline_passed(0)
    coordinator.close_round()
    coordinator.open_round()
    refusal = coordinator.reported(late)
    assert refusal is not None
    assert refusal.reason == "late"


@pytest.mark.parametrize("kind", [Kind.REPORT, Kind.DECLINE])
def test_an_answer_that_comes_too_late_shows_how_far_its_client_has_come(kind: Kind) -> None:
    coordinator = joined_coordinator(clients=3, cohort=3)
    late: list[Envelope] = []
    for number in range(4):
        for client in cohort_of(coordinator):
            answer = report(coordinator, client)
            if client < 2:
                coordinator.reported(answer)
            else:
                late.append(answer._replace(kind=kind))
        coordinator.deadline_passed(coordinator.round)
        coordinator.close_round()
        if number:
            refusal = coordinator.reported(late[number - 1])  # a round later
            assert refusal is not None and refusal.reason == "late"
            assert coordinator.positions.believed[2] == number - 1
    coordinator.reported(late[0]._replace(round=9, base=4))
    assert coordinator.positions.believed[2] == 2, "an answer to a round that has not begun shows nothing"
    for base, expected in ((0, 2), (4, 4), (5, 4), (2**31, 4)):  # it moves nobody back, or beyond the newest version
        coordinator.reported(late[0]._replace(base=base))
        assert coordinator.positions.believed[2] == expected
    assert coordinator.positions.believed[0] == coordinator.positions.believed[1] == 3


def test_a_client_that_declines_is_at_the_version_of_its_round() -> None:
    coordinator = after_rounds(1)
    coordinator.reported(report(coordinator, 0)._replace(kind=Kind.DECLINE, body=["overflow", "no"]))
    assert coordinator.positions.believed == {0: 1, 1: 0, 2: 0} and coordinator.missing == [1, 2]


def test_a_part_in_secure_aggregation_is_for_the_open_round_of_a_run_with_masks_only() -> None:
    coordinator = after_rounds(1)
    part = Envelope(Kind.TELL, 0, 0, 0, [])
    reasons = []
    for round in (0, 1, 2):
        refusal = coordinator.reported(part._replace(round=round))
        reasons.append(refusal and refusal.reason)
    coordinator.deadline_passed(1)
    coordinator.close_round()
    refusal = coordinator.reported(part._replace(round=2))  # which has not begun
    assert [*reasons, refusal and refusal.reason] == ["late", "not-asked", "wrong-round", "wrong-round"]


def test_a_bad_answer_counts_as_an_answer_and_the_round_does_not_wait_for_another() -> None:
    coordinator = joined_coordinator()
    bad, *good = cohort_of(coordinator)
    coordinator.reported(report(coordinator, bad, [float("nan"), 0.0]))
    for client in good:
        coordinator.reported(report(coordinator, client))
    assert coordinator.rounds.is_over
    assert coordinator.close_round().reported == tuple(good)


def test_an_answer_to_a_round_that_a_crash_has_interrupted_is_not_a_lie() -> None:
    coordinator = joined_coordinator()
    asked, *_ = cohort_of(coordinator)
    answer = report(coordinator, asked)
    coordinator.crashed()
    early, later = coordinator.reported(answer), coordinator.reported(report(coordinator, asked, round=1))
    assert early is not None and later is not None
    assert (early.reason, later.reason) == ("not-asked", "wrong-round")
    assert asked in cohort_of(coordinator)
    assert coordinator.reported(answer) is None


def test_a_deadline_of_an_earlier_round_closes_nothing() -> None:
    coordinator = joined_coordinator()
    coordinator.open_round()
    coordinator.deadline_passed(coordinator.round - 1)
    assert not coordinator.rounds.is_over


def test_without_quorum_there_is_no_commit_and_the_next_round_has_other_directions() -> None:
    coordinator = joined_coordinator(quorum=3)
    first = [envelope.body[0][0] for envelope, _ in plans_of(coordinator)]
    coordinator.deadline_passed(0)
    assert coordinator.close_round().commit is None
    assert (coordinator.round, coordinator.version) == (1, 0)
    assert [envelope.body[0][0] for envelope, _ in plans_of(coordinator)] != first


def test_a_member_is_sent_exactly_the_commits_that_it_missed() -> None:
    coordinator = joined_coordinator(clients=3, cohort=3)
    for _ in range(3):
        for client in cohort_of(coordinator)[:2]:
            coordinator.reported(report(coordinator, client))
        coordinator.deadline_passed(coordinator.round)
        coordinator.close_round()
    plans = {envelope.client: envelope for envelope, _ in plans_of(coordinator)}
    missed = {client: len(ALGORITHM.unpack_commits(plan.body[1])) for client, plan in plans.items()}
    assert missed == {0: 1, 1: 1, 2: 3}


@pytest.mark.parametrize("evaluator_first", [True, False])
def test_a_diverged_replica_is_named_whichever_digest_comes_first(evaluator_first: bool) -> None:
    coordinator = joined_coordinator(verify_every=1, algorithm=DeComFL(perturbations=2, momentum=0.5))
    client = cohort_of(coordinator)[0]
    server_digests = Evaluation(0, 0, {}, {"momentum": b"m" * 8, "x": b"x" * 8}).pack()
    bad = report(coordinator, client, digests={"momentum": b"m" * 8, "x": b"y" * 8})
    if evaluator_first:
        coordinator.evaluated(server_digests, 0)
        refusal = coordinator.reported(bad)
    else:
        assert coordinator.reported(bad) is None
        (refusal,) = coordinator.evaluated(server_digests, 0)[1]
    assert refusal is not None
    assert refusal.reason == "diverged"
    assert refusal.detail == f"client {client} holds other bits than the evaluator at version 0: its x differs"


def test_a_restored_coordinator_makes_the_same_decisions() -> None:
    coordinator = joined_coordinator(quorum=2)
    log = []
    for _ in range(4):
        for client in cohort_of(coordinator):
            coordinator.reported(report(coordinator, client, [float(client), 1.0]))
        log.append(coordinator.close_round().commit)
    other = joined_coordinator(quorum=2)
    other.restore(coordinator.checkpoint(), log, positions(coordinator))
    assert other.checkpoint() == coordinator.checkpoint()
    assert [envelope for envelope, _ in plans_of(other)] == [envelope for envelope, _ in plans_of(coordinator)]


def test_a_restored_state_of_another_algorithm_is_refused() -> None:
    coordinator = joined_coordinator(algorithm=DeComFL(aggregation={"rule": "clipped"}))
    checkpoint = coordinator.checkpoint()
    foreign = checkpoint._replace(rounds=checkpoint.rounds._replace(algorithm=["momentum"]))
    with pytest.raises(BadPayload, match="the state of the rule clipped is no list of numbers"):
        coordinator.restore(foreign, [], {})


@pytest.mark.parametrize("smoothed", [True, False])
@pytest.mark.parametrize(("value", "direction"), [("inf", "above"), ("-inf", "below"), ("nan", "above"), ("0", "")])
def test_a_value_that_is_not_finite_meets_no_target(value: str, direction: str, smoothed: bool) -> None:
    target = {"metric": "m", "value": 0, "direction": direction or "above", "smoothed": smoothed}
    progress = Progress()
    progress.measured(Evaluation(0, 0, {"m": float(value)}), Stop.model_validate({"rounds": 9, "target": target}), 0)
    assert progress.is_target_met == (value == "0")


def test_a_metric_cannot_have_the_name_of_a_value_of_the_run() -> None:
    coordinator = joined_coordinator(metrics=["round", "bytes_up", "loss"])
    coordinator.progress.sent = Sent(5, 6)
    coordinator.ask_evaluator()
    evaluation = Evaluation(0, 0, {"round": 99.0, "bytes_up": -1.0, "loss": 2.0}, DIGESTS)
    line, _ = coordinator.evaluated(evaluation.pack(), 10**9)
    assert line == {"round": 0, "version": 0, "time_s": 1.0, "loss": 2.0, "bytes_up": 5, "bytes_down": 6}


ALIEN = ["event", "self", "method_name", "[/nope]", "loss\x1b[2J", "", "x" * 500]
NOT_SOUND = {
    "a metric too many": Evaluation(0, 0, {"loss": 1.0, "gap": 1.0, "event": 1.0}, DIGESTS),
    "a metric too few": Evaluation(0, 0, {"loss": 1.0}, DIGESTS),
    **{f"the metric {name[:20]!r}": Evaluation(0, 0, {"loss": 1.0, name: 1.0}, DIGESTS) for name in ALIEN},
    "no digest": Evaluation(0, 0, FOUND),
    "a digest too many": Evaluation(0, 0, FOUND, DIGESTS | {"y": b"y" * 8}),
    "a digest of another name": Evaluation(0, 0, FOUND, {"[/x]": b"x" * 8}),
    "a short digest": Evaluation(0, 0, FOUND, {"x": b"x" * 7}),
    "a later version": Evaluation(0, 1, FOUND, DIGESTS),
    "a later round": Evaluation(9, 0, FOUND, DIGESTS),
}


@pytest.mark.parametrize("evaluation", [*NOT_SOUND.values()], ids=[*NOT_SOUND])
def test_an_unrequested_evaluation_is_refused_and_delays_nothing(evaluation: Evaluation) -> None:
    coordinator = joined_coordinator(metrics=["loss", "gap"])
    coordinator.ask_evaluator()
    line, (refusal,) = coordinator.evaluated(evaluation.pack(), 0)
    assert line is None and coordinator.last_digest == "" and not coordinator.progress.averages
    assert refusal.reason in ("bad-payload", "wrong-version") and len(refusal.detail) < 700
    assert coordinator.refusals.by_reason() == {refusal.reason: {str(EVALUATOR): 1}}
    assert coordinator.progress.awaited == 0


@pytest.mark.parametrize(
    "body",
    [
        [["loss", "loss"], b"\0" * 16, [["x", b"x" * 8]]],
        [["loss", "gap"], b"\0" * 15, [["x", b"x" * 8]]],
        [["loss", "gap"], b"\0" * 16, [["x", b"x" * 8], ["x", b"x" * 8]]],
        [["loss", 7], b"\0" * 16, [["x", b"x" * 8]]],
        [["loss", "gap"], b"\0" * 16, [["x"]]],
        [],
    ],
)
def test_an_evaluation_out_of_shape_is_refused(body: list[Any]) -> None:
    coordinator = joined_coordinator(metrics=["loss", "gap"])
    coordinator.ask_evaluator()
    line, (refusal,) = coordinator.evaluated(Envelope(Kind.EVALUATION, EVALUATOR, 0, 0, body), 0)
    assert (line, refusal.reason, coordinator.progress.awaited) == (None, "bad-payload", 0)


def test_a_measurement_counts_once_with_any_values() -> None:
    coordinator = joined_coordinator(metrics=["loss", "gap"])
    coordinator.ask_evaluator()
    evaluation = Evaluation(0, 0, {"gap": math.inf, "loss": math.nan}, DIGESTS).pack()
    line, refusals = coordinator.evaluated(evaluation, 0)
    assert line is not None and math.isnan(line["loss"]) and not refusals
    line, (refusal,) = coordinator.evaluated(evaluation, 0)
    assert line is None and refusal.reason == "not-asked"


def test_a_piece_of_a_snapshot_is_no_answer_to_what_the_evaluator_was_asked() -> None:
    coordinator = joined_coordinator(metrics=["loss", "gap"])
    coordinator.ask_evaluator()
    piece = Chunk(Title(1, 1, bytes(DIGEST_BYTES)), 0, b"x").pack(Kind.PIECE, EVALUATOR, 0)
    refusal = coordinator.reported(piece)
    assert refusal is not None and refusal.reason == "not-fetched"
    line, refusals = coordinator.evaluated(Evaluation(0, 0, FOUND, DIGESTS).pack(), 0)
    assert line is not None and not refusals


@pytest.mark.parametrize("every", [0, 2])
def test_the_evaluator_is_asked_for_the_digests_that_are_due_and_no_others(every: int) -> None:
    coordinator = joined_coordinator(verify_every=every)
    wants = []
    for version in range(3):
        for client in cohort_of(coordinator):
            digests = DIGESTS if coordinator.verifier.is_due(version) else {}
            coordinator.reported(report(coordinator, client, digests=digests))
        coordinator.published(coordinator.close_round(), Sent(), 0)
        wants += [envelope.body[-1] for envelope, _ in coordinator.take_sent() if envelope.kind is Kind.COMMIT]
    assert wants == [0, DIGEST if every else 0, 0]
    assert set(coordinator.verifier.claims) == ({0, 2} if every else set()), "those of clients wait for the evaluator's"


def test_a_round_that_is_not_open_is_not_over_and_cannot_be_closed() -> None:
    coordinator = joined_coordinator()
    assert not coordinator.rounds.is_over and not coordinator.rounds.is_half_reported and coordinator.missing == []
    with pytest.raises(ValueError, match="round 0 cannot be closed: it is not open"):
        coordinator.close_round()


@pytest.mark.parametrize(("cohort", "half"), [(1, 1), (2, 1), (3, 2), (4, 2), (5, 3)])
def test_half_of_a_cohort_is_rounded_up(cohort: int, half: int) -> None:
    coordinator, seen = joined_coordinator(cohort=cohort), list[bool]()
    for client in cohort_of(coordinator):
        coordinator.reported(report(coordinator, client))
        seen.append(coordinator.rounds.is_half_reported)
    assert seen.index(True) + 1 == half and all(seen[half:])


def test_a_closed_round_reports_its_outcome() -> None:
    coordinator = joined_coordinator(clients=4, cohort=4)
    coordinator.open_round(now_ns=5)
    for client in (0, 1):
        coordinator.reported(report(coordinator, client), 6)
    coordinator.deadline_passed(0)
    first = coordinator.close_round(now_ns=9)
    assert first.record == RoundRecord(5, 9, True, [0] * 4, [])
    assert record(RoundRecord, msgpack.unpackb(msgpack.packb(first.record))) == first.record
    coordinator.open_round(now_ns=10)
    for client in range(4):
        coordinator.reported(report(coordinator, client), 11)
    assert coordinator.close_round(now_ns=12).record == RoundRecord(10, 12, False, [1] * 4, [])


def test_late_reports_are_recorded_with_their_round_their_age_and_their_clients() -> None:
    coordinator = joined_coordinator(clients=4, cohort=4, policy={"late": {}})
    coordinator.open_round()
    late = [report(coordinator, client) for client in (3, 2)]
    for number in (0, 1):
        for client in (0, 1):
            coordinator.reported(report(coordinator, client))
        if number == 1:
            assert [coordinator.reported(each) for each in late] == [None, None]
        coordinator.deadline_passed(number)
        record = coordinator.close_round().record
        assert record.late == ([] if number == 0 else [(0, 1, [2, 3])])
        coordinator.open_round()


def test_an_evaluation_has_the_bytes_until_its_round_was_closed() -> None:
    """Those are kept in a checkpoint, and found by round and version, whichever answer comes first."""
    progress = Progress(Sent(20, 200), [(0, 0, Sent()), (0, 1, Sent(10, 100)), (1, 2, Sent(20, 200))])
    progress = Progress.unpack(progress.pack())
    progress.sent = Sent(30, 300)
    assert (progress.awaited, progress.bytes) == (3, 330)
    order = [(1, 2), (0, 0), (0, 1)]
    lines = [progress.measured(Evaluation(*which, FOUND), Stop(rounds=9), 0) for which in order]
    assert [(line["bytes_up"], line["bytes_down"]) for line in lines] == [(20, 200), (0, 0), (10, 100)]
    assert progress.awaited == 0 and progress.answered() == Sent(30, 300)


def test_each_kind_that_goes_to_the_server_has_one_place_that_takes_it() -> None:
    coordinator = joined_coordinator()
    assert {*coordinator.handlers, Kind.JOIN} == {kind for kind in Kind if kind.is_upward}
    assert coordinator.handle(Envelope(Kind.PLAN, 2, 0, 0)) == []
    assert coordinator.handle(Envelope(Kind.EVALUATION, 2, 0, 0)) == [], "of a client"
    assert coordinator.refusals.clients == {(2, "wrong-kind"): 2}
