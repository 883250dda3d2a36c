"""The contract of a method: the hooks by which it changes FedAvg at the client, on the wire and at the server.

A method is one file of this folder: a frozen pydantic model. Its fields are its hyperparameters, its `name` is the
algorithm's name in a scenario, and its module's docstring gives the paper and the equations. It overrides the hooks
that its paper needs. An algorithm may have several methods (`also:`); they are independent and never use each other.

    client   gradient of loss(logits(·)) ─► correct ─► clipping, weight decay, momentum ─► direct ─► x ← x − η·direction
             after the last step ─► finish ─► what is reported, as the server decodes it ─► remember
    server   mean of what was reported ─► move ─► learn ─► ahead

Each hook is called for the algorithm's own method first, then for those under `also`, in their order.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from seedbus.algorithms.contract import Vector
from seedbus.algorithms.dense.payloads import DensePlan
from seedbus.algorithms.directions import Kind
from seedbus.algorithms.objective import Differentiable, Outputs
from seedbus.discovery import Variants
from seedbus.settings import Settings


@dataclass(slots=True)
class Local:
    """One client's round, as methods see it. All vectors are float32 [d].

    Attributes:
        fields: the vectors of the replica, by name; read-only.
        x: the client's own model.
        objective: the client's loss in this round.
        plan: the round's plan.
        steps: number of local steps, K.
        memory: the vectors that the client remembers; a name begins with its method's name.
        step: the current local step, from 0.
        update: x − start after the last step, which is reported.
        sent: the vectors that are reported beside the update, by name.
        measured: the numbers that are reported beside the update, by name.
        momentum: ρ of the local steps, which starts at 0.
    """

    fields: Mapping[str, Vector]
    x: Vector
    objective: Differentiable
    plan: DensePlan
    steps: int
    memory: dict[str, Vector]
    step: int = 0
    update: Vector = field(default_factory=lambda: np.zeros(0, np.float32))
    sent: dict[str, Vector] = field(default_factory=dict)
    measured: dict[str, float] = field(default_factory=dict)
    momentum: float = 0.0

    @property
    def start(self) -> Vector:
        """The model as the client received it, float32 [d]; read-only."""
        return self.fields["x"]

    def remembered(self, name: str) -> Vector:
        """Return a remembered vector, float32 [d], at first zeros; read-only: assign a new one to `memory` instead."""
        return self.memory[name] if name in self.memory else np.zeros_like(self.x)

    def outputs(self, at: Vector) -> Outputs:
        """Return the network's outputs on the step's mini-batch at another point [d], without an autograd graph."""
        return self.objective.outputs(self.step, at)


@dataclass(frozen=True, slots=True)
class Reported:
    """One report, as the server decoded it.

    Attributes:
        client: who reported.
        plan: the plan that it answers, with its round and its η; of an earlier round if the report is late.
        weight: ω_i.
        samples: number of training samples that the client holds.
        update: Δ_i, float32 [d]; read-only.
        sent: the other vectors that were reported, by name, float32 [d]; read-only.
        measured: the numbers that were reported, by name.
    """

    client: int
    plan: DensePlan
    weight: float
    samples: int
    update: Vector
    sent: Mapping[str, Vector]
    measured: Mapping[str, float]


@dataclass(slots=True)
class Server:
    """The server's part of a round, as methods see it. All vectors are float32 [d] and may be changed in place.

    Attributes:
        x: the model.
        update: Σ ω_i Δ_i over the reports; a late one has its weight in the commit. FedNova's `move` changes it, for
            what other methods `learn`.
        weight: Σ ω_i; 1, up to rounding, where no report is late.
        rate: Σ ω_i η_i/Σ ω_i, with the η of the plan that each report answers; η where no report is late.
        moved: the mean of Δ_i in which each report counts once, as it does in a client's memory; with a rule other than
            the mean, `update`.
        sent: the unweighted means of the other vectors that were reported, late reports included, by name.
        measured: the means of the numbers that were reported, each report with its weight ω_i, by name.
        shared: the vectors that replicas hold beside x, by name.
        state: the vectors that only the server holds; a name begins with its method's name.
        plan: the round's plan.
        reporters: number of reports, late ones included, or what their sum was divided by in its place.
        members: number of clients that the cohort was drawn from.
        reports: each report by itself, late ones last, if a method has `uses_reports`; else none.
    """

    x: Vector
    update: Vector
    weight: float
    rate: float
    moved: Vector
    sent: dict[str, Vector]
    measured: dict[str, float]
    shared: dict[str, Vector]
    state: dict[str, Vector]
    plan: DensePlan
    reporters: int
    members: int
    reports: Sequence[Reported] = ()

    def vector(self, name: str, first: float = 0.0) -> Vector:
        """Return a vector of the server's own state, float32 [d]; at first all its coordinates are `first`."""
        if name not in self.state:
            self.state[name] = np.full_like(self.x, first)
        return self.state[name]


