"""Losses by factors of directions: those at x + μz, for networks of all kinds, whoever is hosted and wherever."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from algorithm_cases import make
from own_networks import Case, task
from task_contract import bind
from torch import Tensor, nn
from torch.nn.functional import conv2d, linear
from worlds import outcome, scenario

from seedbus.algorithms.directions import for_blocks
from seedbus.algorithms.directions.laws.gaussian import Gaussian
from seedbus.algorithms.directions.low_rank import Layers, LowRankDirections
from seedbus.algorithms.scalar_only.factored import Factored
from seedbus.algorithms.scalar_only.perturbed import Copying
from seedbus.models import DataError, Iid
from seedbus.models.parameters.products import product
from seedbus.models.tasks.digits import Digits
from seedbus.scenarios.errors import ScenarioError
from seedbus.scenarios.running.run import run
from seedbus.scenarios.transports.placement import Placement
from seedbus.studies.check.runs import TWO_WORKERS

pytestmark = pytest.mark.usefixtures("one_thread")

LOZO: dict[str, Any] = {"perturbations": 4, "local_steps": 2, "interval": 2, "learning_rate": 0.01}
FACTORED = LOZO | {"forward": "factored"}
NAMED = {"name": "lozo"}
CNN: dict[str, Any] = {"name": "digits", "model": "cnn", "batch_size": 8}
SHIFTS = [(0, 0.0), (0, 0.05), (1, 0.05), (1, -0.05), (2, 0.05)]
CLOSE = 5e-6
"""How far a loss may be from that at x + μz, relative to it: some roundings of float32, and 1/1,000 of a difference."""


def digits(**fields: Any) -> Any:
    return Digits(**CNN | fields).bind(seed=1, clients=3, partition=Iid())


def both(problem: Any, rank: int = 2) -> tuple[list[float], list[float]]:
    """Return the losses around x₀, at x + μz and by factors."""
    layers, x, objective = Layers.of(problem.shapes(), rank), problem.x0(), problem.objective(0, 1)
    directions = LowRankDirections(Gaussian(), layers, v_seed=7)
    single = []
    for p, scale in SHIFTS:
        point = objective.point

        def shift(span: slice, p: int = p, scale: float = scale, point: Any = point) -> None:
            directions.perturb(point[span], x[span], scale, seed=3, step=0, perturbation=p, start=span.start)

        for_blocks(x.size, shift, like=x)
        single.append(objective.loss(0))
    objective.point[:] = x
    return single, objective.read([objective.measure_factored(0, directions.factors(SHIFTS, seed=3, step=0))])


def agree(problem: Any, rank: int = 2) -> None:
    problem.check_factors()
    single, found = both(problem, rank)
    assert found == pytest.approx(single, rel=CLOSE)
    assert np.ptp(single) > 1e-3 * single[0], "the directions change the loss"


class Embedded(nn.Module):
    """An embedding whose matrix is also the head's, a normalisation, and a layer by `@`."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens = nn.Embedding(11, 6)
        self.norm = nn.LayerNorm(6)
        self.matrix = nn.Parameter(torch.randn(6, 6))
        self.bias = nn.Parameter(torch.randn(6))

    def forward(self, values: Tensor) -> Tensor:
        hidden = self.norm(self.tokens((values.abs() * 5).long() % 11))
        mixed = torch.addmm(self.bias, hidden.mean(1) @ self.matrix, self.matrix)
        return linear(torch.tanh(mixed), self.tokens.weight)


def convolutions() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(2, 4, 3, padding=1, bias=False),
        nn.GroupNorm(2, 4),
        nn.Conv2d(4, 6, (3, 1), stride=2, groups=2),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(6 * 2 * 3, 5),
    )


NETWORKS: dict[str, Case] = {
    "perceptron": Case(lambda: nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 5)), ((4,),)),
    "embedding": Case(Embedded, ((7,),)),
    "convolutions": Case(convolutions, ((2, 6, 6),)),
}


