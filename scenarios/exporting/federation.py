"""A scenario as another framework's server and clients use it: vectors in, vectors out, and no message of Seedbus.

Invariant: in a round, client i makes of the same model the same one as in a run of the scenario, bit for bit.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from seedbus.agents.seeds import of_directions
from seedbus.algorithms.dense.base import FedAvg
from seedbus.models.task import Problem
from seedbus.scenarios.errors import ScenarioError
from seedbus.scenarios.running.prepare import bind
from seedbus.scenarios.schema.loading import load
from seedbus.scenarios.schema.scenario import Scenario
from seedbus.vector import Vector


class Federation:
    """A scenario of the dense family with its task, whose data is loaded when it is first needed."""

    def __init__(self, file: Path, settings: Mapping[str, Any]) -> None:
        """Read a scenario.

        Args:
            file: the scenario's file.
            settings: values of its fields, by their names with dots.

        Raises:
            ScenarioError: the scenario cannot be read, or is not of the dense family.
        """
        self.scenario: Scenario = load(file, [f"{name}={value}" for name, value in settings.items()])
        algorithm = self.scenario.algorithm
        if not isinstance(algorithm, FedAvg):
            raise ScenarioError(str(file), [f"algorithm {algorithm.facts.label} sends no models; expected a dense one"])
        self._algorithm = algorithm

    @cached_property
    def _problem(self) -> Problem:
        return bind(self.scenario)

    @property
    def rounds(self) -> int:
        return self.scenario.stop.most_rounds

    def start(self) -> Vector:
        """Return x₀, float32 [d]."""
        return self._problem.x0()

    def trained(self, client: int, round: int, x: NDArray[Any]) -> Vector:
        """Return the model after a client's local steps of a round, float32 [d]; x: what it begins with, [d]."""
        clients = self.scenario.participation.clients
        if not 0 <= client < clients:
            raise ScenarioError("participation.clients", [f"{clients}, and this is client {client}; expected more"])
        replica = self._algorithm.replica(np.ascontiguousarray(x, np.float32))
        plan = self._algorithm.plan(round, round, of_directions(self.scenario.seed, round))
        objective: Any = self._problem.objective(client, round)  # with gradients, as the scenario was checked
        return self._algorithm.trained(replica, None, plan, objective)

    def weight(self, client: int) -> int:
        """Return what a client's model counts in the mean: its samples, or with uniform weighting 1."""
        return self._problem.samples(client) if self._algorithm.weighting == "samples" else 1

    def metrics(self, rounds: int, x: NDArray[Any]) -> dict[str, float] | None:
        """Return the metrics of a model, [d], after so many rounds; None: the scenario does not evaluate then."""
        if rounds % self.scenario.evaluation.every and rounds != self.rounds:
            return None
        return self._problem.evaluate(np.ascontiguousarray(x, np.float32), self.scenario.evaluation.split)

    def save(self, path: Path, x: NDArray[Any]) -> None:
        """Write a model, [d], as named tensors in the safetensors format."""
        from safetensors.numpy import save_file

        save_file(self._problem.state_dict(np.ascontiguousarray(x, np.float32)), path)
