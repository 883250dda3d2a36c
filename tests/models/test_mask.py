"""A mask trains some coordinates: the same losses as in the whole vector, the same bits everywhere, a proof at JOIN."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from algorithm_cases import make
from worlds import scenario

from seedbus.agents.admission import false_proof
from seedbus.agents.messages import Join
from seedbus.algorithms.directions import reference
from seedbus.models import DataError, Iid
from seedbus.models.device import placed_beside
from seedbus.models.mask import Mask, largest
from seedbus.models.masked_problem import MaskedProblem
from seedbus.models.tasks.digits import Digits
from seedbus.models.tasks.quadratic import Quadratic
from seedbus.scenarios.running.replay import replay
from seedbus.scenarios.running.run import run
from seedbus.scenarios.transports.placement import Placement
from seedbus.tensors import TensorVector

PROOF = {"selftest": b"s" * 8, "x0": b"x" * 8}


def digits() -> Any:
    return Digits().bind(seed=1, clients=4, partition=Iid())


def places(problem: Any, rule: Any, density: float = 0.1) -> list[int]:
    found: list[int] = Mask(rule=rule, density=density).choose(problem, problem.x0(), 1).tolist()
    return found


def test_a_model_whose_device_is_told_is_not_asked_for_its_point() -> None:
    """With `revert: light` a large one needs no memory for it."""

    class Large:
        device, dimension = torch.device("cpu"), 4

        def x0(self) -> Any:
            return np.arange(4, dtype=np.float32)

        def objective(self, client: int, round: int) -> Any:
            raise AssertionError("its point takes memory")

    large: Any = Large()
    masked = MaskedProblem(large, Mask(rule="largest", density=0.5), 1)
    assert isinstance(placed_beside(masked)(masked.x0()), TensorVector)
    with pytest.raises(AttributeError):
        masked.inside = digits()
        masked.device  # noqa: B018  # images tell none: that of their point counts


def test_of_equal_scores_the_first_are_taken() -> None:
    assert largest(np.array([1.0, 3.0, 2.0, 3.0, 2.0, 2.0]), 4).tolist() == [1, 2, 3, 4]
    assert largest(np.zeros(5), 2).tolist() == [0, 1]
    assert Mask(rule="random", density=1e-6).count(50) == 1, "one coordinate at least"


def test_a_rule_chooses_the_coordinates_that_it_names(one_thread: None) -> None:
    problem = digits()
    x0 = np.abs(problem.x0())
    gradients = [gradient.copy() for gradient in problem.held_out_gradients()]
    scores = np.mean(np.square(gradients, dtype=np.float64), axis=0)
    for rule, by in (("largest", x0), ("smallest", -x0), ("gradient", scores)):
        chosen = places(problem, rule)
        assert len(chosen) == round(x0.size / 10) and by[chosen].min() > np.delete(by, chosen).max()
    assert len(gradients) == -(-150 // Digits().batch_size)
    chosen = places(problem, "random")
    assert chosen == sorted(set(chosen)) and chosen == places(digits(), "random")


def test_losses_and_gradients_are_those_of_the_whole_vector(one_thread: None) -> None:
    inside, problem = digits(), MaskedProblem(digits(), Mask(rule="gradient", density=0.1), 1)
    chosen = places(inside, "gradient")
    x = problem.x0() + np.float32(0.5)
    whole = inside.x0()
    whole[chosen] = x
    mine, theirs = problem.objective(2, 3), inside.objective(2, 3)
    mine.point[:] = x
    theirs.point[:] = whole
    assert mine.loss(1) == theirs.loss(1)
    assert mine.gradient(1).tolist() == theirs.gradient(1)[chosen].tolist()
    assert problem.evaluate(x, "test") == inside.evaluate(whole, "test")
    tensors, expected = problem.state_dict(x), inside.state_dict(whole)
    assert all(np.array_equal(tensors[name], expected[name]) for name in expected)


def test_losses_at_several_points_are_those_of_the_whole_vectors(one_thread: None) -> None:
    task, mask = Digits(forward="stacked", model="cnn"), Mask(rule="random", density=0.5)
    inside: Any = task.bind(seed=1, clients=4, partition=Iid())
    problem = MaskedProblem(task.bind(seed=1, clients=4, partition=Iid()), mask, 1)
    mine, theirs = problem.objective(2, 3), inside.objective(2, 3)
    for number, (own, whole) in enumerate(zip(mine.points(), theirs.points(), strict=True)):
        own[:] = problem.x0() * np.float32(1 + number / 8)
        whole[:] = problem.whole(own)
    losses = mine.read([mine.measure(1, 3)])
    assert losses == theirs.read([theirs.measure(1, 3)]) and len(set(losses)) == 3


def test_a_masked_run_is_the_recursion_of_meerkat_in_numpy(one_thread: None) -> None:
    """g = (f(w + μ z⊙m) − f(w − μ z⊙m)) / 2μ, w ← w − η g z⊙m, on the whole vector."""
    mask, algorithm = Mask(rule="gradient", density=0.1), make("decomfl", estimator="central", perturbations=1)
    problem, inside = MaskedProblem(digits(), mask, 1), digits()
    chosen, w = places(inside, "gradient"), inside.x0()
    replica, mu, eta = algorithm.replica(problem.x0()), np.float32(1e-3), np.float32(algorithm.learning_rate)
    for round in range(3):
        plan = algorithm.plan(round, replica.version, 77 + round)
        report, _ = algorithm.local(replica, None, plan, problem.objective(0, round))
        z = np.zeros_like(w)
        own = np.empty(len(chosen), np.float32)
        reference("gaussian").fill(own, seed=77 + round, step=0, perturbation=0)
        z[chosen] = own
        losses = []
        for sign in (mu, -mu):
            objective = inside.objective(0, round)
            objective.point[:] = w + sign * z
            losses.append(objective.loss(0))
        g = np.float32((losses[0] - losses[1]) / (2 * float(mu)))
        assert report == g
        w -= eta * (g * z)
        algorithm.apply(replica, [algorithm.aggregate(None, plan, {0: report})[0]])
        assert np.array_equal(problem.whole(replica.x), w)


@pytest.mark.few(1)
@pytest.mark.parametrize(
    "algorithm",
    [
        {"name": "hiso", "local_steps": 2, "perturbations": 3},
        {"name": "fedkseed", "perturbations": 4},
        {"name": "fedavg", "local_steps": 2},
    ],
    ids=lambda fields: fields["name"],
)
def test_light_processes_and_replay_have_the_same_bits(algorithm: dict[str, Any], tmp_path: Path) -> None:
    fields: dict[str, Any] = {
        "task": {"name": "digits"},
        "mask": {"rule": "gradient", "density": 0.05},
        "algorithm": algorithm,
        "participation": {"clients": 4, "cohort": 2},
        "stop": {"rounds": 4},
        "verify": True,
    }
    alone = run(scenario(**fields), tmp_path / "alone")
    light = {} if algorithm["name"] == "fedavg" else {"revert": "light"}
    shared = run(scenario(**fields | {"algorithm": algorithm | light}), tmp_path / "shared")
    assert alone.summary["digest"] == shared.summary["digest"] and alone.summary["refusals"] == {}
    assert alone.summary["dimension"] == replay(tmp_path / "alone").replica.x.size
    assert replay(tmp_path / "alone").replica.digest() == alone.summary["digest"]


def test_a_task_without_layers_is_evaluated_layer_by_layer_with_a_mask_too(tmp_path: Path) -> None:
    fields: dict[str, Any] = {"mask": {"rule": "random", "density": 0.5}, "stop": {"rounds": 3}, "verify": True}
    runs = [
        run(scenario(**fields, algorithm={"name": "decomfl", "revert": revert}), tmp_path / revert)
        for revert in ("copy", "light")
    ]
    assert runs[0].digest == runs[1].digest


@pytest.mark.slow
@pytest.mark.usefixtures("warm_workers")
def test_a_masked_run_has_the_same_bits_in_several_processes(tmp_path: Path) -> None:
    fields: dict[str, Any] = {
        "task": {"name": "digits"},
        "mask": {"rule": "gradient", "density": 0.05},
        "algorithm": {"name": "decomfl"},
        "participation": {"clients": 4, "cohort": 2},
        "stop": {"rounds": 4},
    }
    alone = run(scenario(**fields), tmp_path / "alone")
    shared = run(scenario(**fields), tmp_path / "shared", placement=Placement("tcp", 2))
    assert alone.summary["digest"] == shared.summary["digest"] and shared.summary["refusals"] == {}


@pytest.mark.parametrize(
    ("shown", "run_has", "sentence"),
    [
        (b"", b"p" * 16, "it trains all coordinates, and the run those of a mask"),
        (b"p" * 16, b"", "it trains the coordinates of a mask, and the run all of them"),
        (b"q" * 16, b"p" * 16, f"its mask of trained coordinates has digest {(b'q' * 16).hex()}, the run's"),
    ],
)
def test_a_join_with_another_mask_is_refused(shown: bytes, run_has: bytes, sentence: str) -> None:
    proofs = PROOF | ({"mask": run_has} if run_has else {})
    reason, detail = false_proof(Join(-2, (), **PROOF, mask=shown), proofs) or ("", "")
    assert reason == "mask" and detail.startswith(sentence)
    honest = Join(-2, (), **proofs)
    assert Join.unpack(honest.pack()) == honest and false_proof(honest, proofs) is None


def test_a_mask_that_cannot_be_chosen_is_refused_in_a_sentence() -> None:
    with pytest.raises(DataError, match="no gradients on a validation split"):
        MaskedProblem(
            Quadratic(dimension=50).bind(seed=1, clients=2, partition=Iid()), Mask(rule="gradient", density=0.1), 1
        )


def test_gradients_that_are_not_finite_choose_no_mask(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = digits()
    gradient = np.ones(problem.dimension, np.float32)
    gradient[[3, 5]] = np.nan, np.inf
    monkeypatch.setattr(problem, "held_out_gradients", lambda: iter([gradient]))
    with pytest.raises(DataError, match=r"mask.rule: found gradient, and at x₀ a gradient that is not finite, at 2 of"):
        places(problem, "gradient")
