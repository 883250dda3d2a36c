"""The dense algorithms against their papers' equations, each implemented again in float64.

Five clients with different numbers of samples and different losses; two to five of them a round; several local steps.
The references share no code with the package, so the comparison covers the algebra, up to float32 rounding.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest
from algorithm_cases import bits, make
from dense_federation import COHORTS, ETA, SAMPLES, START, Array, Bowl, D, K, N, federate, gradient

# the references


def descend(start: Array, client: int, round: int, direction: Callable[[Array, Array], Array], steps: int = K) -> Array:
    """Apply w ← w − η·direction(g, w) `steps` times; return w, [D]."""
    w = start
    for k in range(steps):
        w = w - ETA * direction(gradient(client, round, k, w), w)
    return w


def by_samples(cohort: Any, vectors: list[Array]) -> Array:
    weights = np.array([SAMPLES[client] for client in cohort], float)
    average: Array = sum(weight * vector for weight, vector in zip(weights / weights.sum(), vectors, strict=True))
    return average


def averaging(step: Callable[[Array, Array, dict[str, Array]], Array], pull: float = 0.0) -> Array:
    """FedAvg with a proximal term of strength `pull` and the server update `step(θ, Δ, state)`; return θ per round,
    [R, D]."""
    theta, state, models = START.astype(np.float64), dict[str, Array](), []
    for round, cohort in enumerate(COHORTS):
        ends = [descend(theta, i, round, lambda g, w, t=theta: g + pull * (w - t)) for i in cohort]  # type: ignore[misc]
        theta = step(theta, by_samples(cohort, [end - theta for end in ends]), state)
        models.append(theta)
    return np.array(models)


def fedavg() -> Array:
    return averaging(lambda theta, delta, _: theta + delta)


def fedprox(beta: float) -> Array:
    return averaging(lambda theta, delta, _: theta + delta, beta)


def fedavgm(beta: float, rate: float) -> Array:
    def step(theta: Array, delta: Array, state: dict[str, Array]) -> Array:
        state["m"] = beta * state.get("m", np.zeros(D)) + delta
        return theta + rate * state["m"]

    return averaging(step)


def adaptive(kind: str, beta1: float, beta2: float, tau: float, rate: float) -> Array:
    def step(theta: Array, delta: Array, state: dict[str, Array]) -> Array:
        m, v = state.get("m", np.zeros(D)), state.get("v", np.full(D, tau**2))
        m = beta1 * m + (1 - beta1) * delta
        if kind == "adam":
            v = beta2 * v + (1 - beta2) * delta**2
        elif kind == "yogi":
            v = v - (1 - beta2) * delta**2 * np.sign(v - delta**2)
        else:
            v = v + delta**2
        state["m"], state["v"] = m, v
        return theta + rate * m / (np.sqrt(v) + tau)

    return averaging(step)


def fednova(rho: float, epochs: int, rate: float) -> Array:
    theta, models = START.astype(np.float64), []
    for round, cohort in enumerate(COHORTS):
        moves, work = [], []
        for i in cohort:
            w, v, tau = theta, np.zeros(D), epochs * (1 + SAMPLES[i] % 3)
            for k in range(tau):
                v = rho * v + gradient(i, round, k, w)
                w = w - ETA * v
            # the weight of the k-th gradient in the update: it is in all velocities from its own on
            work.append(sum(rho**j for k in range(tau) for j in range(tau - k)))
            moves.append((theta - w) / ETA / work[-1])
        effective = by_samples(cohort, [np.array(each) for each in work])
        theta = theta - rate * effective * ETA * by_samples(cohort, moves)
        models.append(theta)
    return np.array(models)


def fedexp(epsilon: float, rate: float) -> Array:
    w, models = START.astype(np.float64), []
    for round, cohort in enumerate(COHORTS):
        moves = [descend(w, i, round, lambda g, _: g) - w for i in cohort]
        mean = np.mean(moves, axis=0)
        extrapolation = sum(move @ move for move in moves) / (2 * len(cohort) * (mean @ mean + epsilon))
        last, w = w, w + rate * max(1.0, extrapolation) * mean
        models.append((last + w) / 2)
    return np.array(models)


def mifa(decay: float) -> Array:
    w, last, models = START.astype(np.float64), {}, []
    for round, cohort in enumerate(COHORTS):
        rate = ETA * decay**round
        for i in cohort:
            end = w
            for k in range(K):
                end = end - rate * gradient(i, round, k, end)
            last[i] = (w - end) / rate
        w = w - 0.8 * rate * np.mean([last[i] for i in last], axis=0)
        models.append(w)
    return np.array(models)


def fedacg(lam: float, beta: float, rate: float = 1.0) -> Array:
    theta, m, models = START.astype(np.float64), np.zeros(D), []
    for round, cohort in enumerate(COHORTS):
        ahead = theta + lam * m  # m: the last step of θ
        ends = [descend(ahead, i, round, lambda g, w, a=ahead: g + beta * (w - a)) for i in cohort]  # type: ignore[misc]
        m = lam * m + rate * by_samples(cohort, [end - ahead for end in ends])
        theta = theta + m
        models.append(theta)
    return np.array(models)


def feddyn(alpha: float, rate: float) -> Array:
    theta, h, models = START.astype(np.float64), np.zeros(D), []
    own = [np.zeros(D) for _ in range(N)]
    for round, cohort in enumerate(COHORTS):
        ends = []
        for i in cohort:
            end = descend(theta, i, round, lambda g, w, t=theta, o=own[i]: g - o + alpha * (w - t))  # type: ignore[misc]
            own[i] = own[i] - alpha * (end - theta)
            ends.append(end)
        h = h - alpha / N * np.sum([end - theta for end in ends], axis=0)
        theta = theta + rate * (np.mean(ends, axis=0) - theta) - h / alpha
        models.append(theta)
    return np.array(models)


def fedcm(alpha: float, epochs: int | None = None) -> Array:
    theta, last, models = START.astype(np.float64), np.zeros(D), []
    for round, cohort in enumerate(COHORTS):
        steps = {i: K if epochs is None else epochs * (1 + SAMPLES[i] % 3) for i in cohort}
        # Δ_t·K, each client dividing by its own K
        moves = [
            descend(theta, i, round, lambda g, _, d=last / steps[i]: alpha * g + (1 - alpha) * d, steps[i]) - theta  # type: ignore[misc]
            for i in cohort
        ]
        delta = by_samples(cohort, moves)
        last = -delta / ETA
        theta = theta + delta
        models.append(theta)
    return np.array(models)


def feddc(alpha: float, rate: float) -> Array:
    theta, c, models = START.astype(np.float64), np.zeros(D), []
    drift, own = [np.zeros(D) for _ in range(N)], [np.zeros(D) for _ in range(N)]
    for round, cohort in enumerate(COHORTS):
        ends, changes = [], []
        for i in cohort:

            def direction(g: Array, w: Array, i: int = i, t: Array = theta, c: Array = c) -> Array:
                return g + alpha * (drift[i] + w - t) + c - own[i]

            end = descend(theta, i, round, direction)
            fresh = own[i] - c + (theta - end) / (K * ETA)
            changes.append(fresh - own[i])
            own[i], drift[i] = fresh, drift[i] + end - theta
            ends.append(end)
        theta = theta + rate * (np.mean(ends, axis=0) - theta) + np.mean(drift, axis=0)
        c = c + np.sum(changes, axis=0) / N
        models.append(theta)
    return np.array(models)


def scaffold(rate: float = 1.0) -> Array:
    theta, c, models = START.astype(np.float64), np.zeros(D), []
    own = [np.zeros(D) for _ in range(N)]
    for round, cohort in enumerate(COHORTS):
        moves, changes = [], []
        for i in cohort:
            end = descend(theta, i, round, lambda g, _, o=own[i], c=c: g - o + c)  # type: ignore[misc]
            fresh = own[i] - c + (theta - end) / (K * ETA)
            moves.append(end - theta)
            changes.append(fresh - own[i])
            own[i] = fresh
        theta, c = theta + rate * np.mean(moves, axis=0), c + len(cohort) / N * np.mean(changes, axis=0)
        models.append(theta)
    return np.array(models)


SLOWER = {"server_learning_rate": 0.8}
CASES: dict[str, tuple[str, dict[str, Any], Callable[[], Array]]] = {
    "fedavg": ("fedavg", {}, fedavg),
    "fedprox": ("fedprox", {"proximal": 0.7}, lambda: fedprox(0.7)),
    "fedavgm": ("fedavgm", {"server_momentum": 0.6, "server_learning_rate": 0.5}, lambda: fedavgm(0.6, 0.5)),
    "fedadam": ("fedadam", {}, lambda: adaptive("adam", 0.9, 0.99, 1e-3, 0.01)),
    "fedyogi": ("fedyogi", {"beta2": 0.7, "beta1": 0.5}, lambda: adaptive("yogi", 0.5, 0.7, 1e-3, 0.01)),
    "fedadagrad": ("fedadagrad", {"adaptivity": 0.1}, lambda: adaptive("adagrad", 0.0, 0.0, 0.1, 0.1)),
    "fednova": ("fednova", {"epochs": 2, "local_steps": None, **SLOWER}, lambda: fednova(0.0, 2, 0.8)),
    "fednova-momentum": ("fednova", {"epochs": 1, "local_steps": None, "momentum": 0.8}, lambda: fednova(0.8, 1, 1.0)),
    "fedexp": ("fedexp", {"epsilon": 1e-4, **SLOWER}, lambda: fedexp(1e-4, 0.8)),
    "mifa": ("mifa", {"decay": 0.7, **SLOWER}, lambda: mifa(0.7)),
    "fedacg": ("fedacg", {"proximal": 0.3}, lambda: fedacg(0.85, 0.3)),
    "fedacg-rate": ("fedacg", {"proximal": 0.3, "server_learning_rate": 0.5}, lambda: fedacg(0.85, 0.3, 0.5)),
    "feddyn": ("feddyn", {"proximal": 0.8, **SLOWER}, lambda: feddyn(0.8, 0.8)),
    "fedcm": ("fedcm", {"gradient_share": 0.3}, lambda: fedcm(0.3)),
    "fedcm-epochs": ("fedcm", {"gradient_share": 0.3, "epochs": 2, "local_steps": None}, lambda: fedcm(0.3, 2)),
    "feddc": ("feddc", {"proximal": 0.4, **SLOWER}, lambda: feddc(0.4, 0.8)),
    "scaffold": ("scaffold", SLOWER, lambda: scaffold(0.8)),
}


@pytest.mark.parametrize("case", CASES)
def test_a_method_follows_its_papers_equations(case: str) -> None:
    name, fields, reference = CASES[case]
    truth, models = reference(), federate(name, **fields).models
    scale = np.abs(truth).max()
    assert np.abs(models - truth).max() < 2e-5 * scale
    if case != "fedavg":  # and not just averaging
        assert np.abs(truth[-1] - fedavg()[-1]).max() > 1e-3


def test_local_steps_with_momentum_decay_clipping_and_weight_decay_follow_their_equations() -> None:
    theta, models, scales = START.astype(np.float64), [], list[float]()
    for round, cohort in enumerate(COHORTS):
        ends = []
        for i in cohort:
            w, v = theta, np.zeros(D)
            for k in range(K):
                g = gradient(i, round, k, w)
                scales.append(min(1.0, 6.0 / float(np.linalg.norm(g))))
                g = g * scales[-1] + 0.1 * w
                v = 0.9 * v + g
                w = w - ETA * 0.7**round * v
            ends.append(w)
        theta = np.mean(ends, axis=0)
        models.append(theta)
    fields: dict[str, Any] = {"momentum": 0.9, "clip": 6.0, "weight_decay": 0.1, "decay": 0.7, "weighting": "uniform"}
    assert np.abs(federate("fedavg", **fields).models - np.array(models)).max() < 1e-5
    assert min(scales) < 1 == max(scales), "only long gradients are clipped"


@pytest.mark.parametrize("name", ["scaffold", "fedcm"])
def test_a_learning_rate_that_has_decayed_to_nothing_can_be_divided_by(name: str) -> None:
    models = federate(name, decay=1e-30).models
    assert np.isfinite(models).all() and np.array_equal(models[-1], models[-2])


# methods that reduce to FedAvg


@pytest.mark.parametrize(
    ("name", "fields"),
    [
        ("fedacg", {"lookahead": 0.0, "proximal": 0.0}),
        ("fedprox", {"proximal": 0.0}),
        ("fedavgm", {"server_momentum": 0.0}),
        ("fedcm", {"gradient_share": 1.0}),
        ("fedavg", {"also": [{"name": "fedprox", "proximal": 0.0}, {"name": "fedavgm", "server_momentum": 0.0}]}),
    ],
)
def test_a_method_that_is_turned_off_equals_fedavg_to_the_bit(name: str, fields: dict[str, Any]) -> None:
    assert bits(federate(name, **fields).models) == bits(federate("fedavg").models)


def test_fednova_is_fedavg_where_all_make_equally_many_steps_and_else_takes_the_mean_work() -> None:
    assert np.abs(federate("fednova", momentum=0.9).models - federate("fedavg", momentum=0.9).models).max() < 1e-5
    unequal: dict[str, Any] = {"epochs": 2, "local_steps": None}
    assert np.abs(federate("fednova", **unequal).models - federate("fedavg", **unequal).models).max() > 1e-2


@pytest.mark.parametrize("other", ["scaffold", "fedcm"])
def test_fednova_beside_another_method_is_that_method_where_all_make_equally_many_steps(other: str) -> None:
    """What others learn from an update does not change because FedNova reports it divided by the work in it."""
    alone = federate(other, weighting="uniform").models
    for first, second in ((other, "fednova"), ("fednova", other)):
        both = federate(first, weighting="uniform", also=[{"name": second}]).models
        assert np.abs(both - alone).max() < 1e-5


def test_fedexp_extrapolates_where_updates_disagree_and_never_shrinks_their_mean() -> None:
    plain = federate("fedavg", weighting="uniform").models[0] - START
    least, moved = (federate("fedexp", epsilon=epsilon).models[0] - START for epsilon in (1e9, 1e-4))
    assert np.allclose(least, plain / 2, atol=1e-6)  # evaluated is the mean of the last two iterates
    assert np.linalg.norm(moved) > 1.05 * np.linalg.norm(least)


def test_mifa_is_fedavg_where_all_answer_and_counts_those_that_are_away() -> None:
    everybody = [range(N)] * 3
    plain = federate("fedavg", everybody, weighting="uniform").models
    assert np.abs(federate("mifa", everybody).models - plain).max() < 1e-6
    assert np.abs(federate("mifa").models[1] - federate("fedavg", weighting="uniform").models[1]).max() > 1e-2


def test_the_first_round_with_control_variates_equals_fedavg_to_the_bit() -> None:
    """All control variates are zero in the first round; they matter once a client takes part again."""
    plain, models = federate("fedavg", weighting="uniform").models, federate("scaffold").models
    assert bits(models[0]) == bits(plain[0])
    assert np.abs(models[1] - plain[1]).max() > 1e-3


def test_the_first_drift_is_the_first_update_weighted_by_its_share_of_all_clients() -> None:
    away = federate("feddc", proximal=0.0).models[0] - START
    plain = federate("fedavg", weighting="uniform").models[0] - START
    assert np.allclose(away, (1 + len(COHORTS[0]) / N) * plain, rtol=0, atol=1e-6)


def test_scaffold_with_new_clients_of_many_members_is_fedavg() -> None:
    """Every client is new, and with so many members c stays at zero."""
    newcomers = federate("scaffold", members=2**40)
    plain = federate("fedavg", weighting="uniform")
    once = [(0, 1), (2, 3), (4,)]
    models = federate("scaffold", once, members=2**40).models
    assert np.abs(models - federate("fedavg", once, weighting="uniform").models).max() < 1e-6
    assert np.abs(newcomers.models - plain.models).max() > 1e-3, "those who come again are not"


def test_dynamic_regularisation_vanishes_with_its_strength_except_in_the_server_state() -> None:
    """As α → 0, h_i and the proximal term vanish, but s = h/α remains −Σ (|C|/N)Δ: the limit is not FedAvg."""
    theta, s, models = START.astype(np.float64), np.zeros(D), []
    for round, cohort in enumerate(COHORTS):
        delta = np.mean([descend(theta, i, round, lambda g, _: g) - theta for i in cohort], axis=0)
        s = s - len(cohort) / N * delta
        theta = theta + delta - s
        models.append(theta)
    limit = np.array(models)
    away = [np.abs(federate("feddyn", proximal=alpha).models - limit).max() for alpha in (1e-1, 1e-2, 1e-3)]
    assert away[0] > 5 * away[1] > 25 * away[2]
    big = federate("feddyn", proximal=1e-3, members=2**40).models
    assert np.abs(big - federate("fedavg", weighting="uniform").models).max() < 2e-2, "of countless members it is"


# convergence with control variates


def gathered(name: str, rounds: int, **fields: Any) -> Array:
    """Return the final model, [D], when all clients take part in every round and the losses do not change."""
    models: Array = federate(name, [tuple(range(N))] * rounds, **fields).models[-1]
    return models


@pytest.mark.slow
def test_drift_correction_converges_to_the_minimum_of_the_mean_loss_and_fedavg_does_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def still(client: int, round: int, step: int, at: Array) -> Array:
        where = np.arange(D)
        return (1.5 + np.sin(where + client)) * (at - np.cos(2 * where + 3 * client))

    monkeypatch.setattr("dense_federation.gradient", still)
    slopes = np.array([1.5 + np.sin(np.arange(D) + i) for i in range(N)])
    centres = np.array([np.cos(2 * np.arange(D) + 3 * i) for i in range(N)])
    minimum = (slopes * centres).sum(axis=0) / slopes.sum(axis=0)
    many = {"local_steps": 20, "learning_rate": 0.05}
    plain = np.abs(gathered("fedavg", 150, weighting="uniform", **many) - minimum).max()
    assert plain > 0.02
    assert np.abs(gathered("scaffold", 150, **many) - minimum).max() < plain / 100
    assert np.abs(gathered("feddyn", 150, proximal=1.0, **many) - minimum).max() < plain / 100


# caveats


def test_error_feedback_with_a_codec_without_bias_is_a_caveat() -> None:
    feeds = [make("fedavg", compression=kind, error_feedback=True) for kind in ("top-k", "qsgd", "fedcom")]
    caveats = [each.facts.caveats for each in feeds]
    assert list(map(len, caveats)) == [0, 1, 1] and "compression has no bias" in caveats[1][0]
    assert make("fedavg", compression="qsgd").facts.caveats == []


def test_a_robust_rule_that_does_not_cover_all_vectors_is_a_caveat() -> None:
    assert make("scaffold").facts.caveats == make("fedavg", aggregation="median").facts.caveats == []
    (sentence,) = make("scaffold", aggregation="median").facts.caveats
    assert "median applies to updates only; scaffold.c" in sentence


# by hand


def test_two_clients_by_hand_train_separate_models() -> None:
    """If clients trained the server's own tensors, the second client would start from the first one's result."""

    class Slope:
        samples, key, steps_an_epoch = 1, 0, 1

        def __init__(self, slope: float, samples: int) -> None:
            self.point, self._slope, self.samples = np.zeros(2, np.float32), slope, samples

        def gradient(self, step: int, criterion: Any = None) -> Any:
            return np.array([self._slope, self.point[1]], np.float32)

    algorithm = make("fedavg", learning_rate=0.5, local_steps=2).sized(2)
    start = np.array([1.0, 8.0], np.float32)
    replica, plan = algorithm.replica(start), algorithm.plan(0, 0, 0)
    reports = {i: algorithm.local(replica, None, plan, Slope(*each))[0] for i, each in enumerate([(2.0, 1), (-1.0, 3)])}
    assert reports[0].vectors.tolist() == [[-2.0, -6.0]], "8 → 4 → 2 by halves"
    assert reports[1].vectors.tolist() == [[1.0, -6.0]]
    assert replica.x.tolist() == [1.0, 8.0]
    commit, _ = algorithm.aggregate(algorithm.first_state(start.copy), plan, reports)
    assert commit.fields[0].tolist() == [1.25, 2.0], "1 + (1·(−2) + 3·1)/4"


@pytest.mark.parametrize("name", ["scaffold", "feddyn", "feddc", "fedcm", "fedacg"])
def test_a_clients_memory_and_report_share_no_buffers(name: str) -> None:
    algorithm = make(name, local_steps=2).sized(D)
    replica, plan = algorithm.replica(START), algorithm.plan(0, 0, 0)
    _, memory = algorithm.local(replica, None, plan, Bowl(0, 0))
    before = bits(memory), bits(replica)
    algorithm.local(replica, memory, plan, Bowl(0, 1))
    assert (bits(memory), bits(replica)) == before
    assert (memory is None) == (name in ("fedcm", "fedacg"))


def test_the_servers_control_variate_counts_every_report_when_all_are_late() -> None:
    """Σ Δc_i/N updates c with every report that counts, fresh or late."""
    from seedbus.algorithms.contract import LateReports

    algorithm = make("scaffold", learning_rate=ETA, local_steps=K).sized(D)
    replica, state = algorithm.replica(START), algorithm.first_state(START.copy)
    plan = algorithm.plan(0, 0, 0)
    reports = {i: algorithm.local(replica, None, plan, Bowl(i, 0))[0] for i in range(4)}
    late = {i: reports.pop(i) for i in (1, 3)}
    commit, _ = algorithm.aggregate(state, plan, reports, share=0.5, late=[LateReports(plan, late, 0.25)], members=N)
    expected = sum(report.vectors[1].astype(np.float64) for report in (reports | late).values()) / N
    assert np.abs(commit.fields[1] - expected).max() < 1e-5
    alone, _ = algorithm.aggregate(state, plan, {}, share=0.0, late=[LateReports(plan, late, 0.5)], members=N)
    assert np.abs(alone.fields[1] - sum(report.vectors[1] for report in late.values()) / N).max() < 1e-5


def test_changed_defaults_belong_to_the_algorithm_and_not_to_added_methods() -> None:
    defaults: Mapping[str, Mapping[str, Any]] = {
        "fedadam": {"server_learning_rate": 0.01},
        "fedadagrad": {"server_learning_rate": 0.1},
        "feddyn": {"weighting": "uniform"},
        "scaffold": {"weighting": "uniform"},
        "fedavg": {"server_learning_rate": 1.0, "weighting": "samples"},
    }
    for name, expected in defaults.items():
        assert {field: getattr(make(name), field) for field in expected} == expected
        assert type(make(name)).model_fields["server_learning_rate"].description == "η_g"
    with pytest.raises(ValueError, match="server_learning_rate"):
        make("fedadam", server_learning_rate=0.0)
    added = make("fedprox", also=[{"name": "fedadam"}])
    assert added.server_learning_rate == 1.0
    (sentence,) = added.facts.caveats
    assert "server_learning_rate is 1.0; where fedadam is the algorithm it is 0.01" in sentence
    assert not make("fedprox", server_learning_rate=0.01, also=[{"name": "fedadam"}]).facts.caveats
