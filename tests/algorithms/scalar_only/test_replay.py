"""The compiled replay equals its definition in Python (`divisor`, `step` and `learn`), bit for bit."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from algorithm_cases import CONFIGURATIONS, DIMENSION, make, rehearse, seed_of, x0
from hypothesis import given, settings
from hypothesis import strategies as st
from look_ups import fetching, gathering

from seedbus.algorithms.contract import Replica
from seedbus.algorithms.directions import Directions, Kind, UpdateRule, directions, for_blocks, reference
from seedbus.algorithms.directions.kernels import PIECE
from seedbus.algorithms.scalar_only import base as scalar
from seedbus.algorithms.scalar_only.base import ScalarOnly
from seedbus.algorithms.scalar_only.block import Block
from seedbus.algorithms.scalar_only.decomfl import DeComFL
from seedbus.algorithms.scalar_only.hiso import HiSo
from seedbus.algorithms.scalar_only.payloads import ScalarCommit, Term
from seedbus.algorithms.scalar_only.replay import COMMITS_PER_CALL, fused
from seedbus.scenarios.schema.discovery import ALGORITHMS

LAWS: dict[str, tuple[str, dict[str, Any]]] = {
    "plain": ("decomfl", {}),
    "mezo": ("mezo", {}),
    "momentum": ("decomfl", {"momentum": 0.9}),
    "undampened": ("decomfl", {"momentum": 0.7, "dampening": False}),
    "hessian": ("hiso", {}),
    "last": ("hiso", {"hessian_step": "last", "nu": 0.3}),
    "clip": ("hiso", {"nu": 0.5, "clip": [0.6, 0.9]}),
    "forgetful": ("hiso", {"nu": 1.0, "epsilon": 1e-30}),
    "frozen": ("hiso", {"nu": 0.0}),
    "decay": ("decomfl", {"weight_decay": 0.1, "momentum": 0.7, "dampening": False}),
    "hessian-momentum-decay": ("hiso", {"weight_decay": 0.1, "momentum": 0.9}),
}
KINDS: tuple[Kind, ...] = ("gaussian", "rademacher")
each_law = pytest.mark.parametrize("law", LAWS)
each_kind = pytest.mark.parametrize("kind", KINDS)


def algorithm_of(law: str, kind: Kind) -> Any:
    name, fields = LAWS[law]
    return make(name, directions=kind, **({"perturbations": 2} | fields))


def commits_of(
    length: int, *, steps: int = 2, perturbations: int = 3, magnitude: float = 1.0, is_late: bool = False
) -> list[ScalarCommit]:
    """Commits of which some weigh less than 1, and, if is_late, some hold terms of earlier rounds or nothing at all."""
    generator, commits = np.random.default_rng(length + 10 * steps), []

    def drawn(*shape: int) -> Any:
        return (generator.standard_normal(shape) * magnitude).clip(-3e38, 3e38).astype(np.float32)

    for version in range(length):
        own = 0.0 if is_late and version % 5 == 4 else 0.7 if version % 3 == 1 else 1.0
        terms = [Term(version, seed_of(version), drawn(steps, perturbations), own)]
        if is_late and version % 2:
            terms += [Term(version - 1 - early, seed_of(900 + early), drawn(3, 2), 0.3) for early in range(version % 4)]
        commits.append(ScalarCommit(version + 1, version, float(np.float32(0.1 / (version + 1))), tuple(terms)))
    return commits


def replayed(algorithm: ScalarOnly, backend: Directions, commits: Sequence[ScalarCommit], start: Any) -> Replica:
    """Replay commits; fail unless the compiled path is used where a backend for it exists."""
    replica = algorithm.replica(start)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(scalar, "directions_for", lambda kind, x: backend)
        assert (fused(algorithm, backend, replica, commits) is not None) == (
            type(backend) is type(directions("gaussian"))
        )
        algorithm.apply(replica, commits)
    return replica


def same(left: Replica, right: Replica) -> bool:
    assert left.fields.keys() == right.fields.keys()
    return all(left.fields[name].tobytes() == right.fields[name].tobytes() for name in left.fields)


@pytest.mark.few(2)
@each_law
@each_kind
@settings(max_examples=12)
@given(
    dimension=st.one_of(st.integers(1, 700), st.integers(PIECE - 130, PIECE + 130), st.just(20_011)),
    length=st.integers(1, 7),
    steps=st.integers(1, 3),
    perturbations=st.integers(1, 5),
    magnitude=st.sampled_from([0.0, 1e-42, 1e-20, 1.0, 1e12, 1e19, 1e38]),
    is_late=st.booleans(),
)
def test_the_compiled_replay_equals_the_definition_bit_for_bit(
    law: str, kind: Kind, dimension: int, length: int, steps: int, perturbations: int, magnitude: float, is_late: bool
) -> None:
    algorithm = algorithm_of(law, kind)
    commits = commits_of(length, steps=steps, perturbations=perturbations, magnitude=magnitude, is_late=is_late)
    of_all = (reference, gathering, fetching)
    expected, *found = (replayed(algorithm, of(kind), commits, x0(dimension)) for of in of_all)
    assert all(same(each, expected) for each in found)


@pytest.mark.few(16)
@pytest.mark.parametrize(
    ("name", "fields"),
    [
        (name, fields)
        for name in ALGORITHMS.all()
        for fields in ({}, *CONFIGURATIONS.get(name, {}).values())
        if not make(name).facts.is_dense and make(name, **fields).arithmetic == "float"
    ],
    ids=lambda value: value if isinstance(value, str) else "-".join(value),
)
def test_a_replica_in_float64_ends_where_that_in_float32_does(name: str, fields: dict[str, Any]) -> None:
    """The one is folded by the definition, and the other by the rule that is said to be the same, if there is one."""
    run = rehearse(make(name, **fields), 4)
    replica = run.algorithm.replica(x0(DIMENSION, np.float64))
    run.algorithm.apply(replica, run.commits)
    for field, found in replica.fields.items():
        np.testing.assert_allclose(run.replica.fields[field], found, rtol=1e-6, atol=1e-6, err_msg=field)


@each_law
@each_kind
def test_a_replica_with_infinities_and_nan_is_folded_to_the_same_bits(law: str, kind: Kind) -> None:
    """Infinities and NaN occur in x, m and H at the start, and by an overflow during the replay."""
    algorithm, start = algorithm_of(law, kind), x0(1_003)
    start[::7], start[3::11], start[5::13] = np.inf, -np.inf, np.nan
    commits = commits_of(3) + [
        ScalarCommit(version, version, 1e30, (Term(version, seed_of(version), np.full((2, 3), 3e38, np.float32)),))
        for version in range(4, 8)
    ]
    actual, expected = (replayed(algorithm, of(kind), commits, start) for of in (directions, reference))
    assert same(actual, expected)
    assert not np.isfinite(actual.x).any()


@each_law
@each_kind
@pytest.mark.parametrize(("threads", "block"), [(1, 128), (3, 1_152), (2, 65_536)])
def test_neither_threads_nor_blocks_change_a_bit_of_it(law: str, kind: Kind, threads: int, block: int) -> None:
    algorithm, commits = algorithm_of(law, kind), commits_of(4, is_late=True)
    single, cut = (algorithm.replica(x0(20_011)) for _ in range(2))
    algorithm.apply(single, commits)
    fold = fused(algorithm, directions(kind), cut, commits)
    assert fold is not None
    for_blocks(cut.dimension, fold, threads=threads, block=block)
    assert same(single, cut)


@pytest.mark.few(1)
@pytest.mark.parametrize("law", ["momentum", "hessian"])
def test_a_log_longer_than_one_call_takes_is_folded_to_its_end(law: str) -> None:
    algorithm, commits = algorithm_of(law, "gaussian"), commits_of(2 * COMMITS_PER_CALL + 3, steps=1, perturbations=2)
    actual, expected = (replayed(algorithm, of("gaussian"), commits, x0(130)) for of in (directions, reference))
    assert same(actual, expected)
    one_by_one = algorithm.replica(x0(130))
    for commit in commits:
        algorithm.apply(one_by_one, [commit])
    assert same(actual, one_by_one)


def test_a_commit_without_weight_moves_nothing() -> None:
    algorithm = make("decomfl")
    replica = algorithm.replica(x0())
    algorithm.apply(replica, [ScalarCommit(1, 0, 0.1, (Term(0, 1, np.zeros((1, 1), np.float32), 0.0),))])
    assert replica.version == 1
    assert same(replica, algorithm.replica(x0()))


# algorithms that the compiled replay supports


class Doubled(DeComFL):
    """A subclass that changes the update in NumPy only."""

    def step(self, block: Block, learning_rate: float) -> None:
        super().step(block, 2 * learning_rate)


class Inherited(Doubled):
    """A subclass that inherits its update rule from its grandparent and its step from its parent."""


class Stubborn(HiSo):
    """A subclass that learns nothing."""

    def learn(self, block: Block, is_last_step: bool) -> None:
        pass


class Outspoken(Doubled):
    """A subclass that overrides its update rule but not its step."""

    def update_rule(self) -> UpdateRule | None:
        return None if self.momentum else DeComFL.update_rule(self)


@pytest.mark.parametrize(
    ("algorithm", "is_fused"),
    [
        (DeComFL(), True),
        (HiSo(), True),
        (Doubled(), False),
        (Inherited(), False),
        (Stubborn(), False),
        (Outspoken(), True),
        (Outspoken(momentum=0.5), False),
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_subclass_with_a_step_but_no_update_rule_is_folded_by_its_step(algorithm: ScalarOnly, is_fused: bool) -> None:
    replica = algorithm.replica(x0())
    assert (fused(algorithm, directions("gaussian"), replica, commits_of(2)) is not None) == is_fused


def test_the_step_of_a_subclass_updates_its_replicas() -> None:
    actual, expected = Doubled().replica(x0()), DeComFL().replica(x0())
    commits = commits_of(1)
    Doubled().apply(actual, commits)
    DeComFL().apply(expected, [ScalarCommit(1, 0, 2 * commits[0].learning_rate, commits[0].terms)])
    assert same(actual, expected)


def test_float64_and_the_reference_are_folded_by_the_definition() -> None:
    algorithm = DeComFL()
    wide = algorithm.replica(x0(300, np.float64))
    assert fused(algorithm, algorithm._backend(wide.x), wide, commits_of(2)) is None
    assert fused(algorithm, reference("gaussian"), algorithm.replica(x0()), commits_of(2)) is None
