"""What every algorithm promises: of its rounds in a rehearsal (`CONTRACT`), and of whole runs (`RUNS`, `WORKERS`)."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Sequence
from typing import Any

import msgpack
import numpy as np
from pydantic import ValidationError

from seedbus.algorithms.contract import BadPayload, CommitGap, LateReports, Replica, ReportRefused, local, pending
from seedbus.studies.analysis.client_models import Personalises
from seedbus.studies.check.promises import bits, over_the_wire, require, require_same, spoiled
from seedbus.studies.check.rehearsal import DIMENSION, Rehearsal, rehearse, x0
from seedbus.studies.check.runs import (
    ONE_WORKER,
    TWO_WORKERS,
    ended,
    require_equal_ends,
    require_no_divergence,
    world,
)

subject = rehearse
_LARGE = 1e6
_ROUNDING = 2.0**-25


def results(run: Rehearsal) -> Any:
    """Return what another process has to find, too."""
    plan, reports = run.plans[-1], run.reports[-1]
    sent = [run.algorithm.pack_report(plan, report).body for report in reports.values()]
    return run.replica.digest(), sent, run.algorithm.pack_commits(run.commits, whole=True).body, run.states[-1]


# its fields


def an_algorithm_is_frozen(run: Rehearsal) -> None:
    """No field of an algorithm can be changed."""
    for field in type(run.algorithm).model_fields:
        try:
            setattr(run.algorithm, field, getattr(run.algorithm, field))
        except ValidationError:
            continue
        raise AssertionError(f"{field} was changed; its class has to be frozen")


def an_algorithm_refuses_an_unknown_field(run: Rehearsal) -> None:
    """An algorithm refuses a field that it does not have."""
    try:
        type(run.algorithm)(**run.algorithm.model_dump() | {"learning_rat": 0.1})
    except ValidationError:
        return
    raise AssertionError("learning_rat: 0.1 was accepted; its class has to have extra='forbid'")


def fields_survive_a_round_trip_as_text(run: Rehearsal) -> None:
    """Written as JSON and read again, an algorithm is the same."""
    again = type(run.algorithm).model_validate_json(run.algorithm.model_dump_json())
    require_same(again.model_dump(), run.algorithm.model_dump(), "what was read", "and what was written")


# local work


def a_replica_begins_as_a_copy_of_x0_at_version_0(run: Rehearsal) -> None:
    """A replica begins at version 0 as a copy of x₀, and all its fields have x₀'s shape."""
    start = x0()
    replica = run.algorithm.replica(start)
    require(replica.version == 0, f"its version is {replica.version}")
    if replica.x.dtype == start.dtype:
        require_same(replica.x, x0(), "x", "and x₀")
    else:  # sums, which begin at x₀ rounded to a multiple of their own, or bfloat16
        allowed = float(np.abs(start).max()) * 2.0**-8 if replica.x.dtype == np.int16 else _ROUNDING
        far = float(np.abs(run.algorithm.point(replica) - start).max())
        require(far < allowed, f"x is {far} away from x₀")
    shapes = {name: field.shape for name, field in replica.fields.items()}
    require(set(shapes.values()) == {(DIMENSION,)}, f"the fields have the shapes {shapes}, and x₀ {(DIMENSION,)}")
    for field in replica.fields.values():
        field += 1
    require_same(start, x0(), "after a change of the replica's fields x₀", "and before it was")


def local_work_leaves_the_replica_untouched_and_is_deterministic(run: Rehearsal) -> None:
    """Local work does not change the replica, and gives the same bits when it is done again."""
    replica = run.replica.copy()
    before = replica.digest()
    plan = run.algorithm.plan(len(run.commits), replica.version, 2**64 - 1)
    first, memory = local(run.algorithm, replica, None, plan, run.objective(4, len(run.commits)))
    require(replica.digest() == before, f"the digest of the replica was {before}, and is {replica.digest()}")
    again, same = local(run.algorithm, replica, None, plan, run.objective(4, len(run.commits)))
    require_same(again, first, "the second report", "and the first was")
    require_same(same, memory, "what the client then remembers", "and it was")
    try:
        kept = msgpack.unpackb(msgpack.packb(memory), strict_map_key=False)
    except (TypeError, ValueError, OverflowError) as error:
        raise AssertionError(f"msgpack cannot hold what the client remembers: {error}") from None
    require_same(kept, memory, "what the client remembers, once it is stored,", "and it was")
    run.algorithm.check(plan, first)
    if not isinstance(run.algorithm, Personalises):
        return
    newcomers, one, other = (
        run.algorithm.personal(replica, each, plan, run.objective(4, len(run.commits)))
        for each in (None, memory, memory)
    )
    require_same(other, one, "made again, the client's own model", "and it was")
    shapes = [None if each is None else np.shape(each) for each in (newcomers, one)]
    wanted = f"either both are None, or both have the shape {(DIMENSION,)}"
    what = f"of a client that remembers nothing it has the shape {shapes[0]}, after the work {shapes[1]}"
    require(shapes in ([None] * 2, [(DIMENSION,)] * 2), f"`personal`: {what}; {wanted}")
    require(replica.digest() == before, "its own model changed the replica")


