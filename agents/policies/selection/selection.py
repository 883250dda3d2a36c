"""What a selection policy is."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import ClassVar

from seedbus.agents.policies.selection.known import Known
from seedbus.bus.keyed_random import sample
from seedbus.capabilities import Fact, Needs, RulesOut, Statement
from seedbus.discovery import Variants
from seedbus.settings import Settings


class Selection(Settings, ABC):
    """How the cohort of a round is chosen. A policy is a file of this folder: a model with its name as `policy`."""

    needs_known: ClassVar[bool] = False
    """Whether it uses what is known of earlier reports."""
    is_uniform: ClassVar[bool] = False
    """Whether all clients have the same chance, whatever has been."""
    is_fixed_size: ClassVar[bool] = True
    """Whether it chooses as many clients as it is asked for; otherwise so many on average."""

    policy: str

    def capabilities(self) -> Iterator[Statement]:
        if self.needs_known:
            yield Needs(Fact.SINGLE_REPORTS, "looks at single reports")
        if not self.is_uniform:
            yield RulesOut(Fact.UNIFORM, "draws no uniform sample")

    @abstractmethod
    def choose(self, members: Sequence[int], count: int, known: Known, seed: int, round: int) -> list[int]:
        """Return `count` of the members, ascending; so many on average, unless the size is fixed.

        Args:
            members: the clients that may be asked, ascending.
            count: how many to choose, at most as many as there are.
            known: what earlier reports have shown, if the policy needs it, and what it remembers.
            seed: the scenario's; together with the round it keys every draw.
            round: the number of the round.
        """


def drawn(members: Sequence[int], count: int, seed: int, round: int) -> list[int]:
    """Return `count` of the members, drawn uniformly without replacement, ascending."""
    return [members[place] for place in sample(len(members), count, seed, "cohort", round)]


SELECTIONS = Variants("selection policy", "policy", "seedbus.agents.policies.selection", Selection)
