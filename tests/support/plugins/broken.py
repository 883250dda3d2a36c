"""Plug-ins that break their contracts on purpose. `breaks` of each class is the promise, a function of its kind."""

from __future__ import annotations

import dataclasses
import json
import os
import re
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import count
from pathlib import Path
from typing import Any, ClassVar, Literal, TypeVar

import numpy as np
from pydantic import ConfigDict, Field

from seedbus.discovery import KINDS
from seedbus.plugin import (
    PASS,
    BadPayload,
    Block,
    Channel,
    Compression,
    Facts,
    FedAvg,
    KeyedRandom,
    Known,
    Law,
    MessageSelector,
    Partition,
    Passage,
    Problem,
    Replica,
    ReportRefused,
    Rule,
    ScalarOnly,
    Selection,
    Task,
    TrackedRun,
    Tracker,
    TrackerRun,
    Vector,
    Verdict,
    Work,
)

CALLS: Iterator[int] = count(1)
"""A state that no replica, checkpoint or other process has."""

T = TypeVar("T", bound=type[Any])


def breaks(promise: str) -> Callable[[T], T]:
    """Note the promise that a class breaks, and name it in scenarios after itself: FirstCome is first-come."""

    def named(kind: T) -> T:
        word = re.sub(r"(?<!^)(?=[A-Z])", "-", kind.__name__).lower()
        tag = next(each.tag for each in KINDS if each.accepts(kind))
        types = {tag: Literal[word], "breaks": ClassVar[str]}
        members = {"__module__": __name__, "__annotations__": types, tag: word, "breaks": promise}
        metaclass: Any = type(kind)
        made: T = metaclass(kind.__name__, (kind,), members)
        return made

    return named


# algorithms


@breaks("an_algorithm_is_frozen")
class Thawed(ScalarOnly):
    model_config = ConfigDict(frozen=False)


@breaks("an_algorithm_refuses_an_unknown_field")
class Lenient(ScalarOnly):
    model_config = ConfigDict(extra="ignore")


@breaks("a_replica_begins_as_a_copy_of_x0_at_version_0")
class Aliased(ScalarOnly):
    def replica(self, x0: Vector) -> Replica:
        return Replica(0, {"x": x0})


@breaks("local_work_leaves_the_replica_untouched_and_is_deterministic")
class Careless(ScalarOnly):
    def local(self, replica: Replica, memory: Any, plan: Any, objective: Any) -> Any:
        report = super().local(replica, memory, plan, objective)
        replica.x[0] += 1
        return report


@breaks("local_work_leaves_the_replica_untouched_and_is_deterministic")
class Unsteady(ScalarOnly):
    def reported(self, scalars: Sequence[float]) -> Sequence[float]:
        return [scalar * next(CALLS) for scalar in scalars]


@breaks("local_work_leaves_the_replica_untouched_and_is_deterministic")
class Numbering(ScalarOnly):
    """Its clients remember how many calls there were in this process."""

    def local(self, replica: Replica, memory: Any, plan: Any, objective: Any) -> Any:
        return super().local(replica, memory, plan, objective)[0], next(CALLS)


@breaks("local_work_leaves_the_replica_untouched_and_is_deterministic")
class Hoarding(ScalarOnly):
    """Its clients remember an array."""

    def local(self, replica: Replica, memory: Any, plan: Any, objective: Any) -> Any:
        report, _ = super().local(replica, memory, plan, objective)
        return report, report


@breaks("local_work_leaves_the_replica_untouched_and_is_deterministic")
class Choosy(ScalarOnly):
    """Only clients that took part have models of their own."""

    def local(self, replica: Replica, memory: Any, plan: Any, objective: Any) -> Any:
        return super().local(replica, memory, plan, objective)[0], {"own": replica.x.tobytes()}

    def personal(self, replica: Replica, memory: Any, plan: Any, objective: Any) -> Any:
        return None if memory is None else np.frombuffer(memory["own"], np.float32)


@breaks("local_work_evaluates_the_loss_as_often_as_declared")
class Underpaid(ScalarOnly):
    def work(self, round: int) -> Work:
        return super().work(round)._replace(evaluations=1)


@breaks("diagnostics_are_figures_that_leave_the_replica_untouched")
class Nosy(ScalarOnly):
    def diagnostics(self, replica: Replica) -> dict[str, float]:
        replica.x.sort()
        return {"least": float(replica.x[0])}


