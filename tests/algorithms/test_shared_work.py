"""Clients of one process share work: less is computed, and every answer equals the one that each client gives alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from algorithm_cases import CONFIGURATIONS, DIMENSION, Quadratic, bits, make, x0
from event_recorder import EventRecorder
from hypothesis import given, settings
from hypothesis import strategies as st
from worlds import go, scenario

from seedbus.agents import messages
from seedbus.agents.client import worker as followers
from seedbus.agents.client.client_spec import ClientSpec
from seedbus.agents.client.tampering import Tampering
from seedbus.agents.client.worker import Followers
from seedbus.algorithms.base import BaseAlgorithm
from seedbus.algorithms.contract import Declined
from seedbus.algorithms.directions.numba_backend import NumbaDirections
from seedbus.algorithms.scalar_only.decomfl import DeComFL
from seedbus.algorithms.scalar_only.fedscalar_shared import FedScalarShared
from seedbus.bus import HOST, Envelope, Kind, Offer, decode, encode
from seedbus.models import Iid
from seedbus.models.tasks.digits import Digits
from seedbus.scenarios.faults.byzantine import Byzantine
from seedbus.scenarios.schema.discovery import ALGORITHMS
from seedbus.scenarios.transports.contract import Hosting

KINDS: dict[str, Any] = dict(ALGORITHMS.all())
SHARING = [name for name in CONFIGURATIONS if KINDS[name]().facts.shares_work]
CASES = [(name, case) for name in SHARING for case in CONFIGURATIONS[name]]
ALGORITHM: Any = DeComFL(perturbations=3, local_steps=2, precision="float16")
PROBLEM: Any = Digits(model="softmax", batch_size=8).bind(seed=1, clients=6, partition=Iid())
LIARS = [Byzantine(attack="replay", clients=[1]), Byzantine(attack="scale", by=1e9, clients=[2])]


class Cliff(Quadratic):
    """An objective whose scalars exceed the wire format from a given local step on."""

    step, height = 0, 1e11

    def loss(self, step: int) -> float:
        return super().loss(step) * self._height(step)

    def gradient(self, step: int, criterion: Any = None) -> Any:
        return super().gradient(step, criterion) * np.float32(self._height(step))

    def slope(self, step: int) -> float:
        return super().slope(step) * self._height(step)

    def _height(self, step: int) -> float:
        return self.height if step >= self.step else 1.0


def objectives(round: int) -> list[Any]:
    """Return five clients' objectives at one point; two are too steep for float16, at the first or at the second
    step."""
    created = [(Cliff if client in (1, 3) else Quadratic)(DIMENSION, client, round) for client in range(5)]
    created[3].step = 1  # type: ignore[attr-defined]
    for objective in created:
        objective.point, objective.tangent = created[0].point, created[0].tangent
    return created


def outcome(result: Any) -> Any:
    return (result.reason, str(result)) if isinstance(result, Declined) else bits(result)


def formats(name: str) -> list[str]:
    """Return wire formats of an algorithm: one that holds any scalar, and one that does not."""
    return ["sign"] if name == "feedsign" else ["float32", "float16"]


@pytest.mark.few(29)
@pytest.mark.parametrize(
    ("name", "case", "precision"), [(name, case, each) for name, case in CASES for each in formats(name)]
)
def test_shared_work_gives_the_same_scalars_as_separate_work(name: str, case: str, precision: str) -> None:
    algorithm = make(name, **CONFIGURATIONS[name][case] | {"precision": precision}).sized(DIMENSION)
    replica = algorithm.replica(x0())
    for round in (0, 3, 5):
        plan, memories = algorithm.plan(round, 0, 99 + round), list(range(5))
        before = bits(replica)
        together = algorithm.local_together(replica, memories, plan, objectives(round))
        alone = BaseAlgorithm.local_together(algorithm, replica, memories, plan, objectives(round))
        assert [outcome(each) for each in together] == [outcome(each) for each in alone]
        assert bits(replica) == before
        if isinstance(algorithm, FedScalarShared):  # SGD on the cliffs diverges, and the server refuses what is left
            lost = [isinstance(each, Declined) or not np.isfinite(algorithm.values(each[0])).all() for each in together]
            assert precision != "float16" or lost[1]
        elif precision == "float16":
            assert isinstance(together[1], Declined)
            assert isinstance(together[3], Declined) == (plan.steps > 1)


# a process


def process(most: int, monkeypatch: pytest.MonkeyPatch, verify_every: int = 0) -> Followers:
    monkeypatch.setattr(followers, "MAX_TOGETHER", most)
    spec = ClientSpec(ALGORITHM, verify_every=verify_every, tampering=Tampering(LIARS, 1, 6), gathers=True)
    hosted = Followers(Offer(HOST, ((0, 5),), True, b""), spec, PROBLEM, EventRecorder())
    hosted.welcome(encode(messages.welcome(ALGORITHM, HOST, 0, [0] * 7, []))[0])
    return hosted


class Halved(DeComFL):
    def local(self, replica: Any, memory: Any, plan: Any, objective: Any) -> tuple[Any, Any]:
        scalars, _ = super().local(replica, memory, plan, objective)
        return scalars / 2, 1


def test_a_process_asks_a_subclass_that_overrides_local_alone_for_its_own_work() -> None:
    work = []
    for kind in (DeComFL, Halved):
        algorithm = kind(perturbations=3).sized(PROBLEM.dimension)
        hosted = Followers(Offer(HOST, ((0, 5),), True, b""), ClientSpec(algorithm), PROBLEM, EventRecorder())
        objectives = [PROBLEM.objective(client, 0) for client in (0, 1)]
        replica = algorithm.replica(PROBLEM.x0())
        work.append(hosted.host.algorithm.local_together(replica, [None, None], algorithm.plan(0, 0, 9), objectives))
    for whole, half in zip(*work, strict=True):
        assert bits(half) == bits((whole[0] / 2, 1))


def test_clients_may_remember_something_where_a_model_is_sent_or_a_plug_in_defines_their_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that loses its clients' memories must not be replaced."""
    assert {name for name, kind in KINDS.items() if kind().facts.remembers} == {
        name for name, kind in KINDS.items() if kind().facts.is_dense
    }
    assert Halved().facts.remembers
    told = []

    def noting(*arguments: Any, **options: Any) -> Hosting:
        told.append(options["keeps_state"])
        return Hosting(*arguments, **options)

    monkeypatch.setattr("seedbus.scenarios.running.execute.Hosting", noting)
    for algorithm in (DeComFL(), Halved()):
        go(
            tmp_path / type(algorithm).__name__,
            scenario(stop={"rounds": 1}).model_copy(update={"algorithm": algorithm}),
        )
    assert told == [False, True]