@pytest.mark.parametrize("rank", [1, 3])
@pytest.mark.parametrize("name", NETWORKS)
def test_losses_of_a_network_are_those_at_its_points(name: str, rank: int) -> None:
    agree(bind(task(NETWORKS[name])), rank)


@pytest.mark.parametrize("fields", [{}, {"model": "softmax"}, {"micro_batch": 3}], ids=str)
def test_losses_of_digits_are_those_at_its_points(fields: dict[str, Any]) -> None:
    agree(digits(**fields))


def test_what_no_perturbed_weight_has_entered_is_multiplied_once(monkeypatch: pytest.MonkeyPatch) -> None:
    rows: list[int] = []
    problem = bind(task(NETWORKS["perceptron"], batch_size=6))
    from seedbus.models.parameters import factored

    def counted(inputs: Tensor, weight: Tensor) -> Tensor:
        rows.append(len(inputs))
        return linear(inputs, weight)

    monkeypatch.setitem(factored._RULES, torch.nn.functional.linear, factored._by(counted))
    both(problem)
    first, *others = rows
    assert first == 6 and {*others} == {first * len(SHIFTS)}


# -- clients and replicas


def test_replicas_that_fold_the_same_scalars_are_the_same() -> None:
    problem, shapes = digits(), digits().shapes()
    each, together = (make("lozo", **fields).sized(problem.dimension, shapes) for fields in (LOZO, FACTORED))
    assert each.copying is Copying and together.copying is Factored
    replicas = []
    for algorithm in (each, together):
        plan = algorithm.plan(0, 0, seed=5)
        commit, _ = algorithm.aggregate(None, plan, {0: np.full(plan.shape, 0.3, np.float32)})
        replica = algorithm.replica(problem.x0())
        replicas.append(algorithm.apply(replica, [commit]) or replica)
    assert replicas[0].x.tobytes() == replicas[1].x.tobytes() != problem.x0().tobytes()


@pytest.mark.parametrize("estimator", ["forward", "central"])
def test_scalars_are_those_of_single_losses_but_for_rounding(estimator: str) -> None:
    problem = digits()
    reports = []
    for fields in (LOZO, FACTORED):
        fields = fields | {"estimator": estimator, "smoothing": 0.01}
        algorithm: Any = make("lozo", **fields).sized(problem.dimension, problem.shapes())
        report, _ = algorithm.local(
            algorithm.replica(problem.x0()), None, algorithm.plan(0, 0, seed=5), problem.objective(0, 0)
        )
        reports.append(report)
    assert np.abs(reports[0]).max() > 0.1
    np.testing.assert_allclose(reports[1], reports[0], atol=2e-4)


@pytest.mark.parametrize("size", [1, 2])
def test_a_client_reports_the_same_bits_whoever_is_hosted_beside_it(size: int) -> None:
    generator = torch.Generator().manual_seed(0)
    rows, weight = (torch.randn(count, 64, generator=generator) for count in (3 * size, 10))
    if torch.equal(linear(rows, weight)[:size], linear(rows[:size].clone(), weight)):
        pytest.skip("this processor rounds a product of one client's rows as that of all clients' rows")
    problem = digits(model="softmax", batch_size=size)
    algorithm: Any = make("lozo", **FACTORED).sized(problem.dimension, problem.shapes())
    replica, plan = algorithm.replica(problem.x0()), algorithm.plan(0, 0, seed=5)
    clients = range(3)
    together = algorithm.local_together(replica, [None] * 3, plan, [problem.objective(each, 0) for each in clients])
    alone = [algorithm.local(replica, None, plan, problem.objective(each, 0))[0] for each in clients]
    assert [report.tobytes() for report, _ in together] == [report.tobytes() for report in alone]
    assert len({report.tobytes() for report in alone}) == 3


RUN: dict[str, Any] = {"task": CNN, "algorithm": NAMED | FACTORED, "stop": {"rounds": 6}}