@breaks("every_commit_moves_x")
class Idle(ScalarOnly):
    def step(self, block: Block, learning_rate: float) -> None:
        pass

    def update_rule(self) -> None:
        return None


@breaks("commits_fold_to_the_same_bits_one_by_one_all_at_once_and_in_chunks")
class Counting(ScalarOnly):
    def apply(self, replica: Replica, commits: Sequence[Any]) -> None:
        super().apply(replica, commits)
        replica.x[:] *= np.float32(0.99)


@breaks("a_commit_folded_twice_changes_nothing")
class Repeating(ScalarOnly):
    def apply(self, replica: Replica, commits: Sequence[Any]) -> None:
        for commit in commits:
            replica.version = commit.version - 1
            super().apply(replica, [commit])


@breaks("a_gap_is_refused_and_leaves_the_replica_untouched")
class Gapless(ScalarOnly):
    def apply(self, replica: Replica, commits: Sequence[Any]) -> None:
        for commit in commits:
            replica.version = max(replica.version, commit.version - 1)
            super().apply(replica, [commit])


@breaks("a_catch_up_brings_a_laggard_to_the_same_bits")
class Skipping(ScalarOnly):
    def pack_commits(self, commits: Sequence[Any], *, whole: bool = False) -> Any:
        return super().pack_commits(commits[-2:])


@breaks("a_client_is_never_handed_the_servers_own_vectors")
class Owning(FedAvg):
    def apply(self, replica: Replica, commits: Sequence[Any]) -> None:
        super().apply(replica, commits)
        replica.fields["x"] = commits[-1].fields[0]


@breaks("the_order_of_arrival_does_not_change_a_commit")
class FirstCome(ScalarOnly):
    def aggregate(self, state: Any, plan: Any, reports: Mapping[int, Any], **options: Any) -> Any:
        return super().aggregate(state, plan, {0: next(iter(reports.values()))}, **options)


@breaks("the_order_of_arrival_does_not_change_a_commit")
class Tardy(ScalarOnly):
    def aggregate(self, state: Any, plan: Any, reports: Mapping[int, Any], **options: Any) -> Any:
        late = [each._replace(reports=dict([*each.reports.items()][:1])) for each in options.pop("late", ())]
        return super().aggregate(state, plan, reports, late=late, **options)


@breaks("reports_that_commit_as_they_come_lead_to_one_model")
class Averaging(ScalarOnly):
    arithmetic: Literal["integer"] = "integer"

    @property
    def facts(self) -> Facts:
        return dataclasses.replace(super().facts, is_order_free=True)

    def aggregate(self, state: Any, plan: Any, reports: Any, *, late: Any = (), **options: Any) -> Any:
        late = [each._replace(weight=1 / len(late)) for each in late]
        return super().aggregate(state, plan, reports, late=late, **options)


@breaks("the_servers_state_survives_a_checkpoint")
class Secretive(ScalarOnly):
    def aggregate(self, state: Any, plan: Any, reports: Mapping[int, Any], **options: Any) -> Any:
        return super().aggregate(None, plan, reports, **options)[0], {*(state or ()), plan.round}


@breaks("aggregating_leaves_state_and_reports_untouched")
class Wearing(ScalarOnly):
    def aggregate(self, state: Any, plan: Any, reports: Mapping[int, Any], **options: Any) -> Any:
        commit = super().aggregate(state, plan, reports, **options)
        for report in reports.values():
            report *= np.float32(0.5)
        return commit


@breaks("a_commit_is_the_next_version_of_its_round")
class Misdated(ScalarOnly):
    def aggregate(self, state: Any, plan: Any, reports: Mapping[int, Any], **options: Any) -> Any:
        commit, state = super().aggregate(state, plan, reports, **options)
        return dataclasses.replace(commit, round=plan.round + 1), state


@breaks("a_report_that_would_poison_the_model_is_refused")
class Trusting(ScalarOnly):
    def check(self, plan: Any, report: Any) -> None:
        pass


@breaks("a_report_of_another_shape_is_refused")
class Shapeless(ScalarOnly):
    def check(self, plan: Any, report: Any) -> None:
        if not np.isfinite(report).all():
            raise ReportRefused("not-finite", "it holds NaN")


@breaks("plans_reports_and_commits_survive_a_round_trip")
class Rounding(ScalarOnly):
    def pack_report(self, plan: Any, report: Any) -> Any:
        return super().pack_report(plan, report.astype(np.float16).astype(np.float32))