def local_work_evaluates_the_loss_as_often_as_declared(run: Rehearsal) -> None:
    """A client that took part before makes as many passes as `work` says, where a gradient counts as three."""
    for plan in run.plans:
        _, memory = local(run.algorithm, run.replica, None, plan, run.objective(0, plan.round))
        own = run.objective(0, plan.round)
        local(run.algorithm, run.replica, memory, plan, own)
        passes = own.steps_an_epoch if getattr(plan, "epochs", 0) else 1
        declared = run.algorithm.work(plan.round).evaluations * passes
        require(own.evaluations == declared, f"in round {plan.round} it was {own.evaluations}, and declared {declared}")


def diagnostics_are_figures_that_leave_the_replica_untouched(run: Rehearsal) -> None:
    """Diagnostics are finite numbers, and taking them does not change the replica."""
    before = run.replica.digest()
    found = run.algorithm.diagnostics(run.replica)
    require(all(np.isfinite(figure) for figure in found.values()), f"found {found}")
    require(run.replica.digest() == before, f"the replica's digest was {before}, and is {run.replica.digest()}")


# folding


def every_commit_moves_x(run: Rehearsal) -> None:
    """Every commit of clients with different losses moves x."""
    replica = run.newcomer()
    for commit in run.commits:
        before = replica.x.copy()
        run.algorithm.apply(replica, [commit])
        require(bits(replica.x) != bits(before), f"commit {commit.version} left x as it was")


def commits_fold_to_the_same_bits_one_by_one_all_at_once_and_in_chunks(run: Rehearsal) -> None:
    """Commits fold to the same bits one by one, all at once, and in chunks that begin with commits seen before."""
    rounds = len(run.commits)
    for cuts, seen_again in itertools.product(([], [1], [3], [rounds - 1], [2, 5], [*range(1, rounds)]), (0, 1, 2)):
        replica = run.newcomer()
        for first, last in itertools.pairwise([0, *cuts, rounds]):
            run.algorithm.apply(replica, run.commits[max(first - seen_again, 0) : last])
        where = f"cut after commits {cuts}" if cuts else "all at once"
        _require_equal(replica, run.replica, f"{where}, with {seen_again} commits seen before", "one by one")


def a_commit_folded_twice_changes_nothing(run: Rehearsal) -> None:
    """A commit that a replica contains already changes nothing."""
    replica = run.replica.copy()
    for commit in run.commits:
        run.algorithm.apply(replica, [commit])
    _require_equal(replica, run.replica, "after all commits again", "before")
    late = run.newcomer()
    run.algorithm.apply(late, [commit for commit in run.commits for _ in range(2)])
    _require_equal(late, run.replica, "with each commit given twice", "given once")


def a_gap_is_refused_and_leaves_the_replica_untouched(run: Rehearsal) -> None:
    """A missing commit is refused with CommitGap and leaves the replica untouched; a dense commit needs no other."""
    for offered in ([2], [1, 3], [1, 2, 4], [3, 1, 2]):
        replica = run.newcomer()
        commits = [run.commits[version - 1] for version in offered]
        if run.algorithm.facts.is_dense:
            run.algorithm.apply(replica, commits)
            require(replica.version == max(offered), f"commits {offered} led to version {replica.version}")
            continue
        try:
            run.algorithm.apply(replica, commits)
        except CommitGap:
            _require_equal(replica, run.newcomer(), f"after the refusal of commits {offered}", "before")
        else:
            raise AssertionError(f"commits {offered} were folded to version {replica.version}")