class Method(Settings):
    """A method whose hooks change nothing: FedAvg. Subclasses override the hooks that they need."""

    defaults: ClassVar[dict[str, Any]] = {}
    """Other defaults for fields of FedAvg, as a scenario may give them, in the algorithm named after the method."""

    needs: ClassVar[dict[str, Any]] = {}
    """Fields of FedAvg that can have these values only."""

    uses_reports: ClassVar[bool] = False
    """Whether it takes `Server.reports`. No robust rule or channel comes before these, so both are refused."""

    extra_passes: ClassVar[int | None] = 0
    """Forward passes of a step beside those of its gradient; None: they depend on the network."""

    counts_steps: ClassVar[bool] = False
    """Whether what it measures counts a client's local steps, and with epochs thus its samples."""

    directions: ClassVar[Kind | None] = None
    """The law of the directions that it draws, if it draws some: their kernels are then compiled before the run."""

    name: str

    # -- the wire

    @property
    def companions(self) -> dict[str, float]:
        """Names of vectors that replicas hold and participants are sent beside x, with their initial values."""
        return {}

    @property
    def sends(self) -> tuple[str, ...]:
        """Names of vectors that a client reports beside its update; each begins with the method's name."""
        return ()

    @property
    def measures(self) -> tuple[str, ...]:
        """Names of numbers that a client reports beside its update, 4 bytes each; as in `sends`."""
        return ()

    def kept_vectors(self, clients: int) -> int:
        """Return how many vectors the server keeps for a run of so many clients, where that depends on them."""
        return 0

    # -- the client

    @property
    def uses_outputs(self) -> bool:
        """Whether it changes the loss, and so needs a classifier's outputs."""
        own = type(self)
        return own.logits is not Method.logits or own.loss is not Method.loss

    def logits(self, logits: Any, local: Local) -> Any:
        """Return the logits for the cross-entropy, a torch tensor [b, classes]."""
        return logits

    def loss(self, loss: Any, outputs: Outputs, local: Local) -> Any:
        """Return the loss to differentiate, a torch scalar."""
        return loss

    def estimate(self, local: Local) -> Vector | None:
        """Return a gradient to use instead of backpropagation's, float32 [d], or None; one method at most may."""
        return None

    @property
    def evaluations(self) -> int | None:
        """Evaluations of f that `estimate` takes in a step; None where the method has no estimate."""
        return None

    def correct(self, gradient: Vector, local: Local) -> None:
        """Add the gradient of a term that depends on x alone, in place; before clipping."""

    def direct(self, direction: Vector, local: Local) -> None:
        """Change the direction of a step in place; after clipping, weight decay and momentum."""

    def finish(self, local: Local) -> None:
        """Set what is reported (`update`, `sent`, `measured`), after the last step, and what the client remembers."""

    def remember(self, local: Local) -> None:
        """Set in `memory` what the server tracks too: `update` and `sent` are as it decodes them from the report."""

    def personal(self, local: Local) -> Vector | None:
        """Return the model that the client uses for itself, float32 [d], or None, always, for the one that all share.

        Called for instruments, on a finished run, also of a client that remembers nothing; `x` is the shared model, no
        step has been taken, and what is set in `memory` is not kept.
        """
        return None

    # -- the server

    def move(self, server: Server) -> bool:
        """Move server.x in place and return True, or return False for x ← x + η_g·update; at most one method may."""
        return False

    def learn(self, server: Server) -> None:
        """Update server.shared and server.state, after the model has moved."""

    def ahead(self, x: Vector, server: Server) -> Vector:
        """Return the model that clients are sent instead of x, float32 [d]; x itself is what is evaluated."""
        return x


METHODS = Variants("method", "name", "seedbus.algorithms.dense.methods", Method)
