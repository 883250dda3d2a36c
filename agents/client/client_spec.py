"""What the clients of a process are made from. Its parts take the whole and read what they need."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from seedbus.agents.client.tampering import HONEST, Tampering
from seedbus.agents.extensions import ClientPart
from seedbus.agents.measuring.client import OwnParts
from seedbus.algorithms.contract import Algorithm, Vector


@dataclass(frozen=True, slots=True)
class ClientSpec:
    """The clients of one run.

    Attributes:
        algorithm: the run's, for the problem's dimension.
        split: what the evaluator measures on, "train", "validation" or "test"; None: it measures nothing.
        measures: measures on clients' own samples; None: the server does not ask them to.
        verify_every: reports at every so many versions have digests; 0: none have.
        tampering: the faults that change reports.
        gathers: whether clients with the same plan work together. They answer when the last of them is done, which in
            simulated time delays nothing.
        plugins: the digest of the plug-ins that the scenario needs; empty if it needs none.
        place: moves a vector into the memory in which the problem computes.
        parts: makes what extends the work of a process's clients, in the order in which it does.
    """

    algorithm: Algorithm
    split: str | None = "test"
    measures: OwnParts | None = None
    verify_every: int = 0
    tampering: Tampering = HONEST
    gathers: bool = False
    plugins: bytes = b""
    place: Callable[[Vector], Vector] = lambda vector: vector
    parts: Callable[[], Sequence[ClientPart]] = tuple