def a_catch_up_brings_a_laggard_to_the_same_bits(run: Rehearsal) -> None:
    """What `pack_commits` makes of the commits that a laggard missed brings it to the same bits."""
    for version in range(len(run.commits) + 1):
        replica = run.newcomer()
        run.algorithm.apply(replica, run.commits[:version])
        missed = pending(run.algorithm.facts, version, run.commits[version:])
        packed = over_the_wire(run.algorithm.pack_commits(missed).body)
        try:
            run.algorithm.apply(replica, run.algorithm.unpack_commits(packed))
        except CommitGap as gap:
            raise AssertionError(f"from version {version}: {gap}") from None
        _require_equal(replica, run.replica, f"caught up from version {version}", "never late")


def a_client_is_never_handed_the_servers_own_vectors(run: Rehearsal) -> None:
    """What a client does to its replica changes no commit, and so no other replica."""
    before = bits(run.commits)
    replica = run.newcomer()
    run.algorithm.apply(replica, run.commits)
    for field in replica.fields.values():
        field += 1
    require(bits(run.commits) == before, "a change of a replica's field changed a commit: copy the vector")


# the server


def the_order_of_arrival_does_not_change_a_commit(run: Rehearsal) -> None:
    """Reports that arrive in another order make the same commit, late ones too."""
    for plan, reports, commit, state in zip(run.plans, run.reports, run.commits, run.states, strict=True):
        backwards = dict(reversed(reports.items()))
        found = run.algorithm.aggregate(state, plan, backwards)[0]
        require_same(found, commit, f"the commit of clients {list(backwards)}", f"that of {list(reports)}")
    if not run.algorithm.facts.takes_late or run.algorithm.facts.rule.rule != "mean":
        return  # a scenario cannot ask for late reports then
    late = run.reports[0]
    one, other = (
        run.algorithm.aggregate(
            run.states[-1], run.plans[-1], run.reports[-1], late=[LateReports(run.plans[0], each, 0.5)]
        )[0]
        for each in (late, dict(reversed(late.items())))
    )
    require_same(other, one, f"with late reports of clients {list(reversed(late))} the commit", "and in their order")


def reports_that_commit_as_they_come_lead_to_one_model(run: Rehearsal) -> None:
    """With exact sums, reports that commit one by one lead to the same bits in any order and grouping."""
    algorithm = run.algorithm
    if not algorithm.facts.is_order_free:
        return
    each = [
        LateReports(plan, {client: report}, 0.5)
        for plan, reports in zip(run.plans, run.reports, strict=True)
        for client, report in reports.items()
    ]

    def fields(groups: Sequence[Sequence[LateReports]]) -> Any:
        replica, state = run.newcomer(), run.states[0]
        for version, group in enumerate(groups):
            commit, state = algorithm.aggregate(state, algorithm.plan(len(groups), version, 0), None, late=group)
            run.algorithm.apply(replica, [commit])
        return replica.fields

    backwards = fields([[report] for report in reversed(each)])
    require_same(backwards, fields([each[:2], each[2:]]), "reports one by one, backwards,", "and in two groups")


def the_servers_state_survives_a_checkpoint(run: Rehearsal) -> None:
    """The server's state is plain data, and a restored one makes the same commit."""
    for plan, reports, commit, state in zip(run.plans, run.reports, run.commits, run.states, strict=True):
        try:
            restored = msgpack.unpackb(msgpack.packb(state))
        except (TypeError, ValueError, OverflowError) as error:
            raise AssertionError(f"msgpack cannot hold the state of round {plan.round}: {error}") from None
        require_same(restored, state, "the restored state", "and the state was")
        require_same(run.algorithm.aggregate(restored, plan, reports)[0], commit, "from it the commit", "and was")


def aggregating_leaves_state_and_reports_untouched(run: Rehearsal) -> None:
    """Aggregating changes neither the server's state nor the reports, and gives the same again."""
    before = bits(run.states), bits(run.reports)
    again, _ = run.algorithm.aggregate(run.states[-1], run.plans[-1], run.reports[-1])
    require(bits(run.states) == before[0], f"the state became {run.states[-1]!r:.80}")
    require(bits(run.reports) == before[1], "a report was changed")
    require_same(again, run.commits[-1], "the second commit", "and the first was")


