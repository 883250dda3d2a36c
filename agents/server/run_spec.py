"""All that a run is made from. Its parts take the whole and read what they need."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from seedbus.agents.catch_up.settings import Lag
from seedbus.agents.extensions import Noise, OpenExchange, ReportFilter, no_exchange
from seedbus.agents.policies.participation import Participation
from seedbus.agents.server.overdue import OverdueRounds, overdue_rounds
from seedbus.agents.server.stopping import Cadence, Stop
from seedbus.algorithms.contract import Algorithm, Vector
from seedbus.bus import Compute, Network
from seedbus.bus.envelope import SHORT


def _no_model() -> Vector:
    raise AssertionError("the server of a scalar-only algorithm has no model")


@dataclass(frozen=True, slots=True)
class RunSpec:
    """One run.

    Attributes:
        algorithm: the run's, for the problem's dimension.
        participation: which clients rounds ask, and when rounds are over.
        seed: the scenario's.
        stop: when the run is over.
        evaluation: how often the evaluator measures.
        metrics: the names of what it measures.
        measured_by_clients: those of them that clients measure where they do, means over samples.
        measures_in_sums: whether the server sees sums over clients alone of what these measure.
        measure: (round, version) → the clients that are asked to measure then, at others none; None: always all.
        network: latency and bandwidth of links.
        compute: how long clients work.
        faults: the scenario's faults of all kinds.
        verify_every: reports at every so many versions have digests; 0: none have.
        is_virtual: whether time is simulated.
        scenario: what followers are told of the scenario.
        processes: how many processes share the clients.
        lag: when clients that lag get a whole replica; None: never.
        replica_bytes: bytes of a replica's fields; needed if `lag.is_cheapest`.
        x0: makes x₀, float32 [d]; needed if the algorithm is dense.
        report_limit: how many bytes a REPORT may have.
        plugins: the digest of the plug-ins that processes must show; empty if the scenario needs none.
        overdue: makes what keeps closed rounds that may still be answered, for a policy.
        open_exchange: begins what a round asks beside reports.
        filters: change the reports of a commit, just before it is made, in this order.
        noise: what is added to the sum of a round's reports; None: commits are made of the reports themselves.
        on_row: called with the fields of each row of the ledger; None: nobody is told.
        memory: the folder of what clients remember, of which no more is kept than a resumption needs; None: they
            remember nothing.
    """

    algorithm: Algorithm
    participation: Participation
    seed: int
    stop: Stop
    evaluation: Cadence = field(default_factory=Cadence)
    metrics: Sequence[str] = ()
    measured_by_clients: Sequence[str] = ()
    measures_in_sums: bool = False
    measure: Mapping[tuple[int, int], Collection[int]] | None = None
    network: Network = field(default_factory=Network)
    compute: Compute = field(default_factory=Compute)
    faults: Sequence[object] = ()
    verify_every: int = 0
    is_virtual: bool = True
    scenario: bytes = b""
    processes: int = 1
    lag: Lag | None = None
    replica_bytes: int = 0
    x0: Callable[[], Vector] | None = None
    report_limit: int = SHORT
    plugins: bytes = b""
    overdue: Callable[[Participation], OverdueRounds] = overdue_rounds
    open_exchange: OpenExchange = no_exchange
    filters: Sequence[ReportFilter] = ()
    noise: Noise | None = None
    on_row: Callable[[tuple[int, ...]], None] | None = None
    memory: Path | None = None

    def first_state(self) -> Any:
        """Return the algorithm's state at the server, before the first commit."""
        return self.algorithm.first_state(self.x0 or _no_model)
