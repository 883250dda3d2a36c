"""`revert: light` gives the same bits as copies of x and never allocates a second vector."""

from __future__ import annotations

import re
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from algorithm_cases import CONFIGURATIONS, DIMENSION, Quadratic, bits, make, rehearse, x0
from event_recorder import EventRecorder
from hypothesis import given, settings
from hypothesis import strategies as st
from small_data import all_sets, mnist
from small_language import write_model
from task_contract import BOUND, skip_without_packages
from torch import nn
from worlds import go, scenario

from seedbus.agents import messages
from seedbus.agents.client.client_spec import ClientSpec
from seedbus.agents.client.evaluator import write_span
from seedbus.agents.client.worker import Followers
from seedbus.algorithms.contract import Vector
from seedbus.bus import HOST, Kind, Offer, decode, encode
from seedbus.models import Iid
from seedbus.models.errors import DataError
from seedbus.models.parameters import coordinates
from seedbus.models.parameters.coordinates import LINE, Coordinates
from seedbus.models.tasks.digits import Digits
from seedbus.models.tasks.language_model import LanguageModel
from seedbus.models.tasks.mnist import Mnist

pytestmark = pytest.mark.usefixtures("one_thread")

SCALAR = ("decomfl", "hiso", "hizoo", "mezo", "fedkseed", "feedsign", "lozo", "zo-signsgd", "zo-adam")
# a projection needs a gradient, and forward-mode a tangent, which are as long as x
CASES = [
    (name, case)
    for name in SCALAR
    for case, fields in CONFIGURATIONS[name].items()
    if not re.search("projection|forward-mode", case) and "revert" not in fields
]
NETWORKS: dict[str, dict[str, Any]] = {
    "decomfl-forward": {"name": "decomfl", "perturbations": 2},
    "decomfl-central": {"name": "decomfl", "perturbations": 2, "estimator": "central"},
    "momentum": {"name": "decomfl", "perturbations": 2, "momentum": 0.9},
    "rademacher": {"name": "decomfl", "perturbations": 2, "directions": "rademacher"},
    "hiso": {"name": "hiso", "perturbations": 2},
    "hiso-central": {"name": "hiso", "perturbations": 2, "estimator": "central"},
}
networks = pytest.mark.parametrize("algorithm", NETWORKS.values(), ids=NETWORKS)
steps = pytest.mark.parametrize("local_steps", [1, 3])


class LayerwiseQuadratic(Quadratic):
    """Request the coordinates in pieces with arbitrary borders, the first piece twice, as a tied layer does."""

    cuts: tuple[int, ...] = (0, DIMENSION)

    @property
    def point(self) -> Vector:
        assert self._vector is not None, "the point is not to be asked for"
        return self._vector

    @point.setter
    def point(self, vector: Vector) -> None:
        self._vector: Vector | None = None

    def loss_at(self, step: int, fill: Callable[[slice, Vector], None]) -> float:
        point = np.full(DIMENSION, np.nan, np.float32)
        for begin, end in [*zip(self.cuts, self.cuts[1:], strict=False), self.cuts[:2]]:
            fill(slice(begin, end), point[begin:end])
        self._vector = point
        try:
            return self.loss(step)
        finally:
            self._vector = None


def rounds(algorithm: Any, objective: Callable[[int, int], Any], start: Vector, count: int = 3) -> list[Any]:
    """The scalars that two clients report in each round, and the replica at the end."""
    replica, records = algorithm.replica(start), []
    for round in range(count):
        plan, before = algorithm.plan(round, replica.version, 99 + round), bits(replica)
        reports = algorithm.local_together(replica, [None] * 2, plan, [objective(client, round) for client in (0, 1)])
        assert bits(replica) == before
        records.append(bits(reports))
        commit, _ = algorithm.aggregate(None, plan, {client: report for client, (report, _) in enumerate(reports)})
        algorithm.apply(replica, [commit])
    return [*records, bits(replica)]