def a_commit_is_the_next_version_of_its_round(run: Rehearsal) -> None:
    """A commit has the version after its plan's, and its plan's round."""
    versions, rounds = [commit.version for commit in run.commits], [commit.round for commit in run.commits]
    require(versions == list(range(1, len(versions) + 1)), f"the versions are {versions}")
    require(rounds == list(range(len(rounds))), f"the rounds are {rounds}")


def a_report_that_would_poison_the_model_is_refused(run: Rehearsal) -> None:
    """A report that arrives with a number that is not finite, or with 1e38, is refused."""
    for value in (np.nan, np.inf, -np.inf, 1e38, -1e38):
        reason = refusal(run, value)
        expected = ("not-finite", "absurd") if np.isfinite(value) else ("not-finite",)
        was = f"refused as {reason}" if reason else "accepted"
        require(reason in (*expected, "harmless"), f"a report with {value} was {was}")


def refusal(run: Rehearsal, value: float) -> str:
    """Return the reason for which a report with a wrong last number is refused; "" if it is accepted.

    It is "harmless" if the wire's format holds no such number, as one bit does not.
    """
    report = run.reports[0][0]
    wrong = np.array(run.algorithm.values(report))
    wrong.flat[-1] = value
    with np.errstate(all="ignore"):
        sent = run.algorithm.pack_report(run.plans[0], run.algorithm.with_values(report, wrong)).body
        received = run.algorithm.unpack_report(over_the_wire(sent), run.plans[0])
        try:
            run.algorithm.check(run.plans[0], received)
        except ReportRefused as refused:
            return refused.reason
        largest = float(np.abs(run.algorithm.values(received)).max())
    return "harmless" if largest < _LARGE else ""


def a_report_of_another_shape_is_refused(run: Rehearsal) -> None:
    """A report of another shape is refused for its shape."""
    report = run.reports[0][0]
    values = run.algorithm.values(report)
    for wrong in (values[:-1], values.reshape(-1), np.concatenate([values, values])):
        if wrong.shape == values.shape:
            continue
        name = "scalars" if hasattr(report, "scalars") else "vectors"
        spoilt = wrong if isinstance(report, np.ndarray) else dataclasses.replace(report, **{name: wrong})
        try:
            run.algorithm.check(run.plans[0], spoilt)
        except ReportRefused as refused:
            require(refused.reason == "shape", f"shape {wrong.shape} was refused as {refused.reason}")
        else:
            raise AssertionError(f"shape {wrong.shape} was accepted where {values.shape} is right")


# the wire


def plans_reports_and_commits_survive_a_round_trip(run: Rehearsal) -> None:
    """Plans, reports and commits are the same after the wire; so every number fits the wire's format."""
    algorithm = run.algorithm
    for plan, reports in zip(run.plans, run.reports, strict=True):
        packed = algorithm.pack_plan(plan)
        received = algorithm.unpack_plan(over_the_wire(packed.body), plan.round, plan.version)
        require(algorithm.pack_plan(received) == packed, f"the plan {brief_of(plan)} came back as {brief_of(received)}")
        require((received.round, received.version) == (plan.round, plan.version), f"the plan is {brief_of(received)}")
        for report in reports.values():
            sent, declared = algorithm.pack_report(plan, report), algorithm.work(plan.round).scalars
            require(sent.scalars == declared, f"a report has {sent.scalars} scalars, and declared are {declared}")
            back = algorithm.unpack_report(over_the_wire(sent.body), received)
            require_same(back, report, "a report after the wire", "and before")
    for first in range(len(run.commits) + 1):
        packed = algorithm.pack_commits(run.commits[first:], whole=True)
        back = algorithm.unpack_commits(over_the_wire(packed.body))
        require_same(back, run.commits[first:], "the log after the wire", "and before")


def brief_of(value: Any) -> str:
    return f"{value!r:.80}"


def hostile_bodies_raise_bad_payload_only(run: Rehearsal) -> None:
    """Whatever a peer sends is unpacked, or refused with BadPayload; a report also with ReportRefused."""
    algorithm, plan = run.algorithm, run.plans[0]
    report = run.reports[0][0]

    def take(body: Any) -> None:
        algorithm.check(plan, algorithm.unpack_report(body, plan))

    takers = [
        ("plan", over_the_wire(algorithm.pack_plan(plan).body), lambda body: algorithm.unpack_plan(body, 0, 0)),
        ("report", over_the_wire(algorithm.pack_report(plan, report).body), take),
        ("commits", over_the_wire(algorithm.pack_commits(run.commits).body), algorithm.unpack_commits),
    ]
    for what, good, receive in takers:
        for body in spoiled(good):
            try:
                with np.errstate(all="ignore"):
                    receive(body)
            except (BadPayload, ReportRefused):
                continue
            except Exception as error:
                where = f"{type(error).__name__}: {error}"
                raise AssertionError(f"{what} {body!r:.80} raised {where}; expected BadPayload") from error


