"""Intervals hold as often as they say, and a difference is seen only where they say so."""

from __future__ import annotations

import math

import numpy as np
import pytest

from seedbus.studies.study.intervals import AMOUNT, Difference, Mean, bootstrap, covering, smallest_step

DRAWS = 300


def test_a_mean_has_the_samples_deviation_and_the_interval_of_claims_and_differences() -> None:
    mean = Mean.of([0.9, None, 0.91, math.nan, 0.93])
    assert mean is not None and mean.seeds == 3
    assert mean.mean == pytest.approx(0.9133333)
    assert mean.deviation == pytest.approx(np.std([0.9, 0.91, 0.93], ddof=1))
    # Student's t of two degrees of freedom is 4.303; it reaches beyond the values, where the bootstrap cannot
    reach = 4.303 * np.std([0.9, 0.91, 0.93], ddof=1) / math.sqrt(3)
    assert (mean.low, mean.high) == pytest.approx((mean.mean - reach, mean.mean + reach), abs=1e-5)
    assert covering([0.9, 0.91, 0.93]) == (mean.mean, mean.low, mean.high)
    difference = Difference.of([0.9, 0.91, 0.93])
    assert (difference.mean, difference.low, difference.high) == (mean.mean, mean.low, mean.high)
    wide = Mean.of([0.9, 0.91, 0.93], 0.99)
    assert mean.low is not None and wide is not None and wide.low is not None and wide.low < mean.low
    assert Mean.of([5.0]) == Mean(5.0, None, None, None, 1) and Mean.of([None]) is None


def test_the_interval_of_two_values_ends_with_the_range_or_with_a_value_that_leaves_it() -> None:
    """Student's t of one degree of freedom is 12.706."""
    assert covering([0.9, 1.0]) == pytest.approx((0.95, 0.95 - 0.6353, 0.95 + 0.6353), abs=1e-4)
    assert covering([0.9, 1.0], within=(0.8, 1.1)) == pytest.approx((0.95, 0.8, 1.1))
    assert covering([0.9, 1.0], within=(0.92, 0.98)) == pytest.approx((0.95, 0.9, 1.0))


def test_equal_values_are_their_mean_and_have_no_deviation() -> None:
    same = 3.674789596091542
    assert np.mean([same] * 3) != same, "in float64 three of them have another mean"
    assert Mean.of([same] * 3) == Mean(same, 0.0, same, same, 3)
    assert covering([same] * 3) == (same, same, same)


def test_the_bootstrap_is_the_same_every_time_and_narrows_with_more_values() -> None:
    values = np.random.default_rng(1).normal(size=40).tolist()
    assert bootstrap(values, 0.95) == bootstrap(values, 0.95)
    widths = [high - low for low, high in (bootstrap(values[:n], 0.95) for n in (5, 10, 40))]
    assert widths == sorted(widths, reverse=True)
    low, high = bootstrap(values, 0.95)
    assert high - low == pytest.approx(2 * 1.96 * np.std(values, ddof=1) / math.sqrt(40), rel=0.1)


def test_at_each_end_the_wider_of_students_and_the_bootstraps_interval_counts() -> None:
    skewed = np.random.default_rng(1).lognormal(sigma=1.5, size=40).tolist()
    mean, low, high = covering(skewed)
    half = 2.0227 * np.std(skewed, ddof=1) / math.sqrt(40)  # Student's t of 39 degrees of freedom
    assert low == pytest.approx(mean - half, rel=1e-3) and low < bootstrap(skewed, 0.95)[0]
    assert high == bootstrap(skewed, 0.95)[1] > mean + half


