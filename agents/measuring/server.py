"""The server's part of an evaluation by clients: whom it has asked, and the sum of what they tell.

A mean over all samples is Σ sums / Σ counts, so clients count by their samples, and who has none counts for nothing.
Beside them are quantiles of the clients' own means, for which each client with samples counts once.
A client whose mean is no number of float32 is refused, so that no single one can end a run as diverged. (Once all
diverge, their reports are refused as well, which ends it.) What is a number is taken as it is told.

Where the server may see sums over clients alone, it asks none of them (`in_sums`). Those that report in the next round
tell beside their reports what they measure at its start, which is the model of the evaluation, and the line of metrics
is made of their sums when that round is closed. After the last round there is none.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence

from seedbus.agents.measuring import sums
from seedbus.agents.messages import Evaluation, Measured
from seedbus.algorithms.contract import BadPayload, ReportRefused
from seedbus.bus import EVALUATOR

QUANTILES = {"p10": 0.1, "p50": 0.5, "p90": 0.9}
"""By the end of a metric's name: the least of the clients' own means that this part of them does not exceed."""
COUNTS = ("asked", "answered", "samples")
"""How many clients were asked, how many answered, and of how many samples."""


def beside_means(metrics: Sequence[str], *, in_sums: bool = False) -> list[str]:
    """Return what a line of metrics has beside the means of these: their quantiles over clients, and counts.

    Args:
        metrics: the metrics.
        in_sums: whether the server sees sums over clients alone, which have no quantiles.
    """
    return [*(f"{name}.{end}" for name in metrics if not in_sums for end in QUANTILES), *COUNTS]


class Measuring:
    """One evaluation after the other.

    Args:
        names: the metrics, in the order in which clients' sums travel.
        in_sums: whether the server sees sums over clients alone.

    Attributes:
        waiting: who has not answered: clients, and the evaluator, which tells the digest of the same version.
        is_open: whether an evaluation has been asked for that has no line of metrics yet.
    """

    def __init__(self, names: Sequence[str], *, in_sums: bool = False) -> None:
        self.names = names
        self.in_sums = in_sums
        self.waiting: set[int] = set()
        self.is_open = False
        self._round = self._version = 0
        self._asked = 0
        self._told: dict[int, Measured] = {}
        self._diagnostics: dict[str, float] = {}

    def beside(self, round: int, every: int) -> int:
        """Return how many numbers clients tell beside their reports of a round; every: how often they measure."""
        return sums.width(self.names) if self.in_sums and sums.rides(round, every) else 0

    def begin(self, round: int, version: int, clients: Collection[int]) -> None:
        """These clients are asked to measure a version, and the evaluator for its digest."""
        self._round, self._version, self._asked = round, version, len(clients)
        self.waiting, self.is_open = {*clients, EVALUATOR}, True
        self._told.clear()
        self._diagnostics = {}

    def awaits_digest(self, version: int) -> bool:
        """Whether the evaluator was asked for the digest of a version."""
        return self.is_open and EVALUATOR in self.waiting and version == self._version

    def diagnosed(self, evaluation: Evaluation) -> None:
        """The evaluator has told the digest, and what the algorithm tells of itself."""
        if self.awaits_digest(evaluation.version):
            self._diagnostics = evaluation.metrics
            self.waiting.discard(EVALUATOR)

    def told(self, measured: Measured) -> None:
        """A client has measured. Raises `BadPayload` for other metrics, `ReportRefused` if it is not awaited."""
        client = measured.client
        if not self.is_open or client not in self.waiting or measured.version != self._version:
            what = f"client {client} measures version {measured.version} after round {measured.round}"
            raise ReportRefused("not-asked", f"{what}, which nobody waits for")
        self.waiting.discard(client)
        if len(measured.sums) != len(self.names):
            raise BadPayload(f"a MEASURED of {len(measured.sums)} sums, not of {len(self.names)}")
        if not all(abs(total) <= sums.LARGEST * measured.samples for total in measured.sums):
            raise ReportRefused("absurd", f"client {client} measures means that float32 does not have")
        self._told[client] = measured

    @property
    def answered(self) -> list[int]:
        """The clients that have told of samples, or that they have none, ascending."""
        return sorted(self._told)

    def ended(self) -> Evaluation | None:
        """Return the means of what clients have told until now; None: they have told of no samples."""
        self.is_open = False
        self.waiting.clear()
        told = [each for _, each in sorted(self._told.items())]
        samples = sum(each.samples for each in told)
        if not samples:
            return None
        means = {name: math.fsum(each.sums[place] for each in told) / samples for place, name in enumerate(self.names)}
        for place, name in enumerate(self.names):
            own = sorted(each.sums[place] / each.samples for each in told if each.samples)
            means |= {f"{name}.{end}": own[math.ceil(part * len(own)) - 1] for end, part in QUANTILES.items()}
        return self._line(means, self._asked, len(told), samples)

    def added_up(self, version: int, asked: int, numbers: Sequence[int]) -> Evaluation | None:
        """Return the means of what clients have told beside their reports; None: they have told nothing that counts.

        Args:
            version: of the model that they have measured.
            asked: how many clients the round has asked.
            numbers: the sums of what they have told.
        """
        found = sums.means(numbers) if version == self._version else None
        if found is None:
            return None
        told, samples, values = found
        return self._line(dict(zip(self.names, values, strict=True)), asked, told, samples)

    def _line(self, means: dict[str, float], *counts: int) -> Evaluation:
        told = dict(zip(COUNTS, map(float, counts), strict=True))
        return Evaluation(self._round, self._version, means | self._diagnostics | told)
