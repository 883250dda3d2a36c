"""Byzantine clients: a client's honest report is replaced, before it is sent, by one that a scenario's fault makes.

At most one fault changes a report: the first, in the order of their `repr`, that applies to it. So the order in which a
scenario lists them changes nothing.

A false report depends on the scenario, the client, the round and the honest report, and on no state of the process: a
process that replaces a dead one sends the same false reports.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol, runtime_checkable

from seedbus.bus.keyed_random import KeyedRandom, ordered
from seedbus.discovery import check_shape


@runtime_checkable
class Tamper(Protocol):
    """Implemented by faults that change clients' reports.

    The `repr` of such a fault keys its random draws, so it must state all of the fault's settings and nothing else.
    """

    def tamper(self, client: int, round: int, report: Any, earlier: Callable[[], Any], random: KeyedRandom) -> Any:
        """Return the values that the client reports instead; None if the fault does not apply.

        Args:
            client: the client.
            round: the round that it reports for.
            report: the honest values, an array; not to be written to.
            earlier: computes the values that it would have reported in round 0, from x₀, even if it was not asked.
            random: keyed draws of this fault.
        """
        ...


class Tampering:
    """All faults of a run that change reports.

    Attributes:
        seed: the scenario's.
        is_honest: whether no fault changes a report.
    """

    def __init__(self, faults: Sequence[Any], seed: int, clients: int) -> None:
        """Take those of a scenario's faults that implement `Tamper`; clients: N."""
        self._tampers: list[tuple[Tamper, KeyedRandom]] = ordered(faults, Tamper, seed, clients)
        self.seed = seed
        self.is_honest = not self._tampers

    def apply(self, client: int, round: int, report: Any, earlier: Callable[[], Any]) -> Any:
        """Return the values that the client reports: the same object if no fault applies. `Tamper` says the rest.

        Raises:
            PluginError: a fault returned no array of the shape of these values, or of those of round 0.
        """
        shapes = [report.shape]

        def first() -> Any:
            values = earlier()
            shapes.append(values.shape)  # a schedule may have changed the number of scalars since
            return values

        for fault, random in self._tampers:
            changed = fault.tamper(client, round, report, first, random)
            if changed is not None:
                shape = shapes[-1] if getattr(changed, "shape", None) == shapes[-1] else report.shape
                check_shape(changed, shape, f"`tamper` of the fault {getattr(fault, 'fault', fault)}")
                return changed
        return report


HONEST = Tampering((), 0, 0)
"""No client tampers."""
