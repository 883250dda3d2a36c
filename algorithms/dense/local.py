"""A client's round in the dense family: local training, with the client hooks of the algorithm's methods."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from seedbus.algorithms.contract import Replica
from seedbus.algorithms.dense.methods.method import Local, Method
from seedbus.algorithms.dense.payloads import DensePlan
from seedbus.algorithms.objective import Criterion, Differentiable, Outputs
from seedbus.discovery import check_shape
from seedbus.vector import Vector, norm


class LocalTraining(Protocol):
    """The part of an algorithm that local steps need: its methods and the settings of its optimiser."""

    @property
    def methods(self) -> Sequence[Method]: ...
    @property
    def needs_outputs(self) -> bool: ...
    @property
    def momentum(self) -> float: ...
    @property
    def weight_decay(self) -> float: ...
    @property
    def clip(self) -> float | None: ...


def train(
    algorithm: LocalTraining,
    replica: Replica,
    memory: Mapping[str, bytes] | None,
    plan: DensePlan,
    objective: Differentiable,
) -> Local:
    """Run the local steps of a round, and return the client's state after them; see `begun`."""
    local = begun(algorithm, replica, memory, plan, objective)
    steps = local.steps
    velocity = np.zeros_like(local.x) if algorithm.momentum else None
    with np.errstate(over="ignore", invalid="ignore"):  # the server refuses an update that diverged
        for local.step in range(steps):
            _step(algorithm, local, velocity)
        local.update = local.x - local.start
        for method in algorithm.methods:
            method.finish(local)
    return local


def begun(
    algorithm: LocalTraining,
    replica: Replica,
    memory: Mapping[str, bytes] | None,
    plan: DensePlan,
    objective: Differentiable,
) -> Local:
    """Return a client's state before its local steps of a round; the replica is not changed.

    Args:
        algorithm: its methods and the settings of its optimiser.
        replica: the model as the client received it, with the vectors that methods add.
        memory: what the client remembers, by name, little-endian float32; None where it remembers nothing.
        plan: the round's plan.
        objective: the client's loss in this round.
    """
    steps = plan.steps or plan.epochs * objective.steps_an_epoch
    remembered: dict[str, Vector] = {
        name: np.frombuffer(raw, "<f4").astype(np.float32) for name, raw in (memory or {}).items()
    }
    return Local(replica.fields, replica.x.copy(), objective, plan, steps, remembered, momentum=algorithm.momentum)


def _step(algorithm: LocalTraining, local: Local, velocity: Vector | None) -> None:
    gradient = _gradient(algorithm, local)
    for method in algorithm.methods:
        method.correct(gradient, local)
    if algorithm.clip is not None:
        length = norm(gradient)
        if length > algorithm.clip:
            gradient *= np.float32(algorithm.clip / length)
    if algorithm.weight_decay:
        gradient += local.x * np.float32(algorithm.weight_decay)
    if velocity is not None:
        velocity *= np.float32(algorithm.momentum)
        velocity += gradient
        np.copyto(gradient, velocity)
    for method in algorithm.methods:
        method.direct(gradient, local)
    gradient *= np.float32(local.plan.learning_rate)
    local.x -= gradient


def _gradient(algorithm: LocalTraining, local: Local) -> Vector:
    """Return the gradient at the client's own model, float32 [d]; the next call may overwrite it."""
    for method in algorithm.methods:
        estimated = method.estimate(local)
        if estimated is not None:
            check_shape(estimated, local.x.shape, f"`estimate` of the method {method.name}")
            return estimated
    np.copyto(local.objective.point, local.x)
    return local.objective.gradient(local.step, _criterion(algorithm, local) if algorithm.needs_outputs else None)


def _criterion(algorithm: LocalTraining, local: Local) -> Criterion:
    def criterion(outputs: Outputs) -> Any:
        from torch.nn.functional import cross_entropy

        logits = outputs.logits
        for method in algorithm.methods:
            logits = method.logits(logits, local)
        loss: Any = cross_entropy(logits, outputs.targets)
        for method in algorithm.methods:
            loss = method.loss(loss, outputs, local)
        return loss

    return criterion
