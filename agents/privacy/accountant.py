"""What the commits of a run have spent of its clients' privacy: ε for the scenario's δ, with the package dp-accounting.

A commit shows a round's noisy sum. Its noise multiplier is z = σ/C, or z·√(n/quorum) if n clients added shares. Rényi
differential privacy composes by addition (Mironov, arXiv:1702.07476), and Gaussian noise costs α/2z² at order α.

cohorts: public    Neighbours: all reports of one client are zeros instead (dp-accounting's REPLACE_SPECIAL, "zero-out"
                   in Kairouz et al., arXiv:2103.00039). A commit without a client's report tells nothing of it, so a
                   client has spent Σ 1/z² over the commits that have its report, and ε is that of the client that has
                   spent most. There is no amplification, and how cohorts are chosen does not matter as long as it
                   does not depend on the clients' data.
cohorts: secret    Neighbours: one client's data is replaced (REPLACE_ONE), which changes a sum by 2C, so z/2 counts.
                   Each round's cohort is a uniform sample without replacement from all clients, which is
                   secret: SampledWithoutReplacementDpEvent, Wang, Balle, Kasiviswanathan, arXiv:1808.00087,
                   Theorem 27. All rounds count: so that no commit tells how many of a cohort reported, a sum is
                   divided by m, and one of no reports is noise alone. That theorem's bound for the Gaussian is used for
                   the discrete one; for σ² ≥ 64 they differ by less than e⁻¹²⁰⁰ in relation.
                   With selection: poisson neighbours are those of public cohorts, for whether a client is in a cohort
                   says nothing of the others: PoissonSampledDpEvent, Mironov, Talwar, Zhang, arXiv:1908.10530. Of whole
                   orders alone: there the discrete Gaussian costs what the Gaussian does, since both divergences
                   come from the same moments E[(p/q)^k] = exp((k² − k)·|s|²/2σ²), k whole, of a shift s by whole units.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

from seedbus.agents.privacy.settings import Privacy

if TYPE_CHECKING:
    from seedbus.agents.policies.participation import Participation

_WHOLE_ORDERS = (*range(2, 129), 192, 256, 384, 512, 1024)
"""Where the noise is as large as is usual, the best order is among the first of these."""


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

    def measured(self, rounds: int) -> float:
        """Return ε of the model after so many rounds, and forget those before."""
        self._recent = {after: epsilon for after, epsilon in self._recent.items() if after >= rounds}
        return self._recent.get(rounds, self.epsilon if rounds else 0.0)  # never less than was spent

    def pack(self) -> list[Any]:
        """Return what a checkpoint stores."""
        return [sorted(self._shares.items()), sorted(self._samples.items()), sorted(self._recent.items()), self.epsilon]

    def unpack(self, packed: Sequence[Any]) -> None:
        """Go on from what `pack` returned."""
        shares, samples, recent, self.epsilon = packed
        self._shares, self._samples, self._recent = dict(shares), Counter(dict(samples)), dict(recent)

    def _of_samples(self, samples: Mapping[int, float]) -> float:
        from dp_accounting import rdp  # takes seconds to import

        clients, z = self._who.clients, self._settings.noise_multiplier
        if self._who.selection.is_fixed_size:
            orders = rdp.RdpAccountant().orders
            total = sum(count * _sampled(clients, asked, z / 2) for asked, count in sorted(samples.items()))
        else:
            orders = _WHOLE_ORDERS
            total = sum(count * _poisson_sampled(asked / clients, z) for asked, count in sorted(samples.items()))
        epsilon, _ = rdp.compute_epsilon(orders, total, self._settings.delta)
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


@cache
def _sampled(clients: int, asked: int, noise_multiplier: float) -> Any:
    """Return the Rényi differential privacy of one round at each order, if its cohort has a fixed size."""
    from dp_accounting import GaussianDpEvent, NeighboringRelation, SampledWithoutReplacementDpEvent, rdp

    accountant = rdp.RdpAccountant(neighboring_relation=NeighboringRelation.REPLACE_ONE)
    gaussian = GaussianDpEvent(noise_multiplier)
    return accountant.compose(SampledWithoutReplacementDpEvent(clients, asked, gaussian)).rdp
