"""Clients that learn from wrong labels: a fault says which class they take each class of their samples for.

What a client learns from depends on the scenario, the client and the round, and on no state of the process. Everything
else stays honest, and the evaluator's samples keep their labels.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from seedbus.bus.keyed_random import KeyedRandom, ordered


@runtime_checkable
class Relabel(Protocol):
    """Implemented by faults that change the labels of clients' samples.

    The `repr` of such a fault keys its random draws, so it must state all of the fault's settings and nothing else.
    """

    def mislabels(self, client: int, round: int, random: KeyedRandom) -> bool:
        """Return whether a client learns from wrong labels in a round."""
        ...

    def new_classes(self, classes: int) -> NDArray[np.int64]:
        """Return the class that each class is taken for, [classes]. Raises `ValueError` if there are too few."""
        ...


class Relabelling:
    """All faults of a run that change labels, applied one after the other in the order of their `repr`."""

    def __init__(self, faults: Sequence[Any], seed: int, clients: int) -> None:
        """Take those of a scenario's faults that implement `Relabel`; clients: N."""
        self._relabels: list[tuple[Relabel, KeyedRandom]] = ordered(faults, Relabel, seed, clients)

    def __call__(self, client: int, round: int, classes: int) -> NDArray[np.int64] | None:
        """Return the class that a client takes each class for in a round, [classes]; None: its own.

        Args:
            client: the client.
            round: the round.
            classes: the number of the task's classes.
        """
        taken_for = None
        for fault, random in self._relabels:
            if fault.mislabels(client, round, random):
                new = np.array(fault.new_classes(classes))  # a plug-in may return a list, or a view that torch refuses
                taken_for = new if taken_for is None else new[taken_for]
        return taken_for