@pytest.mark.slow
@pytest.mark.parametrize("seeds", [3, 5])
def test_rows_without_a_difference_are_told_apart_no_more_often_than_the_confidence_allows(seeds: int) -> None:
    """The bootstrap alone would tell them apart in a fifth of all cases, so it does not decide alone."""
    draws = np.random.default_rng(2).normal(size=(DRAWS, seeds)).tolist()
    seen = sum(Difference.of(draw).is_seen for draw in draws) / DRAWS
    by_bootstrap = sum(min(ends := bootstrap(draw, 0.95)) > 0 or max(ends) < 0 for draw in draws) / DRAWS
    print(f"{seeds} seeds: seen {seen:.3f}, by the bootstrap alone {by_bootstrap:.3f}")
    assert seen < 0.05 + 3 * math.sqrt(0.05 * 0.95 / DRAWS) < by_bootstrap


@pytest.mark.slow
@pytest.mark.parametrize("seeds", [3, 5])
def test_the_interval_of_a_row_covers_its_mean_as_often_as_it_says(seeds: int) -> None:
    """The bootstrap's alone would do so in 78% and 84% of these cases."""
    found = [Mean.of(draw) for draw in np.random.default_rng(2).normal(size=(DRAWS, seeds)).tolist()]
    missed = sum(not each.low <= 0 <= each.high for each in found) / DRAWS  # type: ignore[operator, union-attr]
    assert missed < 0.05 + 3 * math.sqrt(0.05 * 0.95 / DRAWS)


@pytest.mark.slow
def test_all_pairs_of_many_equal_rows_hold_together() -> None:
    generator, wrong = np.random.default_rng(3), 0
    for _ in range(100):
        rows = generator.normal(size=(5, 4))
        pairs = [(a, b) for a in range(5) for b in range(a)]
        wrong += any(Difference.of((rows[a] - rows[b]).tolist(), pairs=len(pairs)).is_seen for a, b in pairs)
    assert wrong / 100 < 0.05 + 3 * math.sqrt(0.05 * 0.95 / 100)


def test_equal_differences_of_what_comes_in_steps_deviate_as_rounding_makes_them() -> None:
    """One image of 297 more with each of 3 seeds is not seen, two are; counts are not rounded."""
    step = 1 / 297
    one = Difference.of([step, 81 / 297 - 80 / 297, step], step=step)  # in float64 the three are not quite equal
    assert not one.is_seen and one.high - one.mean == pytest.approx(4.303 * step / math.sqrt(6 * 3), rel=1e-3)
    assert Difference.of([2 * step] * 3, step=step).is_seen and not Difference.of([2 * step] * 2, step=step).is_seen
    assert not Difference.of([2 * step] * 3, pairs=10, step=step).is_seen
    assert Difference.of([1.0] * 3) == Difference(1.0, 1.0, 1.0, 3) and Difference.of([1.0] * 3).is_seen
    assert Difference.of([0.0] * 3, step=step) == Difference(0.0, 0.0, 0.0, 3, is_zero=True), "one computation twice"
    assert Difference.of([0.20, 0.21, 0.19], step=step) == Difference.of([0.20, 0.21, 0.19]), "these deviate more"
    mostly = [0.0] + [step] * 9
    assert Difference.of(mostly, step=step).high > Difference.of(mostly).high, "these less, though one is 0"
    assert not Difference.of(mostly).is_zero


@pytest.mark.parametrize(
    ("low", "high", "seeds", "verdict"),
    [
        (0.1, 0.3, 3, "a difference"),
        (-0.3, -0.1, 3, "a difference"),
        (0.0, 0.4, 3, "not settled"),
        (-0.4, 0.0, 2, "not settled"),
        (-math.inf, math.inf, 1, "one seed cannot tell"),
        (0.0, 0.0, 3, "the same values"),
    ],
)
def test_a_difference_is_seen_if_0_lies_outside_of_its_interval(
    low: float, high: float, seeds: int, verdict: str
) -> None:
    difference = Difference((low + high) / 2 if seeds > 1 else 0.2, low, high, seeds, is_zero=low == high)
    assert difference.verdict == verdict and difference.is_seen == (verdict == "a difference")


