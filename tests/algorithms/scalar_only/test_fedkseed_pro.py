"""FedKSeed-Pro: its probabilities against the paper's in float64, its draws, its state and its plans."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from algorithm_cases import make, rehearse

from seedbus.algorithms.contract import BadPayload, LateReports
from seedbus.algorithms.scalar_only.fedkseed import drawn
from seedbus.algorithms.scalar_only.fedkseed_pro import drawn_by_level, weights
from seedbus.algorithms.scalar_only.pool import PoolReport

POOL, CLIP = 48, 0.5
FIELDS: dict[str, Any] = {"pool": POOL, "perturbations": 20, "local_steps": 2, "learning_rate": 0.3}


def probabilities(history: list[list[float]]) -> Any:
    """The paper's, of the scalars of each direction, in float64."""
    means = np.array([np.mean(np.abs(np.clip([0.0, *each], -CLIP, CLIP))) for each in history])
    scaled = (means - means.min()) / (means.max() - means.min() + 1e-10)
    return np.exp(scaled) / np.exp(scaled).sum()


def test_its_probabilities_are_the_papers_within_half_a_level() -> None:
    algorithm, generator, state = make("fedkseed-pro", clip=CLIP, **FIELDS), np.random.default_rng(1), None
    history: list[list[float]] = [[] for _ in range(POOL)]
    for round in range(6):
        plan = algorithm.plan(round, round, round, state)
        reports = {
            client: PoolReport(
                generator.integers(0, POOL, (2, 20)).astype(np.uint16),
                generator.standard_normal((2, 20)).astype(np.float32),
            )
            for client in (3, 1, 2)
        }
        late = [LateReports(plan, {0: reports.pop(3)}, 0.5)] if round == 4 else []
        for report in (*reports.values(), *(each.reports[0] for each in late)):
            for index, scalar in zip(report.indices.flat, report.scalars.flat, strict=True):
                history[index].append(float(scalar))
        _, state = algorithm.aggregate(state, plan, reports, late=late)
    levels = np.frombuffer(algorithm.plan(5, 5, 5, state).levels, np.uint8)
    found = weights()[levels] / weights()[levels].sum()
    error = np.abs(found / probabilities(history) - 1).max()
    assert 1e-6 < error < 2 * (np.exp(1 / 510) - 1), "levels are rounded, and so is their sum"
    assert found.max() > 1.5 * found.min()


def test_weights_are_whole_numbers_near_the_exponential() -> None:
    assert np.abs(weights() - 2**14 * np.exp(np.arange(256) / 255)).max() <= 0.5 + 1e-9
    assert 65_535 * int(weights()[-1]) < 2**32, "places of the largest pool have 32 bits"


def test_draws_follow_the_weights_and_those_of_equal_levels_are_fedkseeds() -> None:
    levels = np.array([0, 255, 128, 255, 7], np.uint8)
    draws = drawn_by_level(9, (300, 300), levels)
    shares = np.bincount(draws.ravel(), minlength=5) / draws.size
    assert shares == pytest.approx(weights()[levels] / weights()[levels].sum(), abs=0.005)
    for level in (0, 255):
        equal = np.full(4_096, level, np.uint8)
        assert np.array_equal(drawn_by_level(7, (3, 50), equal), drawn(7, (3, 50), 4_096))


def test_clients_draw_as_their_plan_says_and_a_plan_has_a_byte_for_each_direction() -> None:
    run = rehearse(make("fedkseed-pro", **FIELDS))
    first, later = run.plans[0], run.plans[3]
    sizes = [
        sum(len(each) for each in run.algorithm.pack_plan(p).body if isinstance(each, bytes)) for p in (first, later)
    ]
    assert sizes[1] - sizes[0] == POOL
    for plan, reports in zip(run.plans, run.reports, strict=True):
        for client, report in reports.items():
            key = run.objective(client, plan.round).key
            levels = np.frombuffer(getattr(plan, "levels", bytes(POOL)), np.uint8)
            assert np.array_equal(report.indices, drawn_by_level(key, plan.shape, levels))


@pytest.mark.parametrize(
    ("state", "reason"),
    [
        (3, "the state is not"),
        ([0, b"", b""], "sums of |g|: 0 bytes where 384 belong"),
        ([0, np.full(POOL, np.nan).tobytes(), bytes(4 * POOL)], "not finite"),
        ([-1, bytes(8 * POOL), bytes(4 * POOL)], "budget"),
    ],
)
def test_a_state_that_it_cannot_have_made_is_refused(state: Any, reason: str) -> None:
    with pytest.raises(BadPayload, match=reason.replace("|", "\\|")):
        make("fedkseed-pro", **FIELDS).check_state(state)


def test_levels_of_another_pool_are_refused() -> None:
    algorithm = make("fedkseed-pro", **FIELDS)
    body = algorithm.pack_plan(algorithm.plan(0, 0, 7)).body
    with pytest.raises(BadPayload, match="levels: 3 bytes where 48 belong"):
        algorithm.unpack_plan([*body, b"abc"], 0, 0)