# whole runs


def a_run_with_losses_and_laggards_ends_with_the_same_bits_everywhere(run: Rehearsal) -> None:
    """In a run with lost messages, laggards and snapshots, all verified replicas have the same bits."""
    require_no_divergence(ended(_scenario(run.algorithm, with_losses=True)))


def two_worker_processes_give_the_same_bits_as_one(run: Rehearsal) -> None:
    """A run in two worker processes over ipc ends as in one process, bit for bit; with one client, in one worker."""
    what = _scenario(run.algorithm)
    here = ended(what)
    require_no_divergence(here)
    workers = TWO_WORKERS if what.participation.clients > 1 else ONE_WORKER
    require_equal_ends(ended(what, workers), here, "in two worker processes", "in one process")


def a_run_that_is_interrupted_and_resumed_ends_alike(run: Rehearsal) -> None:
    """A run that is interrupted and resumed ends as one that never was."""
    what = _scenario(run.algorithm)
    require_equal_ends(ended(what, interrupted=True), ended(what), "interrupted after a round", "without")


def _scenario(algorithm: Any, *, with_losses: bool = False) -> Any:
    facts = algorithm.facts
    clients = min(8, facts.most_clients or 8)
    cohort = min(clients, max(3, facts.rule.fewest_reports))
    fields: dict[str, Any] = {
        "algorithm": algorithm.model_dump(mode="json"),
        "participation": {"clients": clients, "cohort": cohort, "quorum": facts.rule.fewest_reports, "deadline_s": 3.0},
    }
    if facts.needs_outputs:
        fields["task"] = {"name": "digits", "model": "softmax"}
    if with_losses:
        fields["faults"] = [{"fault": "drop", "probability": 0.2, "kind": "report"}]
        if not facts.is_dense:
            fields["lag"] = {"snapshot_after_commits": 3}
    return world(**fields)


def _require_equal(found: Replica, expected: Replica, how: str, otherwise: str) -> None:
    if found.version != expected.version:
        raise AssertionError(f"version {found.version} {how}, and {expected.version} {otherwise}")
    for name, field in expected.fields.items():
        require_same(found.fields.get(name), field, f"{how}, {name}", f"and {otherwise}")


CONTRACT: Sequence[Any] = [
    an_algorithm_is_frozen,
    an_algorithm_refuses_an_unknown_field,
    fields_survive_a_round_trip_as_text,
    a_replica_begins_as_a_copy_of_x0_at_version_0,
    local_work_leaves_the_replica_untouched_and_is_deterministic,
    local_work_evaluates_the_loss_as_often_as_declared,
    diagnostics_are_figures_that_leave_the_replica_untouched,
    every_commit_moves_x,
    commits_fold_to_the_same_bits_one_by_one_all_at_once_and_in_chunks,
    a_commit_folded_twice_changes_nothing,
    a_gap_is_refused_and_leaves_the_replica_untouched,
    a_catch_up_brings_a_laggard_to_the_same_bits,
    a_client_is_never_handed_the_servers_own_vectors,
    the_order_of_arrival_does_not_change_a_commit,
    reports_that_commit_as_they_come_lead_to_one_model,
    the_servers_state_survives_a_checkpoint,
    aggregating_leaves_state_and_reports_untouched,
    a_commit_is_the_next_version_of_its_round,
    a_report_that_would_poison_the_model_is_refused,
    a_report_of_another_shape_is_refused,
    plans_reports_and_commits_survive_a_round_trip,
    hostile_bodies_raise_bad_payload_only,
]
RUNS: Sequence[Any] = [
    a_run_with_losses_and_laggards_ends_with_the_same_bits_everywhere,
    a_run_that_is_interrupted_and_resumed_ends_alike,
]
WORKERS: Sequence[Any] = [two_worker_processes_give_the_same_bits_as_one]