@pytest.mark.few(7)
@pytest.mark.parametrize(("name", "case"), CASES)
@settings(max_examples=5)
@given(st.sets(st.integers(1, DIMENSION - 1), max_size=6))
def test_scalars_and_replicas_equal_those_with_copies_for_any_layer_borders(
    name: str, case: str, inner: set[int]
) -> None:
    def layerwise(client: int, round: int) -> LayerwiseQuadratic:
        objective = LayerwiseQuadratic(DIMENSION, client, round)
        objective.cuts = (0, *sorted(inner), DIMENSION)
        return objective

    def copying(client: int, round: int) -> Quadratic:
        objective = Quadratic(DIMENSION, client, round)
        objective.point = point
        return objective

    fields, point = CONFIGURATIONS[name][case] | {"aggregation": "mean"}, np.zeros(DIMENSION, np.float32)
    light = rounds(make(name, **fields, revert="light").sized(DIMENSION), layerwise, x0())
    assert light == rounds(make(name, **fields).sized(DIMENSION), copying, x0())


def test_an_objective_of_one_piece_is_refused_in_a_sentence() -> None:
    light = make("decomfl", revert="light")
    with pytest.raises(TypeError, match=r"Quadratic has no loss_at, which algorithm\.revert: light needs"):
        light.local(light.replica(x0()), None, light.plan(0, 0, 1), Quadratic(DIMENSION, 0, 0))


# networks


@pytest.fixture
def allocations(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Record the size in floats of every vector that models allocate from here on."""
    sizes: list[int] = []
    aligned_zeros = coordinates.aligned_zeros

    def recorded(count: int) -> Vector:
        sizes.append(count)
        return aligned_zeros(count)

    monkeypatch.setattr(coordinates, "aligned_zeros", recorded)
    return sizes


def allocated_floats(module: nn.Module) -> int:
    """Floats that a module's parameters keep in memory."""
    parts = {p.untyped_storage().data_ptr(): p.untyped_storage().nbytes() // 4 for p in module.parameters()}
    return sum(parts.values())


def copied_and_layerwise(
    bind: Callable[[], Any], algorithm: dict[str, Any], local_steps: int
) -> tuple[list[Any], list[Any], Any]:
    """Run rounds with copies and layer by layer; return both results and the second problem."""
    results = []
    for revert in ("copy", "light"):
        problem = bind()
        configured = make(**algorithm, local_steps=local_steps, learning_rate=0.01, revert=revert)
        results.append(rounds(configured, problem.objective, problem.x0(), 2))
    return results[0], results[1], problem


@pytest.mark.few(6)
@networks
@steps
def test_a_cnns_scalars_are_the_same_bits_with_one_layer_in_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, allocations: list[int], algorithm: dict[str, Any], local_steps: int
) -> None:
    mnist(tmp_path / "mnist")
    monkeypatch.setenv("SEEDBUS_DATA", str(tmp_path))
    task = Mnist(model="mnist-cnn", batch_size=8)
    copied, light, problem = copied_and_layerwise(
        lambda: task.bind(seed=1, clients=2, partition=Iid()), algorithm, local_steps
    )
    assert light == copied
    assert allocations == [28_938, 15_680 + 10 + 2 * LINE]  # the copy's point, and the last layer
    assert allocated_floats(problem.flat.module) <= 6


@pytest.mark.few(2, slow=2)
@networks
@steps
def test_a_language_models_scalars_are_the_same_bits_with_one_layer_in_memory(
    opt: Path, texts: Path, allocations: list[int], algorithm: dict[str, Any], local_steps: int
) -> None:
    task = LanguageModel(model=str(opt), data=str(texts / "sst2"), batch_size=2)
    copied, light, problem = copied_and_layerwise(
        lambda: task.bind(seed=1, clients=2, partition=Iid()), algorithm, local_steps
    )
    assert light == copied
    largest = max(p.numel() for p in problem.trained.module.parameters())
    d = problem.dimension
    assert allocations == [d] * 4 + [
        largest + LINE
    ]  # copies: x₀ and it once more to keep, the point; then x₀, and a layer
    assert allocated_floats(problem.trained.module) <= 40


@pytest.mark.few(2)
@pytest.mark.parametrize("train", ["lora", "prefix", "layernorm"])
def test_the_trained_part_of_a_frozen_model_is_perturbed_layer_by_layer(opt: Path, texts: Path, train: str) -> None:
    task = LanguageModel(model=str(opt), data=str(texts / "sst2"), batch_size=2, train={"kind": train})
    copied, light, _ = copied_and_layerwise(
        lambda: task.bind(seed=1, clients=2, partition=Iid()), {"name": "decomfl", "perturbations": 2}, 2
    )
    assert light == copied


@pytest.mark.slow
@pytest.mark.parametrize("task", BOUND, ids=repr)
def test_every_task_works_with_and_without_copies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, task: Any) -> None:
    skip_without_packages(task.name)
    all_sets(tmp_path)
    monkeypatch.setenv("SEEDBUS_DATA", str(tmp_path))
    copied, light, _ = copied_and_layerwise(
        lambda: task.bind(seed=1, clients=2, partition=Iid()), NETWORKS["momentum"], 2
    )
    assert light == copied


