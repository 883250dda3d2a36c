"""What the commits of a run have spent of its clients' privacy: ε for the scenario's δ, with the package dp-accounting.

A commit shows a round's noisy sum. Its noise multiplier is z = σ/C, or z·√(n/quorum) if n clients added shares. Rényi
differential privacy composes by addition (Mironov, arXiv:1702.07476), and Gaussian noise costs α/2z² at order α.

cohorts: public    Neighbours: all reports of one client are zeros instead (dp-accounting's REPLACE_SPECIAL, "zero-out"
                   in Kairouz et al., arXiv:2103.00039). A commit without a client's report tells nothing of it, so a
                   client has spent Σ 1/z² over the commits that have its report, and ε is that of the client that has
                   spent most. There is no amplification, and how cohorts are chosen does not matter as long as it
                   does not depend on the clients' data.
cohorts: secret    Neighbours: one client's data is replaced (REPLACE_ONE), which changes a sum by 2C. Each round's
                   cohort is a uniform sample without replacement from all clients, which is secret. All rounds count:
                   so that no commit tells how many of a cohort reported, a sum is divided by m, and one of no reports
                   is noise alone. A round's privacy profile is at most that of the Gaussian, amplified (Zhu, Dong,
                   Wang, arXiv:2106.08567, Theorem 11), in both directions at once, for the other clients' reports may
                   make either of two neighbours the worse one, in each round anew. The privacy loss distribution with
                   this profile is composed by dp-accounting, whose every rounding is upwards (Doroshenko et al.,
                   arXiv:2207.04380). A discrete Gaussian of σ² is a Gaussian of σ² − 3 that is rounded at random:
                   Σ_k exp(−(k − x)²/6) is the same for all x but for 1e−25 in relation, so rounding x to k in
                   proportion to its terms adds the missing variance.
                   With selection: poisson Rényi differential privacy serves again: neighbours are those of public
                   cohorts, for whether a client is in a cohort says nothing of the others: PoissonSampledDpEvent,
                   Mironov, Talwar, Zhang, arXiv:1908.10530. Of whole orders alone: there the discrete Gaussian costs
                   what the Gaussian does, since both divergences come from the same moments E[(p/q)^k] =
                   exp((k² − k)·|s|²/2σ²), k whole, of a shift s by whole units.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from functools import cache, lru_cache, reduce
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from seedbus.agents.privacy.settings import Privacy
from seedbus.bus.records import Count, Number, record
from seedbus.bus.transport import Client

if TYPE_CHECKING:
    from seedbus.agents.policies.participation import Participation

_WHOLE_ORDERS = (*range(2, 129), 192, 256, 384, 512, 1024)
"""Where the noise is as large as is usual, the best order is among the first of these."""
_ROUNDED = 3
"""The variance, in units², of the random rounding that makes a Gaussian the discrete one; see above."""
_TAIL = 10
"""Losses are told apart up to so many deviations of the Gaussian's; beyond, with 1e−23, they count as infinite."""
_STEPS = 5000
"""In which losses are rounded up to the furthest, in relation to which the privacy loss of a round is found."""


class AccountantState(NamedTuple):
    """What a checkpoint stores, ascending, and ε after the newest closed round."""

    shares: list[tuple[Client, Number]]
    samples: list[tuple[Count, Count]]
    recent: list[tuple[Count, Number]]
    epsilon: Number


