"""ε against figures that are known otherwise."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pytest
from scipy.optimize import brentq
from scipy.special import ndtr

from seedbus.agents.policies.participation import Participation
from seedbus.agents.policies.selection.poisson import Poisson
from seedbus.agents.privacy.accountant import Accountant
from seedbus.agents.privacy.settings import Privacy

dp_accounting = pytest.importorskip(
    "dp_accounting", reason="privacy needs dp-accounting: pip install 'seedbus[privacy]'"
)


def of(noise_multiplier: float, **settings: object) -> Accountant:
    privacy = Privacy.model_validate({"clip": 1000, "noise_multiplier": noise_multiplier} | settings)
    return Accountant(privacy, Participation(clients=100, cohort=10, quorum=5))


def test_the_client_that_reported_most_decides_and_a_round_without_commit_costs_nothing() -> None:
    often, once = of(4.0), of(1.0)
    for round in range(16):
        often.closed(round + 1, 10, [3, 10 + round])
    expected = once.closed(1, 10, [7])  # 16 releases with four times the noise
    assert often.epsilon == pytest.approx(expected, rel=1e-12)
    assert often.closed(17, 10, None) == often.epsilon < often.next_epsilon
    # Bun and Steinke, arXiv:1605.02065, Proposition 1.3: ρ + 2√(ρ·ln(1/δ)) is an upper bound, and not far off
    bound = 0.5 + 2 * math.sqrt(0.5 * math.log(1e5))
    assert 0.7 * bound < expected < bound


def test_more_shares_than_a_quorum_are_more_noise() -> None:
    fewest, more = of(1.0, mechanism="distributed"), of(1.0, mechanism="distributed")
    assert fewest.closed(1, 10, range(5)) == of(1.0).closed(1, 10, [0])
    assert more.closed(1, 10, range(10)) == pytest.approx(of(math.sqrt(2)).closed(1, 10, [0]), rel=1e-12)


def of_gaussian(epsilon: float, shift: float) -> float:
    """δ of a Gaussian whose mean moves by so many of its deviations: Balle and Wang, arXiv:1805.06530, Theorem 8."""
    return float(ndtr(shift / 2 - epsilon / shift) - math.exp(epsilon) * ndtr(-shift / 2 - epsilon / shift))


def test_a_secret_cohort_of_all_clients_is_one_report_replaced_by_another_in_every_commit() -> None:
    """All are asked, so nothing is secret: replacing a report moves the sum by 2C, and the Gaussian's ε is known."""
    whole = of(4.0, cohorts="secret")
    found = [whole.closed(commits, 100, range(5)) for commits in (1, 2, 3, 4)]
    expected = [brentq(lambda e, c=c: of_gaussian(e, math.sqrt(c) / 2) - 1e-5, 0, 20) for c in (1, 2, 3, 4)]
    assert found == pytest.approx(expected, rel=1e-4)
    assert all(bound > least for bound, least in zip(found, expected, strict=True))
    assert whole.closed(5, 100, None) == found[-1], "a round without a commit"
    assert [whole.measured(rounds)["epsilon"] for rounds in (3, 4)] == found[2:4]


def divergence(upper: np.ndarray, lower: np.ndarray, epsilon: float) -> float:
    """The hockey-stick divergence of two distributions."""
    return float(np.maximum(upper - math.exp(epsilon) * lower, 0).sum())


def delta_of(accountant: Accountant, asked: int, rounds: int, epsilon: float) -> float:
    """The δ at which so many rounds of an accountant's cohorts have spent an ε."""

    def excess(exponent: float) -> float:
        accountant._settings = accountant._settings.model_copy(update={"delta": 10**exponent})
        return accountant._of_samples({asked: rounds}) - epsilon

    return float(10 ** brentq(excess, -11, -0.5, xtol=1e-6))