def test_measuring_needs_no_memory_and_gives_the_same_before_and_after(allocations: list[int]) -> None:
    problem: Any = Digits(model="cnn").bind(seed=1, clients=2, partition=Iid())
    x = problem.x0()
    before = problem.evaluate(x, "test")
    light = make("decomfl", revert="light")
    light.local(light.replica(x), None, light.plan(0, 0, 1), problem.objective(0, 0))
    assert problem.evaluate(x, "test") == before and len(allocations) == 1
    named = problem.state_dict(x)
    assert np.array_equal(np.sort(np.concatenate([each.ravel() for each in named.values()])), np.sort(x))
    assert before["loss"] != problem.evaluate(x * np.float32(1.1), "test")["loss"]


# x₀ of a model whose weights were released


def used_problem(model: Path, texts: Path) -> Any:
    """Return a problem whose weights were used layer by layer and are no longer in memory."""
    task = LanguageModel(model=str(model), data=str(texts / "sst2"), batch_size=2)
    problem: Any = task.bind(seed=1, clients=2, partition=Iid())
    light = make("decomfl", revert="light")
    light.local(light.replica(problem.x0()), None, light.plan(0, 0, 1), problem.objective(0, 0))
    return problem


def test_x0_is_read_again(opt: Path, texts: Path) -> None:
    problem = used_problem(opt, texts)
    fresh: Any = LanguageModel(model=str(opt), data=str(texts / "sst2")).bind(seed=1, clients=2, partition=Iid())
    assert problem.x0().tobytes() == fresh.x0().tobytes()
    assert problem.identity() == fresh.identity()


def test_other_weights_in_the_same_files_are_refused(tmp_path: Path, texts: Path) -> None:
    problem = used_problem(write_model(tmp_path / "own"), texts)
    write_model(tmp_path / "own", seed=1)
    with pytest.raises(DataError, match="found other weights than when this process began; expected files that do not"):
        problem.x0()


def test_a_process_keeps_no_x0_beside_its_replicas(monkeypatch: pytest.MonkeyPatch) -> None:
    problem: Any = Digits(model="cnn", batch_size=8).bind(seed=1, clients=6, partition=Iid())
    references: list[weakref.ref[Any]] = []
    x0 = problem.x0

    def recorded() -> Any:
        references.append(weakref.ref(values := x0()))
        return values

    monkeypatch.setattr(problem, "x0", recorded)
    light, offer = make("decomfl", revert="light"), Offer(HOST, ((0, 5),), True, b"")
    process = Followers(offer, ClientSpec(light, gathers=True), problem, EventRecorder())
    process.welcome(encode(messages.welcome(light, HOST, 0, [0] * 7, []))[0])
    plans = [encode(messages.pack_plan(light, client, light.plan(0, 0, 7), [])[0])[0] for client in range(6)]
    assert {decode(answer).kind for (answer,) in process.handle_all(plans)} == {Kind.REPORT}
    assert references and not any(each() is not None for each in references)
    assert len({id(process.host.replicas.get(client)) for client in range(6)}) == 1


# modules of other kinds