def commits(first: int, last: int) -> list[Any]:
    scalars = np.array([[0.5, -0.25, 0.125], [0.5, 2.0, -1.0]], np.float32)
    return [ALGORITHM.aggregate(None, ALGORITHM.plan(r, r, 7 * r), {0: scalars})[0] for r in range(first, last)]


def asked(client: int, round: int, version: int, missed: int, seed: int = 5) -> bytes:
    plan = ALGORITHM.plan(round, version, seed)
    return encode(messages.pack_plan(ALGORITHM, client, plan, commits(version - missed, version))[0])[0]


some_frames = st.lists(
    st.one_of(
        st.builds(
            lambda client, round, missed, seed: asked(client, round, round, missed * round, seed),
            st.integers(0, 6),
            st.integers(0, 2),
            st.integers(0, 1),
            st.integers(5, 6),
        ),
        st.sampled_from(
            [
                b"no envelope",
                encode(Envelope(Kind.WAKE, 1, 1, 2, [0]))[0],
                encode(messages.pack_commit(ALGORITHM, 1, 1, commits(0, 1), 0))[0],
                encode(Envelope(Kind.PLAN, 2, 1, 1, [[1], []]))[0],
            ]
        ),
    ),
    max_size=14,
)


@settings(max_examples=60)
@given(some_frames, st.integers(2, 6), st.sampled_from([0, 1]))
@pytest.mark.slow
def test_frames_handled_together_are_answered_as_one_by_one(frames: list[bytes], most: int, verify_every: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        together, alone = (process(count, patch, verify_every) for count in (most, 1))
    answers = [alone.handle(frame) for frame in frames]
    assert list(together.handle_all(frames)) == answers
    assert {client: together.host.replicas.get(client).digest() for client in range(6)} == {
        client: alone.host.replicas.get(client).digest() for client in range(6)
    }


def test_a_cohort_at_one_version_perturbs_the_model_once_for_the_first_step(monkeypatch: pytest.MonkeyPatch) -> None:
    perturbed, perturb = [0], NumbaDirections.perturb

    def counted(self: Any, *arguments: Any, **where: Any) -> None:
        perturbed[0] += 1
        perturb(self, *arguments, **where)

    monkeypatch.setattr(NumbaDirections, "perturb", counted)
    frames = [asked(client, 0, 0, 0) for client in (0, 3, 4, 5)]
    counts = []
    for most, verify_every in ((64, 0), (2, 0), (1, 0), (64, 1)):
        with monkeypatch.context() as patch:
            hosted = process(most, patch, verify_every)
        perturbed[0] = 0
        assert {decode(answer).kind for (answer,) in hosted.handle_all(frames)} == {Kind.REPORT}
        counts.append(perturbed[0])
    # three perturbations a step: shared by a group in the first step, one per client in the second
    assert counts == [3 + 12, 6 + 12, 12 + 12, 12 + 12]


@pytest.mark.slow
@pytest.mark.parametrize("verify", [False, True])
def test_a_run_does_not_depend_on_the_grouping_of_clients(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, verify: bool
) -> None:
    faults = [{"fault": "byzantine", "attack": "replay", "fraction": 0.3}, {"fault": "duplicate", "probability": 0.3}]
    what = scenario(participation={"clients": 12, "cohort": 8}, faults=faults, verify=verify, network={})
    together = go(tmp_path / "together", what).summary
    monkeypatch.setattr(followers, "MAX_TOGETHER", 1)
    alone = go(tmp_path / "alone", what).summary
    assert (together["digest"], together["ledger_hash"]) == (alone["digest"], alone["ledger_hash"])