@pytest.mark.slow
@pytest.mark.parametrize("epsilon", [0.2, 1.0])
def test_a_uniform_cohort_costs_what_the_worst_reports_of_others_make_it_cost_in_every_order(epsilon: float) -> None:
    """Others may report −C in one round, so that one neighbour is the likelier, and +C in the next, so that it is the
    other one: over two rounds that costs more than either alone, and no more than is accounted for."""
    accountant = of(4.0, cohorts="secret")  # 10 of 100; a replaced report moves the sum by half a deviation
    at = np.arange(-8, 8.5, 0.02)
    without, shifted = (np.exp(-((at - mean) ** 2) / 2) for mean in (0.0, 0.5))
    without, shifted = without / without.sum(), shifted / shifted.sum()
    sampled, other = 0.1 * shifted + 0.9 * without, 0.1 * without + 0.9 * shifted
    one = divergence(sampled, without, epsilon / 8)
    assert delta_of(accountant, 10, 1, epsilon / 8) == pytest.approx(one, rel=2e-3)
    epsilon /= 4
    same = divergence(np.outer(sampled, sampled), np.outer(without, without), epsilon)
    turned = divergence(np.outer(sampled, shifted), np.outer(without, other), epsilon)
    assert max(same, turned) <= delta_of(accountant, 10, 2, epsilon) < 1.3 * max(same, turned)


def test_of_secret_uniform_cohorts_epsilon_is_half_of_what_the_bound_by_renyi_divergence_said() -> None:
    """200 clients, 20 a round, 40 rounds; what Poisson cohorts cost at half the noise is attained by some reports."""
    settings = Privacy.model_validate({"clip": 200000, "noise_multiplier": 3.46, "cohorts": "secret"})
    found = Accountant(settings, Participation(clients=200, cohort=20)).of_commits(40)
    attained = dp_accounting.pld.PLDAccountant(dp_accounting.NeighboringRelation.REPLACE_SPECIAL)
    attained.compose(dp_accounting.PoissonSampledDpEvent(0.1, dp_accounting.GaussianDpEvent(1.73)), 40)
    assert 3.993 / found == pytest.approx(2.05, abs=0.01)
    assert attained.get_epsilon(1e-5) < found < 1.07 * attained.get_epsilon(1e-5)
    spent = [of(z, cohorts="secret").of_commits(40) for z in (1e-6, 1e-3, 0.1, 10.0, 1e3)]
    assert spent == sorted(spent, reverse=True) and spent[0] > 1e6 and spent[-1] < 0.01, "as a search tries them"


@pytest.mark.slow
@pytest.mark.parametrize("moved", [4, 7])
def test_the_coarsest_discrete_noise_costs_no_more_than_is_accounted_for_it(moved: int) -> None:
    """σ² = 64 and a report of that many units along one axis, whose losses are far apart."""
    units = np.arange(-300, 301)
    without, shifted = (np.exp(-((units - mean) ** 2) / 128) for mean in (0, 2 * moved))
    without, shifted = without / without.sum(), shifted / shifted.sum()
    settings = Privacy.model_validate({"clip": moved, "noise_multiplier": 8 / moved, "cohorts": "secret"})
    accountant = Accountant(settings, Participation(clients=100, cohort=10))
    is_more_than_gaussian = False
    for epsilon in (0.05, 0.1, 0.2, 0.4):
        exact = divergence(0.1 * shifted + 0.9 * without, without, epsilon)
        assert exact < delta_of(accountant, 10, 1, epsilon)
        continuous = 0.1 * of_gaussian(math.log1p(math.expm1(epsilon) / 0.1), 2 * moved / 8)
        is_more_than_gaussian |= exact > continuous
    assert is_more_than_gaussian, "a Gaussian of this σ² would be no bound"


def test_what_a_secret_cohort_has_spent_is_stored_and_the_next_commit_is_one_more() -> None:
    settings = Privacy.model_validate({"clip": 1000, "noise_multiplier": 4.0, "cohorts": "secret"})
    one, other = (Accountant(settings, Participation(clients=100, quorum=5)) for _ in range(2))
    for commits in (1, 2):
        one.closed(commits, 100, range(5))
    other.unpack(one.pack())
    assert other.measured(1)["epsilon"] == one.measured(1)["epsilon"] < one.epsilon == other.epsilon
    expected = one.next_epsilon
    assert other.next_epsilon == expected == one.closed(3, 100, range(5)) == other.closed(3, 100, range(5))


@pytest.mark.parametrize("cohorts", ["public", "secret"])
def test_what_one_more_commit_may_cost_is_known_before_it(cohorts: str) -> None:
    settings = Privacy.model_validate({"clip": 1000, "noise_multiplier": 4.0, "cohorts": cohorts})
    accountant = Accountant(settings, Participation(clients=100, quorum=5))
    assert accountant.epsilon == accountant.of_commits(0) == 0.0
    for round in range(3):
        expected = accountant.next_epsilon
        reported = [7, 10 + round] if cohorts == "public" else [round]  # a secret cohort may have had anybody
        assert accountant.closed(round + 1, 100, reported) == expected == accountant.of_commits(round + 1)


