"""The exact sampler: its frequencies are those of the discrete Gaussian, and no rounding decides a draw."""

from __future__ import annotations

import math
from collections import Counter
from decimal import Decimal, localcontext

import numpy as np
import pytest
from scipy.stats import chi2

from seedbus.agents.privacy import discrete_gaussian
from seedbus.agents.privacy.discrete_gaussian import Uniform, Words, geometric, keyed, number_and_bit

DRAWS = 100_000
UNLIKELY = 1e-9
"""How often a correct sampler would fail a test with another key."""


def deviates(counts: Counter[int], probabilities: dict[int, float]) -> bool:
    """Whether a χ² test rejects the probabilities. The tail beyond those that are given is one more class."""
    observed = [counts[value] for value in probabilities]
    expected = [DRAWS * probability for probability in probabilities.values()]
    observed.append(DRAWS - sum(observed))
    expected.append(DRAWS - sum(expected))
    distance = sum((found - due) ** 2 / due for found, due in zip(observed, expected, strict=True) if due > 1e-6)
    return bool(distance > chi2.isf(UNLIKELY, len(probabilities)))


def gaussian(variance: float, span: int) -> dict[int, float]:
    """The probabilities of −span … span. Beyond 40σ the sum that normalises them has no more terms in float64."""
    far = math.ceil(40 * math.sqrt(variance))
    total = math.fsum(math.exp(-x * x / (2 * variance)) for x in range(-far, far + 1))
    return {x: math.exp(-x * x / (2 * variance)) / total for x in range(-span, span + 1)}


@pytest.mark.parametrize(("variance", "span"), [(1, 3), (7, 7)])
def test_frequencies_are_those_of_the_discrete_gaussian_and_of_no_other(variance: int, span: int) -> None:
    counts = Counter(discrete_gaussian.discrete_gaussian(variance, DRAWS, keyed("a test", variance)).tolist())
    assert not deviates(counts, gaussian(variance, span))
    assert deviates(counts, gaussian(variance * 1.05, span))  # the test can fail
    rounded = Counter(np.rint(np.random.Generator(np.random.Philox(1)).normal(0, math.sqrt(variance), DRAWS)).tolist())
    assert variance > 1 or deviates(Counter({int(x): n for x, n in rounded.items()}), gaussian(variance, span))


def test_frequencies_of_its_parts_are_uniform_and_geometric() -> None:
    low, bits = number_and_bit(5, DRAWS, keyed("low"))
    pairs = Counter(zip(low.tolist(), bits.tolist(), strict=True))
    assert not deviates(Counter({2 * x + bit: n for (x, bit), n in pairs.items()}), dict.fromkeys(range(10), 0.1))
    high = Counter(geometric(DRAWS, keyed("high")).tolist())
    assert not deviates(high, {h: math.exp(-h) * (1 - math.exp(-1)) for h in range(9)})


def test_large_variances_have_the_variance_that_was_asked_for_and_no_bias() -> None:
    variance = 10**12 + 7
    draws = discrete_gaussian.discrete_gaussian(variance, DRAWS, keyed("large")).astype(float)
    assert abs(draws.mean()) < 6 * math.sqrt(variance / DRAWS)
    assert abs(draws.var() / variance - 1) < 6 * math.sqrt(2 / DRAWS)


def test_a_key_decides_the_draws_and_another_key_has_others() -> None:
    one, same, other = (discrete_gaussian.discrete_gaussian(10**6, 50, words).tolist() for words in map(keyed, "aab"))
    assert one == same != other
    assert len(set(discrete_gaussian.discrete_gaussian(10**12, 20, discrete_gaussian.system).tolist())) == 20


@pytest.mark.parametrize("variance", [1, 64, 10**12 + 7, 2**99])
def test_decimals_decide_as_float64_does_where_that_is_sure(variance: int, monkeypatch: pytest.MonkeyPatch) -> None:
    fast = discrete_gaussian.discrete_gaussian(variance, 300, keyed("reference"))
    monkeypatch.setattr(discrete_gaussian, "_DOUBTFUL", 2.0)  # all decisions
    assert (discrete_gaussian.discrete_gaussian(variance, 300, keyed("reference")) == fast).all()


def these(*drawn: int) -> Words:
    """Words that are given, one at a time."""
    left = iter(drawn)
    return lambda count: np.array([next(left) for _ in range(count)], np.uint64)


@pytest.mark.parametrize("k", [1, 7, 30, 50])
def test_where_64_bits_cannot_decide_further_ones_do(k: int) -> None:
    with localcontext(prec=80):
        bits = int(Decimal(-k).exp() * 2**128)
    first, second = divmod(bits, 2**64)
    below, above = geometric(1, these(first, second - 1)), geometric(1, these(first, second + 1))
    assert (below.item(), above.item()) == (k, k - 1)
    for word in (first - 1, first + 1):
        assert word < 0 or Uniform(word, these()).is_below_exp(k, 1) == (word < first)
    assert Uniform(0, these()).is_below_exp(0, 1)
    assert Uniform(2**64 - 1, these(5)).is_below_exp(0, 1)


@pytest.mark.parametrize(("limit", "most"), [(2**62 + 1, 2**62 + 1), (3, 2**63 - 2)])
def test_words_beyond_the_last_multiple_of_a_limit_are_drawn_anew(limit: int, most: int) -> None:
    """Otherwise small numbers would be more likely than large ones."""
    numbers, bits = number_and_bit(limit, 2, these(most << 1, (most << 1) + 1, 2 << 1, (limit << 1) - 1))
    assert (numbers.tolist(), bits.tolist()) == ([2, limit - 1], [False, True])
    (last,), _ = number_and_bit(limit, 1, these((most - 1) << 1))
    assert last == limit - 1, "the last that is taken"
