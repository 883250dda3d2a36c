"""What a selection policy is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Protocol

from seedbus.agents.policies.selection.known import Known


class Selection(Protocol):
    """How the cohort of a round is chosen. A policy is a pydantic model in a file of this folder.

    Attributes:
        needs_known: whether it uses what is known of earlier reports.
        policy: its name in a scenario.
    """

    needs_known: ClassVar[bool]

    @property
    def policy(self) -> str: ...

    def choose(self, members: Sequence[int], count: int, known: Known, seed: int, round: int) -> list[int]:
        """Return `count` of the members, ascending.

        Args:
            members: the clients that may be asked, ascending.
            count: how many to choose, at most as many as there are.
            known: what earlier reports have shown, if the policy needs it.
            seed: the scenario's; together with the round it keys every draw.
            round: the number of the round.
        """
        ...