class Tied(nn.Module):
    """A module with a weight outside its layers, a layer that is used twice, and a layer that shares the other's
    matrix."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(3))
        self.first, self.second, self.bend = nn.Linear(3, 3), nn.Linear(3, 3, bias=False), nn.Tanh()
        self.second.weight = self.first.weight

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        hidden = self.first(self.first(inputs) * self.scale)
        outputs: torch.Tensor = self.second(self.bend(hidden)) * self.scale
        return outputs


def vector(module: nn.Module) -> tuple[Coordinates, Vector]:
    flat = Coordinates(module.requires_grad_(False), list(module.parameters()))
    return flat, flat.values() + np.float32(0.25)


def test_weights_outside_layers_and_shared_weights_are_made_when_they_are_used() -> None:
    flat, x = vector(Tied())
    inputs, spans = torch.linspace(-1, 1, 6).view(2, 3), []

    def fill(span: slice, out: Vector) -> None:
        spans.append((span.start, span.stop))
        out[:] = x[span]

    loss = flat.computed_at(fill, lambda: flat.module(inputs).sum())
    assert spans == [(0, 3), (3, 12), (12, 15), (3, 12), (12, 15), (3, 12)]
    with flat.at(x), torch.inference_mode():
        assert loss == float(flat.module(inputs).sum())


def test_weights_of_a_layer_that_is_not_called_are_made_with_those_of_the_module_around_it() -> None:
    attention = nn.MultiheadAttention(4, 2).eval()  # it uses the weights of its out_proj and never calls it
    flat, x = vector(nn.Sequential(attention))

    def loss() -> torch.Tensor:
        outputs: torch.Tensor = attention(*[torch.linspace(-1, 1, 8).view(2, 1, 4)] * 3)[0].sum()
        return outputs

    made = [flat.computed_at(lambda span, out: np.copyto(out, x[span]), loss) for _ in range(2)]
    with flat.at(x), torch.inference_mode():
        assert made == [float(loss())] * 2


def test_a_forward_pass_that_fails_leaves_a_module_that_can_be_used() -> None:
    flat, x = vector(Tied())
    with pytest.raises(RuntimeError):
        flat.computed_at(lambda span, out: np.copyto(out, x[span]), lambda: flat.module(torch.ones(2, 5)).sum())
    loss = flat.computed_at(lambda span, out: np.copyto(out, x[span]), lambda: flat.module(torch.ones(2, 3)).sum())
    assert loss.isfinite()
    assert not any(layer._forward_pre_hooks or layer._forward_hooks for layer in flat.module.modules())


def test_light_and_compiled_cannot_be_combined(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("seedbus.models.images.sample_problem.compiled", lambda loss, *_: loss)
    what = scenario(task={"name": "digits", "forward": "compiled"}, algorithm={"name": "decomfl", "revert": "light"})
    with pytest.raises(DataError, match=r"expected task\.forward: eager, or algorithm\.revert: copy"):
        go(tmp_path / "run", what)


# whole runs


@pytest.mark.few(1)
@pytest.mark.parametrize("verify", [False, True])
def test_a_run_is_the_same_with_and_without_copies(tmp_path: Path, verify: bool) -> None:
    algorithm = {"name": "decomfl", "perturbations": 2, "local_steps": 2, "momentum": 0.5}
    what = {"task": {"name": "digits"}, "verify": verify, "stop": {"rounds": 4}}
    runs = [
        go(tmp_path / revert, scenario(**what, algorithm=algorithm | {"revert": revert})).summary
        for revert in ("copy", "light")
    ]
    assert runs[0]["digest"] == runs[1]["digest"] and runs[0]["ledger_hash"] == runs[1]["ledger_hash"]
    assert runs[0]["metrics"] == runs[1]["metrics"]


@pytest.mark.parametrize("arithmetic", ["float", "integer", "bfloat16"])
def test_an_evaluation_without_a_copy_writes_the_coordinates_that_the_model_has(arithmetic: str) -> None:
    fields = {"arithmetic": arithmetic, "learning_rate": 0.5}
    run = rehearse(make("decomfl", **fields), 2)
    light = make("decomfl", revert="light", **fields).sized(DIMENSION)
    point = light.point(run.replica)
    assert not run.algorithm.facts.is_widened
    assert light.facts.is_widened == (arithmetic != "float"), "a vector of floats is read as it is"
    for span in (slice(0, point.size), slice(3, 70)):
        out = np.zeros(span.stop - span.start, np.float32)
        write_span(light, run.replica, span, out)
        assert (out == point[span]).all()
