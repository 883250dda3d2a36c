"""What a method of the dense family is: what it adds to FedAvg, at the client, on the wire and at the server.

A method is one file of this folder: a frozen pydantic model whose fields are its hyperparameters, whose `name` is the
algorithm's name in a scenario and whose docstring gives the paper and the equations. It overrides the hooks that its
paper needs, and several methods on one algorithm (`also:`) are each other's neighbours and never look at each other.

    client   gradient of loss(logits(·)) ─► correct ─► clipping, weight decay, momentum ─► direct ─► x ← x − η·direction
             after the last step ─► finish
    server   mean of what was reported ─► move ─► learn ─► ahead

The order of hooks is that of the methods: the algorithm's own first, then those under `also`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
from pydantic import BaseModel, ConfigDict

from seedbus.algorithms.contract import Vector
from seedbus.algorithms.dense.payloads import DensePlan
from seedbus.algorithms.objective import Differentiable, Outputs


@dataclass(slots=True)
class Local:
    """One client's round, as methods see it.

    fields: the replica's, not to be written to; x: the client's own model, float32 [d]; memory: what it remembers, by
    names that begin with the method's; update: what it reports in the end, x − start; sent: what else.
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

    @property
    def start(self) -> Vector:
        """The model as the client received it, [d]; not to be written to."""
        return self.fields["x"]

    def remembered(self, name: str) -> Vector:
        """A vector that the client remembers; zeros at first. Not to be written to: put another in its place."""
        return self.memory[name] if name in self.memory else np.zeros_like(self.x)

    def outputs(self, at: Vector) -> Outputs:
        """What the network says to the step's mini-batch at another point, without a graph."""
        return self.objective.outputs(self.step, at)


@dataclass(slots=True)
class Server:
    """The server's part of a round, as methods see it. All vectors are float32 [d], and may be written to.

    x: the model; update: Σ ω_i Δ_i of those who reported; sent: the plain means of what else they reported, those who
    are late among them; shared: what replicas hold beside x; state: the server's own, by names that begin with the
    method's. reporters: how many reports there are, late ones too; members: of how many clients the cohort was drawn.
    """

    x: Vector
    update: Vector
    sent: dict[str, Vector]
    shared: dict[str, Vector]
    state: dict[str, Vector]
    plan: DensePlan
    reporters: int
    members: int

    def vector(self, name: str, first: float = 0.0) -> Vector:
        """A vector of the server's own, `first` everywhere at first."""
        if name not in self.state:
            self.state[name] = np.full_like(self.x, first)
        return self.state[name]


class Method(BaseModel):
    """What FedAvg does, hook by hook: nothing."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)
    defaults: ClassVar[dict[str, Any]] = {}
    """Of FedAvg's fields those that have another default in the algorithm that is named after the method."""

    name: str

    # -- what it adds to the wire

    @property
    def companions(self) -> dict[str, float]:
        """Vectors that every replica holds and every participant is sent beside x, with their initial values."""
        return {}

    @property
    def sends(self) -> tuple[str, ...]:
        """Vectors that a client reports beside its update, by names that begin with the method's."""
        return ()

    # -- the client

    @property
    def judges(self) -> bool:
        """Whether it changes the loss, and so needs a network's outputs."""
        kind = type(self)
        return kind.logits is not Method.logits or kind.loss is not Method.loss

    def logits(self, logits: Any, local: Local) -> Any:
        """The logits, [b, classes], that the cross-entropy is taken of."""
        return logits

    def loss(self, loss: Any, outputs: Outputs, local: Local) -> Any:
        """The loss, a torch scalar, that the gradient is taken of."""
        return loss

    def estimate(self, local: Local) -> Vector | None:
        """Another gradient than backpropagation's, [d]; of one method at most."""
        return None

    @property
    def evaluations(self) -> int | None:
        """How many losses `estimate` takes in a step, where a method has one."""
        return None

    def correct(self, gradient: Vector, local: Local) -> None:
        """Add to the gradient, in place, what a term of the loss that depends on x alone has as its gradient."""

    def direct(self, direction: Vector, local: Local) -> None:
        """Change the direction of a step, in place, after clipping, weight decay and momentum."""

    def finish(self, local: Local) -> None:
        """After the last step: what is reported (`update`, `sent`) and what is remembered (`memory`)."""

    # -- the server

    def move(self, server: Server) -> bool:
        """Move server.x, in place; false for x ← x + η_g·update. Of one method at most."""
        return False

    def learn(self, server: Server) -> None:
        """Bring server.shared and server.state up to date, once the model has moved."""

    def ahead(self, x: Vector, server: Server) -> Vector:
        """What clients are sent in the place of x, [d]; x itself is what is measured."""
        return x