class Accountant:
    """What has been spent up to the newest closed round.

    Args:
        settings: the scenario's.
        participation: the scenario's, too.

    Attributes:
        epsilon: ε after the newest closed round.
    """

    def __init__(self, settings: Privacy, participation: Participation) -> None:
        self._settings = settings
        self._who = participation
        self._shares: dict[int, float] = {}
        self._samples: Counter[int] = Counter()
        self._recent: dict[int, float] = {}
        self.epsilon = 0.0

    def closed(self, rounds: int, asked: int, reported: Iterable[int] | None) -> float:
        """Account for a round, and return ε after it.

        Args:
            rounds: how many rounds are over with this one.
            asked: how many clients the round asked.
            reported: the clients whose reports are in its commit; None: it made none.
        """
        if reported is not None:
            clients = list(reported)
            for client in clients:
                share = self._settings.share(self._who.quorum, len(clients))
                self._shares[client] = self._shares.get(client, 0.0) + share
            self._samples[asked if self._who.selection.is_fixed_size else self._who.asked] += 1
            if self._settings.cohorts == "public":
                self.epsilon = self.of_commits(max(self._shares.values()))
            else:
                self.epsilon = self._of_samples(self._samples)
        self._recent[rounds] = self.epsilon
        return self.epsilon

    @property
    def next_epsilon(self) -> float:
        """What ε may be after one more commit."""
        if self._settings.cohorts == "public":
            return self.of_commits(max(self._shares.values(), default=0.0) + 1.0)
        return self._of_samples(self._samples + Counter({self._who.asked: 1}))

    def of_commits(self, count: float) -> float:
        """Return ε after so many commits that cost a client 1 each (`Privacy.share`), of rounds that ask `asked`."""
        if not count:
            return 0.0
        if self._settings.cohorts == "secret":
            return self._of_samples({self._who.asked: count})
        return gaussian_epsilon(self._settings.noise_multiplier / count**0.5, self._settings.delta)

    def exhausted(self, limit: float) -> str | None:
        """Return why one more commit could exceed an ε, in a sentence; None if it could not."""
        if self.next_epsilon <= limit:
            return None
        return f"ε is {self.epsilon:.4g}, and one more commit could exceed {limit:g}"

    def measured(self, rounds: int) -> dict[str, float]:
        """Return "epsilon" of the model after so many rounds, and forget those before."""
        self._recent = {after: epsilon for after, epsilon in self._recent.items() if after >= rounds}
        return {"epsilon": self._recent.get(rounds, self.epsilon if rounds else 0.0)}  # never less than was spent

    def pack(self) -> AccountantState:
        """Return what a checkpoint stores."""
        shares, samples, recent = sorted(self._shares.items()), sorted(self._samples.items()), self._recent.items()
        return AccountantState(shares, samples, sorted(recent), self.epsilon)

    def unpack(self, state: Any) -> None:
        """Go on from what `pack` returned. Raises `ValueError`."""
        shares, samples, recent, self.epsilon = record(AccountantState, state)
        self._shares, self._samples, self._recent = dict(shares), Counter(dict(samples)), dict(recent)

    def _of_samples(self, samples: Mapping[int, float]) -> float:
        clients = self._who.clients
        if self._who.selection.is_fixed_size:
            variance = max(self._settings.variance(self._who.quorum) - _ROUNDED, 1)  # a run has 64 at least
            z = math.sqrt(variance) / self._settings.clip
            return _uniform_epsilon(clients, tuple(sorted(samples.items())), z, self._settings.delta)
        from dp_accounting import rdp  # takes seconds to import

        z = self._settings.noise_multiplier
        total = sum(count * _poisson_sampled(asked / clients, z) for asked, count in sorted(samples.items()))
        epsilon, _ = rdp.compute_epsilon(_WHOLE_ORDERS, total, self._settings.delta)
        return float(epsilon)


def gaussian_epsilon(noise_multiplier: float, delta: float) -> float:
    """Return ε of one Gaussian release, from its Rényi differential privacy."""
    from dp_accounting import GaussianDpEvent, NeighboringRelation, rdp

    accountant = rdp.RdpAccountant(neighboring_relation=NeighboringRelation.REPLACE_SPECIAL)
    return float(accountant.compose(GaussianDpEvent(noise_multiplier)).get_epsilon(delta))


@cache
def _poisson_sampled(probability: float, noise_multiplier: float) -> Any:
    """Return the Rényi differential privacy of one round at each whole order, if each client is in it by itself."""
    from dp_accounting import GaussianDpEvent, NeighboringRelation, PoissonSampledDpEvent, rdp

    accountant = rdp.RdpAccountant(_WHOLE_ORDERS, neighboring_relation=NeighboringRelation.REPLACE_SPECIAL)
    return accountant.compose(PoissonSampledDpEvent(probability, GaussianDpEvent(noise_multiplier))).rdp


@lru_cache(maxsize=4096)
def _uniform_epsilon(
    clients: int, samples: tuple[tuple[int, float], ...], noise_multiplier: float, delta: float
) -> float:
    """Return ε of rounds with secret cohorts of fixed sizes; samples: (size, number of rounds)."""
    with np.errstate(over="ignore"):  # of losses of a million
        parts = [_uniform(clients, asked, noise_multiplier).self_compose(round(count)) for asked, count in samples]
        return float(reduce(lambda whole, part: whole.compose(part), parts).get_epsilon_for_delta(delta))


@cache
def _uniform(clients: int, asked: int, noise_multiplier: float) -> Any:
    """Return the privacy loss distribution of one round with a secret cohort of a fixed size.

    With q = asked/clients, δ at ε = log(1 + q(e^t − 1)), t ≥ 0, is q times the Gaussian's at t. Below 0 it is that of
    the same two distributions in the other order.
    """
    from dp_accounting.pld import pld_pmf, privacy_loss_distribution
    from scipy.special import log_ndtr

    q, mean = asked / clients, 2 / noise_multiplier  # of a sum that moves by 2C, in σ
    furthest = np.logaddexp(math.log1p(-q) if q < 1 else -math.inf, math.log(q) + mean * (mean / 2 + _TAIL))
    step = float(furthest) / _STEPS
    losses = step * np.arange(_STEPS + 1)
    of_gaussian = losses + np.log1p((q - 1) * np.exp(-losses)) - math.log(q)  # t; at ε = 0 it is 0
    more = log_ndtr(mean / 2 - of_gaussian / mean)
    less = of_gaussian + log_ndtr(-mean / 2 - of_gaussian / mean)
    deltas = -q * np.exp(more) * np.expm1(np.minimum(less - more, 0.0))
    below = -np.expm1(-losses) + np.exp(-losses) * deltas
    profile = np.concatenate([below[:0:-1], deltas]).clip(0.0, 1.0)
    loss = pld_pmf.create_pmf_pessimistic_connect_dots(step, np.arange(-_STEPS, _STEPS + 1), profile)
    return privacy_loss_distribution.PrivacyLossDistribution(loss.to_dense_pmf())