def test_the_step_of_a_metric_is_the_smallest_gap_and_a_hundredth_of_its_range_at_most() -> None:
    in_steps = [number / 297 for number in (200, 3, 250, 4, 3, 100)]
    assert smallest_step([math.nan, *in_steps, in_steps[0] + 1e-12, math.inf]) == pytest.approx(1 / 297)
    assert smallest_step([1.0, 0.1, math.inf, 0.4]) == pytest.approx(0.009)
    assert smallest_step([]) == smallest_step([0.5, 0.5]) == smallest_step([0.5, 0.5 + 1e-12]) == 0.0


def test_the_interval_of_positive_ratios_is_that_of_their_logarithms_and_mirrored_in_that_of_their_reciprocals() -> (
    None
):
    ratios = [0.15, 0.5, 0.35]
    assert covering(ratios)[1] < 0 < covering(ratios, within=AMOUNT)[1]
    mean, low, high = covering(ratios, within=AMOUNT)
    assert mean == pytest.approx(np.prod(ratios) ** (1 / 3))
    back = covering([1 / ratio for ratio in ratios], within=AMOUNT)
    assert back == pytest.approx((1 / mean, 1 / high, 1 / low), rel=0.01), "the bootstrap draws the same resamples"
    assert covering([3.0] * 3, within=AMOUNT) == (3.0, 3.0, 3.0), "equal ratios stay exact"
    for confidence, pairs in ((0.99, 1), (0.95, 10)):
        wider = covering([math.log(ratio) for ratio in ratios], confidence, pairs)
        assert covering(ratios, confidence, pairs, within=AMOUNT) == pytest.approx(np.exp(wider))
    mean, low, high = covering([0.0, 0.5, 0.35])
    assert covering([0.0, 0.5, 0.35], within=AMOUNT) == (mean, 0.0, high) and low < 0, "0 has no logarithm"
    assert covering([0.5], within=AMOUNT) == covering([0.5]) == (0.5, -math.inf, math.inf)
    assert covering([1e-300, 1e300], within=AMOUNT)[2] == math.inf


@pytest.mark.slow
@pytest.mark.parametrize("seeds", [3, 10])
def test_the_interval_of_skewed_amounts_covers_as_often_as_it_says_and_not_one_of_plain_values(seeds: int) -> None:
    """Of lognormal bytes to a target: their geometric mean is 1, and their mean exp(0.5)."""
    draws = np.random.default_rng(4).lognormal(size=(DRAWS, seeds)).tolist()
    ends = [covering(draw, within=AMOUNT)[1:] for draw in draws]
    plain = [covering(draw)[1:] for draw in draws]
    missed = sum(not low <= 1 <= high for low, high in ends) / DRAWS
    missed_by_plain = sum(not low <= math.exp(0.5) <= high for low, high in plain) / DRAWS
    print(f"{seeds} seeds: missed {missed:.3f}, by intervals of plain values {missed_by_plain:.3f}")
    assert missed < 0.05 + 3 * math.sqrt(0.05 * 0.95 / DRAWS) < missed_by_plain
    assert [(each.low, each.high) for draw in draws[:9] if (each := Mean.of(draw, within=AMOUNT))] == ends[:9]
    assert Mean.of(draws[0], within=AMOUNT).mean == pytest.approx(np.mean(draws[0]))  # type: ignore[union-attr]


def test_a_difference_of_many_deviations_is_seen_and_one_seed_shows_none() -> None:
    clear = Difference.of([0.20, 0.21, 0.19])
    assert clear.is_seen and 0 < clear.low < clear.mean == pytest.approx(0.2) and clear.seeds == 3
    assert not Difference.of([0.2, -0.1, 0.3]).is_seen
    assert Difference.of([5.0]) == Difference(5.0, -math.inf, math.inf, 1)
    assert Difference.of([0.20, 0.21, 0.19], pairs=36).low < clear.low
