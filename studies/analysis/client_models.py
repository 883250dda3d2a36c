"""Models of clients' own, of which an algorithm tells instruments. No run needs them, and no message carries them."""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable

from seedbus.algorithms.contract import Replica
from seedbus.algorithms.objective import Objective
from seedbus.vector import Vector


@runtime_checkable
class Trains(Protocol):
    """An algorithm that tells what a client's local steps lead to. Clients themselves need not take their last step."""

    def trained(self, replica: Replica, memory: Any, plan: Any, objective: Objective) -> Vector:
        """Return a client's own model after all its local steps of one round, [d]. The replica is not changed.

        Raises:
            Declined: the client cannot measure.
        """
        ...


@runtime_checkable
class Personalises(Protocol):
    """An algorithm whose clients may use models of their own."""

    def personal(self, replica: Replica, memory: Any, plan: Any, objective: Objective) -> Vector | None:
        """Return the model that a client uses for itself, [d]; None, always or never: that of the replica.

        Args:
            replica: the model that all share; it is not changed.
            memory: what the client remembers; None: nothing, such as one that never took part.
            plan: that of the round which begins with the replica.
            objective: the client's loss in that round.

        Raises:
            Declined: the client has no model whose numbers are finite.
        """
        ...