@breaks("hostile_bodies_raise_bad_payload_only")
class Naive(ScalarOnly):
    def unpack_plan(self, body: Any, round: int, version: int) -> Any:
        if body[1] != 1:
            raise BadPayload("not one step")
        return super().unpack_plan(body, round, version)


@breaks("two_worker_processes_give_the_same_bits_as_one")
class Local(ScalarOnly):
    def reported(self, scalars: Sequence[float]) -> Sequence[float]:
        return [scalar * (2.0 if "client" in sys.argv else 1.0) for scalar in scalars]


@breaks("a_run_that_is_interrupted_and_resumed_ends_alike")
class Remembering(ScalarOnly):
    def aggregate(self, state: Any, plan: Any, reports: Mapping[int, Any], **options: Any) -> Any:
        commit, state = super().aggregate(state, plan, reports, **options)
        return dataclasses.replace(commit, learning_rate=1 / next(CALLS)), state


@breaks("elsewhere")
class Hashing(ScalarOnly):
    def reported(self, scalars: Sequence[float]) -> Sequence[float]:
        return [scalar * (hash("scalar") % 10**6) for scalar in scalars]


# faults


@breaks("verdicts_depend_on_the_message_alone")
class Stateful(MessageSelector):
    def judge(self, passage: Passage) -> Verdict:
        return Verdict(delay_ns=next(CALLS))


@breaks("without_intensity_it_changes_nothing")
class Stubborn(MessageSelector):
    def judge(self, passage: Passage) -> Verdict:
        return Verdict(delay_ns=10**8) if passage.client == 0 else PASS


@breaks("its_groups_are_of_clients_that_there_are")
class Crowding(MessageSelector):
    def client_groups(self, clients: int, random: KeyedRandom) -> dict[str, list[int]]:
        return {"ghosts": [clients]}


@breaks("it_does_not_change_what_other_faults_draw")
class Impostor(MessageSelector):
    def __repr__(self) -> str:
        return "Drop(probability=0.2)"

    def judge(self, passage: Passage) -> Verdict:
        return Verdict(delay_ns=10**6) if self.strikes(passage) else PASS


@breaks("what_loses_messages_says_so")
class Silent(MessageSelector):
    probability: float = Field(default=0.3, ge=0, le=1)

    def judge(self, passage: Passage) -> Verdict:
        return Verdict(drop=True) if self.strikes(passage) else PASS


@breaks("it_strikes_the_same_on_every_transport")
class Threaded(MessageSelector):
    def judge(self, passage: Passage) -> Verdict:
        names = [thread.name for thread in threading.enumerate()]
        return Verdict(delay_ns=len(names) * 10**7) if self.strikes(passage) else PASS


@breaks("a_run_that_is_interrupted_and_resumed_ends_alike")
class Forgetting(MessageSelector):
    def judge(self, passage: Passage) -> Verdict:
        return Verdict(delay_ns=next(CALLS) * 10**6) if self.strikes(passage) else PASS


@breaks("it_comes_back_from_its_own_text")
class Lossy(MessageSelector):
    share: float = Field(default=1 / 3, description="a share")

    def __repr__(self) -> str:
        return f"Lossy({id(self)})"


# tasks


class Bowl(Task, frozen=True):
    """½‖x − 1‖²; each task below breaks one promise."""

    dimension: int = 50

    def bind(self, *, seed: int, clients: int, partition: Partition) -> Problem:
        return BowlProblem(self)


