"""Reports of whole numbers, whose sum is all that a commit needs: an optional addition to the contract of an algorithm.

Secure aggregation (agents/secure) masks such reports, so that their server learns the sum and nothing else, and
differential privacy (agents/privacy) clips them and adds noise to their sum.
"""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

DENSE = "dense methods that report one vector, with compression: fixed-point and weighting: uniform,"
"""Which algorithms of the dense family add up, in a sentence on what is accepted."""


@runtime_checkable
class Summed(Protocol):
    """An algorithm whose reports may be whole numbers."""

    @property
    def adds_up(self) -> bool:
        """Whether they are, with its settings."""
        ...

    @property
    def tracks_sums(self) -> bool:
        """Whether clients remember what they report, as the server has it: then it may not be clipped there."""
        ...

    @property
    def aggregation(self) -> Any: ...

    def numbers(self, report: Any) -> NDArray[np.int32]:
        """Return the numbers of a report, of any shape. Raises `Declined` if it has none, since it is not finite."""
        ...

    def of_numbers(self, numbers: NDArray[np.int32]) -> Any:
        """Return the report with these numbers, and with nothing else of its client."""
        ...

    def silent(self, plan: Any) -> Any:
        """Return the report that adds nothing to a sum."""
        ...

    def aggregate_sum(
        self, state: Any, plan: Any, total: NDArray[np.int64], count: int, *, members: int = 0
    ) -> tuple[Any, Any]:
        """Return the commit that `aggregate` makes from reports by the rule `mean`, to the bit, and the new state.

        Args:
            state: the state after the previous commit.
            plan: the plan of the round.
            total: the sum of the reports' numbers, in the shape of one.
            count: how many there are, or what the sum is divided by in their place.
            members: as in `aggregate`.

        Raises:
            OverflowError: the model would leave the range of its numbers.
        """
        ...


def summed(algorithm: Any) -> Summed:
    """Return an algorithm whose reports add up; a run is masked or private only if they do."""
    if not isinstance(algorithm, Summed):
        raise TypeError(f"reports of {algorithm.name} do not add up")
    return algorithm
