"""The mechanism: reports are clipped in whole numbers, and noise is added to a report, or to the sum of all.

    x ← x                         if ‖x‖₂ ≤ C
        sign(x)·⌊|x|·C/‖x‖₂⌋      else, each number towards 0

Both have a norm of C at most, exactly: the comparison is one of integers, and where float64 leaves a doubt about
⌊|x|·C/‖x‖⌋ = ⌊√(x²C²/‖x‖²)⌋, it is an integer square root. So one client's report changes the sum by C at most in L2,
and by 2C if it is replaced by another.

    central       Σx + N(0, σ²)               σ = noise_multiplier · C
    distributed   Σ(x + N(0, σ²/quorum))      at least `quorum` shares, or there is no commit

N is the discrete Gaussian, and its σ² is rounded up to a whole number. Its Rényi divergences are at most the
Gaussian's: Canonne, Kamath, Steinke, arXiv:2004.00010, Theorem 4, for each number, and their sum for a vector. A sum of
n shares is not a discrete Gaussian: Kairouz, Liu, Steinke, "The Distributed Discrete Gaussian Mechanism for Federated
Learning with Secure Aggregation", ICML 2021, arXiv:2102.06387, Theorem 1 and Proposition 14, adds τ√d to C/(√n·σ), with
τ = 10·Σ_{k<n} exp(−2π²σ²·k/(k+1)). Shares have σ² ≥ 64 (`settings.FINEST`), so τ is below n·e⁻⁶²⁰, which is nothing in
float64.

A client that cannot measure, because a loss is not finite or a number is too large, reports zeros: whether it reports
must not depend on its data.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import isqrt
from typing import Any

import numpy as np
from numpy.typing import NDArray

from seedbus.agents.extensions import ClientPart, WorkResult
from seedbus.agents.policies.participation import Participation
from seedbus.agents.privacy.accountant import Accountant
from seedbus.agents.privacy.discrete_gaussian import discrete_gaussian, keyed, system
from seedbus.agents.privacy.settings import Privacy
from seedbus.algorithms.contract import Algorithm, Declined, sums

_DOUBTFUL = 2.0**-16  # nearer than this to a whole number, float64 does not show which one is below


class Mechanism(ClientPart):
    """The noise of a run, on both sides.

    Args:
        settings, participation, seed: the scenario's.
        is_virtual: whether time is simulated.

    Attributes:
        divisor: of each sum, where ε counts on it that nobody learns whom rounds ask: m; None: the number of reports.
    """

    def __init__(self, settings: Privacy, participation: Participation, seed: int, *, is_virtual: bool) -> None:
        self.settings = settings
        self.divisor = participation.size if settings.cohorts == "secret" else None
        self._participation = participation
        self._variance = settings.variance(participation.quorum)
        self._seed = seed
        self._is_seeded = settings.is_seeded(is_virtual=is_virtual)

    def spending(self) -> Accountant:
        """Return an account of what commits spend, before the first one."""
        return Accountant(self.settings, self._participation)

    def measured(self, algorithm: Algorithm, client: int, plan: Any, outcome: WorkResult) -> WorkResult:
        """Return a report clipped, and with its noise; zeros if the client cannot measure.

        That it cannot measure depends on its data, and so it must not decline.
        """
        adding, memory = sums(algorithm), None
        try:
            if isinstance(outcome, Declined):
                raise outcome
            report, memory = outcome
            numbers = adding.numbers(report)
        except Declined:
            numbers = adding.numbers(adding.of_numbers(plan, 0))
        try:
            return adding.of_numbers(plan, self.protect(client, plan.round, numbers)), memory
        except OverflowError as error:
            return Declined("overflow", str(error))

    def protect(self, client: int, round: int, report: NDArray[Any]) -> NDArray[np.int32]:
        """Return what a client reports: its numbers, int32 [K, P], clipped, with its share of the noise if it adds one.

        Raises:
            OverflowError: a number with noise needs more than 32 bits, which has a probability below 2⁻¹⁴⁰.
        """
        numbers = clipped(report, self.settings.clip)
        if self.settings.mechanism == "distributed":
            numbers = numbers + self._draws(numbers.shape, round, client)
            if (np.abs(numbers) >= 2**31).any():
                raise OverflowError("a number with its noise needs more than 32 bits")
        return numbers.astype(np.int32)

    def sum(self, round: int, reports: Iterable[NDArray[Any]]) -> NDArray[np.int64]:
        """Return the sum of the reports that a server sees, clipped again, with its noise if it adds any."""
        bound = None if self.settings.mechanism == "distributed" else self.settings.clip
        rows = [report.astype(np.int64) if bound is None else clipped(report, bound) for report in reports]
        return self.noised(round, np.sum(rows, axis=0))

    def noised(self, round: int, total: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return a sum of reports with the server's noise, if it adds any."""
        if self.settings.mechanism == "distributed":
            return total
        return total + self._draws(total.shape, round, "server")

    def _draws(self, shape: tuple[int, ...], round: int, who: int | str) -> NDArray[np.int64]:
        words = keyed("privacy", self._seed, round, who) if self._is_seeded else system
        return discrete_gaussian(self._variance, int(np.prod(shape)), words).reshape(shape)


def clipped(report: NDArray[Any], clip: int) -> NDArray[np.int64]:
    """Return whole numbers whose L2 norm is `clip` at most, in the same shape."""
    numbers: NDArray[np.int64] = report.astype(np.int64)
    squares = (numbers * numbers).view(np.uint64)  # below 2⁶²; halves, since their sum has no room in 64 bits
    square = (int((squares >> 32).sum()) << 32) + int((squares & (2**32 - 1)).sum())
    if square <= clip * clip:
        return numbers
    exact = np.abs(numbers) * (clip / square**0.5)
    scaled: NDArray[np.int64] = exact.astype(np.int64)
    is_doubtful = (np.abs(exact - np.rint(exact)) < _DOUBTFUL) & (exact > 0.5)
    for place in zip(*np.nonzero(is_doubtful), strict=True):
        scaled[place] = isqrt(int(numbers[place]) ** 2 * clip * clip // square)
    return scaled * np.sign(numbers)
