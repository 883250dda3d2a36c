"""A client's round in the dense family: local first-order training, with what methods add to it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from seedbus.algorithms.contract import Replica, Vector, norm
from seedbus.algorithms.dense.methods.method import Local, Method
from seedbus.algorithms.dense.payloads import DensePlan
from seedbus.algorithms.objective import Criterion, Differentiable, Outputs


class LocalTraining(Protocol):
    """What local steps need of an algorithm: its methods and the settings of its optimiser."""

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


def trained(
    algorithm: LocalTraining,
    replica: Replica,
    memory: Mapping[str, bytes] | None,
    plan: DensePlan,
    objective: Differentiable,
) -> Local:
    """K local steps from the replica, which is left as it is. Returns what became of the client's own model."""
    steps = plan.steps or plan.epochs * objective.steps_an_epoch
    known: dict[str, Vector] = {
        name: np.frombuffer(raw, "<f4").astype(np.float32) for name, raw in (memory or {}).items()
    }
    mine = Local(replica.fields, replica.x.copy(), objective, plan, steps, known)
    velocity = np.zeros_like(mine.x) if algorithm.momentum else None
    with np.errstate(over="ignore", invalid="ignore"):  # what diverges is refused by the server, with a reason
        for mine.step in range(steps):
            _step(algorithm, mine, velocity)
        mine.update = mine.x - mine.start
        for method in algorithm.methods:
            method.finish(mine)
    return mine


def _step(algorithm: LocalTraining, mine: Local, velocity: Vector | None) -> None:
    gradient = _gradient(algorithm, mine)
    for method in algorithm.methods:
        method.correct(gradient, mine)
    if algorithm.clip is not None:
        length = norm(gradient)
        if length > algorithm.clip:
            gradient *= np.float32(algorithm.clip / length)
    if algorithm.weight_decay:
        gradient += mine.x * np.float32(algorithm.weight_decay)
    if velocity is not None:
        velocity *= np.float32(algorithm.momentum)
        velocity += gradient
        np.copyto(gradient, velocity)
    for method in algorithm.methods:
        method.direct(gradient, mine)
    gradient *= np.float32(mine.plan.learning_rate)
    mine.x -= gradient


def _gradient(algorithm: LocalTraining, mine: Local) -> Vector:
    """At the client's own model; the next call may overwrite it."""
    for method in algorithm.methods:
        estimated = method.estimate(mine)
        if estimated is not None:
            return estimated
    np.copyto(mine.objective.point, mine.x)
    return mine.objective.gradient(mine.step, _criterion(algorithm, mine) if algorithm.needs_outputs else None)


def _criterion(algorithm: LocalTraining, mine: Local) -> Criterion:
    def judge(outputs: Outputs) -> Any:
        from torch.nn.functional import cross_entropy

        logits = outputs.logits
        for method in algorithm.methods:
            logits = method.logits(logits, mine)
        loss: Any = cross_entropy(logits, outputs.labels)
        for method in algorithm.methods:
            loss = method.loss(loss, outputs, mine)
        return loss

    return judge