class BowlProblem:
    def __init__(self, task: Any) -> None:
        self.task, self.dimension = task, task.dimension + (task.name == "longer")
        self.point, self.start = np.zeros(self.dimension, np.float32), np.zeros(self.dimension, np.float32)
        self.asked = 0

    def x0(self) -> Vector:
        return self.start if self.task.name == "shared" else self.start.copy()

    def samples(self, client: int) -> int:
        return 0 if self.task.name == "poor" else 1

    def objective(self, client: int, round: int) -> BowlProblem:
        return self

    def loss(self, step: int) -> float:
        self.asked += 1
        noise = {"wandering": self.asked, "crowded": self.asked // 5}.get(self.task.name, 0)
        hashed = hash("loss") % 10**6 if self.task.name == "hashed" else 0
        return float(np.sum((self.point.astype(np.float64) - 1) ** 2) / 2) + noise + hashed

    def gradient(self, step: int, criterion: Any = None) -> Vector:
        slope: Vector = self.point - np.float32(1)
        return slope * np.float32(2) if self.task.name == "steep" else slope

    def evaluate(self, x: Vector, split: str) -> dict[str, float]:
        return {"loss": float("nan") if self.task.name == "blind" and split == "validation" else float(np.sum(x))}

    def state_dict(self, x: Vector) -> dict[str, Any]:
        return {"x": x if self.task.name == "open" else x.copy()}


def bowl(name: str, promise: str) -> type[Bowl]:
    metaclass: Any = type(Bowl)
    made: type[Bowl] = breaks(promise)(metaclass(name, (Bowl,), {"__module__": __name__}))
    return made


Longer = bowl("Longer", "the_schema_knows_the_dimension_that_the_problem_has")
Shared = bowl("Shared", "the_initial_point_is_the_same_bits_whatever_clients_there_are_and_a_new_array")
Wandering = bowl("Wandering", "a_step_asked_twice_at_one_point_gives_the_same_bits")
Crowded = bowl("Crowded", "losses_do_not_depend_on_who_else_is_asked")
Poor = bowl("Poor", "every_client_has_samples")
Blind = bowl("Blind", "metrics_are_finite_on_every_split")
Steep = bowl("Steep", "a_gradient_is_that_of_the_loss")
Open = bowl("Open", "named_tensors_hold_every_coordinate_and_share_nothing")
Hashed = bowl("Hashed", "elsewhere")

# partitions


@breaks("every_sample_goes_to_exactly_one_client_and_nobody_is_empty")
class Wasteful(Partition, frozen=True):
    def split(self, column: Any, clients: int, seed: int) -> list[Any]:
        return np.array_split(np.arange(column.size - 1), clients)


@breaks("every_sample_goes_to_exactly_one_client_and_nobody_is_empty")
class Twofold(Partition, frozen=True):
    def split(self, column: Any, clients: int, seed: int) -> list[Any]:
        return [np.arange(column.size)] * clients


@breaks("the_seed_alone_decides_who_holds_what")
class Drifting(Partition, frozen=True):
    def split(self, column: Any, clients: int, seed: int) -> list[Any]:
        return np.array_split(np.roll(np.arange(column.size), next(CALLS)), clients)


@breaks("more_clients_than_samples_or_none_is_refused")
class Generous(Partition, frozen=True):
    def split(self, column: Any, clients: int, seed: int) -> list[Any]:
        return np.array_split(np.arange(column.size), max(clients, 1))


@breaks("elsewhere")
class Hashmap(Partition, frozen=True):
    def split(self, column: Any, clients: int, seed: int) -> list[Any]:
        return np.array_split(np.random.default_rng(hash("seed") % 2**32).permutation(column.size), clients)


# codecs


@breaks("a_vector_is_encoded_deterministically_within_its_size_limit")
class Dice(Compression):
    def encode(self, vector: Vector, key: int) -> list[Any]:
        return super().encode(vector + np.float32(next(CALLS)), key)


@breaks("a_vector_is_encoded_deterministically_within_its_size_limit")
class Fat(Compression):
    def most_bytes(self, dimension: int) -> int:
        return 2 * dimension


@breaks("a_vector_that_is_not_finite_does_not_decode_to_a_finite_one")
class Cleaning(Compression):
    def encode(self, vector: Vector, key: int) -> list[Any]:
        return super().encode(np.nan_to_num(vector, posinf=0.0, neginf=0.0), key)


@breaks("any_body_decodes_or_is_refused")
class Gullible(Compression):
    def decode(self, body: Any, dimension: int) -> Vector:
        return np.frombuffer(body[0], "<f4").astype(np.float32)


@breaks("scalars_are_counted")
class Boasting(Compression):
    def scalars(self, dimension: int) -> int:
        return dimension + 1


@breaks("fedavg_keeps_its_contract_with_it")
class Quantum(Compression):
    def decode(self, body: Any, dimension: int) -> Vector:
        return super().decode(body, dimension) * np.float32(1 + (dimension > 100) * next(CALLS))


# rules


@breaks("what_is_combined_is_a_finite_float64_row_and_the_rows_are_untouched")
class Narrow(Rule):
    def combine(self, rows: Any, state: Any) -> tuple[Any, Any]:
        return rows.mean(axis=0).astype(np.float32), state

    def blend(self, updates: Sequence[Vector], state: Any) -> tuple[Any, Any]:
        return np.mean(updates, axis=0, dtype=np.float64), state


@breaks("what_is_combined_is_a_finite_float64_row_and_the_rows_are_untouched")
class Sorting(Rule):
    def combine(self, rows: Any, state: Any) -> tuple[Any, Any]:
        rows.sort(axis=0)
        return rows[len(rows) // 2], state

    def blend(self, updates: Sequence[Vector], state: Any) -> tuple[Any, Any]:
        return np.median(np.stack(updates).astype(np.float64), axis=0), state


@breaks("rows_and_state_alone_decide")
class Fading(Narrow):
    def combine(self, rows: Any, state: Any) -> tuple[Any, Any]:
        return rows.mean(axis=0) / next(CALLS), state


@breaks("f_byzantine_clients_do_not_move_it_beyond_honest_values")
class Hopeful(Narrow):
    f: int = 1

    def combine(self, rows: Any, state: Any) -> tuple[Any, Any]:
        return rows.mean(axis=0), state


@breaks("too_few_rows_still_have_a_result")
class Strict(Hopeful):
    @property
    def fewest_reports(self) -> int:
        return 3

    def combine(self, rows: Any, state: Any) -> tuple[Any, Any]:
        return np.sort(rows, axis=0)[1:-1].mean(axis=0) if len(rows) > 2 else np.full(rows.shape[1], np.nan), state


@breaks("fedavg_keeps_its_contract_with_it")
class Latecomer(Narrow):
    def blend(self, updates: Sequence[Vector], state: Any) -> tuple[Any, Any]:
        return np.mean(updates, axis=0, dtype=np.float64) / next(CALLS), state


# selection policies


@breaks("it_fills_the_cohort_with_different_members_in_order")
class Shy(Selection):
    def choose(self, members: Sequence[int], count: int, known: Known, seed: int, round: int) -> list[int]:
        return list(members[: count - 1])


@breaks("it_fills_the_cohort_with_different_members_in_order")
class Backwards(Selection):
    def choose(self, members: Sequence[int], count: int, known: Known, seed: int, round: int) -> list[int]:
        return list(members[:count])[::-1]


@breaks("seed_round_members_and_statistics_alone_decide")
class Touring(Selection):
    def choose(self, members: Sequence[int], count: int, known: Known, seed: int, round: int) -> list[int]:
        first = next(CALLS) % (len(members) - count + 1)
        return list(members[first : first + count])


@breaks("what_it_needs_to_know_is_declared")
class Undeclared(Selection):
    def choose(self, members: Sequence[int], count: int, known: Known, seed: int, round: int) -> list[int]:
        return sorted(sorted(members, key=lambda client: (known.reports[client], client))[:count])


@breaks("what_it_needs_to_know_is_declared")
class Hurried(Selection):
    def choose(self, members: Sequence[int], count: int, known: Known, seed: int, round: int) -> list[int]:
        return sorted(sorted(members, key=lambda client: (known.answer_ns.get(client, 0), client))[:count])


@breaks("a_run_that_is_interrupted_and_resumed_ends_alike")
class Resuming(Selection):
    def choose(self, members: Sequence[int], count: int, known: Known, seed: int, round: int) -> list[int]:
        first = next(CALLS) // 5 % (len(members) - count + 1)
        return list(members[first : first + count])


@breaks("elsewhere")
class Processed(Selection):
    def choose(self, members: Sequence[int], count: int, known: Known, seed: int, round: int) -> list[int]:
        first = os.getpid() % (len(members) - count + 1)
        return list(members[first : first + count])


# laws


class Level(Law):
    """±1; each law below breaks one promise."""

    law: Literal["level"] = "level"

    def quantiles(self, probabilities: Any) -> Any:
        return np.ones(len(probabilities))


@breaks("a_law_is_frozen_and_can_be_a_key")
class Loose(Level):
    model_config = ConfigDict(extra="ignore")


@breaks("quantiles_are_finite_and_ascend_from_0")
class Endless(Level):
    def quantiles(self, probabilities: Any) -> Any:
        return np.where(probabilities > 0.9999, np.inf, 1.0)


@breaks("quantiles_are_finite_and_ascend_from_0")
class Downhill(Level):
    def quantiles(self, probabilities: Any) -> Any:
        return np.sqrt(3) * (2 - 2 * probabilities)


@breaks("quantiles_are_finite_and_ascend_from_0")
class Lopsided(Level):
    def quantiles(self, probabilities: Any) -> Any:
        return -np.log(1 - probabilities) - 1


@breaks("fields_alone_decide_the_quantiles")
class Unsettled(Level):
    def quantiles(self, probabilities: Any) -> Any:
        return np.where(probabilities > 0.75, next(CALLS), 1.0)


@breaks("coordinates_have_variance_1")
class Cramped(Level):
    def quantiles(self, probabilities: Any) -> Any:
        return 2 * probabilities - 1


@breaks("every_backend_draws_the_quantiles_that_the_stream_chooses")
class Binary(Level):
    is_signs: ClassVar[bool] = True

    def quantiles(self, probabilities: Any) -> Any:
        return np.sqrt(3) * (2 * probabilities - 1)


@breaks("a_run_that_is_interrupted_and_resumed_ends_alike")
class Unwritten(Level):
    skew: int = Field(default_factory=lambda: next(CALLS), exclude=True)

    def quantiles(self, probabilities: Any) -> Any:
        return np.where(probabilities > 0.75, 1 + 1 / (10 + self.skew), 1.0)


@breaks("elsewhere")
class Scrambled(Level):
    def quantiles(self, probabilities: Any) -> Any:
        return np.where(probabilities > 0.75, 1 + hash("law") % 1000 / 10**6, 1.0)


# channels


class Silence(Channel):
    kind: Literal["silence"] = "silence"

    def reaches(self, seed: int, client: int) -> bool:
        return True

    def noise(self, seed: int, number: int, norms: Sequence[float], dimension: int) -> Vector:
        return np.zeros(dimension, np.float32)


@breaks("whom_it_reaches_depends_on_the_round_and_the_client_alone")
class Flickering(Silence):
    def reaches(self, seed: int, client: int) -> bool:
        return bool(np.sin(next(CALLS)) > 0)


@breaks("noise_is_a_finite_vector_that_its_arguments_decide")
class Wide(Silence):
    def noise(self, seed: int, number: int, norms: Sequence[float], dimension: int) -> Vector:
        return np.zeros(dimension)


@breaks("noise_is_a_finite_vector_that_its_arguments_decide")
class Hissing(Silence):
    def noise(self, seed: int, number: int, norms: Sequence[float], dimension: int) -> Vector:
        return np.full(dimension, next(CALLS), np.float32)


# trackers


class Lines(TrackerRun):
    """Lines of JSON."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.last_step = json.loads(path.read_text().splitlines()[-1])["step"] if path.exists() else -1

    def log(self, step: int, values: Mapping[str, float]) -> None:
        with self._path.open("a") as file:
            file.write(json.dumps({"step": step, **values}) + "\n")

    def end(self, how: str, figures: Mapping[str, str | float]) -> None:
        pass


@breaks("a_resumed_run_goes_on_at_the_last_step_that_it_has")
class Forgetful(Tracker):
    def begin(self, run: TrackedRun) -> TrackerRun:
        lines = Lines(run.folder / "lines")
        lines.last_step = -1
        return lines


@breaks("it_takes_all_numbers_texts_and_names")
class Finite(Tracker):
    def begin(self, run: TrackedRun) -> TrackerRun:
        return FiniteLines(run.folder / "lines")


class FiniteLines(Lines):
    def log(self, step: int, values: Mapping[str, float]) -> None:
        json.dumps(values, allow_nan=False)
        super().log(step, values)


@breaks("what_it_lacks_after_a_failure_it_takes_later")
class Once(Tracker):
    def begin(self, run: TrackedRun) -> TrackerRun:
        (run.folder / "begun").touch(exist_ok=False)
        return Lines(run.folder / "lines")


@breaks("a_run_has_the_same_bits_and_messages_with_it_as_without")
class Scribbling(Tracker):
    def begin(self, run: TrackedRun) -> TrackerRun:
        return Scribble(run.folder / "metrics.jsonl")


class Scribble(Lines):
    def __init__(self, path: Path) -> None:
        self._path = path

    def log(self, step: int, values: Mapping[str, float]) -> None:
        pass

    def end(self, how: str, figures: Mapping[str, str | float]) -> None:
        self._path.write_text(self._path.read_text().upper())