@pytest.mark.slow
def test_a_small_secret_cohort_costs_less_than_all_clients() -> None:
    whole, sampled = of(4.0, cohorts="secret"), of(4.0, cohorts="secret")
    for round in range(50):
        sampled.closed(round + 1, 10, range(10))
        whole.closed(round + 2, 100, range(100))
    assert 0 < sampled.epsilon < whole.epsilon / 4


def sampled_moment(order: int, probability: float, noise_multiplier: float) -> float:
    """E over the shifted mixture to a whole order: Mironov, Talwar, Zhang, arXiv:1908.10530, section 3.3."""
    return math.fsum(
        math.comb(order, k)
        * (1 - probability) ** (order - k)
        * probability**k
        * math.exp((k * k - k) / (2 * noise_multiplier**2))
        for k in range(order + 1)
    )


def poisson(noise_multiplier: float, cohort: int = 10, **settings: object) -> Accountant:
    settings = {"clip": 1000, "noise_multiplier": noise_multiplier, "cohorts": "secret"} | settings
    return Accountant(Privacy.model_validate(settings), Participation(clients=100, cohort=cohort, selection=Poisson()))


@pytest.mark.parametrize(("noise_multiplier", "orders"), [(2.0, range(2, 60)), (50.0, [128, 192, 256, 384])], ids=str)
def test_poisson_cohorts_cost_what_the_sampled_gaussian_does_and_rounds_of_nobody_too(
    noise_multiplier: float, orders: Sequence[int]
) -> None:
    found = poisson(noise_multiplier)
    for round in range(30):
        found.closed(round + 1, round % 4, range(round % 4))  # however many were asked
    costs = ((order, 30 * math.log(sampled_moment(order, 0.1, noise_multiplier)) / (order - 1)) for order in orders)
    # Canonne, Kamath, Steinke, arXiv:2004.00010, Proposition 12
    expected = min(cost + math.log1p(-1 / order) - math.log(1e-5 * order) / (order - 1) for order, cost in costs)
    assert found.epsilon == pytest.approx(expected, rel=1e-9)
    assert found.closed(31, 0, None) == found.epsilon < found.next_epsilon == found.closed(32, 3, [4])
    assert found.of_commits(31) == found.epsilon
    public = poisson(noise_multiplier, cohorts="public")
    public.closed(1, 3, [4])
    assert public.epsilon == of(noise_multiplier).closed(1, 10, [4]), "with public cohorts nothing is sampled"


def test_a_poisson_cohort_of_all_clients_is_one_report_of_zeros_in_every_commit() -> None:
    whole = poisson(4.0, cohort=100)
    assert whole.closed(1, 100, range(100)) == pytest.approx(of(4.0).closed(1, 100, [0]), rel=0.01)


@pytest.mark.parametrize("probability", [0.1, 0.5])
@pytest.mark.parametrize("order", [2, 3, 8])
def test_at_whole_orders_discrete_noise_that_is_sampled_costs_what_gaussian_noise_does(
    order: int, probability: float
) -> None:
    """Of σ² = 64 and a report of 12 units, by the sum over all units; the other direction costs less."""
    units = np.arange(-250, 251)
    without, shifted = np.exp(-(units**2) / 128), np.exp(-((units - 12) ** 2) / 128)
    without, shifted = without / without.sum(), shifted / shifted.sum()
    with_report = probability * shifted + (1 - probability) * without
    moment = float((without * (with_report / without) ** order).sum())
    assert moment == pytest.approx(sampled_moment(order, probability, 8 / 12), rel=1e-9)
    assert float((with_report * (without / with_report) ** order).sum()) < moment


def test_what_was_stored_goes_on_alike() -> None:
    one, other = of(2.0), of(2.0)
    one.closed(1, 10, [1, 2])
    other.unpack(one.pack())
    assert other.closed(2, 10, [2, 3]) == one.closed(2, 10, [2, 3]) == one.measured(2)["epsilon"]
    assert [one.measured(rounds)["epsilon"] for rounds in (1, 0)] == [one.epsilon, 0], (
        "what was forgotten is not told as less"
    )


def test_what_is_stored_does_not_depend_on_the_order_of_cohorts() -> None:
    one, other = of(2.0), of(2.0)
    for accountant, cohorts in ((one, (7, 9, 8)), (other, (8, 9, 7))):
        for round, asked in enumerate(cohorts):
            accountant.closed(round + 1, asked, [asked])
    assert one.pack() == other.pack()
