"""Plug-ins that break their contracts on purpose. `breaks` of each class names the promise, a function of its kind."""

from __future__ import annotations

import dataclasses
import json
import os
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from itertools import count
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
from pydantic import ConfigDict, Field

from seedbus.plugin import (
    PASS,
    BadPayload,
    Block,
    Channel,
    Compression,
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


# algorithms


class Thawed(ScalarOnly):
    model_config = ConfigDict(frozen=False)
    breaks: ClassVar[str] = "an_algorithm_is_frozen"
    name: Literal["thawed"] = "thawed"


class Lenient(ScalarOnly):
    model_config = ConfigDict(extra="ignore")
    breaks: ClassVar[str] = "an_algorithm_refuses_an_unknown_field"
    name: Literal["lenient"] = "lenient"


class Aliased(ScalarOnly):
    breaks: ClassVar[str] = "a_replica_begins_as_a_copy_of_x0_at_version_0"
    name: Literal["aliased"] = "aliased"

    def replica(self, x0: Vector) -> Replica:
        return Replica(0, {"x": x0})


class Careless(ScalarOnly):
    breaks: ClassVar[str] = "local_work_leaves_the_replica_untouched_and_is_deterministic"
    name: Literal["careless"] = "careless"

    def local(self, replica: Replica, memory: Any, plan: Any, objective: Any) -> Any:
        report = super().local(replica, memory, plan, objective)
        replica.x[0] += 1
        return report


class Unsteady(ScalarOnly):
    breaks: ClassVar[str] = "local_work_leaves_the_replica_untouched_and_is_deterministic"
    name: Literal["unsteady"] = "unsteady"

    def reported(self, scalars: Sequence[float]) -> Sequence[float]:
        return [scalar * next(CALLS) for scalar in scalars]


class Numbering(ScalarOnly):
    """Its clients remember how many calls there were in this process."""

    breaks: ClassVar[str] = "local_work_leaves_the_replica_untouched_and_is_deterministic"
    name: Literal["numbering"] = "numbering"

    def local(self, replica: Replica, memory: Any, plan: Any, objective: Any) -> Any:
        return super().local(replica, memory, plan, objective)[0], next(CALLS)


class Hoarding(ScalarOnly):
    """Its clients remember an array."""

    breaks: ClassVar[str] = "local_work_leaves_the_replica_untouched_and_is_deterministic"
    name: Literal["hoarding"] = "hoarding"

    def local(self, replica: Replica, memory: Any, plan: Any, objective: Any) -> Any:
        report, _ = super().local(replica, memory, plan, objective)
        return report, report


class Choosy(ScalarOnly):
    """Only clients that took part have models of their own."""

    breaks: ClassVar[str] = "local_work_leaves_the_replica_untouched_and_is_deterministic"
    name: Literal["choosy"] = "choosy"

    def local(self, replica: Replica, memory: Any, plan: Any, objective: Any) -> Any:
        return super().local(replica, memory, plan, objective)[0], {"own": replica.x.tobytes()}

    def personal(self, replica: Replica, memory: Any, plan: Any, objective: Any) -> Any:
        return None if memory is None else np.frombuffer(memory["own"], np.float32)


class Underpaid(ScalarOnly):
    breaks: ClassVar[str] = "local_work_evaluates_the_loss_as_often_as_declared"
    name: Literal["underpaid"] = "underpaid"

    def work(self, round: int) -> Work:
        return super().work(round)._replace(evaluations=1)


class Nosy(ScalarOnly):
    breaks: ClassVar[str] = "diagnostics_are_figures_that_leave_the_replica_untouched"
    name: Literal["nosy"] = "nosy"

    def diagnostics(self, replica: Replica) -> dict[str, float]:
        replica.x.sort()
        return {"least": float(replica.x[0])}


class Idle(ScalarOnly):
    breaks: ClassVar[str] = "every_commit_moves_x"
    name: Literal["idle"] = "idle"

    def step(self, block: Block, learning_rate: float) -> None:
        pass

    def update_rule(self) -> None:
        return None


class Counting(ScalarOnly):
    breaks: ClassVar[str] = "commits_fold_to_the_same_bits_one_by_one_all_at_once_and_in_chunks"
    name: Literal["counting"] = "counting"

    def apply(self, replica: Replica, commits: Sequence[Any]) -> None:
        super().apply(replica, commits)
        replica.x[:] *= np.float32(0.99)


class Repeating(ScalarOnly):
    breaks: ClassVar[str] = "a_commit_folded_twice_changes_nothing"
    name: Literal["repeating"] = "repeating"

    def pending(self, version: int, commits: Sequence[Any]) -> Sequence[Any]:
        return commits


class Gapless(ScalarOnly):
    breaks: ClassVar[str] = "a_gap_is_refused_and_leaves_the_replica_untouched"
    name: Literal["gapless"] = "gapless"

    def pending(self, version: int, commits: Sequence[Any]) -> Sequence[Any]:
        return [commit for commit in commits if commit.version > version]


class Skipping(ScalarOnly):
    breaks: ClassVar[str] = "a_catch_up_brings_a_laggard_to_the_same_bits"
    name: Literal["skipping"] = "skipping"

    def pack_commits(self, commits: Sequence[Any], *, whole: bool = False) -> Any:
        return super().pack_commits(commits[-2:])


class Owning(FedAvg):
    breaks: ClassVar[str] = "a_client_is_never_handed_the_servers_own_vectors"
    name: Literal["owning"] = "owning"  # type: ignore[assignment]

    def apply(self, replica: Replica, commits: Sequence[Any]) -> None:
        super().apply(replica, commits)
        replica.fields["x"] = commits[-1].fields[0]


class FirstCome(ScalarOnly):
    breaks: ClassVar[str] = "the_order_of_arrival_does_not_change_a_commit"
    name: Literal["first-come"] = "first-come"

    def aggregate(self, state: Any, plan: Any, reports: Mapping[int, Any], **options: Any) -> Any:
        return super().aggregate(state, plan, {0: next(iter(reports.values()))}, **options)


class Tardy(ScalarOnly):
    breaks: ClassVar[str] = "the_order_of_arrival_does_not_change_a_commit"
    name: Literal["tardy"] = "tardy"

    def aggregate(self, state: Any, plan: Any, reports: Mapping[int, Any], **options: Any) -> Any:
        late = [each._replace(reports=dict([*each.reports.items()][:1])) for each in options.pop("late", ())]
        return super().aggregate(state, plan, reports, late=late, **options)


class Averaging(ScalarOnly):
    breaks: ClassVar[str] = "reports_that_commit_as_they_come_lead_to_one_model"
    name: Literal["averaging"] = "averaging"
    arithmetic: Literal["integer"] = "integer"

    def aggregate_each(self, state: Any, plan: Any, groups: Sequence[Any]) -> Any:
        return super().aggregate_each(state, plan, [each._replace(weight=1 / len(groups)) for each in groups])


class Secretive(ScalarOnly):
    breaks: ClassVar[str] = "the_servers_state_survives_a_checkpoint"
    name: Literal["secretive"] = "secretive"

    def aggregate(self, state: Any, plan: Any, reports: Mapping[int, Any], **options: Any) -> Any:
        return super().aggregate(None, plan, reports, **options)[0], {*(state or ()), plan.round}


class Wearing(ScalarOnly):
    breaks: ClassVar[str] = "aggregating_leaves_state_and_reports_untouched"
    name: Literal["wearing"] = "wearing"

    def aggregate(self, state: Any, plan: Any, reports: Mapping[int, Any], **options: Any) -> Any:
        commit = super().aggregate(state, plan, reports, **options)
        for report in reports.values():
            report *= np.float32(0.5)
        return commit


class Misdated(ScalarOnly):
    breaks: ClassVar[str] = "a_commit_is_the_next_version_of_its_round"
    name: Literal["misdated"] = "misdated"

    def aggregate(self, state: Any, plan: Any, reports: Mapping[int, Any], **options: Any) -> Any:
        commit, state = super().aggregate(state, plan, reports, **options)
        return dataclasses.replace(commit, round=plan.round + 1), state


class Trusting(ScalarOnly):
    breaks: ClassVar[str] = "a_report_that_would_poison_the_model_is_refused"
    name: Literal["trusting"] = "trusting"

    def check(self, plan: Any, report: Any) -> None:
        pass


class Shapeless(ScalarOnly):
    breaks: ClassVar[str] = "a_report_of_another_shape_is_refused"
    name: Literal["shapeless"] = "shapeless"

    def check(self, plan: Any, report: Any) -> None:
        if not np.isfinite(report).all():
            raise ReportRefused("not-finite", "it holds NaN")


class Rounding(ScalarOnly):
    breaks: ClassVar[str] = "plans_reports_and_commits_survive_a_round_trip"
    name: Literal["rounding"] = "rounding"

    def pack_report(self, plan: Any, report: Any) -> Any:
        return super().pack_report(plan, report.astype(np.float16).astype(np.float32))


class Naive(ScalarOnly):
    breaks: ClassVar[str] = "hostile_bodies_raise_bad_payload_only"
    name: Literal["naive"] = "naive"

    def unpack_plan(self, body: Any, round: int, version: int) -> Any:
        if body[1] != 1:
            raise BadPayload("not one step")
        return super().unpack_plan(body, round, version)


class Local(ScalarOnly):
    breaks: ClassVar[str] = "two_worker_processes_give_the_same_bits_as_one"
    name: Literal["local"] = "local"

    def reported(self, scalars: Sequence[float]) -> Sequence[float]:
        return [scalar * (2.0 if "client" in sys.argv else 1.0) for scalar in scalars]


class Remembering(ScalarOnly):
    breaks: ClassVar[str] = "a_run_that_is_interrupted_and_resumed_ends_alike"
    name: Literal["remembering"] = "remembering"

    def aggregate(self, state: Any, plan: Any, reports: Mapping[int, Any], **options: Any) -> Any:
        commit, state = super().aggregate(state, plan, reports, **options)
        return dataclasses.replace(commit, learning_rate=1 / next(CALLS)), state


class Hashing(ScalarOnly):
    breaks: ClassVar[str] = "elsewhere"
    name: Literal["hashing"] = "hashing"

    def reported(self, scalars: Sequence[float]) -> Sequence[float]:
        return [scalar * (hash("scalar") % 10**6) for scalar in scalars]


# faults


class Stateful(MessageSelector):
    breaks: ClassVar[str] = "verdicts_depend_on_the_message_alone"
    fault: Literal["stateful"] = "stateful"

    def judge(self, passage: Passage) -> Verdict:
        return Verdict(delay_ns=next(CALLS))


class Stubborn(MessageSelector):
    breaks: ClassVar[str] = "without_intensity_it_changes_nothing"
    fault: Literal["stubborn"] = "stubborn"

    def judge(self, passage: Passage) -> Verdict:
        return Verdict(delay_ns=10**8) if passage.client == 0 else PASS


class Crowding(MessageSelector):
    breaks: ClassVar[str] = "its_groups_are_of_clients_that_there_are"
    fault: Literal["crowding"] = "crowding"

    def client_groups(self, clients: int, random: KeyedRandom) -> dict[str, list[int]]:
        return {"ghosts": [clients]}


class Impostor(MessageSelector):
    breaks: ClassVar[str] = "it_does_not_change_what_other_faults_draw"
    fault: Literal["impostor"] = "impostor"

    def __repr__(self) -> str:
        return "Drop(probability=0.2)"

    def judge(self, passage: Passage) -> Verdict:
        return Verdict(delay_ns=10**6) if self.strikes(passage) else PASS


class Silent(MessageSelector):
    breaks: ClassVar[str] = "what_loses_messages_says_so"
    fault: Literal["silent"] = "silent"
    probability: float = Field(default=0.3, ge=0, le=1)

    def judge(self, passage: Passage) -> Verdict:
        return Verdict(drop=True) if self.strikes(passage) else PASS


class Threaded(MessageSelector):
    breaks: ClassVar[str] = "it_strikes_the_same_on_every_transport"
    fault: Literal["threaded"] = "threaded"

    def judge(self, passage: Passage) -> Verdict:
        names = [thread.name for thread in threading.enumerate()]
        return Verdict(delay_ns=len(names) * 10**7) if self.strikes(passage) else PASS


class Forgetting(MessageSelector):
    breaks: ClassVar[str] = "a_run_that_is_interrupted_and_resumed_ends_alike"
    fault: Literal["forgetting"] = "forgetting"

    def judge(self, passage: Passage) -> Verdict:
        return Verdict(delay_ns=next(CALLS) * 10**6) if self.strikes(passage) else PASS


class Lossy(MessageSelector):
    breaks: ClassVar[str] = "it_comes_back_from_its_own_text"
    fault: Literal["lossy"] = "lossy"
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


class Longer(Bowl, frozen=True):
    breaks: ClassVar[str] = "the_schema_knows_the_dimension_that_the_problem_has"
    name: Literal["longer"] = "longer"


class Shared(Bowl, frozen=True):
    breaks: ClassVar[str] = "the_initial_point_is_the_same_bits_whatever_clients_there_are_and_a_new_array"
    name: Literal["shared"] = "shared"


class Wandering(Bowl, frozen=True):
    breaks: ClassVar[str] = "a_step_asked_twice_at_one_point_gives_the_same_bits"
    name: Literal["wandering"] = "wandering"


class Crowded(Bowl, frozen=True):
    breaks: ClassVar[str] = "losses_do_not_depend_on_who_else_is_asked"
    name: Literal["crowded"] = "crowded"


class Poor(Bowl, frozen=True):
    breaks: ClassVar[str] = "every_client_has_samples"
    name: Literal["poor"] = "poor"


class Blind(Bowl, frozen=True):
    breaks: ClassVar[str] = "metrics_are_finite_on_every_split"
    name: Literal["blind"] = "blind"


class Steep(Bowl, frozen=True):
    breaks: ClassVar[str] = "a_gradient_is_that_of_the_loss"
    name: Literal["steep"] = "steep"


class Open(Bowl, frozen=True):
    breaks: ClassVar[str] = "named_tensors_hold_every_coordinate_and_share_nothing"
    name: Literal["open"] = "open"


class Hashed(Bowl, frozen=True):
    breaks: ClassVar[str] = "elsewhere"
    name: Literal["hashed"] = "hashed"


# partitions


class Wasteful(Partition, frozen=True):
    breaks: ClassVar[str] = "every_sample_goes_to_exactly_one_client_and_nobody_is_empty"
    kind: Literal["wasteful"] = "wasteful"

    def split(self, column: Any, clients: int, seed: int) -> list[Any]:
        return np.array_split(np.arange(column.size - 1), clients)


class Twofold(Partition, frozen=True):
    breaks: ClassVar[str] = "every_sample_goes_to_exactly_one_client_and_nobody_is_empty"
    kind: Literal["twofold"] = "twofold"

    def split(self, column: Any, clients: int, seed: int) -> list[Any]:
        return [np.arange(column.size)] * clients


class Drifting(Partition, frozen=True):
    breaks: ClassVar[str] = "the_seed_alone_decides_who_holds_what"
    kind: Literal["drifting"] = "drifting"

    def split(self, column: Any, clients: int, seed: int) -> list[Any]:
        return np.array_split(np.roll(np.arange(column.size), next(CALLS)), clients)


class Generous(Partition, frozen=True):
    breaks: ClassVar[str] = "more_clients_than_samples_or_none_is_refused"
    kind: Literal["generous"] = "generous"

    def split(self, column: Any, clients: int, seed: int) -> list[Any]:
        return np.array_split(np.arange(column.size), max(clients, 1))


class Hashmap(Partition, frozen=True):
    breaks: ClassVar[str] = "elsewhere"
    kind: Literal["hashmap"] = "hashmap"

    def split(self, column: Any, clients: int, seed: int) -> list[Any]:
        return np.array_split(np.random.default_rng(hash("seed") % 2**32).permutation(column.size), clients)


# codecs


class Dice(Compression):
    breaks: ClassVar[str] = "a_vector_is_encoded_deterministically_within_its_size_limit"
    kind: Literal["dice"] = "dice"

    def encode(self, vector: Vector, key: int) -> list[Any]:
        return super().encode(vector + np.float32(next(CALLS)), key)


class Fat(Compression):
    breaks: ClassVar[str] = "a_vector_is_encoded_deterministically_within_its_size_limit"
    kind: Literal["fat"] = "fat"

    def most_bytes(self, dimension: int) -> int:
        return 2 * dimension


class Cleaning(Compression):
    breaks: ClassVar[str] = "a_vector_that_is_not_finite_does_not_decode_to_a_finite_one"
    kind: Literal["cleaning"] = "cleaning"

    def encode(self, vector: Vector, key: int) -> list[Any]:
        return super().encode(np.nan_to_num(vector, posinf=0.0, neginf=0.0), key)


class Gullible(Compression):
    breaks: ClassVar[str] = "any_body_decodes_or_is_refused"
    kind: Literal["gullible"] = "gullible"

    def decode(self, body: Any, dimension: int) -> Vector:
        return np.frombuffer(body[0], "<f4").astype(np.float32)


class Boasting(Compression):
    breaks: ClassVar[str] = "scalars_are_counted"
    kind: Literal["boasting"] = "boasting"

    def scalars(self, dimension: int) -> int:
        return dimension + 1


class Quantum(Compression):
    breaks: ClassVar[str] = "fedavg_keeps_its_contract_with_it"
    kind: Literal["quantum"] = "quantum"

    def decode(self, body: Any, dimension: int) -> Vector:
        return super().decode(body, dimension) * np.float32(1 + (dimension > 100) * next(CALLS))


# rules


class Narrow(Rule):
    breaks: ClassVar[str] = "what_is_combined_is_a_finite_float64_row_and_the_rows_are_untouched"
    rule: Literal["narrow"] = "narrow"

    def combine(self, rows: Any, state: Any) -> tuple[Any, Any]:
        return rows.mean(axis=0).astype(np.float32), state

    def blend(self, updates: Sequence[Vector], state: Any) -> tuple[Any, Any]:
        return np.mean(updates, axis=0, dtype=np.float64), state


class Sorting(Rule):
    breaks: ClassVar[str] = "what_is_combined_is_a_finite_float64_row_and_the_rows_are_untouched"
    rule: Literal["sorting"] = "sorting"

    def combine(self, rows: Any, state: Any) -> tuple[Any, Any]:
        rows.sort(axis=0)
        return rows[len(rows) // 2], state

    def blend(self, updates: Sequence[Vector], state: Any) -> tuple[Any, Any]:
        return np.median(np.stack(updates).astype(np.float64), axis=0), state


class Fading(Narrow):
    breaks: ClassVar[str] = "rows_and_state_alone_decide"
    rule: Literal["fading"] = "fading"  # type: ignore[assignment]

    def combine(self, rows: Any, state: Any) -> tuple[Any, Any]:
        return rows.mean(axis=0) / next(CALLS), state


class Hopeful(Narrow):
    breaks: ClassVar[str] = "f_byzantine_clients_do_not_move_it_beyond_honest_values"
    rule: Literal["hopeful"] = "hopeful"  # type: ignore[assignment]
    f: int = 1

    def combine(self, rows: Any, state: Any) -> tuple[Any, Any]:
        return rows.mean(axis=0), state


class Strict(Hopeful):
    breaks: ClassVar[str] = "too_few_rows_still_have_a_result"
    rule: Literal["strict"] = "strict"  # type: ignore[assignment]

    @property
    def fewest_reports(self) -> int:
        return 3

    def combine(self, rows: Any, state: Any) -> tuple[Any, Any]:
        return np.sort(rows, axis=0)[1:-1].mean(axis=0) if len(rows) > 2 else np.full(rows.shape[1], np.nan), state


class Latecomer(Narrow):
    breaks: ClassVar[str] = "fedavg_keeps_its_contract_with_it"
    rule: Literal["latecomer"] = "latecomer"  # type: ignore[assignment]

    def blend(self, updates: Sequence[Vector], state: Any) -> tuple[Any, Any]:
        return np.mean(updates, axis=0, dtype=np.float64) / next(CALLS), state


# selection policies


class Shy(Selection):
    breaks: ClassVar[str] = "it_fills_the_cohort_with_different_members_in_order"
    policy: Literal["shy"] = "shy"

    def choose(self, members: Sequence[int], count: int, known: Known, seed: int, round: int) -> list[int]:
        return list(members[: count - 1])


class Backwards(Selection):
    breaks: ClassVar[str] = "it_fills_the_cohort_with_different_members_in_order"
    policy: Literal["backwards"] = "backwards"

    def choose(self, members: Sequence[int], count: int, known: Known, seed: int, round: int) -> list[int]:
        return list(members[:count])[::-1]


class Touring(Selection):
    breaks: ClassVar[str] = "seed_round_members_and_statistics_alone_decide"
    policy: Literal["touring"] = "touring"

    def choose(self, members: Sequence[int], count: int, known: Known, seed: int, round: int) -> list[int]:
        first = next(CALLS) % (len(members) - count + 1)
        return list(members[first : first + count])


class Undeclared(Selection):
    breaks: ClassVar[str] = "what_it_needs_to_know_is_declared"
    policy: Literal["undeclared"] = "undeclared"

    def choose(self, members: Sequence[int], count: int, known: Known, seed: int, round: int) -> list[int]:
        return sorted(sorted(members, key=lambda client: (known.reports[client], client))[:count])


class Hurried(Selection):
    breaks: ClassVar[str] = "what_it_needs_to_know_is_declared"
    policy: Literal["hurried"] = "hurried"

    def choose(self, members: Sequence[int], count: int, known: Known, seed: int, round: int) -> list[int]:
        return sorted(sorted(members, key=lambda client: (known.answer_ns.get(client, 0), client))[:count])


class Resuming(Selection):
    breaks: ClassVar[str] = "a_run_that_is_interrupted_and_resumed_ends_alike"
    policy: Literal["resuming"] = "resuming"

    def choose(self, members: Sequence[int], count: int, known: Known, seed: int, round: int) -> list[int]:
        first = next(CALLS) // 5 % (len(members) - count + 1)
        return list(members[first : first + count])


class Processed(Selection):
    breaks: ClassVar[str] = "elsewhere"
    policy: Literal["processed"] = "processed"

    def choose(self, members: Sequence[int], count: int, known: Known, seed: int, round: int) -> list[int]:
        first = os.getpid() % (len(members) - count + 1)
        return list(members[first : first + count])


# laws


class Level(Law):
    """±1; each law below breaks one promise."""

    law: Literal["level"] = "level"

    def quantiles(self, probabilities: Any) -> Any:
        return np.ones(len(probabilities))


class Loose(Level):
    model_config = ConfigDict(extra="ignore")
    breaks: ClassVar[str] = "a_law_is_frozen_and_can_be_a_key"
    law: Literal["loose"] = "loose"  # type: ignore[assignment]


class Endless(Level):
    breaks: ClassVar[str] = "quantiles_are_finite_and_ascend_from_0"
    law: Literal["endless"] = "endless"  # type: ignore[assignment]

    def quantiles(self, probabilities: Any) -> Any:
        return np.where(probabilities > 0.9999, np.inf, 1.0)


class Downhill(Level):
    breaks: ClassVar[str] = "quantiles_are_finite_and_ascend_from_0"
    law: Literal["downhill"] = "downhill"  # type: ignore[assignment]

    def quantiles(self, probabilities: Any) -> Any:
        return np.sqrt(3) * (2 - 2 * probabilities)


class Lopsided(Level):
    breaks: ClassVar[str] = "quantiles_are_finite_and_ascend_from_0"
    law: Literal["lopsided"] = "lopsided"  # type: ignore[assignment]

    def quantiles(self, probabilities: Any) -> Any:
        return -np.log(1 - probabilities) - 1


class Unsettled(Level):
    breaks: ClassVar[str] = "fields_alone_decide_the_quantiles"
    law: Literal["unsettled"] = "unsettled"  # type: ignore[assignment]

    def quantiles(self, probabilities: Any) -> Any:
        return np.where(probabilities > 0.75, next(CALLS), 1.0)


class Cramped(Level):
    breaks: ClassVar[str] = "coordinates_have_variance_1"
    law: Literal["cramped"] = "cramped"  # type: ignore[assignment]

    def quantiles(self, probabilities: Any) -> Any:
        return 2 * probabilities - 1


class Binary(Level):
    breaks: ClassVar[str] = "every_backend_draws_the_quantiles_that_the_stream_chooses"
    is_signs: ClassVar[bool] = True
    law: Literal["binary"] = "binary"  # type: ignore[assignment]

    def quantiles(self, probabilities: Any) -> Any:
        return np.sqrt(3) * (2 * probabilities - 1)


class Unwritten(Level):
    breaks: ClassVar[str] = "a_run_that_is_interrupted_and_resumed_ends_alike"
    law: Literal["unwritten"] = "unwritten"  # type: ignore[assignment]
    skew: int = Field(default_factory=lambda: next(CALLS), exclude=True)

    def quantiles(self, probabilities: Any) -> Any:
        return np.where(probabilities > 0.75, 1 + 1 / (10 + self.skew), 1.0)


class Scrambled(Level):
    breaks: ClassVar[str] = "elsewhere"
    law: Literal["scrambled"] = "scrambled"  # type: ignore[assignment]

    def quantiles(self, probabilities: Any) -> Any:
        return np.where(probabilities > 0.75, 1 + hash("law") % 1000 / 10**6, 1.0)


# channels


class Silence(Channel):
    kind: Literal["silence"] = "silence"

    def reaches(self, seed: int, client: int) -> bool:
        return True

    def noise(self, seed: int, number: int, norms: Sequence[float], dimension: int) -> Vector:
        return np.zeros(dimension, np.float32)


class Flickering(Silence):
    breaks: ClassVar[str] = "whom_it_reaches_depends_on_the_round_and_the_client_alone"
    kind: Literal["flickering"] = "flickering"  # type: ignore[assignment]

    def reaches(self, seed: int, client: int) -> bool:
        return bool(np.sin(next(CALLS)) > 0)


class Wide(Silence):
    breaks: ClassVar[str] = "noise_is_a_finite_vector_that_its_arguments_decide"
    kind: Literal["wide"] = "wide"  # type: ignore[assignment]

    def noise(self, seed: int, number: int, norms: Sequence[float], dimension: int) -> Vector:
        return np.zeros(dimension)


class Hissing(Silence):
    breaks: ClassVar[str] = "noise_is_a_finite_vector_that_its_arguments_decide"
    kind: Literal["hissing"] = "hissing"  # type: ignore[assignment]

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


class Forgetful(Tracker):
    breaks: ClassVar[str] = "a_resumed_run_goes_on_at_the_last_step_that_it_has"
    tracker: Literal["forgetful"] = "forgetful"

    def begin(self, run: TrackedRun) -> TrackerRun:
        lines = Lines(run.folder / "lines")
        lines.last_step = -1
        return lines


class Finite(Tracker):
    breaks: ClassVar[str] = "it_takes_all_numbers_texts_and_names"
    tracker: Literal["finite"] = "finite"

    def begin(self, run: TrackedRun) -> TrackerRun:
        return FiniteLines(run.folder / "lines")


class FiniteLines(Lines):
    def log(self, step: int, values: Mapping[str, float]) -> None:
        json.dumps(values, allow_nan=False)
        super().log(step, values)


class Once(Tracker):
    breaks: ClassVar[str] = "what_it_lacks_after_a_failure_it_takes_later"
    tracker: Literal["once"] = "once"

    def begin(self, run: TrackedRun) -> TrackerRun:
        (run.folder / "begun").touch(exist_ok=False)
        return Lines(run.folder / "lines")


class Scribbling(Tracker):
    breaks: ClassVar[str] = "a_run_has_the_same_bits_and_messages_with_it_as_without"
    tracker: Literal["scribbling"] = "scribbling"

    def begin(self, run: TrackedRun) -> TrackerRun:
        return Scribble(run.folder / "metrics.jsonl")


class Scribble(Lines):
    def __init__(self, path: Path) -> None:
        self._path = path

    def log(self, step: int, values: Mapping[str, float]) -> None:
        pass

    def end(self, how: str, figures: Mapping[str, str | float]) -> None:
        self._path.write_text(self._path.read_text().upper())