@pytest.mark.slow
@pytest.mark.usefixtures("warm_workers")
def test_a_run_has_one_digest_in_every_number_of_processes(tmp_path: Path) -> None:
    what = scenario(**RUN)
    places = [Placement(), Placement(transport="tcp"), TWO_WORKERS]
    ends = [run(what, tmp_path / str(number), placement=place) for number, place in enumerate(places)]
    assert outcome(ends[0]) == outcome(ends[1]) == outcome(ends[2])
    assert ends[0].digest == ends[1].digest == ends[2].digest and ends[0].summary["refusals"] == {}
    each = run(scenario(**RUN | {"algorithm": NAMED | LOZO}), tmp_path / "each")
    assert ends[0].summary["metrics"]["loss"] == pytest.approx(each.summary["metrics"]["loss"], rel=1e-3)


@pytest.mark.slow
def test_clients_that_lag_rebuild_the_same_bits(tmp_path: Path) -> None:
    cohorts = {"clients": 6, "cohort": 2, "deadline_s": 2.0}
    lost = [{"fault": "drop", "probability": 0.2}]
    lag = {"snapshot_after_commits": 3, "chunk_bytes": 2048}
    document = RUN | {"participation": cohorts, "faults": lost, "lag": lag, "stop": {"rounds": 15}, "verify": True}
    end = run(scenario(**document), tmp_path)
    assert end.summary["refusals"] == {} and end.summary["rounds"] == 15


# -- what is refused


class Transposed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 5)

    def forward(self, values: Tensor) -> Tensor:
        return values @ self.layer.weight.t()


class Hidden(Transposed):
    """Uses a weight without a function of torch that a mode sees."""

    def forward(self, values: Tensor) -> Tensor:
        with torch._C.DisableTorchFunction():
            return linear(values, self.layer.weight, self.layer.bias)


REFUSED: dict[str, tuple[Callable[[], nn.Module], Any, str]] = {
    "t": (Transposed, (4,), r"a trained matrix \[5, 4\] in torch's `t`"),
    "lstm": (
        lambda: nn.Sequential(nn.Unflatten(1, (2, 2)), Recurrent()),
        (4,),
        r"a trained matrix \[20, 2\] in",
    ),
    "hidden": (Hidden, (4,), r"whose loss is then nan where it is"),
}


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(2, 5, batch_first=True)

    def forward(self, values: Tensor) -> Tensor:
        found: Tensor = self.lstm(values)[0][:, -1]
        return found


@pytest.mark.parametrize("name", REFUSED)
def test_a_network_without_a_rule_is_refused_before_the_run(name: str) -> None:
    network, shape, reason = REFUSED[name]
    problem = bind(task(Case(network, (shape,))))
    with pytest.raises(
        DataError, match=rf"^algorithm\.forward: found factored, and .*{reason}.*; expected a network of"
    ):
        problem.check_factors()


@pytest.mark.parametrize("forward", ["compiled", "stacked"])
def test_losses_that_are_computed_otherwise_are_refused(forward: str) -> None:
    with pytest.raises(ScenarioError) as raised:
        scenario(**RUN | {"task": CNN | {"forward": forward}})
    assert str(raised.value) == (
        "a test: algorithm.forward: factored measures the losses of a step together, and "
        f"task.forward: {forward} computes them otherwise; expected task.forward: eager, or leave algorithm.forward out"
    )


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"estimator": "projection"}, "estimator: projection perturbs nothing; forward and central are accepted"),
        ({"revert": "light"}, "forward: factored needs revert: copy; light writes each x"),
    ],
    ids=str,
)
def test_settings_that_perturb_otherwise_are_refused(fields: dict[str, Any], reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        make("lozo", **FACTORED | fields)


def test_products_by_onednn_and_convolutions_have_rules() -> None:
    from seedbus.models.parameters import factored

    assert {product, linear, conv2d} <= {*factored._RULES}
